"""Values come back equal and of the same type; bytes from strangers give a value or an error."""

import contextlib
from collections import OrderedDict, namedtuple
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import IntEnum
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.errors import FormatError, MessageFormatError
from antiphon.formats import values
from antiphon.formats.values import DEPTH_MAX
from antiphon.model.jms_scalars import Char, Double, Int, Long, Short

zones = st.none() | st.builds(
    timezone, st.timedeltas(timedelta(hours=-23, minutes=-59), timedelta(hours=23, minutes=59))
)
atoms = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    st.text(),
    st.binary(),
    st.complex_numbers(allow_nan=False),
    st.datetimes(timezones=zones).map(lambda moment: moment.replace(fold=0)),
    st.dates(),
    st.times(timezones=zones).map(lambda moment: moment.replace(fold=0)),
    st.timedeltas(),
    st.decimals(allow_nan=False),
    st.uuids(),
    st.integers(-(2**15), 2**15 - 1).map(Short),
    st.integers(-(2**31), 2**31 - 1).map(Int),
    st.integers(-(2**63), 2**63 - 1).map(Long),
    st.floats(allow_nan=False).map(Double),
    st.characters(max_codepoint=0xFFFF).map(Char),
)
hashables = st.recursive(
    atoms, lambda inner: st.lists(inner).map(tuple) | st.lists(inner).map(frozenset), max_leaves=5
)
anything = st.recursive(
    hashables,
    lambda inner: st.one_of(
        st.lists(inner),
        st.lists(inner).map(tuple),
        st.lists(hashables).map(set),
        st.lists(st.tuples(st.text(), inner)).map(dict),
        st.lists(st.tuples(hashables, inner)).map(dict),
    ),
    max_leaves=20,
)


def shape(value: Any) -> Any:
    """Tells apart what `==` does not: 1 and True and 1.0, a tuple in a list and so on."""
    if isinstance(value, dict):
        return dict, [(shape(key), shape(item)) for key, item in value.items()]
    if isinstance(value, list | tuple):
        return type(value), [shape(item) for item in value]
    if isinstance(value, set | frozenset):
        return type(value), sorted(repr(shape(item)) for item in value)
    return type(value), value


@given(anything)
def test_a_value_comes_back_as_it_was(value: Any) -> None:
    assert shape(values.decode(values.encode(value))) == shape(value)


@pytest.mark.parametrize("value", [2**63, 2**64 - 1, 2**64, -(2**63), -(2**63) - 1, 1 << 5000])
def test_an_int_has_any_size(value: int) -> None:
    assert values.decode(values.encode([value, {value: value}])) == [value, {value: value}]


def test_what_is_not_equal_to_itself_comes_back_too() -> None:
    number, decimal = values.decode(values.encode([float("nan"), Decimal("sNaN123")]))
    assert number != number
    assert repr(decimal) == "Decimal('sNaN123')"


def test_a_time_zone_becomes_its_offset() -> None:
    summer = datetime(2024, 7, 1, 12, tzinfo=ZoneInfo("Europe/Zurich"))
    read = values.decode(values.encode(summer))
    assert read == summer
    assert read.utcoffset() == timedelta(hours=2)


@dataclass
class Point:
    x: int


class Level(IntEnum):
    HIGH = 1


Pair = namedtuple("Pair", "a b")


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (Point(1), "Point"),
        (Level.HIGH, "Level"),
        (Pair(1, 2), "Pair"),
        (OrderedDict(), "OrderedDict"),
        (bytearray(b"x"), "bytearray"),
        (object(), "builtins.object"),
        (Point, "builtins.type"),
        (print, "builtin_function"),
    ],
)
def test_another_type_is_refused_by_name(value: Any, name: str) -> None:
    for wrapped in (value, [value], {"a": (value,)}):
        with pytest.raises(MessageFormatError, match=rf"{name}.*allow_pickle"):
            values.encode(wrapped)


def test_a_key_of_another_type_is_refused() -> None:
    with pytest.raises(MessageFormatError, match="Level"):
        values.encode({Level.HIGH: 1})


def test_a_lone_surrogate_is_refused() -> None:
    for value in ("\ud800", ["\ud800"], {"\ud800": 1}, ("\ud800",)):
        with pytest.raises(MessageFormatError, match="UTF-8"):
            values.encode(value)


def nested(kind: type, depth: int) -> Any:
    value: Any = 7
    for _ in range(depth):
        value = kind([value])
    return value


@pytest.mark.parametrize("kind", [list, tuple, frozenset, lambda items: {"k": items[0]}])
def test_the_depth_is_bounded(kind: Any) -> None:
    deepest = nested(kind, DEPTH_MAX)
    assert values.decode(values.encode(deepest)) == deepest
    with pytest.raises(MessageFormatError, match="nested"):
        values.encode(nested(kind, DEPTH_MAX + 1))


def test_a_list_that_contains_itself_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(MessageFormatError, match="nested"):
        values.encode(loop)


@given(st.binary(max_size=100))
def test_garbage_is_refused_and_nothing_worse(garbage: bytes) -> None:
    with contextlib.suppress(FormatError):
        values.decode(garbage)


@given(st.integers(0, 255), st.binary(max_size=40))
def test_garbage_in_an_extension_is_refused_and_nothing_worse(code: int, garbage: bytes) -> None:
    with contextlib.suppress(FormatError):
        values.decode(bytes([0xC7, len(garbage), code]) + garbage)


@given(anything, st.data())
def test_an_altered_byte_is_a_value_or_refused(value: Any, data: st.DataObject) -> None:
    encoded = bytearray(values.encode(value))
    encoded[data.draw(st.integers(0, len(encoded) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(FormatError):
        values.decode(bytes(encoded))


@pytest.mark.parametrize(
    "hostile",
    [
        b"",
        b"\xdd\xff\xff\xff\xff",  # a list of four thousand million items
        b"\x91" * 100_000 + b"\x00",
        b"\xc7\x00\x0b",  # a UUID of no bytes
        b"\xc7\x01\x63\x00",  # an extension that nobody knows
        b"\xc7\x03\x0d\x00\x00\x00",  # a short of three bytes
        b"\xc7\x02\x11ab",  # a char of two characters
        b"\xc7\x04\x11" + "\N{FIRE}".encode(),  # a char that Java does not have
        b"\xc7\x03\x02\xa2ab",  # a tuple whose items are the letters of a str
        b"\xc7\x02\x0c\x91\x00",  # a dict with half an item
        b"\xc7\x03\x03\x91\x91\x00",  # a list in a set
        b"\xc7\x04\x0c\x92\x91\x00\x00",  # a list as a key
        b"\xc7\x02\x09\x91\xa0",  # a timedelta of texts
        b"\xc7\x0a\x09\x91\xcf" + b"\xff" * 8,  # a timedelta beyond all days
        b"\xc7\x01\x0ax",  # a Decimal of letters
        b"\xc7\x02\x06\xff\xff",
        values.encode(7) + b"\x00",
    ],
)
def test_hostile_bytes_are_refused(hostile: bytes) -> None:
    with pytest.raises(FormatError, match=r"not an encoded value|unknown type|not a list|single"):
        values.decode(hostile)


def test_extensions_in_extensions_without_end_are_refused() -> None:
    hostile = b"\x00"
    for _ in range(5_000):
        inner = b"\x91" + hostile
        hostile = b"\xc9" + len(inner).to_bytes(4, "big") + b"\x02" + inner
    with pytest.raises(FormatError):
        values.decode(hostile)


# The fixed encoding: what is stored in journals must be read by later releases.
WRITTEN = [
    (1 << 64, "c70901" + "00" * 8 + "01"),
    ((1, "a"), "d6029201a161"),
    ({1}, "d5039101"),
    (frozenset([1]), "d5049101"),
    (complex(1, -2), "d805000000000000f03f00000000000000c0"),
    (datetime(2024, 2, 29, 1, 2, 3, tzinfo=UTC), "c71906" + b"2024-02-29T01:02:03+00:00".hex()),
    (date(2024, 2, 29), "c70a07" + b"2024-02-29".hex()),
    (time(1, 2), "d708" + b"01:02:00".hex()),
    (timedelta(1, 2, 3), "d60993010203"),
    (Decimal("1.50"), "d60a" + b"1.50".hex()),
    (UUID(int=5), "d80b" + "00" * 15 + "05"),
    ({(1,): 2}, "c7060c92d502910102"),
]


@pytest.mark.parametrize(("value", "written"), WRITTEN)
def test_the_encoding_does_not_change(value: Any, written: str) -> None:
    assert values.encode(value).hex() == written
    assert values.decode(bytes.fromhex(written)) == value
