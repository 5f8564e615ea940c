"""The orders of GCom's tables 1 to 5 (its appendix B), with each multicast: a debugger between the
communications and the ordering module of one member holds what comes in, and releases it in reverse
order; and the same orders when what is held is released in any order."""

from itertools import pairwise
from random import Random

import pytest

from antiphon.peers.layers.debugging import Hold
from antiphon.peers.layers.in_view import InView
from antiphon.peers.layers.layer import Layer
from antiphon.peers.layers.relay import Relay
from antiphon.peers.stack.stack import Stack
from antiphon.toolkits.gcom.settings import Multicast, Ordering
from antiphon.toolkits.gcom.stack import communications, order
from tests.peers.support.group import Group
from tests.peers.support.scripted import Scripted

MULTICASTS: dict[str, tuple[Layer, ...]] = {
    "basic": communications(Multicast.BASIC),
    "reliable": communications(Multicast.RELIABLE),
    "passed on": (InView(), Relay()),  # as GCom's own reliable multicast
}
each_multicast = pytest.mark.parametrize("multicast", MULTICASTS)
NAMES = ("p1", "p2", "p3")
BY_ALL = (("p1", "one"), ("p2", "2"), ("p1", "three"), ("p2", "4"), ("p3", "V"))


def group_of(multicast: str, ordering: Ordering, seed: int = 0) -> Group:
    """Return three members in one view; the highest name leads it."""
    stack = Stack(*MULTICASTS[multicast], Scripted(), Hold(), *order(ordering))
    group = Group(stack, *NAMES, seed=seed)
    group.install(*NAMES, leader="p3")
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


@each_multicast
def test_no_order(multicast: str) -> None:
    group = group_of(multicast, Ordering.NONE)
    play(group, "p3", *BY_ALL)
    assert group.got("p3") == ["V", "4", "three", "2", "one"]


@each_multicast
def test_table_1_fifo(multicast: str) -> None:
    group = group_of(multicast, Ordering.FIFO)
    play(group, "p3", *BY_ALL[:4])
    assert group.got("p1") == group.got("p2") == ["one", "2", "three", "4"]
    assert group.got("p3") == ["2", "4", "one", "three"]


@each_multicast
def test_table_2_causal(multicast: str) -> None:
    group = group_of(multicast, Ordering.CAUSAL)
    play(group, "p3", *BY_ALL)
    assert group.got("p1") == group.got("p2") == ["one", "2", "three", "4", "V"]
    assert group.got("p3") == ["V", "one", "2", "three", "4"]


@each_multicast
@pytest.mark.parametrize("ordering", [Ordering.TOTAL, Ordering.CAUSAL_TOTAL])
def test_table_3_total(multicast: str, ordering: Ordering) -> None:
    """The one who holds is not the sequencer."""
    group = group_of(multicast, ordering)
    group.install(*NAMES, leader="p1")
    play(group, "p3", *BY_ALL)
    for name in NAMES:
        assert group.got(name) == ["one", "2", "three", "4", "V"]


@each_multicast
def test_table_4_total_as_it_comes_to_the_sequencer(multicast: str) -> None:
    group = group_of(multicast, Ordering.TOTAL)
    play(group, "p3", ("p1", "one"), ("p1", "two"))
    for name in NAMES:
        assert group.got(name) == ["two", "one"]


@each_multicast
def test_table_5_causal_total(multicast: str) -> None:
    group = group_of(multicast, Ordering.CAUSAL_TOTAL)
    play(group, "p3", ("p1", "one"), ("p1", "two"))
    for name in NAMES:
        assert group.got(name) == ["one", "two"]


# -- Released in any order -----------------------------------------------------------------------


def play_at_random(group: Group, random: Random) -> dict[str, list[tuple[str, int]]]:
    """Have members send what is numbered, while others hold what comes to them and release it one
    at a time; return, by sender and number, what each had been given when it sent that."""
    knew: dict[str, list[tuple[str, int]]] = {}
    for number in range(60):
        name, holds = random.choice(NAMES), random.choice(NAMES)
        knew[str(number)] = [(body, 0) for body in group.got(name)]
        group.send(name, str(number))
        hold = group.layer(holds, Hold)
        if random.random() < 0.3:
            hold.hold()
        group.run()
        if hold.held:
            at = random.randrange(len(hold.held))
            group.act(holds, Hold, lambda layer, at=at: layer.release(at))
    for name in NAMES * 2:  # what the leader had held comes to the others once it is released
        group.layer(name, Hold).shuffle()
        group.act(name, Hold, Hold.unhold)
        group.run()
    return knew
