"""Loops take messages that were lent to them, without a lock; whoever else asks gets the rest."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from itertools import islice

import pytest

import antiphon
from antiphon.api.protocol.inbox import Inbox, Loan, Slice
from antiphon.formats.protocol import AckRow
from tests.api.protocol.test_inbox import CONSUMER, slice_of

MESSAGES = 2000


def inbox_with(*ranges: tuple[int, int], is_queue: bool = False) -> Inbox:
    inbox = Inbox(CONSUMER, is_queue, prefetch=64)
    for first, last in ranges:
        inbox.arrive(slice_of(first, last))
    return inbox


def lend(inbox: Inbox) -> Loan:
    loan = inbox.lend()
    assert loan is not None
    return loan


def take_all(loan: Loan) -> list[int]:
    """Positions."""
    taken = [loan.slice.start + index for index in loan.indexes]
    return taken


# -- The inbox -------------------------------------------------------------------------------------


def test_a_loop_that_takes_all_is_lent_more_and_more() -> None:
    inbox = inbox_with((1, 60))
    lent = []
    for _ in range(6):
        loan = lend(inbox)
        lent.append(take_all(loan))
        last = inbox.call_in(loan)
        assert last == lent[-1][-1]
        assert inbox.acknowledge(last)
    assert [position for some in lent for position in some] == list(range(1, 48))
    assert [len(some) for some in lent] == [1, 2, 4, 8, 16, 16]  # a quarter of the window at most
    assert inbox.take_rows() == [AckRow(CONSUMER, 0, 47)]


def test_what_a_loop_did_not_take_waits_again() -> None:
    inbox = inbox_with((1, 10), (20, 21))
    for _ in range(2):
        loan = lend(inbox)
        take_all(loan)
        inbox.call_in(loan)
        inbox.acknowledge_all()
    loan = lend(inbox)  # 4 to 7
    assert [next(loan.indexes) for _ in range(2)] == [3, 4]
    assert inbox.call_in(loan) == 5
    assert not list(loan.indexes)
    assert inbox.take_rows() == [AckRow(CONSUMER, 0, 4)]
    left = []
    while (taken := inbox.take()) is not None:
        left.append(taken[0].start + taken[1])
    assert left == [6, 7, 8, 9, 10, 20, 21]


def test_a_loan_that_was_not_touched_leaves_nothing_open() -> None:
    inbox = inbox_with((1, 3))
    assert inbox.call_in(lend(inbox)) is None
    assert inbox.kept() == []
    assert inbox.take() is not None


def test_a_queue_acknowledges_what_the_loop_is_done_with() -> None:
    inbox = inbox_with((5, 9), (50, 59), is_queue=True)
    taken = []
    for _ in range(4):
        loan = lend(inbox)
        taken += take_all(loan)
        inbox.call_in(loan)
        inbox.acknowledge(taken[-1])
    assert taken == [5, 6, 7, 8, 9, 50, 51, 52, 53, 54, 55, 56, 57]
    assert inbox.take_rows() == [AckRow(CONSUMER, 5, 9), AckRow(CONSUMER, 50, 57)]


def test_a_loop_that_takes_its_time_is_lent_one_at_a_time() -> None:
    inbox = inbox_with((1, 60))
    for _ in range(5):
        loan = lend(inbox)
        take_all(loan)
        inbox.call_in(loan)
    loan = lend(inbox)
    next(loan.indexes)
    inbox.call_in(loan)
    assert len(list(lend(inbox).indexes)) == 1


# -- Consumers -------------------------------------------------------------------------------------


@pytest.fixture
def ctx() -> Iterator[antiphon.Context]:
    with antiphon.connect("embedded:") as context:
        yield context


@pytest.fixture
def consumer(ctx: antiphon.Context) -> antiphon.Consumer:
    """Whose messages are numbers."""
    queue = ctx.create_queue("q")
    ctx.create_producer().send_all(queue, [str(n) for n in range(MESSAGES)])
    return ctx.create_consumer(queue, prefetch=MESSAGES)


def test_a_loop_gets_everything_in_order(consumer: antiphon.Consumer) -> None:
    numbers = []
    for message in consumer:
        numbers.append(int(message.text))
        if len(numbers) == MESSAGES:
            break
    assert numbers == list(range(MESSAGES))


@pytest.mark.parametrize("texts", [False, True], ids=["bytes", "bytes and texts"])
@pytest.mark.parametrize("size", [0, 300])
def test_a_loop_gets_each_message_with_its_own_body(
    ctx: antiphon.Context, texts: bool, size: int
) -> None:
    sent: list[bytes | str] = [bytes((n % 256,)) * (size + n % 7) for n in range(MESSAGES)]
    if texts:
        sent[::100] = [str(n) for n in range(0, MESSAGES, 100)]
    queue = ctx.create_queue("bodies")
    ctx.create_producer().send_all(queue, sent)
    consumer = ctx.create_consumer(queue, prefetch=MESSAGES)
    first = consumer.receive(10)  # so that what is lent begins inside a pack
    assert first is not None
    others = islice(consumer, MESSAGES - 1)
    assert [first.body, *(message.body for message in others)] == sent


def test_receive_goes_on_where_a_loop_was_left(consumer: antiphon.Consumer) -> None:
    loop = iter(consumer)
    numbers = [int(next(loop).text) for _ in range(100)]
    for _ in range(50):
        message = consumer.receive(10)
        assert message is not None
        numbers.append(int(message.text))
    numbers += [int(next(loop).text) for _ in range(100)]
    assert numbers == list(range(250))


def test_a_loop_and_receive_share_the_messages(consumer: antiphon.Consumer) -> None:
    by_loop: list[int] = []
    by_receive: list[int] = []

    def run_loop() -> None:
        for message in consumer:
            by_loop.append(int(message.text))

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        thread = threading.Thread(target=run_loop)
        thread.start()
        while len(by_loop) + len(by_receive) < MESSAGES:
            message = consumer.receive(0.01)
            if message is not None:
                by_receive.append(int(message.text))
        consumer.close()
        thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert sorted(by_loop + by_receive) == list(range(MESSAGES))
    assert by_loop == sorted(by_loop)
    assert by_receive == sorted(by_receive)


def test_what_is_lent_is_not_delivered_while_deliveries_are_held(
    ctx: antiphon.Context, consumer: antiphon.Consumer
) -> None:
    loop = iter(consumer)
    assert [int(next(loop).text) for _ in range(100)] == list(range(100))
    ctx.stop()
    assert consumer.receive(0) is None
    ctx.start()
    assert next(loop).text == "100"


def test_recover_brings_back_the_message_in_the_loop(
    ctx: antiphon.Context, consumer: antiphon.Consumer
) -> None:
    loop = iter(consumer)
    for _ in range(100):
        message = next(loop)
    ctx.recover()
    again = next(loop)
    assert (again.text, again.delivery_count) == (message.text, 2)
    assert (next(loop).text, next(loop).redelivered) == ("100", False)


def test_a_loop_ends_when_its_consumer_is_closed_though_messages_are_lent(
    consumer: antiphon.Consumer,
) -> None:
    loop = iter(consumer)
    for _ in range(100):
        next(loop)
    consumer.close()
    assert list(loop) == []


def test_what_a_slow_loop_is_done_with_is_acknowledged_soon(
    ctx: antiphon.Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = ctx.create_queue("q")
    consumer = ctx.create_consumer(queue, prefetch=8)
    arrived = threading.Event()
    core = consumer._core
    arrive = core.arrive

    def watch(slice_: Slice) -> None:
        arrive(slice_)
        if slice_.last == 11:
            arrived.set()

    monkeypatch.setattr(core, "arrive", watch)
    ctx.create_producer().send_all(queue, [str(n) for n in range(12)])
    loop = iter(consumer)
    for _ in range(4):  # of one, two and two that are lent
        next(loop)
    # The window opens for three more only when the queue knows that three are acknowledged.
    assert arrived.wait(10)
