"""The orders of GCom's tables 1 to 5 (its appendix B), with each multicast: a debugger between the
communications and the ordering module of one member holds what comes in, and releases it in reverse
order; and the same orders when what is held is released in any order."""

from random import Random

import pytest

from antiphon.peers.layers.debugging import Hold
from antiphon.peers.layers.in_view import InView
from antiphon.peers.layers.layer import Layer
from antiphon.peers.layers.relay import Relay
from antiphon.peers.stack.running import Delivered
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


SENT = 40


def play_at_random(group: Group, random: Random) -> dict[str, set[str]]:
    """Have members send numbers, while what comes to some of them is held and released one at a
    time; return the causes of each number: what its sender had sent or been given before it."""
    causes: dict[str, set[str]] = {}
    sent: dict[str, set[str]] = {name: set() for name in NAMES}
    for number in map(str, range(SENT)):
        name, holds = random.choice(NAMES), random.choice(NAMES)
        causes[number] = sent[name] | set(group.got(name))
        sent[name].add(number)
        group.send(name, number)
        hold = group.layer(holds, Hold)
        if random.random() < 0.4:
            hold.hold()
        group.run()
        if hold.held:
            at = random.randrange(len(hold.held))
            group.act(holds, Hold, lambda layer, at=at: layer.release(at))
            group.run()
    for name in NAMES * 2:  # twice: what the leader has held comes to the others only now
        group.layer(name, Hold).shuffle()
        group.act(name, Hold, Hold.unhold)
        group.run()
    return causes


def is_behind_causes(got: list[str], causes: dict[str, set[str]]) -> bool:
    places = {number: place for place, number in enumerate(got)}
    return all(places[cause] < places[number] for number in got for cause in causes[number])


@each_multicast
@pytest.mark.parametrize("ordering", Ordering)
@pytest.mark.parametrize("seed", range(5))
def test_any_order_of_release(multicast: str, ordering: Ordering, seed: int) -> None:
    group = group_of(multicast, ordering, seed)
    causes = play_at_random(group, Random(seed))
    histories = {name: group.got(name) for name in NAMES}
    for got in histories.values():
        assert sorted(got, key=int) == [str(number) for number in range(SENT)]
    if ordering is Ordering.FIFO:
        for name in NAMES:
            own = [d for d in group.told[name] if isinstance(d, Delivered)]
            for sender in group.ids.values():
                numbers = [int(bytes(d.body)) for d in own if d.sender == sender]
                assert numbers == sorted(numbers)
    if ordering in (Ordering.CAUSAL, Ordering.CAUSAL_TOTAL):
        for got in histories.values():
            assert is_behind_causes(got, causes)
    if ordering in (Ordering.TOTAL, Ordering.CAUSAL_TOTAL):
        assert histories["p1"] == histories["p2"] == histories["p3"]


def test_what_is_held_and_released_at_random_breaks_orders_that_nobody_keeps() -> None:
    """The judge of the test above is no judge if nothing is ever out of order."""
    broken = set()
    for seed in range(5):
        group = group_of("basic", Ordering.NONE, seed)
        causes = play_at_random(group, Random(seed))
        histories = [group.got(name) for name in NAMES]
        broken |= {"causal"} if not all(is_behind_causes(h, causes) for h in histories) else set()
        broken |= {"total"} if histories[0] != histories[1] else set()
    assert broken == {"causal", "total"}
