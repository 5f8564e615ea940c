"""The layers for debugging do what they are told, and keep frames in their view."""

import pytest

from antiphon.peers.layers.debugging import Delay, Drop, Duplicate, Hold, Shuffle, Tap
from antiphon.peers.layers.in_view import InView
from antiphon.peers.layers.layer import Layer
from antiphon.peers.stack.stack import Stack
from tests.peers.support.group import Group
from tests.peers.support.scripted import Scripted

TEXTS = [str(number) for number in range(200)]


def group_of(*layers: Layer, seed: int = 1) -> Group:
    group = Group(Stack(*layers), "a", "b", seed=seed)
    group.install("a", "b")
    return group


def test_a_tap_sees_what_passes_and_keeps_the_last() -> None:
    group = group_of(Scripted(), Tap(3))
    group.send("a", "1", "2", "3", "4")
    group.run()
    assert group.got("b") == ["1", "2", "3", "4"]
    tap = group.layer("b", Tap)
    assert [(bytes(p.frame.body), p.sender) for p in tap.passed] == [
        (text, group.ids["a"]) for text in (b"2", b"3", b"4")
    ]
    assert dict(group.running["a"].status())["tap"] == {"down": 4, "up": 4}


def test_hold_keeps_what_it_is_told_to_and_releases_one_by_one() -> None:
    group = group_of(Hold(), Scripted())
    hold = group.layer("b", Hold)
    hold.hold(lambda frame, sender: frame.body != b"2")
    group.send("a", "1", "2", "3", "4")
    group.run()
    assert group.got("b") == ["2"]
    assert [bytes(up.frame.body) for up in hold.held] == [b"1", b"3", b"4"]
    group.act("b", Hold, lambda hold: hold.release(1))
    assert group.got("b") == ["2", "3"]
    group.act("b", Hold, Hold.unhold)
    group.send("a", "5")
    group.run()
    assert group.got("b") == ["2", "3", "1", "4", "5"]


def test_hold_shuffles_by_its_seed() -> None:
    orders = set()
    for seed in (1, 1, 2):
        group = group_of(Hold(), Scripted(), seed=seed)
        group.layer("b", Hold).hold()
        group.send("a", *TEXTS)
        group.run()
        group.layer("b", Hold).shuffle()
        group.act("b", Hold, Hold.release)
        assert sorted(group.got("b")) == sorted(TEXTS)
        orders.add(tuple(group.got("b")))
    assert len(orders) == 2


@pytest.mark.parametrize("layer", [Hold(), Shuffle(), Delay(50)], ids=lambda layer: layer.name)
def test_above_the_view_frames_stay_in_it(layer: Layer) -> None:
    group = group_of(Scripted(), InView(), layer)
    if isinstance(layer, Hold):
        group.layer("b", Hold).hold()
    group.send("a", "1", "2", "3")
    group.move("a", "b")
    group.freeze("a", "b")
    if isinstance(layer, Hold):
        group.act("b", Hold, Hold.release)
    group.now_ms += 1000
    group.run()
    assert group.got("b") == []
    group.install("a", "b")
    first, *bodies, last = group.history("b")
    assert (first, sorted(bodies), last) == ("[a b]", ["1", "2", "3"], "[a b]")


def test_shuffle_hands_all_up_in_another_order() -> None:
    group = group_of(Shuffle(8), Scripted())
    group.send("a", *TEXTS)
    group.run()
    assert len(group.got("b")) == len(TEXTS) - 8
    group.advance(100)
    assert group.got("b") != TEXTS
    assert sorted(group.got("b")) == sorted(TEXTS)


def test_delay_keeps_the_order_of_a_sender_and_its_bound() -> None:
    group = group_of(Delay(50), Scripted())
    group.send("a", *TEXTS)
    group.send("b", "own")
    group.run()
    assert len(group.got("b")) < len(TEXTS)
    group.advance(51)
    assert [text for text in group.got("b") if text != "own"] == TEXTS
    assert "own" in group.got("b")


def test_drop_loses_its_share() -> None:
    group = group_of(Drop(0.3), Scripted())
    group.send("a", *TEXTS)
    group.run()
    assert 0.2 * len(TEXTS) < len(TEXTS) - len(group.got("b")) < 0.4 * len(TEXTS)
    assert group.got("b") == [text for text in TEXTS if text in set(group.got("b"))]
    group.layer("b", Drop).share = 0
    before = len(group.got("b"))
    group.send("a", *TEXTS)
    group.run()
    assert len(group.got("b")) == before + len(TEXTS)


def test_duplicate_hands_some_up_twice() -> None:
    group = group_of(Duplicate(0.3), Scripted())
    group.send("a", *TEXTS)
    group.run()
    assert sorted(set(group.got("b"))) == sorted(TEXTS)
    assert 1.2 * len(TEXTS) < len(group.got("b")) < 1.4 * len(TEXTS)


def test_processes_with_and_without_them_can_talk() -> None:
    plain = Stack(InView())
    assert Stack(Tap(), Hold(), Drop(0.5), InView()).digest == plain.digest
    assert Stack(Scripted(), InView()).digest != plain.digest
