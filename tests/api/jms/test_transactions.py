"""Transactions: point 22 of "What implementers get wrong" (`docs/jms.md`).

What was sent becomes visible at one place in the order, with what was received, or never.

Tokens and stages are Antiphon's own: the classic API does not have them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

import antiphon
from antiphon.errors import (
    IllegalStateError,
    InvalidDestinationError,
    OutcomeUnknownError,
    TransactionRolledBackError,
)
from tests.api.support.backends import Backend, abandon, lose_connection
from tests.api.support.fronts import PATIENCE_S, Sync, every_front
from tests.api.support.steps import (
    CLIENT,
    TRANSACTED,
    Connect,
    connected_soon,
    counted,
    in_thread,
    listed,
    received,
    send,
    send_numbers,
    texts,
)


class Places:
    """A queue, and topics with one who sees them all."""

    def __init__(self, connect: Connect, backend: Backend) -> None:
        self.outside = connect()
        base = backend.name()
        self.queue = self.outside.create_queue(backend.name())
        self.one = self.outside.create_topic(f"{base}.one")
        self.two = self.outside.create_topic(f"{base}.two")
        self.subscriber = connect().create_consumer(self.outside.create_topic(f"{base}.>"))

    def send_everywhere(self, context: Any, text: str) -> None:
        for destination in (self.one, self.queue, self.two):
            send(context, destination, text)

    def seen_before(self, marker: str) -> list[Any]:
        """What has come on the topics up to now."""
        send(self.outside, self.one, marker)
        return list(iter(lambda: received(self.subscriber), _Text(marker)))


class _Text:
    """Equals the message with this text."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __eq__(self, message: object) -> bool:
        return getattr(message, "text", None) == self._text

    __hash__ = None  # type: ignore[assignment]


@pytest.fixture
def places(connect: Connect, backend: Backend) -> Places:
    return Places(connect, backend)


@every_front
def test_what_is_sent_inside_is_invisible_until_it_is_committed(
    connect: Connect, places: Places
) -> None:
    """[22]"""
    context = connect(session_mode=TRANSACTED)
    places.send_everywhere(context, "inside")
    send(places.outside, places.queue, "outside")
    assert places.seen_before("before the commit") == []
    assert listed(places.outside, places.queue) == ["outside"]
    context.commit()
    found = places.seen_before("after the commit")
    assert [message.text for message in found] == ["inside", "inside"]
    assert [message.destination for message in found] == [places.one, places.two]
    assert listed(places.outside, places.queue) == ["outside", "inside"]


@every_front
def test_a_transaction_is_at_one_place_in_the_order(connect: Connect, places: Places) -> None:
    """[22]: of all its destinations."""
    context = connect(session_mode=TRANSACTED)
    for n in range(5):
        places.send_everywhere(context, str(n))
        send(places.outside, places.one, "between")
    context.commit()
    found = places.seen_before("end")
    inside = [message for message in found if message.text != "between"]
    waiting = connect().create_consumer(places.queue)
    positions = [message.position for message in (*inside, *(received(waiting) for _ in range(5)))]
    assert sorted(positions) == list(range(min(positions), min(positions) + 15))
    assert [message.text for message in inside] == [str(n) for n in range(5) for _ in range(2)]


@every_front
def test_a_rollback_touches_nothing_outside(connect: Connect, places: Places) -> None:
    """[22]"""
    root = connect(session_mode=TRANSACTED)
    sibling = root.create_context(antiphon.AUTO_ACKNOWLEDGE)
    other = root.create_context(TRANSACTED)
    for context, text in ((root, "dropped"), (sibling, "not transacted"), (other, "another")):
        places.send_everywhere(context, text)
    root.rollback()
    other.commit()
    places.send_everywhere(root, "the next one")
    root.commit()
    found = [message.text for message in places.seen_before("end")]
    assert found == [
        t for text in ("not transacted", "another", "the next one") for t in [text] * 2
    ]
    assert listed(places.outside, places.queue) == ["not transacted", "another", "the next one"]


@every_front
@pytest.mark.parametrize("whose", ["its own", "its connection's"])
def test_closing_without_a_commit_drops_what_was_sent(
    connect: Connect, places: Places, whose: str
) -> None:
    """[22]"""
    root = connect()
    context = root.create_context(TRANSACTED)
    send(places.outside, places.queue, "waits")
    assert texts(context.create_consumer(places.queue), 1) == ["waits"]
    places.send_everywhere(context, "dropped")
    (context if whose == "its own" else root).close()
    assert places.seen_before("end") == []
    assert counted(places.outside.create_consumer(places.queue), 1) == [("waits", 2)]


@every_front
def test_closing_does_not_wait_for_what_is_dropped(connect: Connect, places: Places) -> None:
    """[22]: nor is it unknown what becomes of it."""
    context = connect(session_mode=TRANSACTED)
    abandon(context)
    places.send_everywhere(context, "dropped")
    context.close()
    assert places.seen_before("end") == []


@every_front
@pytest.mark.parametrize("outcome", ["commit", "rollback"])
def test_closing_a_consumer_decides_nothing(connect: Connect, places: Places, outcome: str) -> None:
    """[22]: what it has received is of the transaction."""
    send_numbers(places.outside, places.queue, 3)
    context = connect(session_mode=TRANSACTED)
    consumer = context.create_consumer(places.queue)
    assert texts(consumer, 2) == ["0", "1"]
    consumer.close()
    assert listed(places.outside, places.queue) == ["0", "1", "2"]
    getattr(context, outcome)()
    left = {"commit": [("2", 1)], "rollback": [("0", 2), ("1", 2), ("2", 1)]}[outcome]
    assert counted(places.outside.create_consumer(places.queue), len(left)) == left


@every_front
@pytest.mark.parametrize("outcome", ["commit", "rollback", "close"])
def test_what_was_rolled_back_is_of_no_transaction(
    connect: Connect, places: Places, outcome: str
) -> None:
    """[22]: nor of the next one, though its consumer is closed before it has it again."""
    send_numbers(places.outside, places.queue, 3)
    context = connect(session_mode=TRANSACTED)
    consumer = context.create_consumer(places.queue)
    assert texts(consumer, 2) == ["0", "1"]
    context.rollback()
    assert texts(consumer, 1) == ["0"]
    consumer.close()
    other = places.outside.create_consumer(places.queue)
    assert counted(other, 2) == [("1", 2), ("2", 1)]
    other.close()
    getattr(context, outcome)()
    left = [] if outcome == "commit" else ["0"]
    assert listed(places.outside, places.queue) == left


@every_front
def test_what_was_received_counts_with_what_was_sent(connect: Connect, places: Places) -> None:
    """[22]"""
    send_numbers(places.outside, places.queue, 4)
    context = connect(session_mode=TRANSACTED)
    consumer = context.create_consumer(places.queue)
    for outcome in (context.rollback, context.commit):
        assert texts(consumer, 2) == ["0", "1"]
        send(context, places.one, "0 and 1 are done")
        outcome()
    assert texts(consumer, 1) == ["2"]
    context.close()
    assert [message.text for message in places.seen_before("end")] == ["0 and 1 are done"]
    assert counted(places.outside.create_consumer(places.queue), 2) == [("2", 2), ("3", 1)]


@every_front
def test_an_answer_that_nobody_waits_for_is_dropped_and_the_work_is_done(
    connect: Connect, places: Places, front: Any
) -> None:
    """[22, 35]: whether the client has gone before the answer was sent, or after that."""
    send(places.outside, places.queue, "first", "second")
    context = connect(session_mode=TRANSACTED)
    consumer = context.create_consumer(places.queue)
    for request in ("first", "second"):
        reply_to = places.outside.create_temporary_queue()
        assert counted(consumer, 1) == [(request, 1)]
        if request == "first":
            front.do(reply_to.delete)
        send(context, reply_to, "the answer")
        send(context, places.one, f"{request} is done")
        if request == "second":
            front.do(reply_to.delete)
        context.commit()
        with pytest.raises(InvalidDestinationError, match="does not exist"):
            send(places.outside, reply_to, "outside a transaction its sender is told")
    seen = [message.text for message in places.seen_before("end")]
    assert seen == ["first is done", "second is done"]
    assert listed(places.outside, places.queue) == []


def test_a_transaction_that_cannot_be_committed_has_not_happened(
    connect: Connect, places: Places
) -> None:
    """[22]"""
    send(places.outside, places.queue, "waits")
    context = connect(session_mode=TRANSACTED)
    consumer = context.create_consumer(places.queue)
    assert texts(consumer, 1) == ["waits"]
    send(context, places.one, "dropped")
    with pytest.raises(TransactionRolledBackError, match="nothing is staged") as caught:
        context.commit(staged=["nowhere"])
    assert caught.value.happened == "no"
    assert counted(consumer, 1) == [("waits", 2)]
    send(context, places.one, "kept")
    context.commit()
    assert [message.text for message in places.seen_before("end")] == ["kept"]
    assert listed(places.outside, places.queue) == []


@every_front
def test_nothing_to_commit_and_nothing_to_roll_back(connect: Connect) -> None:
    context = connect(session_mode=TRANSACTED)
    context.commit()
    context.rollback()
    context.commit()


@every_front
@pytest.mark.parametrize("mode", [antiphon.AUTO_ACKNOWLEDGE, CLIENT], ids=lambda mode: mode.name)
def test_only_transacted_sessions_commit_and_roll_back(connect: Connect, mode: Any) -> None:
    context = connect(session_mode=mode)
    for call in (context.commit, context.rollback):
        with pytest.raises(IllegalStateError, match="not transacted"):
            call()
    with pytest.raises(IllegalStateError, match="rolled back, not recovered"):
        connect(session_mode=TRANSACTED).recover()


@every_front
def test_acknowledging_in_a_transaction_does_nothing(connect: Connect, places: Places) -> None:
    send_numbers(places.outside, places.queue, 1)
    context = connect(session_mode=TRANSACTED)
    received(context.create_consumer(places.queue)).acknowledge()
    context.close()
    assert counted(places.outside.create_consumer(places.queue), 1) == [("0", 2)]


# -- Large ones ------------------------------------------------------------------------------------


@every_front
def test_a_transaction_is_larger_than_any_window(connect: Connect, places: Places) -> None:
    """[22]"""
    many_in_one_transaction(connect, places, 3_000)


@pytest.mark.parametrize("front", [Sync], ids=["sync"], indirect=True)
def test_a_transaction_of_tens_of_thousands(connect: Connect, places: Places) -> None:
    """[22]"""
    many_in_one_transaction(connect, places, 30_000)


def many_in_one_transaction(connect: Connect, places: Places, count: int) -> None:
    context = connect(session_mode=TRANSACTED)
    sent = send_numbers(context, places.queue, count)
    assert listed(places.outside, places.queue) == []
    context.commit()
    consumer = context.create_consumer(places.queue)
    assert texts(consumer, count) == sent
    context.rollback()
    messages = [received(consumer) for _ in range(count)]
    assert [message.text for message in messages] == sent
    assert {message.delivery_count for message in messages} == {2}
    context.commit()
    context.close()
    assert listed(places.outside, places.queue) == []


# -- Interrupted -----------------------------------------------------------------------------------


@every_front
def test_a_commit_is_not_disturbed_by_a_lost_connection(connect: Connect, places: Places) -> None:
    """[22]"""
    context = connect(session_mode=TRANSACTED)
    consumer = context.create_consumer(places.queue)
    for n in range(4):
        send(places.outside, places.queue, str(n))
        assert counted(consumer, 1) == [(str(n), 1)]
        for topic in (places.one, places.two):
            send(context, topic, str(n))
        if n % 2:
            lose_connection(context)
        committing = in_thread(context.commit)
        if n > 1:
            lose_connection(context)
        assert not isinstance(committing.get(timeout=PATIENCE_S), Exception)
    found = [message.text for message in places.seen_before("end")]
    assert found == [str(n) for n in range(4) for _ in range(2)]
    context.close()
    assert listed(places.outside, places.queue) == []


@every_front
def test_a_commit_whose_program_dies_has_happened_or_not(
    connect: Connect, backend: Backend, places: Places
) -> None:
    """[22]: never half of it."""
    for n in range(6):
        client = backend.name("client")
        context = connect(client_id=client, session_mode=TRANSACTED)
        send(places.outside, places.queue, str(n))
        assert texts(context.create_consumer(places.queue), 1) == [str(n)]
        for topic in (places.one, places.two):
            send(context, topic, str(n))
        committing = in_thread(context.commit)
        if n % 2:
            threading.Event().wait(0.001)  # it may be on its way, or done
        abandon(context)
        with suppress(OutcomeUnknownError):
            context.close()
        committing.get(timeout=PATIENCE_S)
        connected_soon(connect, client_id=client).close()  # nothing is left of its session
        found = [message.text for message in places.seen_before("end")]
        left = listed(places.outside, places.queue)
        assert (found, left) in (([str(n)] * 2, []), ([], [str(n)]))
        if left:
            consumer = places.outside.create_consumer(places.queue)
            assert counted(consumer, 1) == [(str(n), 2)]
            consumer.close()


# -- Tokens and stages -----------------------------------------------------------------------------


def test_a_token_is_committed_once(connect: Connect, places: Places, backend: Backend) -> None:
    """[22]: whoever asks for it again."""
    token = backend.name("token")
    send_numbers(places.outside, places.queue, 2)
    first, second = connect(session_mode=TRANSACTED), connect(session_mode=TRANSACTED)
    for context, happens in ((first, True), (first, False), (second, False)):
        send(context, places.one, "once")
        assert context.commit(token=token) is happens
    consumer = second.create_consumer(places.queue)
    assert texts(consumer, 1) == ["0"]
    assert second.commit(token=token) is False  # the work that it stands for is done
    second.close()
    send(first, places.one, "another token")
    assert first.commit(token=backend.name("token")) is True
    found = [message.text for message in places.seen_before("end")]
    assert found == ["once", "another token"]
    assert counted(places.outside.create_consumer(places.queue), 1) == [("1", 1)]


def test_what_one_session_has_staged_another_one_commits(connect: Connect, places: Places) -> None:
    """[22]"""
    handles = []
    for n in range(3):
        worker = connect(session_mode=TRANSACTED)
        places.send_everywhere(worker, f"part {n}")
        handles.append(worker.stage())
        worker.close()
    assert len(set(handles)) == 3
    assert places.seen_before("nothing yet") == []
    driver = connect(session_mode=TRANSACTED)
    send(driver, places.one, "the driver's own")
    driver.commit(staged=[handles[2], handles[0]])
    found = places.seen_before("end")
    assert [message.text for message in found] == [
        "the driver's own",
        *("part 2", "part 2", "part 0", "part 0"),
    ]
    assert listed(places.outside, places.queue) == ["part 2", "part 0"]
    send(driver, places.one, "dropped with it")
    with pytest.raises(TransactionRolledBackError, match="nothing is staged") as caught:
        driver.commit(staged=[handles[1], handles[0]])
    assert caught.value.happened == "no"
    driver.commit(staged=[handles[1]])
    assert [message.text for message in places.seen_before("now")] == ["part 1", "part 1"]


def test_what_is_staged_is_not_rolled_back(connect: Connect, places: Places) -> None:
    """[22]: it is no longer its session's."""
    context = connect(session_mode=TRANSACTED)
    send(context, places.one, "staged")
    handle = context.stage()
    send(context, places.one, "dropped")
    context.rollback()
    context.commit(staged=[handle])
    assert [message.text for message in places.seen_before("end")] == ["staged"]


# -- With the rest of JMS --------------------------------------------------------------------------


@every_front
def test_a_commit_is_for_every_kind_of_consumer(
    connect: Connect, backend: Backend, places: Places
) -> None:
    """[22]"""
    reader = connect(client_id=backend.name("client"))
    create: list[Callable[[], Any]] = [
        lambda: reader.create_consumer(places.one, "n = 1"),
        lambda: reader.create_durable_consumer(places.one, "box"),
        lambda: reader.create_shared_consumer(places.one, "us"),
        lambda: reader.create_shared_durable_consumer(places.one, "all of us"),
        lambda: reader.create_consumer(places.queue, "n = 1"),
    ]
    consumers = [make() for make in create]
    context = connect(session_mode=TRANSACTED)
    for destination in (places.one, places.queue):
        context.create_producer().send(destination, "inside", properties={"n": 1})
        send(places.outside, destination, "outside")
    context.commit()
    assert texts(consumers[0], 1) == ["inside"]
    for consumer in consumers[1:4]:
        assert texts(consumer, 2) == ["outside", "inside"]
    assert texts(consumers[4], 1) == ["inside"]


@every_front
def test_priorities_and_groups_of_messages_hold_in_a_transaction(
    connect: Connect, places: Places
) -> None:
    """[22]"""
    context = connect(session_mode=TRANSACTED)
    producer = context.create_producer()
    for n in range(4):
        producer.send(places.queue, str(n), priority=n, properties={"JMSXGroupID": "g"})
    send(places.outside, places.queue, "4")
    context.commit()
    assert texts(places.outside.create_consumer(places.queue), 5) == ["4", "3", "2", "1", "0"]
