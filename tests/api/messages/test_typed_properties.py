"""Properties by type: what a setter says of the type counts for whoever receives it."""

import pickle
from typing import Any

import pytest

from antiphon.api.messages.kinds import TextMessage
from antiphon.api.messages.message import Message
from antiphon.api.messages.sending import outgoing
from antiphon.errors import MessageFormatError, MessageNotWriteableError
from antiphon.formats.columns import Extra, Outgoing, decode_extra, encode_extra
from antiphon.model.jms_scalars import CODES, Long
from antiphon.model.selectors.evaluate import parse
from tests.api.support.posting import NOW, delivered, through

TYPES = ["boolean", "byte", "short", "int", "long", "float", "double", "string"]

# What JMS's table allows, row by row: set as -> may be read as.
TABLE = {
    "boolean": "boolean string",
    "byte": "byte short int long string",
    "short": "short int long string",
    "int": "int long string",
    "long": "long string",
    "float": "float double string",
    "double": "double string",
    "string": "boolean byte short int long float double string",
}
VALUES: dict[str, Any] = {
    "boolean": True,
    "float": 0.5,
    "double": 0.5,
    "string": "5",
    **dict.fromkeys(("byte", "short", "int", "long"), 5),
}
LIMITS = {"byte": 8, "short": 16, "int": 32, "long": 64}


def set_as(kind: str, value: Any, message: Message | None = None) -> Message:
    message = TextMessage("x") if message is None else message
    getattr(message, f"set_{kind}_property")("a", value)
    return message


def get_as(kind: str, message: Message) -> Any:
    return getattr(message, f"get_{kind}_property")("a")


@pytest.mark.parametrize("way", ["at the sender", "received", "forwarded", "pickled"])
@pytest.mark.parametrize("kind", TYPES)
def test_what_is_set_as_one_type_is_read_as_those_that_jms_allows(kind: str, way: str) -> None:
    message = set_as(kind, VALUES[kind])
    if way != "at the sender":
        message = through(message)
    if way == "forwarded":
        message = through(message)
    if way == "pickled":
        message = pickle.loads(pickle.dumps(message))
    assert {type_ for type_ in TYPES if readable(message, type_)} == set(TABLE[kind].split())
    assert message.properties == {"a": VALUES[kind]}


def readable(message: Message, kind: str) -> bool:
    try:
        get_as(kind, message)
    except MessageFormatError:
        return False
    return True


@pytest.mark.parametrize("kind", TYPES)
def test_what_is_read_is_plain(kind: str) -> None:
    message = through(set_as(kind, VALUES[kind]))
    read = get_as(kind, message)
    assert (type(read), read) == (type(VALUES[kind]), VALUES[kind])


@pytest.mark.parametrize(("kind", "bits"), LIMITS.items())
def test_whole_numbers_have_a_range(kind: str, bits: int) -> None:
    least, most = -(1 << bits - 1), (1 << bits - 1) - 1
    for value in (least, most):
        assert get_as(kind, through(set_as(kind, value))) == value
    message = set_as(kind, 0)
    for value in (least - 1, most + 1):
        with pytest.raises(MessageFormatError, match=f"property 'a': -?[0-9]+ is no {kind}"):
            set_as(kind, value, message)
    assert message.properties == {"a": 0}


@pytest.mark.parametrize(
    ("kind", "wrong"),
    [
        ("boolean", 1),
        ("boolean", None),
        ("byte", True),
        ("byte", 1.0),
        ("int", "5"),
        ("long", None),
        ("float", "1.5"),
        ("float", True),
        ("float", 1e39),
        ("double", None),
        ("double", 10**400),
        ("string", 5),
        ("string", b"x"),
        ("object", [1]),
    ],
)
def test_a_value_of_another_type_is_refused(kind: str, wrong: Any) -> None:
    message = Message()
    with pytest.raises(MessageFormatError, match="property 'a'"):
        set_as(kind, wrong, message)
    assert message.properties == {}


def test_a_float_is_rounded_to_32_bits() -> None:
    message = through(set_as("float", 0.1))
    assert message.get_float_property("a") == pytest.approx(0.1, rel=1e-7)
    assert message.get_float_property("a") != 0.1
    assert through(set_as("double", 0.1)).get_double_property("a") == 0.1
    assert through(set_as("string", "0.1")).get_float_property("a") == message.properties["a"]
    assert through(set_as("string", "-1e39")).get_float_property("a") == float("-inf")


def test_a_whole_number_may_be_set_as_floating() -> None:
    for kind in ("float", "double"):
        value = through(set_as(kind, 3)).properties["a"]
        assert (isinstance(value, float), value) == (True, 3.0)


def test_an_object_has_the_smallest_type_that_holds_it() -> None:
    assert through(set_as("object", 5)).get_byte_property("a") == 5
    assert through(set_as("object", None)).get_object_property("a") is None


def test_none_is_a_string_of_jms() -> None:
    message = through(set_as("string", None))
    assert message.property_exists("a")
    assert message.get_string_property("a") is None


def test_setting_it_again_says_anew_what_type_it_is() -> None:
    message = set_as("long", 5)
    message.properties["a"] = 6
    assert through(message).get_byte_property("a") == 6
    set_as("long", 5, message)
    set_as("string", "5", message)
    assert through(message).get_byte_property("a") == 5


def test_a_copied_property_keeps_its_type() -> None:
    received = through(set_as("long", 5))
    copy = Message()
    copy.properties.update(received.properties)
    for message in (through(copy), through("x", properties=received.properties)):
        assert message.get_long_property("a") == 5
        with pytest.raises(MessageFormatError):
            message.get_int_property("a")


def test_what_is_given_with_send_counts_more_than_what_the_message_has() -> None:
    made = set_as("long", 5)
    made.set_int_property("b", 1)
    message = through(made, properties={"a": 6})
    assert message.get_byte_property("a") == 6
    with pytest.raises(MessageFormatError):
        message.get_short_property("b")


def test_typed_properties_are_read_only_when_received() -> None:
    message = through(set_as("int", 5))
    for kind in (*TYPES, "object"):
        with pytest.raises(MessageNotWriteableError):
            set_as(kind, VALUES.get(kind, 1), message)
    message.clear_properties()
    assert get_as("string", set_as("int", 6, message)) == "6"
    assert message.body == "x"


def test_the_names_are_checked() -> None:
    for name in ("a b", "", "not", "JMSXDeliveryCount"):
        with pytest.raises(MessageFormatError):
            Message().set_int_property(name, 1)


def test_the_delivery_count_is_an_int() -> None:
    message = through("x")
    assert message.get_int_property("JMSXDeliveryCount") == 1
    with pytest.raises(MessageFormatError):
        message.get_short_property("JMSXDeliveryCount")


# -- On the wire -----------------------------------------------------------------------------------


def test_only_stated_types_take_room() -> None:
    plain = decode_extra(outgoing("x", now_ms=NOW, properties={"a": 5, "b": 0.5}).extra)
    assert plain.types == {}
    natural = set_as("byte", 5)
    natural.set_float_property("b", 0.1)
    natural.set_double_property("c", 0.1)
    natural.set_long_property("d", 2**40)
    assert decode_extra(outgoing(natural, now_ms=NOW).extra).types == {}
    stated = set_as("long", 5)
    assert decode_extra(outgoing(stated, now_ms=NOW).extra).types == {"a": CODES[Long]}


def test_selectors_and_older_readers_see_plain_values() -> None:
    extra = decode_extra(outgoing(set_as("long", 5), now_ms=NOW).extra)
    assert type(extra.properties["a"]) is int
    assert parse("a = 5").matches(extra.properties)


@pytest.mark.parametrize(
    "types",
    [{"a": 99}, {"b": CODES[Long]}, {"text": CODES[Long]}, {"big": 13}, {"flag": 14}, {"a": 16}],
)
def test_a_statement_that_does_not_fit_is_ignored(types: dict[str, int]) -> None:
    values: dict[str, Any] = {"a": 5, "text": "x", "big": 2**40, "flag": True}
    extra = encode_extra(Extra(properties=values, types=types))
    message = delivered(Outgoing(1, b"x", extra, NOW))
    assert dict(message.properties) == values
    assert message.get_byte_property("a") == 5
    assert message.get_boolean_property("flag") is True
