"""The orders of GCom's tables 1 to 5 (its appendix B), with each of its two multicasts: a debugger
holds what comes in at one member and releases it in reverse order."""

import pytest

from antiphon.peers.layers.causal import Causal
from antiphon.peers.layers.debugging import Hold
from antiphon.peers.layers.fifo import Fifo
from antiphon.peers.layers.in_view import InView
from antiphon.peers.layers.layer import Layer
from antiphon.peers.layers.relay import Relay
from antiphon.peers.layers.total import Total
from antiphon.peers.stack.stack import Stack
from tests.peers.support.group import Group
from tests.peers.support.scripted import Scripted

both_multicasts = pytest.mark.parametrize("multicast", [(), (Relay(),)], ids=["basic", "reliable"])
Multicast = tuple[Layer, ...]
BY_ALL = (("p1", "one"), ("p2", "2"), ("p1", "three"), ("p2", "4"), ("p3", "V"))


def group_of(multicast: Multicast, *ordering: Layer) -> Group:
    stack = Stack(Hold(), Scripted(), InView(), *multicast, *ordering)
    group = Group(stack, "p1", "p2", "p3")
    group.install("p1", "p2", "p3")
    return group


def play(group: Group, holds: str, *sent: tuple[str, str]) -> None:
    """Have these sent, one after the other, and what comes to `holds` released in reverse."""
    group.layer(holds, Hold).hold()
    for sender, text in sent:
        group.send(sender, text)
        group.run()
    group.layer(holds, Hold).reverse()
    group.act(holds, Hold, Hold.unhold)
    group.run()


@both_multicasts
def test_no_order(multicast: Multicast) -> None:
    group = group_of(multicast)
    play(group, "p3", *BY_ALL)
    assert group.got("p3") == ["V", "4", "three", "2", "one"]


@both_multicasts
def test_table_1_fifo(multicast: Multicast) -> None:
    group = group_of(multicast, Fifo())
    play(group, "p3", *BY_ALL[:4])
    assert group.got("p1") == group.got("p2") == ["one", "2", "three", "4"]
    assert group.got("p3") == ["2", "4", "one", "three"]


@both_multicasts
def test_table_2_causal(multicast: Multicast) -> None:
    group = group_of(multicast, Causal())
    play(group, "p3", *BY_ALL)
    assert group.got("p1") == group.got("p2") == ["one", "2", "three", "4", "V"]
    assert group.got("p3") == ["V", "one", "2", "three", "4"]


@both_multicasts
@pytest.mark.parametrize("plain", [True, False])
def test_table_3_total(multicast: Multicast, plain: bool) -> None:
    group = group_of(multicast, Fifo(), Total(plain))
    play(group, "p3", *BY_ALL)
    for name in ("p1", "p2", "p3"):
        assert group.got(name) == ["one", "2", "three", "4", "V"]


@both_multicasts
def test_table_4_total_as_it_comes_to_the_sequencer(multicast: Multicast) -> None:
    group = group_of(multicast, Fifo(), Total(plain=True))
    group.install("p3", "p1", "p2")
    play(group, "p3", ("p1", "one"), ("p1", "two"))
    for name in ("p1", "p2", "p3"):
        assert group.got(name) == ["two", "one"]


@both_multicasts
def test_table_5_causal_total(multicast: Multicast) -> None:
    group = group_of(multicast, Fifo(), Total())
    group.install("p3", "p1", "p2")
    play(group, "p3", ("p1", "one"), ("p1", "two"))
    for name in ("p1", "p2", "p3"):
        assert group.got(name) == ["one", "two"]
