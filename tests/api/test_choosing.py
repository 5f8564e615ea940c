"""Consumers that choose, beyond what JMS implementers get wrong (`jms/test_*.py`): windows, lost
connections, loops and listeners.

Each test runs on both fronts, against each kind of server.
"""

from __future__ import annotations

from queue import Queue as Results
from typing import Any

import pytest

from antiphon import SessionMode
from antiphon.errors import (
    InvalidDestinationError,
    ResourceAllocationError,
)
from tests.api.support.backends import Backend, lose_connection
from tests.api.support.fronts import PATIENCE_S
from tests.api.support.steps import SOON, Connect, received

MOMENT = 0.01
"""What is sent to live so long is over `SOON`."""

END = "end"


def until_end(consumer: Any) -> list[str]:
    """Everything before the message that ends it."""
    found = []
    while (text := received(consumer).text) != END:
        found.append(text)
    return found


# -- Selectors ------------------------------------------------------------------------------------


def test_what_is_not_wanted_does_not_hold_up_what_is(connect: Connect, backend: Backend) -> None:
    context = connect()
    topic = context.create_topic(backend.name())
    consumer = context.create_consumer(topic, selector="n >= 900", prefetch=2)
    producer = context.create_producer()
    for n in range(903):
        producer.send_async(topic, str(n), properties={"n": n})
    assert [received(consumer).text for _ in range(3)] == ["900", "901", "902"]


def test_many_consumers_each_get_their_own(connect: Connect, backend: Backend) -> None:
    context = connect()
    topic = context.create_topic(backend.name())
    consumers = [context.create_consumer(topic, selector=f"room = {n}") for n in range(50)]
    producer = context.create_producer()
    for n in range(200):
        producer.send_async(topic, str(n), properties={"room": n % 50})
    for n, consumer in enumerate(consumers):
        assert [received(consumer).text for _ in range(4)] == [
            str(n + k) for k in range(0, 200, 50)
        ]


def test_a_lost_connection_loses_nothing_that_is_wanted(connect: Connect, backend: Backend) -> None:
    reader, publisher = connect(session_mode=SessionMode.CLIENT_ACKNOWLEDGE), connect()
    topic = reader.create_topic(backend.name())
    consumer = reader.create_consumer(topic, selector="n = 1", prefetch=10)
    producer = publisher.create_producer()
    for n in range(60):
        producer.send(topic, str(n), properties={"n": n % 3})
        if n in (10, 30):
            lose_connection(getattr(reader, "wrapped", reader))
    wanted = [str(n) for n in range(60) if n % 3 == 1]
    assert [received(consumer).text for _ in range(10)] == wanted[:10]
    reader.acknowledge()
    assert [received(consumer).text for _ in range(10)] == wanted[10:]
    reader.acknowledge()
    assert consumer.receive(0) is None


# -- No-local -------------------------------------------------------------------------------------


def test_no_local_and_a_selector(connect: Connect, backend: Backend) -> None:
    one, two = connect(), connect()
    topic = one.create_topic(backend.name())
    consumer = one.create_consumer(topic, selector="n > 1", no_local=True)
    for context, who in ((one, "mine"), (two, "theirs")):
        for n in (1, 2):
            context.create_producer().send(topic, f"{who} {n}", properties={"n": n})
    two.create_producer().send(topic, END, properties={"n": 9})
    assert until_end(consumer) == ["theirs 2"]


# -- Expiry ---------------------------------------------------------------------------------------


def pass_time(context: Any, backend: Backend) -> None:
    """Wait for what does not come."""
    assert context.create_consumer(context.create_topic(backend.name())).receive(SOON) is None


@pytest.mark.parametrize("mode", [SessionMode.AUTO_ACKNOWLEDGE, SessionMode.CLIENT_ACKNOWLEDGE])
def test_what_expires_while_it_waits_here_is_not_handed_out(
    connect: Connect, backend: Backend, mode: SessionMode
) -> None:
    """And it makes room for what follows."""
    context, publisher = connect(session_mode=mode), connect()
    topic = context.create_topic(backend.name())
    consumer = context.create_consumer(topic, prefetch=2)
    producer = publisher.create_producer()
    producer.send(topic, "short", time_to_live=MOMENT)
    producer.send(topic, "short", time_to_live=MOMENT)
    pass_time(context, backend)
    producer.send(topic, "long", time_to_live=3600)
    producer.send(topic, END)
    assert until_end(consumer) == ["long"]


def test_loops_and_listeners_get_nothing_that_is_over(connect: Connect, backend: Backend) -> None:
    context, publisher = connect(), connect()
    topic = context.create_topic(backend.name())
    looped, listened = context.create_consumer(topic), context.create_consumer(topic)
    producer = publisher.create_producer()
    context.stop()
    for text in ("one", "two"):
        producer.send(topic, "short", time_to_live=MOMENT)
        producer.send(topic, text, time_to_live=3600)
    producer.send(topic, END)
    pass_time(publisher, backend)
    heard: Results[str] = Results()
    listened.set_message_listener(lambda message: heard.put(message.text))
    context.start()
    looped_over = []
    for message in looped:
        looped_over.append(message.text)
        if message.text == END:
            break
    assert looped_over == ["one", "two", END]
    assert [heard.get(timeout=PATIENCE_S) for _ in range(3)] == ["one", "two", END]


def test_the_time_of_a_message_is_told(connect: Connect, backend: Backend) -> None:
    context = connect()
    topic = context.create_topic(backend.name())
    consumer = context.create_consumer(topic)
    producer = context.create_producer()
    producer.send(topic, "x", time_to_live=3600)
    producer.send(topic, "y", time_to_live=7200)
    producer.send(topic, "z")
    one, two, three = (received(consumer) for _ in range(3))
    assert round(two.expiration - one.expiration, 3) >= 3600
    assert three.expiration == 0


# -- Last values ----------------------------------------------------------------------------------


def test_a_last_value_topic_is_no_group(connect: Connect, backend: Backend) -> None:
    context = connect()
    topic = context.create_last_value_topic(backend.name())
    context.create_last_value_topic(topic.name)
    with pytest.raises(InvalidDestinationError, match="plain topic"):
        context.create_group(topic.name)
    group = context.create_group(backend.name())
    with pytest.raises(InvalidDestinationError, match="is a group"):
        context.create_last_value_topic(group.name)
    with pytest.raises(ResourceAllocationError, match="at most 1024 characters"):
        context.create_producer().send(topic, "x", key="k" * 1025)
