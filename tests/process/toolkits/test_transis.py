"""Transis among real processes: killed, paused, cut off and joined again."""

from pathlib import Path
from typing import Any

import pytest

from tests.process.support.parted import Parted, join_in_turn, parted, processes_of, story
from tests.process.support.peer_processes import Peer

pytestmark = pytest.mark.process


def send(peer: Peer, *bodies: str, service: str = "agreed") -> None:
    assert peer.ask(send=list(bodies), to=["g"], service=service) == len(bodies)


def test_one_is_killed_while_all_send_and_the_others_have_the_same(tmp_path: Path) -> None:
    with processes_of("transis", tmp_path) as peers:
        a, b, c = [peers.join(name) for name in "abc"]
        join_in_turn(a, b, c)
        bodies = {one.name: [f"{one.name}{i}" for i in range(500)] for one in (a, b)}
        for one in (a, b):
            one.order(send=bodies[one.name], to=["g"], service="safe")
        c.order(send=[f"c{i}" for i in range(5000)], to=["g"], service="safe")
        a.wait(lambda events: sum("got" in event for event in events) > 50, "50 messages")
        c.kill()
        for one in (a, b):
            one.wait_view("a", "b")
            one.wait_bodies({body for each in bodies.values() for body in each})
        assert story(a)[story(a).index("[a b c]") :] == story(b)[story(b).index("[a b c]") :]
        assert story(a).count("<a b>") == 2  # at the end of [a b], and of [a b c]


@pytest.mark.in_turn
def test_a_partition_goes_on_on_both_sides_and_merges_visibly(tmp_path: Path) -> None:
    with parted(tmp_path, "transis", "abcde") as cluster:
        a, b, c, d, e = (cluster.peers[name] for name in "abcde")
        join_in_turn(a, b, c, d, e)
        send(a, "all", service="safe")
        for peer in (a, b, c, d, e):
            peer.wait_bodies({"all"})
        cluster.part("de")
        for peer in (a, b, c):
            peer.wait_view("a", "b", "c", primary=True)
        for peer in (d, e):
            peer.wait_view("d", "e", primary=False)
        for service in ("fifo", "causal", "agreed", "safe"):
            send(a, f"{service} left", service=service)
            send(d, f"{service} right", service=service)
        for peer in (b, c):
            peer.wait_bodies({"safe left"})
        e.wait_bodies({"safe right"})
        cluster.heal()
        for peer in (a, b, c, d, e):
            peer.wait_view("a", "b", "c", "d", "e", primary=True)
        send(e, "whole again")
        for peer in (a, b, c, d, e):
            peer.wait_bodies({"whole again"})
        check_sides(cluster)


def check_sides(cluster: Parted) -> None:
    services = ("fifo", "causal", "agreed", "safe")
    for side, word in (("abc", "left"), ("de", "right")):
        members = " ".join(side)
        tail = [f"<{members}>", f"[{members}]", *(f"{service} {word}" for service in services)]
        for name in side:
            told = story(cluster.peers[name])
            told = told[told.index("all") + 1 :]
            assert told[: len(tail)] == tail
            assert told[-2:] == ["[a b c d e]", "whole again"]
            assert all(line[0] in "[<" for line in told[len(tail) : -1])  # nothing of the others
            views = cluster.peers[name].views
            own = [view["view"] for view in views].index(list(side))
            assert set(views[own + 1]["together"]) <= set(side)


def together(peer: Peer) -> Any:
    return sorted(peer.views[-1]["together"])


@pytest.mark.in_turn
def test_who_stood_still_comes_back_with_a_history_of_its_own(tmp_path: Path) -> None:
    with processes_of("transis", tmp_path) as peers:
        a, b, c = [peers.join(name) for name in "abc"]
        join_in_turn(a, b, c)
        c.pause()
        for peer in (a, b):
            peer.wait_view("a", "b")
        send(a, "missed")
        b.wait_bodies({"missed"})
        c.resume()
        for peer in (a, b, c):
            peer.wait_view("a", "b", "c")
        assert together(c) == ["c"]
        assert together(a) == ["a", "b"]
        assert story(c)[-4:] == ["<c>", "[c]", "<c>", "[a b c]"]
        assert "missed" not in c.bodies
