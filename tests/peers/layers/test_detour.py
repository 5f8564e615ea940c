"""Frames for a process without a connection travel through one that hears both."""

from itertools import permutations

from antiphon.model.peer_views import Level
from antiphon.peers.layers.detour import Detour
from antiphon.peers.layers.reliable import Reliable
from antiphon.peers.stack.running import Delivered
from antiphon.peers.stack.stack import Stack
from tests.peers.support.changes import change
from tests.peers.support.group import Group
from tests.peers.support.scripted import Scripted

STACK = Stack(Detour(), Reliable(), Scripted())


def unlink(g: Group, one: str, other: str) -> None:
    """Cut two processes off from each other, and tell them."""
    for sender, receiver in ((one, other), (other, one)):
        g.cut.add((sender, receiver))
        g.lose(sender, receiver)
        g.running[sender].unlinked(g.ids[receiver], False, g.now_ms)
        g.collect(sender)


def group(names: str = "abcd") -> Group:
    g = Group(STACK, *names)
    for one, other in permutations(names, 2):
        g.running[one].linked(g.ids[other], other, 0)
        g.collect(one)
    g.run()
    change(g, *names)
    return g


def test_with_all_connections_nothing_takes_a_detour() -> None:
    g = group("abc")
    g.send("a", "a1", level=Level.FIFO)
    assert {link for link, frames in g.links.items() if frames} == {("a", "b"), ("a", "c")}


def test_frames_go_through_a_process_that_hears_both_and_keep_their_sender() -> None:
    g = group("abc")
    unlink(g, "a", "b")
    g.run()
    g.send("a", "a1", "a2", level=Level.FIFO)
    g.send("b", "b1", to=["a"], level=Level.FIFO)
    g.run()
    assert g.got("b") == ["a1", "a2"]
    assert g.got("a") == ["a1", "a2", "b1"]
    senders = [output.sender for output in g.told["b"] if isinstance(output, Delivered)]
    assert senders == [g.ids["a"], g.ids["a"]]
    assert g.layer("a", Detour).status() == {"detours": {"b": "c"}}
    assert g.now_ms == 0


def test_one_frame_goes_to_the_one_between_for_all_that_it_hears() -> None:
    g = group()
    unlink(g, "a", "c")
    unlink(g, "a", "d")
    g.run()
    g.send("a", "a1", level=Level.FIFO)
    assert len(g.links["a", "b"]) == 2
    g.run()
    assert g.got("c") == g.got("d") == ["a1"]


def test_another_one_is_taken_when_that_one_is_gone() -> None:
    g = group()
    unlink(g, "a", "d")
    g.run()
    unlink(g, "b", "d")
    g.run()
    assert g.layer("a", Detour).status() == {"detours": {"d": "c"}}
    g.send("a", "a1", level=Level.FIFO)
    g.advance(300)
    assert g.got("d") == ["a1"]


def test_a_frozen_process_passes_on_what_is_for_others() -> None:
    g = group("abc")
    unlink(g, "a", "b")
    g.run()
    g.freeze("c")
    g.send("a", "a1", level=Level.FIFO)
    g.run()
    assert g.got("b") == ["a1"]


def test_without_a_detour_a_frame_goes_nowhere() -> None:
    g = group("abc")
    for other in "bc":
        unlink(g, "a", other)
    g.run()
    g.send("a", "a1", level=Level.FIFO)
    g.advance(300)
    assert g.got("b") == []
    assert g.layer("a", Detour).status() == {"detours": {}}
