"""Phoenix among real processes: killed, paused, and cut off from the primary partition."""

from pathlib import Path
from typing import Any

import pytest

from tests.process.support.parted import join_in_turn, parted, processes_of, story
from tests.process.support.peer_processes import Peer

pytestmark = pytest.mark.process


def is_back(peer: Peer) -> Any:
    """Return the first view of the majority that one sees who was cut off from it."""
    return peer.views[[view["view"] for view in peer.views].index(list("abcde")) + 1]


def test_a_member_is_killed_while_all_send(tmp_path: Path) -> None:
    with processes_of("phoenix", tmp_path) as peers:
        a, b, c, sink, client = [peers.join(name) for name in ("a", "b", "c", "sink", "client")]
        join_in_turn(a, b, c)
        sink.ask(subscribe="sink", group="g")
        client.ask(subscribe="client", group="g")
        for peer in (sink, client):
            peer.wait_view("a", "b", "c")
        bodies = [f"client{i}" for i in range(500)]
        client.order(multicast=bodies, order="STRONG_TOTAL", group="g")
        c.order(multicast=[f"c{i}" for i in range(5000)], order="WEAK_TOTAL")
        a.wait(lambda events: sum("got" in event for event in events) > 50, "50 messages")
        c.kill()
        for peer in (a, b, sink):
            peer.wait_view("a", "b")
            peer.wait_bodies(set(bodies))
        client.wait_view("a", "b")
        since = [story(peer)[story(peer).index("[a b c]") :] for peer in (a, b)]
        assert since[0] == since[1]
        assert story(sink) == [line for line in since[0] if line != "<a b>"]
        assert story(client) == ["[a b c]", "[a b]"]


@pytest.mark.in_turn
def test_who_is_cut_off_waits_with_intermediate_views_until_it_is_back(tmp_path: Path) -> None:
    with parted(tmp_path, "phoenix", "abcde") as cluster:
        a, b, c, d, e = (cluster.peers[name] for name in "abcde")
        join_in_turn(a, b, c, d, e)
        cluster.part("de")
        for peer in (a, b, c):
            peer.wait_view("a", "b", "c", primary=True)
        for peer in (d, e):
            peer.wait(lambda events, peer=peer: story(peer)[-1] == "<d e>", "who is left")
        assert d.ask(multicast=["late"], order="FIFO", timeout=1.0) == 1
        a.ask(multicast=["meanwhile"], order="UNIFORM")
        for peer in (b, c):
            peer.wait_bodies({"meanwhile"})
        cluster.heal()
        for peer in (a, b, c, d, e):
            peer.wait_view("a", "b", "c", "d", "e", primary=True)
            peer.wait_bodies({"late"})  # which waited until d was back
            assert all(view["primary"] for view in peer.views)
        for peer in (d, e):
            told = story(peer)[story(peer).index("<d e>") + 1 :]
            assert "meanwhile" not in told
            assert told[-1] == "late"  # and between the two nothing but views
            assert all(line[0] in "[<" for line in told[:-1])
            assert is_back(peer)["together"] in (["d"], ["e"], ["d", "e"])


@pytest.mark.in_turn
def test_who_stood_still_is_told_that_it_has_missed_something(tmp_path: Path) -> None:
    with processes_of("phoenix", tmp_path) as peers:
        a, b, c = [peers.join(name) for name in "abc"]
        join_in_turn(a, b, c)
        c.pause()
        for peer in (a, b):
            peer.wait_view("a", "b")
        a.ask(multicast=["missed"], order="GLOBAL")
        b.wait_bodies({"missed"})
        c.resume()
        for peer in (a, b):
            peer.wait_view("a", "b", "c")
        c.wait(lambda events: events[-1].get("together") == ["c"], "a view of its own history")
        assert "missed" not in c.bodies
