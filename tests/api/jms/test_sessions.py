"""Acknowledgement and redelivery: points 18 to 21 and 23 of "What implementers get wrong"
(`docs/jms.md`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from queue import Queue as Results
from typing import Any

import pytest

from antiphon import SessionMode
from antiphon.broker.home.settings import HomeSettings
from antiphon.errors import IllegalStateError
from antiphon.model.redelivery import Redelivery
from tests.api.support import backends
from tests.api.support.backends import Backend, abandon, lose_connection
from tests.api.support.fronts import PATIENCE_S, every_front
from tests.api.support.steps import (
    CLIENT,
    DELIVERIES,
    INDIVIDUAL,
    TRANSACTED,
    Connect,
    FailureError,
    connected_soon,
    counted,
    dead_letter,
    heard,
    in_thread,
    listed,
    received,
    send,
    send_numbers,
    texts,
    until_waiting,
)

redelivering = pytest.mark.parametrize("mode", [CLIENT, TRANSACTED], ids=["recover", "rollback"])


def once_more(context: Any, mode: SessionMode) -> None:
    """Have what was delivered again."""
    if mode is TRANSACTED:
        context.rollback()
    else:
        context.recover()


def done(context: Any, mode: SessionMode, message: Any) -> None:
    if mode is TRANSACTED:
        context.commit()
    else:
        message.acknowledge()


# -- Again -----------------------------------------------------------------------------------------


@every_front
@redelivering
@pytest.mark.parametrize("kind", ["queue", "topic"])
def test_what_comes_again_comes_in_order_before_later_messages(
    connect: Connect, backend: Backend, kind: str, mode: SessionMode
) -> None:
    """[18]: and [19], only what was seen is flagged."""
    publisher, context = connect(), connect(session_mode=mode)
    destination = getattr(context, f"create_{kind}")(backend.name())
    consumer = context.create_consumer(destination)
    send_numbers(publisher, destination, 5)
    done(context, mode, received(consumer))
    assert texts(consumer, 2) == ["1", "2"]
    once_more(context, mode)
    send(publisher, destination, "later")
    expected = [("1", 2), ("2", 2), ("3", 1), ("4", 1), ("later", 1)]
    assert counted(consumer, 5) == expected
    once_more(context, mode)
    assert counted(consumer, 5) == [(text, count + 1) for text, count in expected]


@every_front
@redelivering
def test_priorities_do_not_change_the_order_of_what_comes_again(
    connect: Connect, backend: Backend, mode: SessionMode
) -> None:
    """[18]"""
    publisher, context = connect(), connect(session_mode=mode)
    queue = context.create_queue(backend.name())
    producer = publisher.create_producer()
    for priority in (3, 8, 5):
        producer.send(queue, str(priority), priority=priority)
    consumer = context.create_consumer(queue)
    assert texts(consumer, 2) == ["8", "5"]
    once_more(context, mode)
    producer.send(queue, "9", priority=9)
    assert texts(consumer, 2) == ["8", "5"]
    assert sorted(texts(consumer, 2)) == ["3", "9"]


@redelivering
def test_a_small_window_does_not_change_the_order(
    connect: Connect, backend: Backend, mode: SessionMode
) -> None:
    """[18]"""
    publisher, context = connect(), connect(session_mode=mode)
    queue = context.create_queue(backend.name())
    send_numbers(publisher, queue, 7)
    consumer = context.create_consumer(queue, prefetch=2)
    assert texts(consumer, 2) == ["0", "1"]
    once_more(context, mode)
    assert counted(consumer, 1) == [("0", 2)]
    once_more(context, mode)
    assert counted(consumer, 7) == [("0", 3), ("1", 2), *((str(n), 1) for n in range(2, 7))]


@every_front
@redelivering
def test_all_consumers_of_a_session_get_theirs_again(
    connect: Connect, backend: Backend, mode: SessionMode
) -> None:
    """[18]: and another session of the same connection does not."""
    publisher, root = connect(), connect()
    context, other = root.create_context(mode), root.create_context(mode)
    queues = [context.create_queue(backend.name()) for _ in range(3)]
    consumers = [
        context.create_consumer(queues[0]),
        context.create_consumer(queues[1]),
        other.create_consumer(queues[2]),
    ]
    for queue in queues:
        send_numbers(publisher, queue, 3)
    for consumer in consumers:
        assert texts(consumer, 2) == ["0", "1"]
    once_more(context, mode)
    for consumer in consumers[:2]:
        assert counted(consumer, 3) == [("0", 2), ("1", 2), ("2", 1)]
    assert counted(consumers[2], 1) == [("2", 1)]


@every_front
def test_a_listener_rolls_back_and_gets_it_again_before_the_next(
    connect: Connect, backend: Backend, front: Any
) -> None:
    """[18]"""
    publisher, context = connect(), connect(session_mode=TRANSACTED)
    queue = context.create_queue(backend.name())
    seen: Results[tuple[str, int]] = Results()
    errors: list[Exception | None] = []

    def listener(message: Any) -> Any:
        seen.put((message.text, message.delivery_count))
        fails = message.text == "1" and message.delivery_count < 3
        return front.attempt(context.rollback if fails else context.commit, errors)

    context.create_consumer(queue).set_message_listener(listener)
    send_numbers(publisher, queue, 3)
    assert heard(seen, 5) == [("0", 1), ("1", 1), ("1", 2), ("1", 3), ("2", 1)]
    context.close()
    assert errors == [None] * 5
    assert listed(publisher, queue) == []


# -- The end of a session --------------------------------------------------------------------------


@every_front
def test_what_a_closed_consumer_has_not_seen_goes_to_others_unflagged(
    connect: Connect, backend: Backend
) -> None:
    """[19]"""
    context = connect()
    queue = context.create_queue(backend.name())
    send_numbers(context, queue, 10)
    first = context.create_consumer(queue)
    assert texts(first, 3) == ["0", "1", "2"]
    first.close()
    assert counted(connect().create_consumer(queue), 7) == [(str(n), 1) for n in range(3, 10)]


@every_front
@pytest.mark.parametrize("mode", [CLIENT, INDIVIDUAL, TRANSACTED], ids=lambda mode: mode.name)
def test_what_was_not_acknowledged_is_redelivered_to_others(
    connect: Connect, backend: Backend, mode: SessionMode
) -> None:
    """[19, 20]: an orderly close flags what was seen, and nothing else."""
    context = connect()
    queue = context.create_queue(backend.name())
    send_numbers(context, queue, 3)
    first = connect(session_mode=mode)
    assert texts(first.create_consumer(queue), 2) == ["0", "1"]
    other = context.create_consumer(queue)
    waiting = in_thread(lambda: counted(other, 3))
    until_waiting(other)
    first.close()
    assert waiting.get(timeout=PATIENCE_S) == [("0", 2), ("1", 2), ("2", 1)]


@every_front
@pytest.mark.parametrize("mode", [CLIENT, INDIVIDUAL, TRANSACTED], ids=lambda mode: mode.name)
def test_one_of_several_sessions_gives_back_what_it_saw_first(
    connect: Connect, backend: Backend, mode: SessionMode
) -> None:
    """[19, 20]"""
    context = connect()
    queue = context.create_queue(backend.name())
    send_numbers(context, queue, 3)
    first = connect().create_context(mode)
    assert texts(first.create_consumer(queue), 2) == ["0", "1"]
    other = context.create_consumer(queue)
    waiting = in_thread(lambda: counted(other, 3))
    until_waiting(other)
    first.close()
    assert waiting.get(timeout=PATIENCE_S) == [("0", 2), ("1", 2), ("2", 1)]


@every_front
@pytest.mark.parametrize("mode", [CLIENT, INDIVIDUAL, TRANSACTED], ids=lambda mode: mode.name)
def test_a_durable_subscription_gets_again_what_was_not_acknowledged(
    connect: Connect, backend: Backend, mode: SessionMode
) -> None:
    """[19, 20]"""
    publisher, client = connect(), backend.name("client")
    topic = publisher.create_topic(backend.name())
    first = connect(client_id=client, session_mode=mode)
    consumer = first.create_durable_consumer(topic, "box")
    send_numbers(publisher, topic, 4)
    message = received(consumer)
    if mode is TRANSACTED:
        first.commit()
    else:
        message.acknowledge()
    assert texts(consumer, 2) == ["1", "2"]
    first.close()
    again = connect(client_id=client).create_durable_consumer(topic, "box")
    assert counted(again, 3) == [("1", 2), ("2", 2), ("3", 1)]


@every_front
@pytest.mark.parametrize("kind", ["queue", "durable subscription"])
def test_after_a_lost_session_all_that_was_sent_to_it_is_flagged(
    connect: Connect, backend: Backend, kind: str
) -> None:
    """[19]: nobody knows what of it was seen."""
    publisher, client = connect(), backend.name("client")
    create = publisher.create_queue if kind == "queue" else publisher.create_topic
    destination = create(backend.name())

    def consume(context: Any) -> Any:
        if kind == "queue":
            return context.create_consumer(destination)
        return context.create_durable_consumer(destination, "box")

    first = connect(client_id=client, session_mode=CLIENT)
    consumer = consume(first)
    send_numbers(publisher, destination, 5)
    received(consumer).acknowledge()
    assert texts(consumer, 2) == ["1", "2"]
    abandon(first)
    heir = connected_soon(connect, client_id=client)
    assert counted(consume(heir), 4) == [(str(n), 2) for n in range(1, 5)]


@every_front
@redelivering
def test_a_session_that_is_resumed_has_nothing_flagged(
    connect: Connect, backend: Backend, mode: SessionMode
) -> None:
    """[19]"""
    publisher, context = connect(), connect(session_mode=mode)
    queue, topic = context.create_queue(backend.name()), context.create_topic(backend.name())
    consumers = [context.create_consumer(queue), context.create_consumer(topic)]
    for destination in (queue, topic):
        send_numbers(publisher, destination, 6)
    for consumer in consumers:
        assert texts(consumer, 2) == ["0", "1"]
    lose_connection(context)
    for consumer in consumers:
        assert counted(consumer, 3) == [(str(n), 1) for n in range(2, 5)]
    lose_connection(context)
    last = received(consumers[0])
    assert (last.text, last.delivery_count) == ("5", 1)
    done(context, mode, last)
    context.close()
    assert listed(publisher, queue) == []


# -- Acknowledging --------------------------------------------------------------------------------


@every_front
def test_acknowledging_one_message_acknowledges_all_of_the_session(
    connect: Connect, backend: Backend
) -> None:
    """[21]"""
    context = connect()
    queue, other = context.create_queue(backend.name()), context.create_queue(backend.name())
    for destination in (queue, other):
        send_numbers(context, destination, 3)
    reader = connect(session_mode=CLIENT)
    consumers = [reader.create_consumer(queue), reader.create_consumer(other)]
    assert texts(consumers[1], 2) == ["0", "1"]
    received(consumers[0]).acknowledge()
    assert texts(consumers[0], 1) == ["1"]
    reader.close()
    assert texts(context.create_consumer(queue), 2) == ["1", "2"]
    assert texts(context.create_consumer(other), 1) == ["2"]


@every_front
def test_acknowledging_an_earlier_message_acknowledges_later_ones_too(
    connect: Connect, backend: Backend
) -> None:
    """[21]: all that the session has delivered, also if its consumer is closed."""
    context = connect()
    queue = context.create_queue(backend.name())
    send_numbers(context, queue, 4)
    reader = connect(session_mode=CLIENT)
    consumer = reader.create_consumer(queue)
    messages = [received(consumer) for _ in range(3)]
    consumer.close()
    messages[0].acknowledge()
    messages[2].acknowledge()  # nothing is left to be done
    reader.close()
    assert counted(context.create_consumer(queue), 1) == [("3", 1)]


# -- Dead letters ----------------------------------------------------------------------------------


@every_front
@pytest.mark.process
@redelivering
@pytest.mark.parametrize("kind", ["queue", "topic"])
def test_what_is_never_acknowledged_goes_to_the_dead_letters(
    quick: Connect, kind: str, mode: SessionMode
) -> None:
    """[23]"""
    publisher, context = quick(), quick(session_mode=mode)
    destination = getattr(context, f"create_{kind}")("d")
    consumer = context.create_consumer(destination)
    send_numbers(publisher, destination, 2)
    for count in range(1, DELIVERIES + 1):
        assert counted(consumer, 1) == [("0", count)]
        once_more(context, mode)
    message = received(consumer)
    assert (message.text, message.delivery_count) == ("1", 1)  # the place before it is free
    letter = dead_letter(publisher, destination)
    assert (letter.text, letter.destination, letter.redelivered) == ("0", destination, False)
    reason = letter.properties["JMS_dead_reason"]
    assert reason == f"delivered {DELIVERIES} times, and not acknowledged"
    done(context, mode, message)
    context.close()
    if kind == "queue":
        assert listed(publisher, destination) == []


@every_front
def test_a_message_that_always_fails_goes_to_the_dead_letters(
    connect: Connect, backend: Backend
) -> None:
    """[23, 34]: not lost, and in nobody's way."""
    context = connect()
    queue = context.create_queue(backend.name(), redelivery_delay=0)
    complaints: Results[Exception] = Results()
    handled: Results[str] = Results()
    reader = connect()
    reader.exception_listener = complaints.put

    def listener(message: Any) -> None:
        if message.text == "0":
            raise FailureError("cannot be handled")
        handled.put(message.text)

    consumer = reader.create_consumer(queue)
    consumer.set_message_listener(listener)
    send_numbers(context, queue, 2)
    assert handled.get(timeout=PATIENCE_S) == "1"
    complaint = complaints.get(timeout=PATIENCE_S)
    assert isinstance(complaint, IllegalStateError)
    assert isinstance(complaint.__cause__, FailureError)
    consumer.close()
    assert listed(context, queue) == []
    letter = dead_letter(context, queue)
    assert (letter.text, letter.redelivered) == ("0", False)
    assert "FailureError('cannot be handled')" in letter.properties["JMS_dead_reason"]


@every_front
@pytest.mark.process
def test_a_dead_letter_is_not_buried_again(quick: Connect) -> None:
    """[23]: it stays until somebody takes it."""
    publisher, context = quick(), quick(session_mode=TRANSACTED)
    queue = context.create_queue("q")
    letters = context.create_consumer(context.create_queue("DLQ"), f"JMSType = '{queue.name}'")
    consumer = context.create_consumer(queue)
    publisher.create_producer().send(queue, "hopeless", type=queue.name)
    for _ in range(DELIVERIES):
        assert texts(consumer, 1) == ["hopeless"]
        context.rollback()
    for count in range(1, DELIVERIES + 3):
        assert counted(letters, 1) == [("hopeless", count)]
        context.rollback()
    assert texts(letters, 1) == ["hopeless"]
    context.commit()


@every_front
@pytest.mark.process
def test_a_listener_that_fails_on_a_dead_letter_does_not_lose_it(quick: Connect) -> None:
    """[23, 34]: it comes again and again."""
    context, reader = quick(), quick()
    letters = context.create_queue("DLQ")
    context.create_producer().send(letters, "hopeless")
    seen: Results[int] = Results()

    def listener(message: Any) -> None:
        seen.put(message.delivery_count)
        raise FailureError

    consumer = reader.create_consumer(letters)
    consumer.set_message_listener(listener)
    counts = list(range(1, DELIVERIES + 3))
    assert heard(seen, len(counts)) == counts
    consumer.close()
    assert received(context.create_consumer(letters)).delivery_count > len(counts)


@pytest.fixture
def strict(front: Any) -> Iterator[Callable[..., Any]]:
    """Connections to a server where three deliveries are enough, which follow at once."""
    settings = HomeSettings(deliveries_max=3, redelivery=Redelivery(delay_ms=10, most_ms=10))
    with backends.one_server(settings) as backend, backends.connections(front, backend) as connect:
        yield connect


@every_front
@pytest.mark.process
@redelivering
def test_how_many_deliveries_there_are_is_configured(strict: Connect, mode: SessionMode) -> None:
    """[23]: a message that its programs never get done with goes there as well."""
    context = strict()
    queue, other = context.create_queue("q"), context.create_queue("other")
    for destination in (queue, other):
        send_numbers(context, destination, 2)
    for count in (1, 2, 3):
        reader = strict(session_mode=mode)
        assert counted(reader.create_consumer(queue), 1) == [("0", count)]
        reader.close()
    reader = strict(session_mode=mode)
    assert counted(reader.create_consumer(queue), 1) == [("1", 1)]
    consumer = reader.create_consumer(other)
    for count in (1, 2, 3):
        assert counted(consumer, 1) == [("0", count)]
        once_more(reader, mode)
    for source in (queue, other):
        letter = dead_letter(context, source)
        assert letter.properties["JMS_dead_reason"].startswith("delivered 3 times")
