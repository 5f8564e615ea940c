"""What a consumer has: handed out in order, acknowledged in any, again when it asks for it."""

import random

import pytest

from antiphon.api.conversation_inbox import Inbox, Slice
from antiphon.formats import columns, pack
from antiphon.formats.client_wire import AckRow, Kept
from antiphon.formats.columns import Columns, Outgoing


def some(position: int, count: int = 1, deliveries: int = 1) -> Slice:
    body, flags = columns.encode([Outgoing(columns.MESSAGE, b"", b"", 0)] * count)
    whole = Columns(pack.encode("topic:t", count, body, 1, 1, 0, flags))
    return Slice(whole, position, 0, count, deliveries)


def inbox(*positions: int, queue: bool = False) -> Inbox:
    """With these messages, which the application has."""
    one = Inbox(3, queue, prefetch=100)
    for position in positions:
        one.arrive(some(position))
        one.take()
    return one


def taken(one: Inbox) -> tuple[int, int] | None:
    """Position and delivery count of the next message."""
    found = one.take()
    if found is None:
        return None
    slice_, index = found
    return slice_.start + index, slice_.deliveries


def test_messages_come_out_in_order() -> None:
    one = Inbox(3, False, 100)
    one.arrive(some(5, count=2))
    one.arrive(some(9))
    assert [taken(one) for _ in range(4)] == [(5, 1), (6, 1), (9, 1), None]


def test_a_topic_is_acknowledged_by_one_number() -> None:
    one = inbox(4, 5, 9)
    one.acknowledge_all()
    assert one.take_rows() == [AckRow(3, 0, 9)]
    assert one.take_rows() == []


def test_a_queue_is_acknowledged_by_exact_ranges() -> None:
    one = inbox(4, 5, 9, queue=True)
    one.acknowledge_all()
    assert one.take_rows() == [AckRow(3, 4, 5), AckRow(3, 9, 9)]


def test_what_is_open_before_is_not_acknowledged_with_what_comes_after() -> None:
    one = inbox(4, 5, 6)
    assert one.acknowledge(5)
    assert one.take_rows() == [AckRow(3, 5, 5)]
    assert one.acknowledge(4)
    assert not one.acknowledge(4)
    assert one.take_rows() == [AckRow(3, 0, 5)]


def test_when_nothing_is_open_before_everything_acknowledged_is_one_number() -> None:
    # Between 4 and 9 lie messages for others: the servers cannot tell that nothing is missing.
    one = inbox(4, 9)
    one.acknowledge(9)
    one.take_rows()
    one.acknowledge(4)
    assert one.take_rows() == [AckRow(3, 0, 9)]


def test_the_number_ends_before_what_is_handed_out_again() -> None:
    one = inbox(4, 6, 9)
    one.acknowledge(9)
    one.recover()
    assert taken(one) == (4, 2)
    one.acknowledge(4)
    assert one.take_rows() == [AckRow(3, 0, 5), AckRow(3, 9, 9)]


def test_recover_hands_out_everything_open_again_flagged_and_first() -> None:
    one = inbox(4, 5)
    one.arrive(some(6))
    one.recover()
    assert [taken(one) for _ in range(3)] == [(4, 2), (5, 2), (6, 1)]


def test_a_closed_consumer_keeps_what_the_application_saw() -> None:
    one = inbox(4, 5, 6)
    one.arrive(some(7))
    one.acknowledge(5)
    one.recover()
    assert taken(one) == (4, 2)
    assert one.close() == [Kept(3, 4, 4, 2), Kept(3, 6, 6, 1)]
    assert taken(one) is None


@pytest.mark.parametrize("seed", range(60))
@pytest.mark.parametrize("queue", [True, False])
def test_rows_say_exactly_what_was_acknowledged(seed: int, queue: bool) -> None:
    draw = random.Random(seed)
    one = Inbox(3, queue, 100)
    position, arrived = 0, []
    handed: list[int] = []
    done: set[int] = set()
    told: set[int] = set()
    for _ in range(60):
        what = draw.random()
        if what < 0.3:
            position += draw.choice((1, 1, 4))
            one.arrive(some(position))
            arrived.append(position)
        elif what < 0.7 and (found := taken(one)) is not None:
            handed.append(found[0])
        elif what < 0.85 and handed:
            chosen = handed.pop(draw.randrange(len(handed)))
            assert one.acknowledge(chosen)
            done.add(chosen)
        elif what < 0.9:
            one.recover()
            handed.clear()
        else:
            for row in one.take_rows():
                told.update(p for p in arrived if row.first <= p <= row.last)
            assert told == done
