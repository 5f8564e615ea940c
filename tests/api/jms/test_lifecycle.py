"""The life cycle of connections, sessions and consumers: points 32 to 36 and 39 of "What
implementers get wrong" (`docs/jms.md`).
"""

from __future__ import annotations

import time
from queue import Queue as Results
from typing import Any

import pytest

from antiphon import SessionMode
from antiphon.errors import IllegalStateError, InvalidClientIDError, InvalidDestinationError
from tests.api.support.backends import Backend, abandon
from tests.api.support.fronts import PATIENCE_S, every_front
from tests.api.support.steps import (
    CLIENT,
    SOON,
    Connect,
    FailureError,
    Gate,
    connected_soon,
    heard,
    in_thread,
    inside,
    listed,
    received,
    send,
    send_numbers,
    texts,
    until,
    until_waiting,
)

# -- Starting and stopping -------------------------------------------------------------------------


@every_front
def test_stop_holds_deliveries_and_start_goes_on(connect: Connect, backend: Backend) -> None:
    """[32]: and a timed receive waits its time."""
    context = connect()
    queue = context.create_queue(backend.name())
    consumer = context.create_consumer(queue)
    send_numbers(context, queue, 2)
    until(lambda: bool(inside(consumer).inbox.ready))
    context.stop()
    context.stop()
    assert consumer.receive_no_wait() is None
    began = time.monotonic()
    assert consumer.receive(SOON) is None
    assert time.monotonic() - began >= SOON  # it waits, though there is something
    waiting = in_thread(lambda: received(consumer).text)
    until_waiting(consumer)
    context.start()
    assert waiting.get(timeout=PATIENCE_S) == "0"
    assert texts(consumer, 1) == ["1"]


@every_front
def test_stop_waits_for_the_running_listener(
    connect: Connect, backend: Backend, front: Any
) -> None:
    """[32]"""
    context = connect()
    queue = context.create_queue(backend.name())
    gate = Gate(front)
    context.create_consumer(queue).set_message_listener(gate.listener)
    send_numbers(context, queue, 2)
    gate.entered.get(timeout=PATIENCE_S)
    stopping = in_thread(context.stop)
    until(lambda: not context._core.connection.started)
    assert stopping.empty()
    gate.open()
    assert stopping.get(timeout=PATIENCE_S) is None
    assert gate.entered.empty()  # the second message is held
    context.start()
    assert gate.entered.get(timeout=PATIENCE_S) == "1"
    gate.open()


@every_front
def test_stop_is_for_the_whole_connection_and_sending_goes_on(
    connect: Connect, backend: Backend
) -> None:
    """[32]"""
    context, other = connect(), connect()
    sibling = context.create_context(CLIENT)
    queues = [context.create_queue(backend.name()) for _ in range(3)]
    seen: Results[str] = Results()
    sibling.create_consumer(queues[0]).set_message_listener(lambda m: seen.put(m.text))
    context.stop()
    send(sibling, queues[0], "held")
    send(context, queues[1], "sent while stopped")
    assert texts(other.create_consumer(queues[1]), 1) == ["sent while stopped"]
    assert seen.empty()
    sibling.create_consumer(queues[2])  # what is made meanwhile is made
    assert listed(context, queues[0]) == ["held"]  # and looking is no delivery
    context.start()
    context.start()
    assert heard(seen, 1) == ["held"]


# -- Closing ---------------------------------------------------------------------------------------


@every_front
def test_closing_a_context_inside_its_listener_is_refused(
    connect: Connect, backend: Backend, front: Any
) -> None:
    """[33]"""
    context = connect()
    queue = context.create_queue(backend.name())
    errors: list[Exception | None] = []
    done: Results[str] = Results()
    reader = connect()
    child = reader.create_context(SessionMode.AUTO_ACKNOWLEDGE)
    calls = [reader.close, child.close, reader.stop]

    def listener(message: Any) -> Any:
        done.put(message.text)
        return front.attempt(calls[int(message.text)], errors)

    child.create_consumer(queue).set_message_listener(listener)
    send_numbers(context, queue, 3)
    heard(done, 3)
    until(lambda: len(errors) == 3)
    assert [type(error) for error in errors] == [IllegalStateError] * 3


@every_front
def test_a_listener_may_close_its_own_consumer(
    connect: Connect, backend: Backend, front: Any
) -> None:
    """[33]"""
    context = connect()
    queue = context.create_queue(backend.name())
    errors: list[Exception | None] = []
    consumer = context.create_consumer(queue)
    consumer.set_message_listener(lambda _: front.attempt(consumer.close, errors))
    send_numbers(context, queue, 3)
    until(lambda: errors == [None])
    other = context.create_consumer(queue)
    assert texts(other, 2) == ["1", "2"]
    other.close()
    assert listed(context, queue) == []


@every_front
@pytest.mark.parametrize("closed", ["consumer", "context"])
def test_close_waits_for_the_running_listener(
    connect: Connect, backend: Backend, front: Any, closed: str
) -> None:
    """[33]"""
    context = connect()
    queue = context.create_queue(backend.name())
    gate = Gate(front)
    reader = connect()
    consumer = reader.create_consumer(queue)
    consumer.set_message_listener(gate.listener)
    send_numbers(context, queue, 2)
    gate.entered.get(timeout=PATIENCE_S)
    closing = in_thread((consumer if closed == "consumer" else reader).close)
    until(lambda: inside(consumer).closed)
    assert closing.empty()
    gate.open()
    assert closing.get(timeout=PATIENCE_S) is None
    assert gate.entered.empty()
    assert texts(context.create_consumer(queue), 1) == ["1"]  # "0" was handled


@every_front
@pytest.mark.parametrize("closed", ["consumer", "context"])
def test_close_ends_a_blocked_receive(connect: Connect, backend: Backend, closed: str) -> None:
    """[33]"""
    context = connect()
    consumer = context.create_consumer(context.create_queue(backend.name()))
    waiting = in_thread(consumer.receive)
    until_waiting(consumer)
    (consumer if closed == "consumer" else context).close()
    assert waiting.get(timeout=PATIENCE_S) is None
    consumer.close()
    with pytest.raises(IllegalStateError, match="closed"):
        consumer.receive(1)
    with pytest.raises(IllegalStateError, match="closed"):
        consumer.receive_no_wait()


@every_front
def test_closing_twice_is_no_error_and_nothing_else_works(
    connect: Connect, backend: Backend
) -> None:
    """[33]"""
    root = connect()
    context = root.create_context(CLIENT)
    queue = context.create_queue(backend.name())
    producer, consumer = context.create_producer(), context.create_consumer(queue)
    for closed in (consumer, context, root):
        closed.close()
        closed.close()
    for call in (
        lambda: producer.send(queue, "x"),
        lambda: consumer.receive(0),
        lambda: consumer.set_message_listener(print),
        lambda: context.create_consumer(queue),
        lambda: context.create_browser(queue),
        lambda: root.create_context(CLIENT),
        context.create_temporary_queue,
        context.recover,
        context.commit,
        root.start,
        root.stop,
    ):
        with pytest.raises(IllegalStateError, match="closed"):
            call()


# -- Listeners that fail ---------------------------------------------------------------------------


@every_front
def test_a_listener_that_raises_gets_the_message_again(connect: Connect, backend: Backend) -> None:
    """[34]"""
    context = connect()
    queue = context.create_queue(backend.name())
    seen: Results[tuple[str, int]] = Results()

    def listener(message: Any) -> None:
        seen.put((message.text, message.delivery_count))
        if message.text == "1" and message.delivery_count < 3:
            raise FailureError

    reader = connect()
    reader.create_consumer(queue).set_message_listener(listener)
    send_numbers(context, queue, 3)
    assert sorted(heard(seen, 5)) == [("0", 1), ("1", 1), ("1", 2), ("1", 3), ("2", 1)]
    reader.close()
    assert listed(context, queue) == []


# -- Temporary destinations ------------------------------------------------------------------------


@every_front
def test_only_its_connection_consumes_from_a_temporary_destination(
    connect: Connect, backend: Backend
) -> None:
    """[35]"""
    owner, other = connect(), connect()
    for temporary in (owner.create_temporary_queue(), owner.create_temporary_topic()):
        with pytest.raises(InvalidDestinationError, match="another connection"):
            other.create_consumer(temporary)
        consumer = owner.create_consumer(temporary)
        other.create_producer().send(temporary, "hello")
        assert texts(consumer, 1) == ["hello"]


@every_front
def test_a_temporary_destination_belongs_to_the_connection(
    connect: Connect, backend: Backend
) -> None:
    """[35]: not to the session that made it."""
    root = connect()
    context = root.create_context(CLIENT)
    queue = context.create_temporary_queue()
    context.close()
    send(connect(), queue, "hello")
    assert texts(root.create_consumer(queue), 1) == ["hello"]


@every_front
def test_deleting_a_temporary_destination(connect: Connect, backend: Backend, front: Any) -> None:
    """[35]: not while it is in use."""
    context, other = connect(), connect()
    for one in (context.create_temporary_queue(), context.create_temporary_topic()):
        consumer = context.create_consumer(one)
        with pytest.raises(IllegalStateError, match="consumers"):
            front.do(one.delete)
        consumer.close()
        front.do(one.delete)
        for sender in (context, other):
            with pytest.raises(InvalidDestinationError, match="does not exist"):
                send(sender, one, "x")
        with pytest.raises(InvalidDestinationError, match="is gone"):
            context.create_consumer(one)


@every_front
def test_a_temporary_destination_ends_with_its_connection(
    connect: Connect, backend: Backend
) -> None:
    """[35]"""
    owner, other = connect(), connect()
    temporary = [owner.create_temporary_queue(), owner.create_temporary_topic()]
    for one in temporary:
        send(other, one, "x")
    owner.close()
    for one in temporary:
        with pytest.raises(InvalidDestinationError, match="its connection has ended"):
            send(other, one, "x")


# -- Sending without waiting -----------------------------------------------------------------------


def test_asynchronous_sends_are_completed_in_order(connect: Connect, backend: Backend) -> None:
    """[36]: the classic API has none."""
    context = connect()
    queue = context.create_queue(backend.name())
    producer = context.create_producer()
    done: Results[int] = Results()
    futures = []
    for n in range(100):
        futures.append(producer.send_async(queue, str(n)))
        futures[-1].add_done_callback(lambda _, n=n: done.put(n))
    producer.send(queue, "last")
    assert all(future.done() for future in futures)
    for future in futures:
        future.result(PATIENCE_S)
        assert future.exception(PATIENCE_S) is None
    assert heard(done, 100) == list(range(100))
    sent = [*map(str, range(100)), "last"]
    assert texts(context.create_consumer(queue), 101) == sent


# -- Client ids ------------------------------------------------------------------------------------


@every_front
def test_a_client_id_is_used_by_one_connection_at_a_time(
    connect: Connect, backend: Backend
) -> None:
    """[39]"""
    client = backend.name("client")
    first = connect(client_id=client)
    with pytest.raises(InvalidClientIDError, match=client):
        connect(client_id=client)
    first.close()
    connect(client_id=client)  # at once


@every_front
def test_the_client_id_of_a_lost_connection_is_free_soon(
    connect: Connect, backend: Backend
) -> None:
    """[39]"""
    client = backend.name("client")
    topic = connect().create_topic(backend.name())
    first = connect(client_id=client)
    first.create_durable_consumer(topic, "mailbox")
    abandon(first)
    second = connected_soon(connect, client_id=client)
    consumer = second.create_durable_consumer(topic, "mailbox")
    send(second, topic, "hello")
    assert texts(consumer, 1) == ["hello"]
