"""Consumers that choose: selectors, no-local, expiry and last values of topics.

Each test runs on both fronts, against each kind of server. The numbers in brackets are points of
the design's list of what JMS implementers get wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from queue import Queue as Results
from typing import Any

import pytest

from antiphon import DeliveryMode, SessionMode
from antiphon.errors import (
    IllegalStateError,
    InvalidDestinationError,
    InvalidSelectorError,
    ResourceAllocationError,
)
from tests.api.backends import Backend, lose_connection
from tests.api.fronts import PATIENCE_S

Connect = Callable[..., Any]
SOON = 0.1
"""How long to wait for what must not come. What is sent to live for a `MOMENT` is over by then."""

MOMENT = 0.01
END = "end"


def received(consumer: Any) -> Any:
    message = consumer.receive(PATIENCE_S)
    assert message is not None, "no message came"
    return message


def until_end(consumer: Any) -> list[str]:
    """Everything before the message that ends it."""
    found = []
    while (text := received(consumer).text) != END:
        found.append(text)
    return found


def chosen(
    connect: Connect, backend: Backend, selector: str, *properties: dict[str, Any]
) -> list[int]:
    """Of messages with these properties, those that the selector takes."""
    context = connect()
    topic = context.create_topic(backend.name())
    consumer = context.create_consumer(topic, selector=f"({selector}) OR last = TRUE")
    producer = context.create_producer()
    for number, some in enumerate(properties):
        producer.send(topic, str(number), properties=some)
    producer.send(topic, END, properties={"last": True})
    return [int(text) for text in until_end(consumer)]


# -- Selectors ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("selector", "properties", "taken"),
    [
        # [1] Literals are Java's; exact and approximate numbers compare with each other.
        ("a = 035", [{"a": 29}, {"a": 35}], [0]),
        ("a = 0x1F OR a = 7L", [{"a": 31}, {"a": 7}, {"a": 0}], [0, 1]),
        ("a = 1.5e3", [{"a": 1500}, {"a": 1500.0}, {"a": 1501}], [0, 1]),
        # [2] IN is about strings.
        ("a IN ('5')", [{"a": 5}, {"a": "5"}], [1]),
        ("a NOT IN ('5')", [{"a": 5}, {"a": "6"}, {"a": "5"}], [1]),
        # [3] What is absent is neither equal nor unequal.
        ("a = 1 OR NOT a = 1", [{}, {"a": 1}, {"a": 2}], [1, 2]),
        ("NOT (a BETWEEN 1 AND 2)", [{}, {"a": 3}], [1]),
        ("a LIKE 'x%' OR a NOT LIKE 'x%'", [{}, {"a": "y"}], [1]),
        ("a IS NULL", [{}, {"a": 1}], [0]),
        # [4] LIKE and ESCAPE.
        ("a LIKE 'x!_y' ESCAPE '!'", [{"a": "x_y"}, {"a": "xzy"}], [0]),
        ("a LIKE '_b%'", [{"a": "ab"}, {"a": "abc"}, {"a": "b"}], [0, 1]),
        # [5] Unlike types are not equal, and strings have no order.
        ("a = 5", [{"a": "5"}, {"a": 5}, {"a": True}], [1]),
        ("a < 'b'", [{"a": "a"}], []),
        ("a < 2", [{"a": True}, {"a": "1"}, {"a": 1}], [2]),
        # [6] Keywords ignore case, names do not.
        ("a = 1 oR b = 2", [{"a": 1}, {"A": 1}, {"b": 2}], [0, 2]),
    ],
)
def test_what_selectors_mean(
    connect: Connect,
    backend: Backend,
    selector: str,
    properties: list[dict[str, Any]],
    taken: list[int],
) -> None:
    assert chosen(connect, backend, selector, *properties) == taken


@pytest.mark.parametrize("selector", ["", "   ", "\t\n", None])
def test_a_blank_selector_is_none(connect: Connect, backend: Backend, selector: str | None) -> None:
    """[7]"""
    context = connect()
    topic = context.create_topic(backend.name())
    consumer = context.create_consumer(topic, selector=selector)
    context.create_producer().send(topic, END)
    assert until_end(consumer) == []


def test_headers_can_be_selected_by(connect: Connect, backend: Backend) -> None:
    """[8]"""
    context = connect()
    topic = context.create_topic(backend.name())
    selectors = {
        "mode": "JMSDeliveryMode = 'NON_PERSISTENT'",
        "priority": "JMSPriority > 4",
        "correlation": "JMSCorrelationID LIKE 'order%'",
        "type": "JMSType = 'alarm'",
        "timestamp": "JMSTimestamp > 1000000000000",
        "group": "JMSXGroupID = 'g'",
    }
    consumers = {name: context.create_consumer(topic, s) for name, s in selectors.items()}
    producer = context.create_producer()
    producer.send(topic, "mode", delivery_mode=DeliveryMode.NON_PERSISTENT)
    producer.send(topic, "priority", priority=5)
    producer.send(topic, "correlation", correlation_id="order 1")
    producer.send(topic, "type", type="alarm")
    producer.send(topic, "group", properties={"JMSXGroupID": "g"})
    everything = ["mode", "priority", "correlation", "type", "group"]
    for name, consumer in consumers.items():
        for wanted in everything if name == "timestamp" else [name]:
            assert received(consumer).text == wanted
        assert consumer.receive(0) is None


def test_a_message_is_selected_by_the_id_that_it_shows(connect: Connect, backend: Backend) -> None:
    """[9]"""
    context = connect()
    topic = context.create_topic(backend.name())
    producer = context.create_producer()
    first = context.create_text_message("first")
    producer.send(topic, first)
    session, _, number = first.id.rpartition(".")
    later = f"{session}.{int(number) + 2}"  # a program can know: its messages are numbered
    consumer = context.create_consumer(topic, selector=f"JMSMessageID = '{later}'")
    producer.send_all(topic, ["second", "third", "fourth"])
    message = received(consumer)
    assert (message.text, message.id) == ("third", later)
    assert consumer.receive(0) is None


def test_a_wrong_selector_is_refused_with_its_position(connect: Connect, backend: Backend) -> None:
    """[10]"""
    context = connect(client_id=backend.name("client"))
    topic = context.create_topic(backend.name())
    with pytest.raises(InvalidSelectorError, match="position 9") as caught:
        context.create_consumer(topic, selector="floor > AND x")
    assert caught.value.happened == "no"
    with pytest.raises(InvalidSelectorError, match="position 1"):
        context.create_durable_consumer(topic, "d", selector="JMSExpiration > 0")
    with pytest.raises(InvalidSelectorError, match="surrogate"):
        context.create_consumer(topic, selector="a = '\ud800'")
    with pytest.raises(InvalidDestinationError):
        context.unsubscribe("d")  # nothing was made


def test_what_is_not_wanted_does_not_hold_up_what_is(connect: Connect, backend: Backend) -> None:
    context = connect()
    topic = context.create_topic(backend.name())
    consumer = context.create_consumer(topic, selector="n >= 900", prefetch=2)
    producer = context.create_producer()
    for n in range(903):
        producer.send_async(topic, str(n), properties={"n": n})
    assert [received(consumer).text for _ in range(3)] == ["900", "901", "902"]


def test_a_durable_selector_filters_as_if_on_arrival(connect: Connect, backend: Backend) -> None:
    """[24] [25]"""
    client = backend.name("client")
    context, publisher = connect(client_id=client), connect()
    topic = context.create_topic(backend.name())
    context.create_durable_consumer(topic, "d", selector="color = 'red'").close()
    producer = publisher.create_producer()
    for color in ("red", "blue", "red", "green"):
        producer.send(topic, color, properties={"color": color})
    consumer = context.create_durable_consumer(topic, "d", selector="color  =  'red'")
    assert [received(consumer).text for _ in range(2)] == ["red", "red"]
    with pytest.raises(IllegalStateError, match="active"):
        context.create_durable_consumer(topic, "d", selector="color = 'blue'")
    consumer.close()
    producer.send(topic, "missed", properties={"color": "red"})
    # Changed, it is a new one: what waited is gone, what it had passed over stays so.
    consumer = context.create_durable_consumer(topic, "d", selector="color = 'blue'")
    producer.send(topic, "not", properties={"color": "red"})
    producer.send(topic, END, properties={"color": "blue"})
    assert until_end(consumer) == []


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


def test_no_local_is_about_the_connection(connect: Connect, backend: Backend) -> None:
    """[31] Another context on the same connection is no other client."""
    one, two = connect(), connect()
    same = one.create_context(SessionMode.AUTO_ACKNOWLEDGE)
    topic = one.create_topic(backend.name())
    consumer = one.create_consumer(topic, no_local=True)
    everything = one.create_consumer(topic)
    one.create_producer().send(topic, "mine")
    same.create_producer().send(topic, "mine too")
    two.create_producer().send(topic, "theirs")
    two.create_producer().send(topic, END)
    assert until_end(consumer) == ["theirs"]
    assert until_end(everything) == ["mine", "mine too", "theirs"]


def test_a_durable_no_local_subscription_knows_its_client_again(
    connect: Connect, backend: Backend
) -> None:
    """[24] [31]"""
    client, other = backend.name("client"), connect()
    first = connect(client_id=client)
    topic = first.create_topic(backend.name())
    first.create_durable_consumer(topic, "d", no_local=True).close()
    first.create_producer().send(topic, "mine")
    first.close()
    other.create_producer().send(topic, "theirs")
    second = connect(client_id=client)
    second.create_producer().send(topic, "mine again")
    other.create_producer().send(topic, END)
    consumer = second.create_durable_consumer(topic, "d", no_local=True)
    assert until_end(consumer) == ["theirs"]
    consumer.close()
    other.create_producer().send(topic, "gone")
    consumer = second.create_durable_consumer(topic, "d")  # is a new one
    second.create_producer().send(topic, "mine at last")
    other.create_producer().send(topic, END)
    assert until_end(consumer) == ["mine at last"]


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


def test_the_servers_hand_out_nothing_that_is_over(connect: Connect, backend: Backend) -> None:
    """[37] Nobody was there when it came."""
    context = connect(client_id=backend.name("client"))
    topic = context.create_topic(backend.name())
    context.create_durable_consumer(topic, "d").close()
    producer = context.create_producer()
    producer.send(topic, "short", time_to_live=MOMENT)
    producer.send(topic, "long", time_to_live=3600)
    producer.send(topic, "short", time_to_live=MOMENT)
    producer.send(topic, END)
    pass_time(context, backend)
    assert until_end(context.create_durable_consumer(topic, "d")) == ["long"]


@pytest.mark.parametrize("mode", [SessionMode.AUTO_ACKNOWLEDGE, SessionMode.CLIENT_ACKNOWLEDGE])
def test_what_expires_while_it_waits_here_is_not_handed_out(
    connect: Connect, backend: Backend, mode: SessionMode
) -> None:
    """[37] And it makes room for what follows."""
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


def test_a_new_subscriber_begins_with_the_last_message_of_each_key(
    connect: Connect, backend: Backend
) -> None:
    context, late = connect(), connect(client_id=backend.name("client"))
    topic = context.create_last_value_topic(backend.name())
    assert topic == context.create_topic(topic.name)
    producer = context.create_producer()
    for key, text in (("a", "1"), ("b", "2"), (None, "3"), ("a", "4"), ("c", "5")):
        producer.send(topic, text, key=key)
    plain = late.create_consumer(topic)
    durable = late.create_durable_consumer(topic, "d")
    some = late.create_consumer(topic, selector="JMSPriority < 4")
    producer.send(topic, "6", key="b")
    producer.send(topic, END, priority=1)
    assert until_end(plain) == ["2", "4", "5", "6"]
    assert until_end(durable) == ["2", "4", "5", "6"]
    assert until_end(some) == []
    durable.close()
    producer.send(topic, "7", key="b")
    producer.send(topic, END)
    assert until_end(late.create_durable_consumer(topic, "d")) == ["7"]


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
