"""Messages and properties: points 11 to 17 of "What implementers get wrong" (`docs/jms.md`), here
on their way through servers; `messages/test_typed_*.py` has every type by itself.
"""

from __future__ import annotations

from typing import Any

import pytest

import antiphon
from antiphon import DeliveryMode
from antiphon.errors import (
    MessageEOFError,
    MessageFormatError,
    MessageNotReadableError,
    MessageNotWriteableError,
)
from tests.api.messages import test_typed_bodies as bodies
from tests.api.messages import test_typed_properties as properties
from tests.api.support.backends import Backend
from tests.api.support.fronts import every_front
from tests.api.support.steps import CLIENT, Connect, counted, plain, received, send_numbers


class Way:
    """Of messages through a queue."""

    def __init__(self, connect: Connect, backend: Backend) -> None:
        self.context = connect()
        queue = self.context.create_queue(backend.name())
        self._queue = queue
        self._consumer = connect().create_consumer(queue)

    def through(self, content: Any, **headers: Any) -> Any:
        self.context.create_producer().send(self._queue, content, **headers)
        return plain(received(self._consumer))


@pytest.fixture
def way(connect: Connect, backend: Backend) -> Way:
    return Way(connect, backend)


@every_front
def test_properties_are_read_as_what_they_may_be_read_as(way: Way) -> None:
    """[11]"""
    for kind in properties.TYPES:
        sent = properties.set_as(kind, properties.VALUES[kind], way.context.create_text_message())
        arrived = way.through(sent)
        for message in (arrived, way.through(arrived)):
            readable = {type_ for type_ in properties.TYPES if properties.readable(message, type_)}
            assert readable == set(properties.TABLE[kind].split()), kind


@every_front
def test_a_number_has_the_smallest_type_unless_it_is_told_otherwise(way: Way) -> None:
    """[11]"""
    message = way.context.create_message()
    message.properties.update({"byte": 5, "short": 300, "int": 70_000, "long": 1 << 40})
    message.set_long_property("told", 5)
    arrived = way.through(message)
    assert arrived.get_byte_property("byte") == 5
    assert arrived.get_short_property("short") == 300
    assert arrived.get_int_property("int") == 70_000
    assert arrived.get_long_property("long") == 1 << 40
    assert arrived.get_long_property("told") == 5
    for name, kind in (("short", "byte"), ("int", "short"), ("long", "int"), ("told", "int")):
        with pytest.raises(MessageFormatError, match=name):
            getattr(arrived, f"get_{kind}_property")(name)


WORDS = ["NULL", "TRUE", "FALSE", "NOT", "AND", "OR", "BETWEEN", "LIKE", "IN", "IS", "ESCAPE"]


@every_front
def test_names_are_identifiers_and_no_words_of_selectors(way: Way) -> None:
    """[12]"""
    message = way.context.create_text_message("x")
    for name in (*WORDS, "between", "", "4th", "a-b", "a b", "JMSFloor", "JMSXDeliveryCount"):
        with pytest.raises(MessageFormatError, match="name a property"):
            message.set_string_property(name, "x")
        with pytest.raises(MessageFormatError, match="name a property"):
            way.through("x", properties={name: 1})
    good = {"_floor": 1, "$": 2, "étage": 3, "nulls": 4, "JMSXGroupID": "g", "JMS_of_ours": 5}
    assert way.through("x", properties=good).properties == good


@every_front
def test_a_received_message_is_read_only_until_it_is_cleared(way: Way) -> None:
    """[13]"""
    arrived = way.through("text", properties={"floor": 4})
    with pytest.raises(MessageNotWriteableError, match="clear_body"):
        arrived.text = "new"
    with pytest.raises(MessageNotWriteableError, match="clear_properties"):
        arrived.set_int_property("floor", 5)
    arrived.clear_properties()
    arrived.set_int_property("wing", 1)
    assert (arrived.text, arrived.properties) == ("text", {"wing": 1})
    with pytest.raises(MessageNotWriteableError, match="clear_body"):
        arrived.text = "new"
    again = way.through(arrived)
    assert (again.text, again.properties) == ("text", {"wing": 1})
    again.clear_body()
    again.text = "new"
    with pytest.raises(MessageNotWriteableError, match="clear_properties"):
        again.properties["wing"] = 2
    last = way.through(again)
    assert (last.text, last.properties) == ("new", {"wing": 1})


@every_front
@pytest.mark.parametrize("kind", [bodies.Stream, bodies.Map])
def test_maps_and_streams_keep_types(way: Way, kind: Any) -> None:
    """[14]"""
    for type_ in bodies.TYPES:
        one = kind()
        one.write(type_, bodies.VALUES[type_])
        one.message = way.through(one.message)
        readable = {other for other in bodies.TYPES if bodies.readable(one, other)}
        assert readable == set(bodies.TABLE[type_].split()), type_
        assert one.read(type_) == bodies.VALUES[type_]


@every_front
def test_a_stream_is_read_to_its_end_and_a_failed_read_does_not_move(way: Way) -> None:
    """[14]"""
    message = way.context.create_stream_message()
    message.write_string("seven")
    message.write_bytes(b"\x00\xff")
    message.write_char("x")
    with pytest.raises(MessageNotReadableError):
        message.read_string()
    arrived = way.through(message)
    with pytest.raises(MessageFormatError):
        arrived.read_int()
    assert arrived.read_string() == "seven"
    with pytest.raises(MessageFormatError):
        arrived.read_string()
    assert (arrived.read_bytes(), arrived.read_char()) == (b"\x00\xff", "x")
    for _ in range(2):
        with pytest.raises(MessageEOFError):
            arrived.read_object()
    arrived.reset()
    assert arrived.read_string() == "seven"
    with pytest.raises(MessageNotWriteableError):
        arrived.write_int(1)


@every_front
def test_bytes_are_read_to_their_end_and_a_failed_read_does_not_move(way: Way) -> None:
    """[14]"""
    message = way.context.create_bytes_message()
    message.write_int(-2)
    message.write_utf("fire")
    message.write_byte(200 - 256)
    arrived = way.through(message)
    assert arrived.body_length == 4 + 6 + 1
    assert (arrived.read_int(), arrived.read_utf()) == (-2, "fire")
    with pytest.raises(MessageEOFError):
        arrived.read_short()
    assert arrived.read_unsigned_byte() == 200
    with pytest.raises(MessageEOFError):
        arrived.read_byte()


@every_front
def test_deliveries_are_counted_from_one(connect: Connect, backend: Backend) -> None:
    """[15]"""
    context = connect(session_mode=CLIENT)
    queue = context.create_queue(backend.name())
    send_numbers(context, queue, 1)
    consumer = context.create_consumer(queue)
    for count in (1, 2, 3):
        message = plain(received(consumer))
        assert message.property_exists("JMSXDeliveryCount")
        assert message.get_int_property("JMSXDeliveryCount") == count
        assert message.get_string_property("JMSXDeliveryCount") == str(count)
        assert (message.delivery_count, message.redelivered) == (count, count > 1)
        context.recover()


@every_front
def test_headers_arrive_and_a_message_can_be_forwarded(connect: Connect, backend: Backend) -> None:
    """[16]"""
    context = connect()
    queue, onwards = context.create_queue(backend.name()), context.create_queue(backend.name())
    producer = context.create_producer()
    producer.send(
        queue,
        "x",
        properties={"floor": 4, "wing": "east"},
        priority=7,
        correlation_id="c",
        reply_to=onwards,
        type="alarm",
        delivery_mode=DeliveryMode.NON_PERSISTENT,
    )
    message = received(context.create_consumer(queue))
    assert dict(message.properties) == {"floor": 4, "wing": "east"}
    assert (message.priority, message.type, message.destination) == (7, "alarm", queue)
    assert message.delivery_mode is DeliveryMode.NON_PERSISTENT
    producer.send(onwards, plain(message))
    forwarded = received(context.create_consumer(onwards))
    assert (forwarded.text, forwarded.correlation_id, forwarded.reply_to) == ("x", "c", onwards)
    assert forwarded.properties["floor"] == 4
    assert (forwarded.priority, forwarded.delivery_mode) == (4, DeliveryMode.PERSISTENT)


@every_front
def test_a_message_that_came_again_is_forwarded_as_a_new_one(
    connect: Connect, backend: Backend
) -> None:
    """[15, 16]"""
    context = connect(session_mode=CLIENT)
    queue, onwards = context.create_queue(backend.name()), context.create_queue(backend.name())
    send_numbers(context, queue, 1)
    consumer = context.create_consumer(queue)
    received(consumer)
    context.recover()
    again = received(consumer)
    assert again.redelivered
    context.create_producer().send(onwards, plain(again))
    assert counted(context.create_consumer(onwards), 1) == [("0", 1)]


@every_front
@pytest.mark.parametrize(
    "body", [{"n": 1}, [1, "two"], b"bytes", "text", (1, 2)], ids=lambda body: type(body).__name__
)
def test_a_message_that_was_sent_is_not_changed_by_its_sender(
    connect: Connect, backend: Backend, body: Any
) -> None:
    """[17]"""
    context = connect()
    queue = context.create_queue(backend.name())
    message = MADE[type(body)](body)
    message.set_int_property("floor", 4)
    context.create_producer().send(queue, message)
    message.clear_body()
    message.set_int_property("floor", 5)
    message.correlation_id = "late"
    arrived = received(context.create_consumer(queue))
    assert (arrived.body, arrived.properties["floor"]) == (body, 4)
    assert arrived.correlation_id is None
    assert (message.id, message.destination) == (arrived.id, queue)


MADE: dict[type, Any] = {
    dict: antiphon.MapMessage,
    list: antiphon.StreamMessage,
    bytes: antiphon.BytesMessage,
    str: antiphon.TextMessage,
    tuple: antiphon.ObjectMessage,
}


@every_front
def test_what_waits_to_leave_is_not_changed_by_its_sender(
    connect: Connect, backend: Backend
) -> None:
    """[17]: of a transaction, too, whose messages leave later than `send` returns."""
    context = connect(session_mode=antiphon.SESSION_TRANSACTED)
    queue = context.create_queue(backend.name())
    message = context.create_map_message()
    producer = context.create_producer()
    for n in range(3):
        message.set_int("n", n)
        producer.send(queue, message)
    message.clear_body()
    context.commit()
    consumer = context.create_consumer(queue)
    assert [received(consumer).body for _ in range(3)] == [{"n": 0}, {"n": 1}, {"n": 2}]
