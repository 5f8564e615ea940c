"""Bytes, stream and map messages by type, as JMS people know them."""

import copy
import pickle
import struct
from typing import Any

import pytest

from antiphon.api.messages.kinds import BytesMessage, MapMessage, StreamMessage
from antiphon.errors import (
    MessageEOFError,
    MessageFormatError,
    MessageNotReadableError,
    MessageNotWriteableError,
)
from tests.api.support.posting import through

TYPES = ["boolean", "byte", "short", "char", "int", "long", "float", "double", "string", "bytes"]

# What JMS's table for streams and maps allows, row by row: written as -> may be read as.
TABLE = {
    "boolean": "boolean string",
    "byte": "byte short int long string",
    "short": "short int long string",
    "char": "char string",
    "int": "int long string",
    "long": "long string",
    "float": "float double string",
    "double": "double string",
    "string": "boolean byte short int long float double string",
    "bytes": "bytes",
}
VALUES: dict[str, Any] = {
    "boolean": True,
    "char": "7",
    "float": 0.5,
    "double": 0.5,
    "string": "5",
    "bytes": b"\x00\xff",
    **dict.fromkeys(("byte", "short", "int", "long"), 5),
}
WRONG = [
    ("boolean", 1),
    ("byte", 128),
    ("byte", -129),
    ("short", 1 << 15),
    ("int", 1 << 31),
    ("long", 1 << 63),
    ("int", True),
    ("int", "5"),
    ("char", ""),
    ("char", "ab"),
    ("char", "\N{FIRE}"),
    ("char", None),
    ("float", 1e39),
    ("double", "1"),
]


# -- Streams and maps ------------------------------------------------------------------------------


class Stream:
    """A stream message with one item."""

    def __init__(self) -> None:
        self.message: Any = StreamMessage()

    def write(self, kind: str, value: Any) -> None:
        getattr(self.message, f"write_{kind}")(value)

    def read(self, kind: str) -> Any:
        self.message.reset()
        return getattr(self.message, f"read_{kind}")()


class Map:
    """A map message with one name."""

    def __init__(self) -> None:
        self.message: Any = MapMessage()

    def write(self, kind: str, value: Any) -> None:
        getattr(self.message, f"set_{kind}")("a", value)

    def read(self, kind: str) -> Any:
        return getattr(self.message, f"get_{kind}")("a")


@pytest.fixture(params=[Stream, Map])
def one(request: pytest.FixtureRequest) -> Any:
    return request.param()


def readable(one: Any, kind: str) -> bool:
    try:
        one.read(kind)
    except MessageFormatError:
        return False
    return True


@pytest.mark.parametrize("way", ["at the sender", "received", "forwarded", "pickled"])
@pytest.mark.parametrize("kind", TYPES)
def test_what_is_written_as_one_type_is_read_as_those_that_jms_allows(
    one: Any, kind: str, way: str
) -> None:
    one.write(kind, VALUES[kind])
    if way != "at the sender":
        one.message = through(one.message)
    if way == "forwarded":
        one.message = through(one.message)
    if way == "pickled":
        one.message = pickle.loads(pickle.dumps(one.message))
    assert {type_ for type_ in TYPES if readable(one, type_)} == set(TABLE[kind].split())


@pytest.mark.parametrize("kind", TYPES)
def test_what_is_read_is_plain(one: Any, kind: str) -> None:
    one.write(kind, VALUES[kind])
    one.message = through(one.message)
    read = one.read(kind)
    assert (type(read), read) == (type(VALUES[kind]), VALUES[kind])


@pytest.mark.parametrize(("kind", "wrong"), WRONG)
def test_a_value_of_another_type_is_refused(one: Any, kind: str, wrong: Any) -> None:
    with pytest.raises(MessageFormatError, match=f"is no {kind}"):
        one.write(kind, wrong)
    assert not one.message.body


def test_none_is_read_as_in_java(one: Any) -> None:
    one.write("string", None)
    one.message = through(one.message)
    assert one.read("string") is one.read("bytes") is one.read("object") is None
    assert one.read("boolean") is False
    for kind in ("byte", "short", "char", "int", "long", "float", "double"):
        with pytest.raises(MessageFormatError):
            one.read(kind)


def test_an_object_is_kept_whatever_it_is(one: Any) -> None:
    one.write("object", (1, {"x": b"y"}))
    one.message = through(one.message)
    assert one.read("object") == (1, {"x": b"y"})
    for kind in TYPES:
        with pytest.raises(MessageFormatError):
            one.read(kind)


def test_a_body_in_pythons_way_has_the_smallest_types() -> None:
    message = through([5, 300, 1 << 20, 1 << 40, 0.5, 0.1, "x", b"y", True])
    kinds = ("byte", "short", "int", "long", "float", "double", "string", "bytes", "boolean")
    assert [getattr(message, f"read_{kind}")() for kind in kinds] == message.body
    assert through({"a": 300}).get_short("a") == 300


def test_the_body_shows_what_was_written() -> None:
    stream = StreamMessage(["before"])
    stream.write_long(5)
    stream.write_char("x")
    stream.write_float(0.5)
    stream.write_bytes(bytearray(b"y"))
    assert stream.body == through(stream).body == ["before", 5, "x", 0.5, b"y"]
    made = MapMessage({"before": 1})
    made.set_double("a", 1)
    assert made.body == through(made).body == {"before": 1, "a": 1.0}


def test_a_number_that_no_type_of_jms_holds_is_an_object() -> None:
    message = through([1 << 70])
    with pytest.raises(MessageFormatError):
        message.read_long()
    assert message.read_object() == 1 << 70


# -- Maps ------------------------------------------------------------------------------------------


def test_a_map_names_its_items() -> None:
    made = MapMessage()
    made.set_int("floor", 4)
    made.set_string("room", None)
    for message in (made, through(made)):
        assert message.map_names == ("floor", "room")
        assert message.item_exists("room")
        assert not message.item_exists("door")
        assert message.get_object("door") is None
        assert message.get_string("door") is None
        with pytest.raises(MessageFormatError, match="'door'"):
            message.get_int("door")


@pytest.mark.parametrize("name", ["", None, 5])
def test_a_name_in_a_map_is_not_empty(name: Any) -> None:
    made = MapMessage()
    for write in (made.set_int, made.set_object):
        with pytest.raises(MessageFormatError, match="names"):
            write(name, 1)
    assert made.body == {}


def test_a_received_map_is_read_only_until_cleared() -> None:
    made = MapMessage({"a": 1})
    made.properties["p"] = 1
    message = through(made)
    for kind in (*TYPES, "object"):
        with pytest.raises(MessageNotWriteableError):
            getattr(message, f"set_{kind}")("b", VALUES.get(kind, 1))
    assert message.body == {"a": 1}
    message.clear_body()
    message.set_int("b", 2)
    assert message.body == {"b": 2}
    assert message.properties == {"p": 1}


# -- Streams ---------------------------------------------------------------------------------------


def test_a_failed_read_leaves_the_place_as_it_was() -> None:
    message = through(["not a number", 1])
    for kind in ("int", "char", "bytes", "double"):
        with pytest.raises(MessageFormatError, match="item 1 is 'not a number'"):
            getattr(message, f"read_{kind}")()
    assert message.read_string() == "not a number"
    assert message.read_int() == 1
    for _ in range(2):
        with pytest.raises(MessageEOFError, match="only 2 items"):
            message.read_int()
    with pytest.raises(MessageEOFError):
        message.read_object()
    message.reset()
    assert message.read_object() == "not a number"


@pytest.mark.parametrize("kind", [*TYPES, "object"])
def test_a_stream_that_is_being_written_is_not_read(kind: str) -> None:
    message = StreamMessage([1])
    with pytest.raises(MessageNotReadableError, match=r"reset\(\)"):
        getattr(message, f"read_{kind}")()


def modes(message: Any) -> str:
    """What can be done with it now."""
    found = []
    try:
        message.write_int(7)
        found.append("write")
    except MessageNotWriteableError:
        pass
    try:
        message.read_int()
        found.append("read")
    except (MessageNotReadableError, MessageEOFError) as error:
        found += ["read"] if isinstance(error, MessageEOFError) else []
    return " ".join(found)


@pytest.mark.parametrize("kind", [StreamMessage, BytesMessage])
def test_a_sequence_is_written_or_read(kind: Any) -> None:
    made = kind()
    assert modes(made) == "write"
    made.reset()
    assert modes(made) == "read"
    with pytest.raises(MessageNotWriteableError, match=r"clear_body\(\)"):
        made.body = kind().body
    made.clear_body()
    assert made.body == kind().body
    assert modes(made) == "write"
    received = through(made)
    assert modes(received) == "read"
    received.reset()
    assert received.read_int() == 7
    received.clear_body()
    assert modes(received) == "write"


@pytest.mark.parametrize("kind", [StreamMessage, BytesMessage])
def test_a_sequence_that_was_reset_stays_so_when_copied(kind: Any) -> None:
    made = kind()
    made.write_int(1)
    made.write_int(2)
    made.reset()
    assert made.read_int() == 1
    for copied in (pickle.loads(pickle.dumps(made)), copy.copy(made)):
        assert copied.read_int() == 2
    received = through(made)
    assert received.read_int() == 1
    assert pickle.loads(pickle.dumps(received)).read_int() == 2


def test_what_was_reset_cannot_be_changed_behind_its_back() -> None:
    made = StreamMessage([1])
    made.reset()
    with pytest.raises(MessageNotWriteableError):
        made.body.append(2)
    assert through(made).body == [1]


class Letter(BytesMessage):
    """As an application may have it."""

    sender = "somebody"


@pytest.mark.parametrize("kind", [BytesMessage, Letter])
def test_bytes_may_be_looked_at_and_copied_while_they_are_written(kind: type[BytesMessage]) -> None:
    made = kind(b"ab")
    made.write_bytes(b"c")
    seen, copied = made.body, copy.copy(made)
    made.write_bytes(b"d")
    copied.write_bytes(b"x")
    assert (seen, made.body, copied.body) == (b"abc", b"abcd", b"abcx")
    assert isinstance(copied, kind)
    made.body = b"new"
    made.write_byte(1)
    assert made.body == b"new\1"
    made.clear_body()
    made.write_byte(2)
    assert made.body == b"\2"
    made.reset()
    assert made.read_byte() == 2
    with pytest.raises(MessageNotWriteableError):
        made.write_byte(3)


@pytest.mark.parametrize("kind", [StreamMessage, BytesMessage])
def test_what_is_written_after_sending_was_not_sent(kind: Any) -> None:
    made = kind()
    made.write_int(1)
    sent = through(made)
    made.write_int(2)
    assert sent.read_int() == 1
    with pytest.raises(MessageEOFError):
        sent.read_int()
    again = through(made)
    assert (again.read_int(), again.read_int()) == (1, 2)


# -- Bytes -----------------------------------------------------------------------------------------

# As `DataOutputStream` writes them.
WRITTEN = [
    ("boolean", True, "01"),
    ("boolean", False, "00"),
    ("byte", -2, "fe"),
    ("short", -2, "fffe"),
    ("char", "é", "00e9"),
    ("char", "\ud83d", "d83d"),
    ("int", 0x01020304, "01020304"),
    ("long", -2, "fffffffffffffffe"),
    ("float", 1.5, "3fc00000"),
    ("double", -0.1, "bfb999999999999a"),
    ("utf", "", "0000"),
    ("utf", "Zo\0ë\N{FIRE}", "000c5a6fc080c3abeda0bdedb4a5"),
]


@pytest.mark.parametrize(("kind", "value", "data"), WRITTEN)
def test_bytes_are_laid_out_as_in_java(kind: str, value: Any, data: str) -> None:
    made = BytesMessage()
    getattr(made, f"write_{kind}")(value)
    assert made.body == bytes.fromhex(data)
    message = through(made)
    read = getattr(message, f"read_{kind}")()
    assert (type(read), read) == (type(value), value)
    with pytest.raises(MessageEOFError):
        message.read_byte()


def test_unsigned_numbers() -> None:
    message = through(b"\xff\xff\xfe")
    assert message.read_unsigned_byte() == 255
    assert message.read_unsigned_short() == 0xFFFE
    message.reset()
    assert message.read_byte() == -1
    assert message.read_short() == -2


def test_many_values_in_a_row() -> None:
    made = BytesMessage(b"head")
    for number in range(1000):
        made.write_int(number)
    made.write_utf("end")
    message = through(made)
    assert message.read_bytes(4) == b"head"
    assert [message.read_int() for _ in range(1000)] == list(range(1000))
    assert message.read_utf() == "end"
    assert type(made.body) is bytes
    assert message.body == made.body == b"head" + struct.pack(">1000i", *range(1000)) + b"\0\3end"


def test_bytes_are_read_in_parts() -> None:
    message = through(b"abcde")
    assert message.read_bytes(2) == b"ab"
    assert message.read_bytes(0) == b""
    assert message.read_bytes(10) == b"cde"
    assert message.read_bytes(10) == b""
    with pytest.raises(ValueError, match="-1"):
        message.read_bytes(-1)


def test_the_length_of_the_body() -> None:
    made = BytesMessage(b"abc")
    with pytest.raises(MessageNotReadableError):
        _ = made.body_length
    made.reset()
    assert made.body_length == 3
    message = through(made)
    message.read_byte()
    assert message.body_length == 3


@pytest.mark.parametrize(
    ("kind", "size"),
    [
        *(("boolean", 1), ("byte", 1), ("unsigned_byte", 1), ("short", 2), ("unsigned_short", 2)),
        *(("char", 2), ("int", 4), ("long", 8), ("float", 4), ("double", 8), ("utf", 3)),
    ],
)
def test_reading_past_the_end_leaves_the_place_as_it_was(kind: str, size: int) -> None:
    message = through(b"\0\1a"[:size].ljust(size, b"\0")[: size - 1])
    for _ in range(2):
        with pytest.raises(MessageEOFError, match=f"has only {size - 1}"):
            getattr(message, f"read_{kind}")()
    assert message.read_bytes(9) == message.body
    with pytest.raises(MessageNotReadableError):
        getattr(BytesMessage(b"x" * 9), f"read_{kind}")()


def test_what_is_no_text_leaves_the_place_as_it_was() -> None:
    message = through(b"\0\1\xff")
    with pytest.raises(MessageFormatError, match="no text"):
        message.read_utf()
    assert message.read_short() == 1


@pytest.mark.parametrize(("kind", "wrong"), WRONG)
def test_wrong_values_are_not_written(kind: str, wrong: Any) -> None:
    made = BytesMessage()
    with pytest.raises(MessageFormatError):
        getattr(made, f"write_{kind}")(wrong)
    assert made.body == b""


@pytest.mark.parametrize("text", ["x" * 65536, "\0" * 32768, None, b"x"])
def test_a_text_in_bytes_has_a_greatest_size(text: Any) -> None:
    made = BytesMessage()
    with pytest.raises(MessageFormatError):
        made.write_utf(text)
    made.write_utf("x" * 65535)
    assert len(made.body) == 65537


@pytest.mark.parametrize("wrong", [None, "x", [1]])
def test_only_bytes_are_written_as_bytes(wrong: Any) -> None:
    with pytest.raises(MessageFormatError):
        BytesMessage().write_bytes(wrong)


def test_bytes_of_all_kinds_are_written() -> None:
    made = BytesMessage()
    for data in (b"a", bytearray(b"b"), memoryview(b"c")):
        made.write_bytes(data)
    assert made.body == b"abc"


def test_received_bytes_are_read_only() -> None:
    message = through(b"abc")
    for kind, value in VALUES.items():
        kind = "utf" if kind == "string" else kind
        with pytest.raises(MessageNotWriteableError):
            getattr(message, f"write_{kind}")(value)
    assert message.body == b"abc"
