"""Frames stay in their view, also when views begin and end at different times."""

import pytest

from antiphon.peers.layers import in_view
from antiphon.peers.layers.in_view import InView
from antiphon.peers.stack.stack import Stack
from tests.peers.support.group import Group
from tests.peers.support.scripted import Scripted

STACK = Stack(Scripted(), InView())


def test_a_frame_of_a_view_that_is_over_is_dropped() -> None:
    group = Group(STACK, "a", "b")
    group.install("a", "b")
    group.send("a", "late")
    group.install("a", "b")
    group.run()
    assert group.got("b") == []


def test_a_frame_that_comes_before_its_view_waits_for_it() -> None:
    group = Group(STACK, "a", "b", "c")
    group.install("a", "b", "c")
    group.freeze("a", "b", "c")
    group.install("a", "b", now=["a"])
    group.send("a", "early")
    group.move("a", "b")
    assert group.history("b") == ["[a b c]"]
    group.show("b")
    assert group.history("b") == ["[a b c]", "[a b]", "early"]


def test_a_frame_that_comes_during_a_change_is_handed_up_at_its_end() -> None:
    group = Group(STACK, "a", "b")
    group.install("a", "b")
    group.send("a", "hello")
    group.freeze("b")
    group.move("a", "b")
    assert group.got("b") == []
    group.install("a", "b")
    assert group.history("b") == ["[a b]", "hello", "[a b]"]


def test_frames_that_come_too_early_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_view, "EARLY_MAX", 2)
    group = Group(STACK, "a", "b")
    group.install("a", "b", now=["a"])
    group.send("a", "1", "2", "3")
    group.run()
    group.show("b")
    assert group.got("b") == ["1", "2"]
