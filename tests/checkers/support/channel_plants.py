"""Histories of channels, clean and with one broken promise each, for both judges."""

from __future__ import annotations

from collections.abc import Callable

from antiphon.formats.channel_trace import ChannelEvent
from antiphon.model.peer_views import Level, ViewId
from tests.checkers.support.channel_rows import rows
from tests.checkers.support.peer_histories import Peers, life, three

NONE, FIFO, CAUSAL, AGREED, SAFE = Level
ONE = ViewId(1, life("a"))


def clean() -> Peers:
    """Messages of all levels, for all and for some, a crash, a partition, a merge, an end."""
    h = three().send("b", AGREED, FIFO, CAUSAL).send("a", SAFE, AGREED).send("b", FIFO, to="c")
    h.deliver("a b c", "b:1", "b:2", "b:3").deliver("c", "b:4")
    h.receive("a b c", "a:1").deliver("a b c", "a:1", "a:2")
    h.view(2, "a b", merged=(ONE,)).view(2, "c", primary=False, merged=(ONE,))
    h.send("a", CAUSAL).deliver("a b", "a:3").send("b", CAUSAL, AGREED).deliver("b a", "b:5", "b:6")
    h.send("c", AGREED, NONE).deliver("c", "c:1", "c:2")
    two = (ViewId(2, life("a")), ViewId(2, life("c")))
    h.view(3, "a b c", merged=two).end("b")
    h.view(4, "a c b'").send("b'", AGREED).deliver("a c b'", "b':1")
    return h.end("c", crashed=False)


def twice() -> Peers:
    return three().send("a").deliver("a b c", "a:1").deliver("b", "a:1")


def never_sent() -> Peers:
    return three().send("a").deliver("a b c", "a:1", "a:2")


def for_others() -> Peers:
    return three().send("a", FIFO, to="b").deliver("b c", "a:1")


def at_another_level() -> Peers:
    h = three().send("a", FIFO)
    h.levels.clear()
    return h.deliver("a b c", "a:1")


def lost_to_its_sender() -> Peers:
    return three().send("b", FIFO)


def in_two_views() -> Peers:
    h = three().send("b", FIFO).deliver("a b", "b:1").view(2, "a b").view(2, "c", primary=False)
    return h.view(3, "a b c").deliver("c", "b:1")


def out_of_fifo() -> Peers:
    return three().send("a", FIFO, FIFO).deliver("a b", "a:1", "a:2").deliver("c", "a:2", "a:1")


def with_a_hole() -> Peers:
    h = three().send("a", FIFO, FIFO).deliver("a b", "a:1", "a:2").deliver("c", "a:2")
    return h.view(2, "a b").view(2, "c", primary=False)


def after_later_ones() -> Peers:
    h = three().send("a", CAUSAL, CAUSAL).deliver("a b c", "a:2").view(2, "a b c")
    return h.deliver("a b c", "a:1")


def out_of_causal() -> Peers:
    h = three().send("a", CAUSAL).deliver("a b", "a:1").send("b", CAUSAL).deliver("a b", "b:1")
    return h.deliver("c", "b:1", "a:1")


def by_way_of_another() -> Peers:
    h = three().send("a", CAUSAL).deliver("a b", "a:1").send("b", AGREED)
    return h.deliver("a b", "b:1").deliver("c", "b:1", "a:1")


def in_two_orders() -> Peers:
    h = three().send("a").send("b").deliver("a b", "a:1", "b:1").deliver("c", "b:1", "a:1")
    return h.view(2, "a b").view(2, "c", primary=False)


def more_than_who_stays() -> Peers:
    h = three().send("c").send("c").deliver("c", "c:1", "c:2").deliver("a b", "c:1")
    return h.view(2, "a b").view(2, "c", primary=False)


def less_than_who_goes_along() -> Peers:
    return three().send("a").deliver("a b", "a:1").view(2, "a b c")


def unlike_at_the_end() -> Peers:
    h = three().send("a", FIFO).deliver("a b", "a:1").end("c")
    return h.view(2, "a b").send("b", FIFO).deliver("b", "b:1")


def forgotten_of_the_dead() -> Peers:
    h = three().send("c").deliver("c", "c:1").end("c")
    return h.view(2, "a b")


def not_held_by_all() -> Peers:
    h = three().send("a", SAFE).receive("a b", "a:1").deliver("a b", "a:1").end("c")
    return h.view(2, "a b")


def from_outside() -> Peers:
    return Peers().view(1, "a b").view(1, "c", primary=False).send("c").deliver("a b c", "c:1")


def falling() -> Peers:
    return three().view(0, "a b c")


def two_meanings() -> Peers:
    return Peers().view(1, "a b c", "a b").view(1, "a b c", "c", primary=False)


def with_strangers() -> Peers:
    return three().view(2, "a b", together="a b c")


def unlike_merges() -> Peers:
    h = three().view(2, "a b", "a", merged=(ONE,))
    return h.view(2, "a b", "b", merged=(ONE, ViewId(0, life("b"))))


def forked() -> Peers:
    return three().view(2, "a").view(2, "b c")


PLANTS: dict[str, Callable[[], Peers]] = {
    made.__name__: made
    for made in (
        *(twice, never_sent, for_others, at_another_level, lost_to_its_sender, in_two_views),
        *(out_of_fifo, with_a_hole, after_later_ones, out_of_causal, by_way_of_another),
        *(
            in_two_orders,
            more_than_who_stays,
            less_than_who_goes_along,
            unlike_at_the_end,
            forgotten_of_the_dead,
        ),
        *(not_held_by_all, from_outside, falling, two_meanings, with_strangers),
        *(unlike_merges, forked),
    )
}


def events(made: Peers, run: str) -> list[ChannelEvent]:
    return rows(made.events, run=run)
