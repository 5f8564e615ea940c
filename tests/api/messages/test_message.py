"""Messages: what is sent arrives, is read-only, and says clearly what it is not."""

import copy
import pickle
from collections import OrderedDict
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import pytest

from antiphon.api.messages.destinations import Queue, TemporaryQueue, Topic
from antiphon.api.messages.headers import HEADERS_MAX
from antiphon.api.messages.kinds import (
    BytesMessage,
    MapMessage,
    ObjectMessage,
    StreamMessage,
    TextMessage,
)
from antiphon.api.messages.message import Message
from antiphon.api.messages.sending import BODY_MAX, outgoing
from antiphon.api.messages.sending import sent as sent_as
from antiphon.api.modes import DeliveryMode
from antiphon.errors import (
    FormatError,
    IllegalStateError,
    InvalidDestinationError,
    MessageFormatError,
    MessageNotWriteableError,
    ResourceAllocationError,
)
from antiphon.formats import columns, pack, values
from antiphon.formats.columns import Outgoing
from antiphon.formats.pack import NON_PERSISTENT
from antiphon.formats.protocol import PACK_MAX
from tests.api.support.posting import NOW, delivered, through

REPLIES = TemporaryQueue("5f.1")


class Recorder:
    """A consumer that takes note of what is acknowledged."""

    def __init__(self) -> None:
        self.acknowledged: list[Message] = []

    def acknowledge_message(self, message: Message) -> str:
        self.acknowledged.append(message)
        return "done"


# -- Bodies ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("Fire!", TextMessage),
        ("", TextMessage),
        ("Zoë \N{FIRE}", TextMessage),
        (b"\x00\xff", BytesMessage),
        (b"", BytesMessage),
        ({"floor": 4, "door": b"\x01", "open": True, "heat": 1.0}, MapMessage),
        ({}, MapMessage),
        ([1, "a", b"b", None, 2.5, True], StreamMessage),
        ([], StreamMessage),
        ((1, {2, 3}), ObjectMessage),
        (7, ObjectMessage),
        (None, ObjectMessage),
    ],
)
def test_a_body_arrives_as_the_message_that_it_makes(body: Any, kind: type[Message]) -> None:
    message = through(body)
    assert type(message) is kind
    assert message.body == body
    made = kind(body)
    again = through(made)
    assert (type(again), again.body) == (kind, made.body) == (kind, body)


@pytest.mark.parametrize("body", [bytearray(b"ab"), memoryview(b"ab")])
def test_other_bytes_become_bytes(body: Any) -> None:
    message = through(body)
    assert type(message) is BytesMessage
    assert type(message.body) is bytes
    assert message.body == b"ab"


def test_another_mapping_becomes_a_dict() -> None:
    message = through(OrderedDict(b=1, a=2))
    assert list(message.body.items()) == [("b", 1), ("a", 2)]


def test_a_plain_message_has_no_body() -> None:
    message = through(Message())
    assert type(message) is Message
    assert message.body is None
    with pytest.raises(MessageFormatError, match="has no body"):
        Message().body = "text"


def test_every_message_is_true() -> None:
    for body in ("", b"", {}, [], None, 0):
        assert through(body)


def test_a_message_matches_by_its_body() -> None:
    match through("Fire!"):
        case BytesMessage():
            pytest.fail("not bytes")
        case Message("Fire!"):
            pass
        case _:
            pytest.fail("the body is not matched")


def test_text_is_that_of_a_text_message() -> None:
    assert through("Fire!").text == "Fire!"
    made = TextMessage()
    assert made.text == ""
    made.text = "Smoke"
    assert (made.text, made.body) == ("Smoke", "Smoke")
    for body in (b"Fire!", {}, [], None):
        with pytest.raises(MessageFormatError, match="has no text"):
            _ = through(body).text


@pytest.mark.parametrize(
    ("kind", "wrong"),
    [(TextMessage, b"a"), (BytesMessage, "a"), (MapMessage, []), (StreamMessage, {})],
)
def test_a_body_of_another_type_is_refused(kind: Any, wrong: Any) -> None:
    with pytest.raises(MessageFormatError, match="body of a"):
        kind(wrong)
    message = kind()
    with pytest.raises(MessageFormatError, match="body of a"):
        message.body = wrong
    assert message.body == kind().body


@pytest.mark.parametrize("names", [{1: 2}, {"": 2}, {None: 2}])
def test_a_map_has_names(names: Any) -> None:
    with pytest.raises(MessageFormatError, match="object message"):
        outgoing(names, now_ms=NOW)
    assert through(ObjectMessage(names)).body == names


def test_text_that_is_no_text_is_refused() -> None:
    for content in ("\ud800", TextMessage("\ud800"), ["\ud800"]):
        with pytest.raises(MessageFormatError, match="UTF-8"):
            outgoing(content, now_ms=NOW)


def test_a_message_has_a_greatest_size() -> None:
    largest = bytes(BODY_MAX)
    assert outgoing(largest, now_ms=NOW).body == largest
    for content in (largest + b"x", BytesMessage(largest + b"x"), (largest + b"x").decode()):
        with pytest.raises(ResourceAllocationError, match="at most 67108864"):
            outgoing(content, now_ms=NOW)
    with pytest.raises(ResourceAllocationError, match="at most 1000000"):
        outgoing("", now_ms=NOW, correlation_id="x" * HEADERS_MAX)


def test_the_greatest_message_fits_a_pack() -> None:
    headers = outgoing("", now_ms=NOW, correlation_id="x" * (HEADERS_MAX - 100)).extra
    body, flags = columns.encode([Outgoing(columns.BYTES, bytes(BODY_MAX), headers, NOW)])
    longest = "temp-topic:" + "\N{FIRE}" * 1024
    assert len(pack.encode(longest, 1, body, flags=flags)) < PACK_MAX


def test_what_was_sent_is_not_changed_later() -> None:
    body = {"list": [1]}
    made = MapMessage(body)
    made.properties["a"] = 1
    sent = outgoing(made, now_ms=NOW)
    body["list"].append(2)
    made.body["more"] = 3
    made.properties["a"] = 2
    made.correlation_id = "later"
    message = delivered(sent)
    assert message.body == {"list": [1]}
    assert message.properties == {"a": 1}
    assert message.correlation_id is None


# -- Objects and pickle ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Point:
    x: int


def test_an_object_without_a_safe_encoding_is_refused_with_the_way_out() -> None:
    for content in (Point(1), ObjectMessage(Point(1))):
        with pytest.raises(MessageFormatError, match=r"Point .*allow_pickle"):
            outgoing(content, now_ms=NOW)


def test_an_object_is_pickled_and_read_only_by_consent() -> None:
    sent = outgoing(Point(1), now_ms=NOW, allow_pickle=True)
    assert sent.kind == columns.PICKLE
    refused = delivered(sent)
    assert type(refused) is ObjectMessage
    with pytest.raises(MessageFormatError, match="connect with allow_pickle=True"):
        _ = refused.body
    assert delivered(sent, pickled=True).body == Point(1)


def test_consent_does_not_pickle_what_is_safe() -> None:
    assert outgoing((1, 2), now_ms=NOW, allow_pickle=True).kind == columns.OBJECT


def test_an_object_that_cannot_be_pickled_is_refused() -> None:
    with pytest.raises(MessageFormatError, match="cannot be pickled"):
        outgoing(lambda: 0, now_ms=NOW, allow_pickle=True)


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        (columns.TEXT, b"\xff"),
        (columns.MAP, values.encode([1])),
        (columns.STREAM, values.encode({"a": 1})),
        (columns.OBJECT, b"\xc1"),
        (columns.PICKLE, b"garbage"),
        (99, b"from a later release"),
    ],
)
def test_a_body_that_cannot_be_read_says_so(kind: int, data: bytes) -> None:
    message = delivered(Outgoing(kind, data, b"", NOW), pickled=True)
    assert message.id == "ID:abc.42"
    for _ in range(2):
        with pytest.raises(MessageFormatError):
            _ = message.body


def test_headers_that_cannot_be_read_say_so() -> None:
    message = delivered(Outgoing(columns.TEXT, b"Fire!", b"\xc1", NOW))
    assert message.body == "Fire!"
    with pytest.raises(FormatError, match="headers"):
        _ = message.priority


# -- Headers ---------------------------------------------------------------------------------------


def test_what_a_received_message_knows() -> None:
    message = delivered(outgoing("Fire!", now_ms=NOW), deliveries=3)
    assert message.id == "ID:abc.42"
    assert message.timestamp == message.delivery_time == NOW / 1000
    assert message.destination == Topic("Alarms")
    assert message.delivery_mode is DeliveryMode.PERSISTENT
    assert (message.position, message.delivery_count, message.redelivered) == (1001, 3, True)
    assert (message.priority, message.expiration) == (4, 0)
    assert message.properties == {}
    assert (message.correlation_id, message.reply_to, message.type, message.view) == (None,) * 4
    assert repr(message) == "<TextMessage ID:abc.42 to topic:Alarms>"


def test_only_a_second_delivery_is_a_redelivery() -> None:
    assert not through("Fire!").redelivered


def test_the_delivery_mode_is_that_of_its_pack() -> None:
    message = delivered(outgoing("Fire!", now_ms=NOW), flags=NON_PERSISTENT)
    assert message.delivery_mode is DeliveryMode.NON_PERSISTENT


HEADERS: dict[str, Any] = {
    "correlation_id": "c-1",
    "type": "alarm",
    "tag": "abcast",
    "key": "x",
    "reply_to": REPLIES,
}


def test_headers_arrive() -> None:
    sent = outgoing(
        "Fire!", now_ms=NOW, priority=9, time_to_live=1.5, delivery_delay=0.25, **HEADERS
    )
    message = delivered(sent, stamp=NOW + 250)
    assert {name: getattr(message, name) for name in HEADERS} == HEADERS
    assert message.priority == 9
    assert message.expiration == (NOW + 1500) / 1000
    assert message.delivery_time == (NOW + 250) / 1000
    assert message.body == "Fire!"


def test_headers_of_a_message_arrive_and_arguments_win() -> None:
    made = TextMessage("Fire!")
    for name, value in HEADERS.items():
        setattr(made, name, value)
    made.properties["a"] = made.properties["b"] = 1
    message = through(made)
    assert {name: getattr(message, name) for name in HEADERS} == HEADERS
    other = through(made, type="other", reply_to=Queue("q"), properties={"b": 2, "c": 3})
    assert (other.type, other.reply_to, other.correlation_id) == ("other", Queue("q"), "c-1")
    assert other.properties == {"a": 1, "b": 2, "c": 3}
    assert made.properties == {"a": 1, "b": 1}


def test_what_is_not_given_takes_no_room() -> None:
    nothing = dict.fromkeys((*HEADERS, "properties", "priority", "time_to_live"))
    assert outgoing("Fire!", now_ms=NOW, **nothing).extra == b""
    assert outgoing(TextMessage("Fire!"), now_ms=NOW).extra == b""
    assert outgoing("Fire!", now_ms=NOW, time_to_live=0, priority=4, properties={}).extra == b""


@pytest.mark.parametrize(
    ("headers", "error"),
    [
        ({"priority": 10}, ValueError),
        ({"priority": -1}, ValueError),
        ({"priority": 4.5}, ValueError),
        ({"time_to_live": -1}, ValueError),
        ({"time_to_live": float("nan")}, ValueError),
        ({"delivery_delay": float("inf")}, ValueError),
        ({"correlation_id": 5}, MessageFormatError),
        ({"type": b"x"}, MessageFormatError),
        ({"tag": "\ud800"}, MessageFormatError),
        ({"reply_to": "queue:q"}, InvalidDestinationError),
        ({"reply_to": Topic("a.*")}, InvalidDestinationError),
        ({"propertys": {}}, TypeError),
    ],
)
def test_a_wrong_header_is_refused(headers: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        outgoing("Fire!", now_ms=NOW, **headers)


class Word(str):
    """Somebody's own kind of text."""


def test_headers_of_a_derived_type_are_sent_as_their_base() -> None:
    message = through(
        Word("Fire!"), type=Word("alarm"), priority=Level.HIGH, properties={Word("a"): Word("b")}
    )
    assert (message.body, message.type, message.priority) == ("Fire!", "alarm", 9)
    assert message.properties == {"a": "b"}


def test_nothing_expires_early() -> None:
    assert through("Fire!", time_to_live=0.0001).expiration == (NOW + 1) / 1000


def test_a_message_learns_how_it_was_sent() -> None:
    made = TextMessage("Fire!")
    made.correlation_id = "c-1"
    assert (made.id, made.timestamp, made.destination) == (None, 0, None)
    sent = outgoing(made, now_ms=NOW, priority=7, time_to_live=2, type="once")
    sent_as(made, "ID:abc.1", Queue("q"), DeliveryMode.NON_PERSISTENT, sent)
    assert (made.id, made.timestamp, made.destination) == ("ID:abc.1", NOW / 1000, Queue("q"))
    assert made.delivery_mode is DeliveryMode.NON_PERSISTENT
    assert (made.priority, made.expiration) == (7, (NOW + 2000) / 1000)
    assert (made.correlation_id, made.type) == ("c-1", None)


def test_priority_and_times_are_not_those_of_the_time_before() -> None:
    again = through(through("Fire!", priority=9, time_to_live=1, delivery_delay=1))
    assert (again.priority, again.expiration, again.delivery_time) == (4, 0, NOW / 1000)


def test_a_message_is_forwarded_as_received() -> None:
    for content in ("Fire!", b"x", {"a": (1, 2)}, [1], Point(1)):
        sent = outgoing(content, now_ms=NOW, allow_pickle=True, properties={"floor": 4}, **HEADERS)
        again = outgoing(delivered(sent), now_ms=NOW)
        assert again == sent


# -- Read-only -------------------------------------------------------------------------------------


def test_a_received_body_is_read_only_until_cleared() -> None:
    message = through("Fire!", properties={"floor": 4}, correlation_id="c-1")
    for attribute in ("body", "text"):
        with pytest.raises(MessageNotWriteableError, match=r"clear_body\(\)"):
            setattr(message, attribute, "Smoke")
    assert message.body == "Fire!"
    message.clear_body()
    assert message.body == ""
    message.body = "Smoke"
    assert message.body == "Smoke"
    assert (message.id, message.destination) == ("ID:abc.42", Topic("Alarms"))
    assert (message.correlation_id, message.position) == ("c-1", 1001)
    with pytest.raises(MessageNotWriteableError):
        message.properties["floor"] = 5
    again = through(message)
    assert (again.body, again.properties) == ("Smoke", {"floor": 4})


def test_received_properties_are_read_only_until_cleared() -> None:
    message = through("Fire!", properties={"floor": 4}, correlation_id="c-1")
    with pytest.raises(MessageNotWriteableError, match=r"clear_properties\(\)"):
        message.properties["floor"] = 5
    with pytest.raises(MessageNotWriteableError):
        del message.properties["floor"]
    assert message.properties == {"floor": 4}
    message.clear_properties()
    assert message.properties == {}
    message.properties["door"] = 1
    with pytest.raises(MessageNotWriteableError):
        message.body = "Smoke"
    again = through(message)
    assert (again.body, again.properties, again.correlation_id) == ("Fire!", {"door": 1}, "c-1")


@pytest.mark.parametrize(
    "change",
    [
        lambda body: body.__setitem__("a", 2),
        lambda body: body.__delitem__("a"),
        lambda body: body.update(b=1),
        lambda body: body.__ior__({"b": 1}),
        lambda body: body.setdefault("b", 1),
        lambda body: body.pop("a"),
        lambda body: body.popitem(),
        lambda body: body.clear(),
    ],
)
def test_a_received_map_cannot_be_changed(change: Any) -> None:
    message = through({"a": 1})
    with pytest.raises(MessageNotWriteableError, match=r"clear_body\(\)"):
        change(message.body)
    assert message.body == {"a": 1}


@pytest.mark.parametrize(
    "change",
    [
        lambda body: body.__setitem__(0, 2),
        lambda body: body.__delitem__(0),
        lambda body: body.__iadd__([1]),
        lambda body: body.__imul__(2),
        lambda body: body.append(1),
        lambda body: body.extend([1]),
        lambda body: body.insert(0, 1),
        lambda body: body.pop(),
        lambda body: body.remove(2),
        lambda body: body.reverse(),
        lambda body: body.sort(),
        lambda body: body.clear(),
    ],
)
def test_a_received_stream_cannot_be_changed(change: Any) -> None:
    message = through([2, 1])
    with pytest.raises(MessageNotWriteableError, match=r"clear_body\(\)"):
        change(message.body)
    assert message.body == [2, 1]


def test_a_received_body_can_be_sent_on_and_copied() -> None:
    for body in ({"a": 1}, [1]):
        received = through(body).body
        assert through(received).body == body
        assert through((received, 1)).body == (body, 1)
        for other in (copy.copy(received), copy.deepcopy(received), received.copy()):
            assert type(other) is type(body)
            assert other == body
        assert pickle.loads(pickle.dumps(received)) == body


def test_headers_of_a_received_message_can_be_set() -> None:
    message = through("Fire!", **HEADERS)
    message.correlation_id = message.id
    message.reply_to = None
    again = through(message)
    assert (again.correlation_id, again.reply_to, again.type) == ("ID:abc.42", None, "alarm")


# -- Acknowledgement, pickling ---------------------------------------------------------------------


def test_a_message_is_acknowledged_by_its_consumer() -> None:
    consumer = Recorder()
    message = delivered(outgoing("Fire!", now_ms=NOW), owner=consumer)
    assert message.acknowledge() == "done"
    assert consumer.acknowledged == [message]


def test_only_a_received_message_is_acknowledged() -> None:
    received = delivered(outgoing("Fire!", now_ms=NOW), owner=Recorder())
    for message in (TextMessage("Fire!"), pickle.loads(pickle.dumps(received))):
        with pytest.raises(IllegalStateError, match="received"):
            message.acknowledge()


SEEN = (
    *("id", "timestamp", "correlation_id", "reply_to", "destination", "delivery_mode", "body"),
    *("redelivered", "delivery_count", "type", "expiration", "priority", "properties", "position"),
)


def seen(message: Message) -> dict[str, Any]:
    return {name: getattr(message, name) for name in SEEN}


@pytest.mark.parametrize("body", ["Fire!", b"x", {"a": 1}, [1], (1, 2), None])
def test_a_received_message_pickles_without_its_consumer(body: Any) -> None:
    sent = outgoing(body, now_ms=NOW, priority=9, properties={"floor": 4}, **HEADERS)
    message = delivered(sent, owner=lambda: "cannot be pickled", deliveries=2)
    unread = pickle.loads(pickle.dumps(message))
    assert seen(unread) == seen(message)
    read = pickle.loads(pickle.dumps(message))
    assert (type(read), seen(read)) == (type(message), seen(message))
    with pytest.raises(MessageNotWriteableError):
        read.body = body
    with pytest.raises(MessageNotWriteableError):
        read.properties["a"] = 1


def test_changes_to_a_message_are_pickled() -> None:
    message = through("Fire!", properties={"floor": 4})
    message.clear_body()
    message.body = "Smoke"
    message.type = "other"
    read = pickle.loads(pickle.dumps(message))
    assert seen(read) == seen(message)
    read.body = "nothing"
    with pytest.raises(MessageNotWriteableError):
        read.properties["floor"] = 5


def test_a_message_that_was_not_sent_pickles() -> None:
    made = MapMessage({"a": 1})
    made.properties["floor"] = 4
    made.reply_to = REPLIES
    read = pickle.loads(pickle.dumps(made))
    assert seen(read) == seen(made)
    read.properties["floor"] = 5
    assert made.properties == {"floor": 4}


def test_a_pickled_body_stays_closed_without_consent() -> None:
    sent = outgoing(Point(1), now_ms=NOW, allow_pickle=True)
    closed = pickle.loads(pickle.dumps(delivered(sent)))
    with pytest.raises(MessageFormatError, match="allow_pickle"):
        _ = closed.body
    assert pickle.loads(pickle.dumps(delivered(sent, pickled=True))).body == Point(1)


# -- Properties ------------------------------------------------------------------------------------


class Level(IntEnum):
    HIGH = 9


def test_properties_arrive_with_their_types() -> None:
    given = {"b": True, "i": 2**63 - 1, "n": -(2**63), "f": 0.5, "s": "Zoë", "none": None}
    read = through("", properties=given).properties
    assert {name: (type(value), value) for name, value in read.items()} == {
        name: (type(value), value) for name, value in given.items()
    }


def test_a_property_of_a_derived_type_becomes_that_of_its_base() -> None:
    made = Message()
    made.properties["level"] = Level.HIGH
    assert type(made.properties["level"]) is int
    assert through(made).properties == {"level": 9}


@pytest.mark.parametrize(
    "name", ["a", "_a", "$a", "a$1", "Zoë", "€", "JMSXGroupID", "JMS_remove", "nota"]
)
def test_these_names_are_allowed(name: str) -> None:
    made = Message()
    made.properties[name] = 1
    assert through(made).properties == {name: 1}


@pytest.mark.parametrize(
    "name",
    [
        *("", "1a", "a b", "a-b", "a.b", "a\n", 5, None, "JMSXDeliveryCount", "JMSPriority"),
        *("NULL", "TRUE", "FALSE", "NOT", "AND", "OR", "BETWEEN", "LIKE", "IN", "IS", "ESCAPE"),
        *("null", "Between"),
    ],
)
def test_these_names_are_refused(name: Any) -> None:
    made = Message()
    with pytest.raises(MessageFormatError):
        made.properties[name] = 1
    assert made.properties == {}
    with pytest.raises(MessageFormatError):
        outgoing("", now_ms=NOW, properties={name: 1})


@pytest.mark.parametrize("value", [b"x", [1], {}, 2**63, -(2**63) - 1, 1j, object()])
def test_these_values_are_refused(value: Any) -> None:
    made = Message()
    with pytest.raises(MessageFormatError, match="property 'a'"):
        made.properties["a"] = value
    assert made.properties == {}
    with pytest.raises(MessageFormatError, match="property 'a'"):
        outgoing("", now_ms=NOW, properties={"a": value})


def test_the_delivery_count_can_be_read_as_a_property() -> None:
    message = delivered(outgoing("", now_ms=NOW), deliveries=2)
    assert message.get_int_property("JMSXDeliveryCount") == 2
    assert message.properties["JMSXDeliveryCount"] == 2
    assert message.property_exists("JMSXDeliveryCount")
    assert dict(message.properties) == {}
    assert not Message().property_exists("JMSXDeliveryCount")
    assert through(message).properties == {}


TYPES = ["boolean", "byte", "short", "int", "long", "float", "double", "string"]
TABLE = [
    (True, "boolean string", "true"),
    (False, "boolean string", "false"),
    (127, "byte short int long string", "127"),
    (-128, "byte short int long string", "-128"),
    (128, "short int long string", "128"),
    (2**15, "int long string", "32768"),
    (2**31, "long string", "2147483648"),
    (0.5, "float double string", "0.5"),
    (0.1, "double string", "0.1"),
    (1e300, "double string", "1e+300"),
    (float("inf"), "float double string", "Infinity"),
    (float("-inf"), "float double string", "-Infinity"),
]


@pytest.mark.parametrize(("value", "readable", "text"), TABLE)
def test_the_conversion_table(value: Any, readable: str, text: str) -> None:
    message = through("", properties={"a": value})
    for kind in TYPES:
        read = getattr(message, f"get_{kind}_property")
        if kind not in readable.split():
            with pytest.raises(MessageFormatError, match=f"cannot be read as {kind}"):
                read("a")
        elif kind == "string":
            assert read("a") == text
        else:
            assert (type(read("a")), read("a")) == (type(value), value)


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("true", "boolean", True),
        ("TRUE", "boolean", True),
        ("yes", "boolean", False),
        ("-128", "byte", -128),
        ("+7", "short", 7),
        ("2147483647", "int", 2**31 - 1),
        ("9223372036854775807", "long", 2**63 - 1),
        ("1.5", "float", 1.5),
        (".5e1", "double", 5.0),
        ("-Infinity", "double", float("-inf")),
    ],
)
def test_a_string_is_read_as_what_it_says(text: str, kind: str, value: Any) -> None:
    read = getattr(through("", properties={"a": text}), f"get_{kind}_property")("a")
    assert (type(read), read) == (type(value), value)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("128", "byte"),
        ("", "int"),
        ("1_0", "int"),
        (" 1", "long"),
        ("1.0", "int"),
        ("9" * 5000, "long"),
        ("1_0.0", "double"),
        ("nan", "float"),
        ("one", "double"),
    ],
)
def test_a_string_that_says_something_else_is_refused(text: str, kind: str) -> None:
    with pytest.raises(MessageFormatError, match=f"cannot be read as {kind}"):
        getattr(through("", properties={"a": text}), f"get_{kind}_property")("a")


@pytest.mark.parametrize("properties", [{}, {"a": None}])
def test_an_absent_property_counts_as_none(properties: Any) -> None:
    message = through("", properties=properties)
    assert message.get_object_property("a") is None
    assert message.get_string_property("a") is None
    assert message.get_boolean_property("a") is False
    assert message.property_exists("a") is bool(properties)
    for kind in ("byte", "short", "int", "long", "float", "double"):
        with pytest.raises(MessageFormatError):
            getattr(message, f"get_{kind}_property")("a")
