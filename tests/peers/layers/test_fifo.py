"""Sender order."""

import pytest

from antiphon.model.peer_views import Level
from antiphon.peers.layers import fifo
from antiphon.peers.layers.debugging import Duplicate, Hold, Shuffle
from antiphon.peers.layers.fifo import Fifo
from antiphon.peers.layers.in_view import InView
from antiphon.peers.stack.stack import Stack
from tests.peers.support.group import Group
from tests.peers.support.scripted import Scripted

STACK = Stack(Hold(), Scripted(), InView(), Fifo())


def test_the_order_survives_a_network_that_has_none() -> None:
    stack = Stack(Duplicate(0.3), Shuffle(), Scripted(), InView(), Fifo())
    group = Group(stack, "a", "b", "c", seed=7)
    group.install("a", "b", "c")
    for number in range(50):
        group.send("a", f"a{number}")
        group.send("b", f"b{number}")
    group.advance(100)
    for name in ("a", "b", "c"):
        for sender in ("a", "b"):
            got = [text for text in group.got(name) if text[0] == sender]
            assert got == [f"{sender}{number}" for number in range(50)]


def test_what_goes_to_one_member_has_an_order_of_its_own() -> None:
    group = Group(STACK, "a", "b", "c")
    group.install("a", "b", "c")
    group.layer("b", Hold).hold()
    group.send("a", "to all")
    group.send("a", "1", "2", to=["b", "c"])
    group.run()
    group.layer("b", Hold).reverse()
    group.act("b", Hold, Hold.release)
    assert group.got("b") == ["1", "2", "to all"]
    assert group.got("c") == ["to all", "1", "2"]


def test_numbers_begin_again_with_each_view() -> None:
    group = Group(STACK, "a", "b", "c")
    group.install("a", "b")
    group.send("a", "lost", "waits in vain")
    group.links["a", "b"].popleft()
    group.run()
    assert group.got("b") == []
    group.install("a", "b", "c")
    group.send("a", "new")
    group.run()
    assert group.got("b") == group.got("c") == ["new"]


def test_a_level_below_passes_by() -> None:
    group = Group(STACK, "a", "b")
    group.install("a", "b")
    group.send("a", "lost")
    group.lose("a", "b")
    group.send("a", "ordered")
    group.send("a", "not ordered", level=Level.NONE)
    group.run()
    assert group.got("b") == ["not ordered"]
    assert dict(group.running["b"].status())["fifo"] == {"waiting": {"a": 1}}


def test_frames_that_wait_are_bounded_and_the_next_one_is_always_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fifo, "WAITING_MAX", 2)
    group = Group(STACK, "a", "b")
    group.install("a", "b")
    group.layer("b", Hold).hold()
    group.send("a", "1", "2", "3", "4")
    group.run()
    group.layer("b", Hold).reverse()
    group.act("b", Hold, Hold.release)
    assert group.got("b") == ["1"]
