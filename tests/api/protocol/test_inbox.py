"""One consumer's messages at the client, against a model that knows each message by itself."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest

from antiphon.api.protocol.inbox import Inbox, Slice
from antiphon.api.protocol.receipts import QueueReceipts, Ranges
from antiphon.formats import columns, pack
from antiphon.formats.columns import TEXT, Columns, Extra, Outgoing, encode_extra
from antiphon.formats.protocol import DEAD, FAILED, RELATION, VIEW, AckRow, GroupEvent, Kept

CONSUMER = 3


def slice_of(first: int, last: int, deliveries: int = 1) -> Slice:
    """Messages whose bodies are their positions."""
    messages = [Outgoing(TEXT, str(n).encode(), b"", 1) for n in range(first, last + 1)]
    body, flags = columns.encode(messages)
    data = pack.encode("topic:a", len(messages), body, 1, 1, 0, flags)
    return Slice(Columns(data), first, 0, len(messages), deliveries)


def take(inbox: Inbox, for_good: bool = False) -> tuple[int, int] | None:
    """Position and delivery count of the next message."""
    taken = inbox.take_for_good() if for_good else inbox.take()
    if taken is None:
        return None
    one, index = taken
    position = one.start + index
    assert one.columns.body(index) == str(position).encode()
    return position, one.deliveries


def filled(is_queue: bool, *slices: Slice) -> Inbox:
    inbox = Inbox(CONSUMER, is_queue, prefetch=8)
    for one in slices:
        inbox.arrive(one)
    return inbox


def test_messages_are_handed_out_in_the_order_in_which_they_came() -> None:
    inbox = filled(True, slice_of(10, 12), slice_of(5, 6, deliveries=2))
    assert [take(inbox) for _ in range(6)] == [(10, 1), (11, 1), (12, 1), (5, 2), (6, 2), None]


def test_a_topic_acknowledges_with_one_number() -> None:
    inbox = filled(False, slice_of(1, 3), slice_of(7, 9))
    for _ in range(5):
        take(inbox, for_good=True)
    assert inbox.take_rows() == [AckRow(CONSUMER, 0, 8)]
    assert inbox.take_rows() == []


def test_a_queue_acknowledges_exact_ranges() -> None:
    inbox = filled(True, slice_of(1, 3), slice_of(4, 4), slice_of(7, 9))
    for _ in range(6):
        take(inbox, for_good=True)
    assert inbox.take_rows() == [AckRow(CONSUMER, 1, 4), AckRow(CONSUMER, 7, 8)]


def test_behind_an_open_message_a_topic_acknowledges_ranges_too() -> None:
    inbox = filled(False, slice_of(1, 6))
    for _ in range(6):
        take(inbox)
    for position in (4, 5, 1, 3):
        assert inbox.acknowledge(position)
    assert inbox.take_rows() == [
        AckRow(CONSUMER, 0, 1),
        AckRow(CONSUMER, 4, 5),
        AckRow(CONSUMER, 3, 3),
    ]
    inbox.acknowledge_all()
    assert inbox.take_rows() == [AckRow(CONSUMER, 0, 6)]


def test_only_an_open_message_is_acknowledged() -> None:
    inbox = filled(True, slice_of(1, 2))
    take(inbox)
    assert not inbox.acknowledge(2)
    assert inbox.acknowledge(1)
    assert not inbox.acknowledge(1)


def test_a_quarter_of_the_window_is_enough() -> None:
    inbox = filled(True, slice_of(1, 4))
    take(inbox, for_good=True)
    assert not inbox.enough
    take(inbox, for_good=True)
    assert inbox.enough
    inbox.take_rows()
    assert not inbox.enough


def test_what_is_recovered_comes_first_and_counts_again() -> None:
    inbox = filled(False, slice_of(1, 2), slice_of(3, 5))
    for _ in range(4):
        take(inbox)
    inbox.acknowledge(2)
    inbox.recover()
    assert [take(inbox) for _ in range(4)] == [(1, 2), (3, 2), (4, 2), (5, 1)]
    inbox.redeliver(3)
    assert take(inbox) == (3, 3)


def test_closing_keeps_what_the_application_has() -> None:
    inbox = filled(True, slice_of(1, 4), slice_of(7, 8))
    for _ in range(4):
        take(inbox)
    inbox.acknowledge(1)
    assert inbox.close() == []
    assert take(inbox) is None
    assert inbox.kept() == [Kept(CONSUMER, 2, 4, 1)]
    assert inbox.acknowledge(3)
    assert inbox.give_up(but={2}) == [Kept(CONSUMER, 4, 4, 1)]
    assert inbox.kept() == [Kept(CONSUMER, 2, 2, 1)]


@pytest.mark.parametrize("is_queue", [True, False])
def test_closing_gives_back_what_was_to_come_again(is_queue: bool) -> None:
    """What is acknowledged later is not among it."""
    inbox = filled(is_queue, slice_of(1, 5))
    for _ in range(4):
        take(inbox)
    inbox.recover()
    take(inbox)
    assert inbox.close() == [Kept(CONSUMER, 2, 4, 1)]
    assert inbox.kept() == [Kept(CONSUMER, 1, 1, 2)]
    inbox.acknowledge_all()
    assert inbox.take_rows() == [AckRow(CONSUMER, 1, 1)]


@pytest.mark.parametrize("is_queue", [True, False])
@pytest.mark.parametrize("seed", range(100))
def test_against_a_model(seed: int, is_queue: bool) -> None:
    """The servers know as acknowledged exactly what the application acknowledged."""
    chance = Random(seed)
    inbox = Inbox(CONSUMER, is_queue, prefetch=10)
    arrived: list[int] = []
    waiting: list[tuple[int, int]] = []  # position, count of the next delivery
    open_: list[tuple[int, int]] = []
    acknowledged: set[int] = set()
    known: set[int] = set()
    end = 0
    for _ in range(200):
        action = chance.randrange(8)
        if action == 0:
            first = end + 1 + chance.randrange(3)
            end = first + chance.randrange(4)
            inbox.arrive(slice_of(first, end))
            arrived += range(first, end + 1)
            waiting += [(position, 1) for position in range(first, end + 1)]
        elif action in (1, 2):
            assert take(inbox) == (waiting[0] if waiting else None)
            open_ += waiting[:1]
            del waiting[:1]
        elif action == 3:
            assert take(inbox, for_good=True) == (waiting[0] if waiting else None)
            acknowledged |= {position for position, _ in waiting[:1]}
            del waiting[:1]
        elif action == 4 and open_:
            position, _ = open_.pop(chance.randrange(len(open_)))
            assert inbox.acknowledge(position)
            acknowledged.add(position)
        elif action == 5 and chance.random() < 0.3:
            inbox.recover()
            waiting = [(position, count + 1) for position, count in open_] + waiting
            open_ = []
        elif action == 6 and chance.random() < 0.3:
            inbox.acknowledge_all()
            acknowledged |= {position for position, _ in open_}
            open_ = []
        elif action == 7:
            for row in inbox.take_rows():
                assert not (is_queue and row.first == 0)
                known |= {p for p in arrived if (row.first or 1) <= p <= row.last}
            assert known == acknowledged
    back, kept = inbox.close(), inbox.kept()
    assert covered(back) == {p for p, count in waiting if count > 1}
    assert covered(kept) == {p for p, _ in open_}


def covered(kept: list[Kept]) -> set[int]:
    return {p for k in kept for p in range(k.first, k.last + 1)}


@pytest.mark.parametrize("seed", range(50))
def test_ranges_against_a_set(seed: int) -> None:
    chance = Random(seed)
    ranges, model = Ranges(), set[int]()
    for _ in range(100):
        first = chance.randrange(1, 40)
        last = first + chance.randrange(6)
        some = set(range(first, last + 1))
        missing = {p for one, two in ranges.missing(first, last) for p in range(one, two + 1)}
        assert missing == some - model
        if chance.random() < 0.5:
            ranges.add(first, last)
            model |= some
        else:
            ranges.remove(first, last)
            model -= some
        found = ranges.as_tuple()
        assert {p for one, two in found for p in range(one, two + 1)} == model
        assert all(two + 1 < one for (_, two), (one, _) in pairwise(found))


# -- Priorities -----------------------------------------------------------------------------------


def ranked(first: int, *priorities: int) -> Slice:
    """Messages with these priorities."""
    messages = [
        Outgoing(TEXT, str(first + at).encode(), encode_extra(Extra(priority=priority)), 1)
        for at, priority in enumerate(priorities)
    ]
    body, flags = columns.encode(messages)
    data = pack.encode("queue:a", len(messages), body, 1, 1, 0, flags | pack.SPECIAL)
    return Slice(Columns(data), first, 0, len(messages), 1)


def test_greater_priorities_are_handed_out_first() -> None:
    inbox = filled(True, slice_of(1, 2))
    inbox.insert(ranked(3, 4, 9, 9, 1))
    inbox.insert(ranked(7, 4, 9))
    assert taken(inbox) == [4, 5, 8, 1, 2, 3, 7, 6]


def test_what_comes_again_comes_before_any_priority_and_in_its_order() -> None:
    inbox = filled(True)
    inbox.insert(ranked(1, 9, 1, 4))
    assert [take(inbox), take(inbox)] == [(1, 1), (3, 1)]
    inbox.insert(ranked(4, 9))
    inbox.recover()
    inbox.insert(ranked(5, 9))
    found = [take(inbox) for _ in range(5)]
    assert found == [(1, 2), (3, 2), (4, 1), (5, 1), (2, 1)]


def test_what_a_loop_did_not_take_is_next_whatever_came_meanwhile() -> None:
    inbox = filled(True)
    inbox.insert(ranked(1, 4, 4, 4, 4))
    for quick in (True, False):  # who had time for all of a loan is lent two
        loan = inbox.lend()
        assert loan is not None
        next(loan.indexes)
        if not quick:
            inbox.insert(ranked(5, 9))
        inbox.call_in(loan)
    assert taken(inbox) == [3, 5, 4]


@pytest.mark.parametrize("seed", range(30))
def test_priorities_against_a_sorted_list(seed: int) -> None:
    chance = Random(seed)
    inbox = filled(True)
    waiting: list[tuple[int, int, int]] = []  # ten less the priority, arrival, position
    end = 0
    for arrival in range(100):
        if chance.random() < 0.5:
            priorities = [chance.randrange(10) for _ in range(chance.randrange(1, 5))]
            inbox.insert(ranked(end + 1, *priorities))
            waiting += [(10 - p, arrival, end + 1 + at) for at, p in enumerate(priorities)]
            end += len(priorities)
        elif waiting:
            waiting.sort()
            assert take(inbox, for_good=True) == (waiting.pop(0)[2], 1)


# -- Given up -------------------------------------------------------------------------------------


def dead(first: int, last: int, reason: str) -> AckRow:
    return AckRow(CONSUMER, first, last, kind=DEAD, reason=reason)


def test_what_was_handed_out_too_often_is_given_up_instead_of_coming_again() -> None:
    inbox = filled(False, slice_of(1, 1, deliveries=9), slice_of(2, 3, deliveries=10))
    inbox.deliveries_max = 10
    assert [take(inbox) for _ in range(3)] == [(1, 9), (2, 10), (3, 10)]
    inbox.recover()
    assert inbox.has_dead
    assert inbox.take_rows() == [dead(2, 3, "delivered 10 times, and not acknowledged")]
    assert (take(inbox), take(inbox)) == ((1, 10), None)
    inbox.acknowledge_all()
    assert inbox.take_rows() == [AckRow(CONSUMER, 0, 1)]


def test_a_dead_letter_is_not_given_up_however_often_it_is_recovered() -> None:
    letter = slice_of(1, 1, deliveries=10)
    assert isinstance(letter.columns, Columns)
    letter.columns.reason = "it was bad"
    inbox = filled(True, letter)
    inbox.deliveries_max = 10
    assert take(inbox) == (1, 10)
    assert inbox.recover() == 10  # for which there is a wait
    assert not inbox.has_dead
    assert take(inbox) == (1, 11)


def test_one_message_is_buried_with_the_reason() -> None:
    inbox = filled(True, slice_of(1, 3))
    for _ in range(3):
        take(inbox)
    inbox.bury(2, "it is bad")
    inbox.bury(7, "it is not here")
    inbox.acknowledge_all()
    assert inbox.take_rows() == [
        dead(2, 2, "it is bad"),
        AckRow(CONSUMER, 1, 1),
        AckRow(CONSUMER, 3, 3),
    ]


# -- Transactions ---------------------------------------------------------------------------------


@pytest.mark.parametrize("is_queue", [True, False])
def test_after_a_commit_that_came_to_nothing_everything_is_as_it_was(is_queue: bool) -> None:
    inbox = filled(is_queue, slice_of(1, 2), slice_of(4, 6))
    for _ in range(3):
        take(inbox)
    before = inbox.remember()
    inbox.acknowledge_all()
    told = inbox.take_rows()
    assert take(inbox) == (5, 1)  # meanwhile
    inbox.restore(before)
    inbox.recover()
    assert [take(inbox) for _ in range(5)] == [(1, 2), (2, 2), (4, 2), (5, 2), (6, 1)]
    assert inbox.take_rows() == []
    for position in (5, 6):
        inbox.put_back(position)
    inbox.acknowledge_all()
    assert inbox.take_rows() == told


def test_what_was_given_up_with_a_commit_that_came_to_nothing_is_given_up_again() -> None:
    inbox = filled(True, slice_of(1, 2))
    take(inbox), take(inbox)
    inbox.bury(1, "bad")
    before = inbox.remember()
    inbox.acknowledge_all()
    assert inbox.take_rows() == [dead(1, 1, "bad"), AckRow(CONSUMER, 2, 2)]
    inbox.restore(before)
    assert inbox.take_rows() == [dead(1, 1, "bad")]


# -- Group events ---------------------------------------------------------------------------------


def happens(inbox: Inbox, serial: int, position: int, kind: int = VIEW) -> None:
    inbox.occur(GroupEvent(serial, position, kind, serial, relation=f"relation {serial}"))


def taken(inbox: Inbox, for_good: bool = False) -> list[int]:
    """Positions; of events, serials below 0."""
    found = []
    while (one := inbox.take_for_good() if for_good else inbox.take()) is not None:
        found.append(one[0].start + one[1])
    return found


def member_inbox() -> Inbox:
    """view 1, message 5, view 2, message 6"""
    inbox = Inbox(CONSUMER, False, prefetch=8)
    happens(inbox, 1, 4)
    inbox.arrive(slice_of(5, 5))
    happens(inbox, 2, 5)
    inbox.arrive(slice_of(6, 6))
    return inbox


def test_events_wait_among_the_messages() -> None:
    inbox = member_inbox()
    assert taken(inbox, for_good=True) == [-1, 5, -2, 6]
    assert inbox.take_rows() == [AckRow(CONSUMER, 0, 6, 2)]
    assert inbox.take_rows() == []


def test_an_event_alone_is_acknowledged_by_its_number() -> None:
    inbox = member_inbox()
    inbox.take_for_good()
    assert inbox.take_rows() == [AckRow(CONSUMER, 0, 0, 1)]


def test_events_are_acknowledged_up_to_one_that_is_open() -> None:
    inbox = member_inbox()
    assert taken(inbox) == [-1, 5, -2, 6]
    assert inbox.acknowledge(-2)
    assert inbox.take_rows() == []
    assert inbox.acknowledge(-1)
    assert inbox.take_rows() == [AckRow(CONSUMER, 0, 0, 2)]
    assert not inbox.acknowledge(-1)


def test_a_message_takes_the_events_before_it_with_it() -> None:
    inbox = member_inbox()
    taken(inbox)
    inbox.acknowledge(5)
    assert inbox.take_rows() == [AckRow(CONSUMER, 0, 5, 1)]
    inbox.acknowledge(6)
    assert inbox.take_rows() == [AckRow(CONSUMER, 0, 6, 2)]


def test_what_is_open_comes_again_events_too() -> None:
    inbox = member_inbox()
    inbox.take_for_good()
    taken(inbox)
    inbox.recover()
    again = [inbox.take() for _ in range(3)]
    assert [(s.start + i, s.deliveries) for s, i in filter(None, again)] == [
        (5, 2),
        (-2, 2),
        (6, 2),
    ]
    inbox.acknowledge_all()
    assert inbox.take_rows() == [AckRow(CONSUMER, 0, 6, 2)]


def test_only_messages_are_kept_of_a_closed_consumer() -> None:
    inbox = member_inbox()
    for _ in range(3):
        inbox.take()
    assert inbox.close() == []
    assert inbox.kept() == [Kept(CONSUMER, 5, 5, 1)]


def test_a_loop_is_lent_an_event_by_itself() -> None:
    inbox = member_inbox()
    for expected in (-1, 5, -2, 6):
        loan = inbox.lend()
        assert loan is not None
        assert list(loan.indexes) == [0]
        assert inbox.call_in(loan) == expected
        assert inbox.acknowledge(expected)
    assert inbox.take_rows() == [AckRow(CONSUMER, 0, 6, 2)]


def test_another_relation_is_passed_when_it_is_next() -> None:
    inbox = Inbox(CONSUMER, False, prefetch=8)
    inbox.arrive(slice_of(5, 5))
    happens(inbox, 1, 5, RELATION)
    inbox.arrive(slice_of(6, 6))
    inbox.take_for_good()
    assert inbox.relation == ""
    assert taken(inbox, for_good=True) == [6]
    assert inbox.relation == "relation 1"
    assert inbox.take_rows() == [AckRow(CONSUMER, 0, 6, 1)]


# -- What could not be handled --------------------------------------------------------------------


def failed_row(first: int, last: int, deliveries: int) -> AckRow:
    return AckRow(CONSUMER, first, last, kind=FAILED, deliveries=deliveries, wait=50)


def test_what_failed_is_told_in_ranges() -> None:
    inbox = filled(True, slice_of(1, 6))
    for _ in range(6):
        inbox.take()
    for position in (1, 2, 4, 6):
        inbox.fail(position, 50)
    inbox.fail(9, 50)  # it is not here
    assert inbox.take_rows() == [failed_row(1, 2, 1), failed_row(4, 4, 1), failed_row(6, 6, 1)]
    assert [(k.first, k.last) for k in inbox.kept()] == [(3, 3), (5, 5)]


def test_what_goes_back_waits_where_it_failed() -> None:
    inbox = filled(True, slice_of(1, 5))
    for _ in range(5):
        inbox.take()
    inbox.will_wait(3, 70)
    assert [(k.first, k.last, k.wait) for k in inbox.kept()] == [(1, 2, 0), (3, 3, 70), (4, 5, 0)]


def test_nothing_is_handed_out_in_a_pause() -> None:
    inbox = filled(True, slice_of(1, 2))
    inbox.pauses = 2
    assert inbox.take() is inbox.take_for_good() is inbox.lend() is None
    inbox.pauses = 1
    assert inbox.take() is None
    inbox.pauses = 0
    assert inbox.take() is not None


def test_a_message_may_come_again_before_the_answer_to_its_failure() -> None:
    receipts = QueueReceipts(1)
    assert receipts.new(1, 3, 1) == [(1, 3)]
    receipts.failed(2, 2, 1)
    assert receipts.seen().held == ((1, 1), (3, 3))  # the servers may have to send it
    assert receipts.new(2, 2, 1) == []  # they had not heard of it
    assert receipts.new(2, 2, 2) == [(2, 2)]
    receipts.acknowledged(failed_row(2, 2, 1))
    assert receipts.new(2, 2, 2) == []
    assert receipts.seen().held == ((1, 3),)


def test_the_answer_to_a_failure_lets_go_of_the_message() -> None:
    receipts = QueueReceipts(1)
    receipts.new(1, 3, 1)
    receipts.failed(1, 2, 1)
    receipts.acknowledged(failed_row(1, 2, 1))
    assert receipts.seen().held == ((3, 3),)
    assert receipts.new(1, 3, 2) == [(1, 2)]
