"""Messages that expire while they wait at the client."""

from __future__ import annotations

from random import Random

from antiphon.api.protocol import effects
from antiphon.api.protocol.attaching import Terms
from antiphon.api.protocol.conversation import Conversation
from antiphon.api.protocol.inbox import Inbox, Slice
from antiphon.api.protocol.inbox_items import GroupColumns, PerishableColumns
from antiphon.formats import columns, pack
from antiphon.formats import protocol as cw
from antiphon.formats.columns import TEXT, Columns, Extra, Outgoing
from antiphon.formats.protocol import AckRow

CONSUMER = 3
STAMP = 1_000_000


def packed(*lifetimes: int, destination: str = "topic:a") -> bytes:
    """Messages that live so long; 0: forever."""
    extras = [columns.encode_extra(Extra(time_to_live=ms)) for ms in lifetimes]
    body, flags = columns.encode([Outgoing(TEXT, b"x", extra, 1) for extra in extras])
    if any(lifetimes):
        flags |= pack.SPECIAL
    return pack.encode(destination, len(extras), body, 1, 1, 0, flags)


class Waiting:
    """An inbox and a clock."""

    def __init__(self, is_queue: bool = False) -> None:
        self.now_ms = 0
        self.inbox = Inbox(CONSUMER, is_queue, 8, lambda: self.now_ms)

    def arrive(self, first: int, *lifetimes: int) -> None:
        data = packed(*lifetimes)
        special = any(lifetimes)
        found = PerishableColumns(data, self.now_ms) if special else Columns(data)
        self.inbox.arrive(Slice(found, first, 0, len(lifetimes), 1))

    def take(self, for_good: bool = False) -> int | None:
        taken = self.inbox.take_for_good() if for_good else self.inbox.take()
        return taken[0].start + taken[1] if taken is not None else None


def test_what_is_over_is_passed_and_counts_as_acknowledged() -> None:
    one = Waiting()
    one.arrive(1, 100, 0, 50, 50, 200)
    one.arrive(6, 0)
    one.now_ms = 99
    assert one.take(for_good=True) == 1
    one.now_ms = 100
    assert [one.take(for_good=True) for _ in range(4)] == [2, 5, 6, None]
    assert one.inbox.expired
    assert one.inbox.take_rows() == [AckRow(CONSUMER, 0, 6)]


def test_a_queue_acknowledges_it_exactly() -> None:
    one = Waiting(is_queue=True)
    one.arrive(10, 50, 0, 50)
    one.arrive(20, 50)
    one.now_ms = 60
    assert [one.take(), one.take()] == [11, None]
    assert one.inbox.take_rows() == [
        AckRow(CONSUMER, 10, 10),
        AckRow(CONSUMER, 12, 12),
        AckRow(CONSUMER, 20, 20),
    ]
    assert one.inbox.acknowledge(11)


def test_what_the_application_has_is_not_acknowledged_with_it() -> None:
    one = Waiting()
    one.arrive(1, 0, 50, 50)
    assert one.take() == 1
    one.now_ms = 60
    assert one.take() is None
    assert one.inbox.take_rows() == [AckRow(CONSUMER, 2, 3)]
    one.inbox.acknowledge_all()
    assert one.inbox.take_rows() == [AckRow(CONSUMER, 0, 3)]


def test_what_is_to_come_again_may_be_over_too() -> None:
    one = Waiting()
    one.arrive(1, 50, 0)
    assert [one.take(), one.take()] == [1, 2]
    one.inbox.recover()
    one.now_ms = 60
    assert [one.take(), one.take()] == [2, None]


def test_a_loop_is_lent_one_at_a_time_and_none_that_is_over() -> None:
    one = Waiting()
    one.arrive(1, *[0] * 5)
    one.arrive(6, 100, 200, 100)
    one.arrive(9, 0)
    found = []
    while (loan := one.inbox.lend()) is not None:
        perishable = isinstance(loan.slice.columns, PerishableColumns)
        taken = [loan.slice.start + index for index in loan.indexes]
        assert len(taken) == 1 or not perishable
        found += taken
        one.now_ms += 100 if perishable else 0
        last = one.inbox.call_in(loan)
        assert last is not None
        one.inbox.acknowledge(last)
    assert found == [1, 2, 3, 4, 5, 6, 7, 9]
    assert one.inbox.take_rows() == [AckRow(CONSUMER, 0, 9)]


def test_nobody_asks_the_clock_about_messages_that_stay() -> None:
    def never() -> int:
        raise AssertionError("the clock was asked")

    inbox = Inbox(CONSUMER, False, 8, never)
    inbox.arrive(Slice(Columns(packed(0, 0)), 1, 0, 2, 1))
    assert [inbox.take() is None for _ in range(3)] == [False, False, True]


# -- As they arrive --------------------------------------------------------------------------------


def arrived(answer: cw.Deliver, now_ms: int) -> Columns:
    talk = Conversation(7, bytes(16), Random(1), 0, Terms())
    talk.tick(0)
    talk.connected(0)
    talk.flush(0)
    talk.received(cw.encode(cw.Attached(7, 1, (), (), 3000, cw.PACK_MAX)), 0)
    talk.open_consumer(cw.OpenConsumer(1, "topic:a", 10))
    talk.flush(0)
    talk.received(cw.encode(cw.Result(1)), 0)
    talk.received(cw.encode(answer), now_ms)
    (event,) = [e for e in talk.take_events() if isinstance(e, effects.Arrived)]
    assert isinstance(event.slice.columns, Columns)
    return event.slice.columns


def test_the_age_that_the_servers_tell_counts() -> None:
    found = arrived(cw.Deliver(1, 5, STAMP, 1, packed(100), age=30), now_ms=1000)
    assert isinstance(found, PerishableColumns)
    assert found.stamp == STAMP
    assert not found.is_over(0, 1069)
    assert found.is_over(0, 1070)


def test_messages_that_stay_and_those_of_a_group_do_not_expire() -> None:
    assert type(arrived(cw.Deliver(1, 5, STAMP, 1, packed(0)), 1000)) is Columns
    group = cw.Deliver(1, 5, STAMP, 1, packed(100), 3, 5000)
    assert type(arrived(group, 1000)) is GroupColumns


def test_dead_letters_do_not_expire() -> None:
    letter = cw.Deliver(1, 5, STAMP, 1, packed(100), age=5000, reason="its listener raised")
    assert type(arrived(letter, 1000)) is Columns


def test_headers_that_cannot_be_read_do_not_expire() -> None:
    body, flags = columns.encode([Outgoing(TEXT, b"x", b"\xc1", 1)])
    data = pack.encode("topic:a", 1, body, 1, 1, 0, flags | pack.SPECIAL)
    assert not PerishableColumns(data, 0).is_over(0, 1 << 60)
