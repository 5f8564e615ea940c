"""What becomes of a cluster of real processes that join, leave, die, stop and come back."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.process.support.peer_processes import Peers, peers_in

pytestmark = pytest.mark.process

NAMES = ("a", "b", "c")


@pytest.fixture
def peers(tmp_path: Path) -> Iterator[Peers]:
    with peers_in(tmp_path) as peers:
        yield peers


# -- Beginning ------------------------------------------------------------------------------------


def test_the_first_one_founds_at_once_and_others_join_it(peers: Peers) -> None:
    a = peers.join("a")
    assert a.said("connected")["seconds"] < 2.0  # it waits for nobody
    assert a.wait_view("a")["primary"]
    b = peers.join("b")
    assert sorted(b.said("connected")["connected"]) == ["a", "b"]
    for peer in (a, b):
        peer.wait_view("a", "b", primary=True)
    a.send("1", "2")
    b.send("3")
    for peer in (a, b):
        peer.wait_bodies({"1", "2", "3"})
    assert a.bodies == b.bodies


@pytest.mark.parametrize("count", [2, 8])
def test_all_that_start_at_once_are_one_group(peers: Peers, count: int) -> None:
    names = [f"m{i}" for i in range(count)]
    group = peers.at_once(*names)
    for peer in group:
        peer.wait_view(*names, primary=True)
    founded = [view for peer in group for view in peer.views if view["view"] == [peer.name]]
    assert len(founded) <= 1  # at most one of them has ever seen a primary view of its own
    for peer in group:
        assert peer.said("connected")["seconds"] < 2.0
        assert all(view["primary"] for view in peer.views)


# -- Leaving and dying ----------------------------------------------------------------------------


def test_one_that_is_killed_is_gone_at_once_and_nothing_is_lost(peers: Peers) -> None:
    a, b, c = peers.group(*NAMES)
    c.send("before")
    b.wait_bodies({"before"})
    c.kill()
    view = a.wait_view("a", "b", primary=True)
    assert (view["left"], sorted(view["together"])) == (["c"], ["a", "b"])
    b.wait_view("a", "b", primary=True)
    a.send("after")
    for peer in (a, b):
        peer.wait_bodies({"after"})
    assert a.bodies == b.bodies == ["before", "after"]


def test_the_leader_is_killed_while_others_send(peers: Peers) -> None:
    a, b, c = peers.group(*NAMES)
    leader = next(peer for peer in (a, b, c) if peer.name == a.views[-1]["leader"])
    rest = [peer for peer in (a, b, c) if peer is not leader]
    bodies = {peer.name: [f"{peer.name}{i}" for i in range(2000)] for peer in rest}
    for peer in rest:
        peer.order(send=bodies[peer.name])
    rest[0].wait(lambda events: sum("got" in event for event in events) > 100, "100 messages")
    leader.kill()
    sent = {body for each in bodies.values() for body in each}
    for peer in rest:
        peer.wait_bodies(sent)
    assert rest[0].bodies == rest[1].bodies
    for peer in rest:
        assert [body for body in rest[0].bodies if body in set(bodies[peer.name])] == bodies[
            peer.name
        ]


def test_one_that_leaves_is_missed_at_once_and_its_messages_arrive(peers: Peers) -> None:
    a, b, c = peers.group(*NAMES)
    bodies = [f"{i}" for i in range(1000)]
    c.send(*bodies)
    assert c.ask(close=True) is True
    for peer in (a, b):
        peer.wait_view("a", "b", primary=True)
        assert peer.bodies == bodies
    assert c.process.wait(10) == 0


def test_members_leave_down_to_the_last_one_and_the_next_one_founds(peers: Peers) -> None:
    a, b, c = peers.group(*NAMES)
    for peer in (c, b):
        assert peer.ask(close=True) is True
    assert a.wait_view("a")["primary"]
    assert a.ask(close=True) is True
    d = peers.join("d")
    assert d.wait_view("d")["primary"]


def test_without_most_of_them_the_rest_is_not_primary(peers: Peers) -> None:
    a, b, c = peers.group(*NAMES)
    b.pause()
    c.pause()
    a.wait_view("a", primary=False)
    b.resume()
    c.resume()
    for peer in (a, b, c):
        peer.wait_view(*NAMES, primary=True)


def test_when_all_are_killed_the_next_one_founds(peers: Peers) -> None:
    for peer in peers.group(*NAMES):
        peer.kill()
    a = peers.join("a")
    assert a.said("connected")["seconds"] < 2.0
    assert a.wait_view("a")["primary"]


# -- Stopping -------------------------------------------------------------------------------------


def test_a_short_pause_changes_nothing(peers: Peers) -> None:
    a, b, c = sorted(peers.group(*NAMES), key=lambda peer: peer.name != peer.views[-1]["leader"])
    c.pause()  # not the leader: nobody even waits
    a.order(send=["1", "2", "3"])
    b.wait_bodies({"1", "2", "3"})
    c.resume()
    for peer in (a, b, c):
        peer.wait_bodies({"1", "2", "3"})
        assert len([view for view in peer.views if len(view["view"]) == 3]) == 1
        assert peer.views[-1]["view"] == a.views[-1]["view"]


def test_a_long_pause_costs_the_place_and_the_messages_of_that_time(peers: Peers) -> None:
    a, b, c = peers.group(*NAMES)
    c.pause()
    a.wait_view("a", "b", primary=True)
    a.send("missed")
    b.wait_bodies({"missed"})
    c.resume()
    for peer in (a, b, c):
        peer.wait_view(*NAMES, primary=True)
    b.send("both")
    c.wait_bodies({"both"})
    assert c.bodies == ["both"]
    # Between the two views with all it was alone, and knows it: what came meanwhile is missing.
    (alone,) = [view for view in c.views if view["view"] == ["c"] and not view["primary"]]
    assert sorted(alone["left"]) == ["a", "b"]
    assert c.views[-1]["together"] == ["c"]


# -- Coming back ----------------------------------------------------------------------------------


def test_one_that_is_started_again_takes_its_place_at_once(peers: Peers) -> None:
    a, b, c = peers.group(*NAMES)
    b.kill()
    again = peers.join("b")
    assert again.said("connected")["seconds"] < 2.0
    for peer in (a, again, c):
        peer.wait_view(*NAMES, primary=True)
    # Nobody ever saw two of that name.
    assert all(len(set(view["view"])) == len(view["view"]) for view in a.views)
    b_left, b_joined = (
        [i for i, view in enumerate(a.views) if "b" in view[key]][-1] for key in ("left", "joined")
    )
    assert b_left <= b_joined


def test_the_name_of_one_that_stands_still_can_be_taken_and_it_ends_when_it_is_back(
    peers: Peers,
) -> None:
    a, b, c = peers.group(*NAMES)
    c.pause()
    another = peers.join("c")  # once the others suspect the one that stands still
    for peer in (a, b, another):
        peer.wait_view(*NAMES, primary=True)
    c.resume()
    lost = c.said("lost")["lost"]
    assert (lost["error"], lost["happened"]) == ("IllegalStateError", "unknown")
    assert "the name 'c' belongs to a live member" in lost["text"]
    another.send("still here")
    for peer in (a, b):
        peer.wait_bodies({"still here"})
        assert all(len(set(view["view"])) == len(view["view"]) for view in peer.views)
    assert sorted(a.views[-1]["view"]) == sorted(NAMES)


def test_the_name_of_a_live_member_is_refused(peers: Peers) -> None:
    peers.group(*NAMES)
    refused = peers.begin("a", timeout=3).said("connected")
    assert (refused["error"], refused["happened"]) == ("ConfigurationError", "no")
    assert "the name 'a' belongs to a live member of the cluster" in refused["text"]
