"""Values of Python as bytes and back, each with its type, and nothing that could run code.

They are written in msgpack as far as it knows them: None, bool, int of 64 bits, float, str, bytes,
list, dict. The rest are extensions of msgpack, by these codes:

    1  int of any size   little-endian, signed        7  date        as in ISO 8601
    2  tuple             a list                       8  time        as in ISO 8601
    3  set               a list                       9  timedelta   a list: days, s, us
    4  frozenset         a list                      10  Decimal     as text
    5  complex           two f64, little-endian      11  UUID        16 bytes
    6  datetime          as in ISO 8601              12  dict        a list: key, value, key...
   13  Short             i16, little-endian          16  Double      f64, little-endian
   14  Int               i32                         17  Char        UTF-8
   15  Long              i64

12 is for dicts with keys that are extensions, 13 to 17 are the types of `model/jms_scalars.py`. A
time zone becomes its offset from UTC, and `fold` is not kept. Other subclasses are refused, since
they would come back as other values.

`encode` raises `MessageFormatError`, `decode` raises `FormatError`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec
from msgspec.msgpack import Ext

from antiphon.errors import FormatError, MessageFormatError
from antiphon.model.jms_scalars import CODES, Char, Double, Int, Long, Short, is_char
from antiphon.model.read_only import ReadOnlyDict, ReadOnlyList

Atom = tuple[int, Callable[[Any], bytes], Callable[[bytes], Any]]
"""Its code, to bytes, from bytes."""

DEPTH_MAX = 64
"""Containers within containers. A value that contains itself ends here too."""

_COMPLEX = struct.Struct("<dd")
_SCALARS = {
    Short: struct.Struct("<h"),
    Int: struct.Struct("<i"),
    Long: struct.Struct("<q"),
    Double: struct.Struct("<d"),
}
_encode = msgspec.msgpack.Encoder().encode
_PLAIN = {type(None), bool, float, str, bytes}
_INT_MIN, _INT_MAX = -(1 << 63), (1 << 64) - 1


def encode(value: Any) -> bytes:
    """Return a value as bytes. Raise `MessageFormatError` if it has no safe encoding."""
    try:
        return _encode(_plain(value, DEPTH_MAX))
    except UnicodeEncodeError as error:
        raise MessageFormatError(f"a str cannot be written as UTF-8: {error}") from None


def decode(data: bytes) -> Any:
    """Return the value of these bytes. Raise `FormatError`."""
    try:
        return _decoder.decode(data)
    except (
        msgspec.MsgspecError,
        ArithmeticError,  # from Decimal and timedelta
        RecursionError,
        TypeError,
        ValueError,
        struct.error,
    ) as error:
        raise FormatError(f"not an encoded value: {error}") from None


# -- To bytes -----------------------------------------------------------------------------------


def _plain(value: Any, depth: int) -> Any:
    """The same value in what msgpack knows."""
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is int:
        return value if _INT_MIN <= value <= _INT_MAX else Ext(1, _int_bytes(value))
    if kind in _ATOMS:
        code, to_bytes, _ = _ATOMS[kind]
        return Ext(code, to_bytes(value))
    if not depth:
        raise MessageFormatError(f"containers are nested more than {DEPTH_MAX} deep")
    if kind is list or kind is ReadOnlyList:
        return _plain_list(value, depth)
    if kind is dict or kind is ReadOnlyDict:
        return _plain_dict(value, depth)
    if kind in _COLLECTIONS:
        return Ext(_COLLECTIONS[kind], _encode(_plain_list(value, depth)))
    raise MessageFormatError(
        f"a value of type {kind.__module__}.{kind.__qualname__} has no safe encoding: "
        "send built-in values or bytes instead, or connect with allow_pickle=True"
    )


def _plain_list(items: Iterable[Any], depth: int) -> list[Any]:
    return [_plain(item, depth - 1) for item in items]


def _plain_dict(value: dict[Any, Any], depth: int) -> Any:
    keys = _plain_list(value, depth)
    items = _plain_list(value.values(), depth)
    if any(type(key) is Ext for key in keys):
        return Ext(12, _encode([part for pair in zip(keys, items, strict=True) for part in pair]))
    return dict(zip(keys, items, strict=True))


def _int_bytes(value: int) -> bytes:
    return value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)


def _iso_bytes(value: date | time) -> bytes:
    return value.isoformat().encode()


# -- From bytes ---------------------------------------------------------------------------------


def _extension(code: int, data: memoryview) -> Any:
    if code not in _FROM_BYTES:
        raise FormatError(f"a value has the unknown type {code}")
    return _FROM_BYTES[code](bytes(data))


def _list(data: bytes) -> list[Any]:
    items = _decoder.decode(data)
    if type(items) is not list:
        raise FormatError("the items of a container are not a list")
    return items


def _dict(data: bytes) -> dict[Any, Any]:
    parts = _list(data)
    return dict(zip(parts[::2], parts[1::2], strict=True))


def _char(data: bytes) -> Char:
    text = data.decode()
    if not is_char(text):
        raise FormatError(f"{text!r} is not a single character")
    return Char(text)


def _scalar(kind: type, form: struct.Struct) -> Atom:
    return CODES[kind], form.pack, lambda data: kind(*form.unpack(data))


_ATOMS: dict[type, Atom] = {
    complex: (
        5,
        lambda value: _COMPLEX.pack(value.real, value.imag),
        lambda data: complex(*_COMPLEX.unpack(data)),
    ),
    datetime: (6, _iso_bytes, lambda data: datetime.fromisoformat(data.decode())),
    date: (7, _iso_bytes, lambda data: date.fromisoformat(data.decode())),
    time: (8, _iso_bytes, lambda data: time.fromisoformat(data.decode())),
    timedelta: (
        9,
        lambda value: _encode([value.days, value.seconds, value.microseconds]),
        lambda data: timedelta(*_list(data)),
    ),
    Decimal: (10, lambda value: str(value).encode(), lambda data: Decimal(data.decode())),
    UUID: (11, lambda value: value.bytes, lambda data: UUID(bytes=data)),
    **{kind: _scalar(kind, form) for kind, form in _SCALARS.items()},
    Char: (CODES[Char], str.encode, _char),
}
_COLLECTIONS: dict[type, int] = {tuple: 2, set: 3, frozenset: 4}
_FROM_BYTES: dict[int, Callable[[bytes], Any]] = {
    1: lambda data: int.from_bytes(data, "little", signed=True),
    2: lambda data: tuple(_list(data)),
    3: lambda data: set(_list(data)),
    4: lambda data: frozenset(_list(data)),
    12: _dict,
    **{code: from_bytes for code, _, from_bytes in _ATOMS.values()},
}
_decoder = msgspec.msgpack.Decoder(ext_hook=_extension)
