"""The properties of a message: a mapping that checks what is put in, and JMS's ways to read it.

A name is an identifier as in Java, and no word of the selector language. A value is a bool, an int
of 64 bits, a float, a str or None. JMS has more numeric types than Python; a number counts as the
smallest one that holds it. What may be read as what:

    carried as   may be read as
    boolean      boolean, string
    byte         byte, short, int, long, string      and so on: a wider type may always be asked for
    float        float, double, string
    string       anything that it can be parsed as
    None         string (None), boolean (False)      an absent property counts as None

Everything else raises `MessageFormatError`.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Mapping, MutableMapping
from functools import lru_cache

from antiphon.errors import MessageFormatError, MessageNotWriteableError

Value = bool | int | float | str | None

DELIVERY_COUNT = "JMSXDeliveryCount"
"""Can be read like a property of every received message, but is none that was sent."""

_RESERVED = ("NULL", "TRUE", "FALSE", "NOT", "AND", "OR", "BETWEEN", "LIKE", "IN", "IS", "ESCAPE")
_BITS = {"byte": 8, "short": 16, "int": 32, "long": 64}
_INTEGER = re.compile(r"[+-]?[0-9]{1,40}")
_FLOATING = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|[+-]?Infinity|NaN")


class Properties(MutableMapping[str, Value]):
    __slots__ = ("_delivery_count", "_values", "read_only")

    def __init__(self, values: dict[str, Value], read_only: bool, delivery_count: int) -> None:
        self._values = values
        self.read_only = read_only
        self._delivery_count = delivery_count  # 0: not received

    def __getitem__(self, name: str) -> Value:
        if name == DELIVERY_COUNT and self._delivery_count:
            return self._delivery_count
        return self._values[name]

    def __setitem__(self, name: str, value: Value) -> None:
        self._check_writeable()
        self._values[check_name(name)] = check_value(name, value)

    def __delitem__(self, name: str) -> None:
        self._check_writeable()
        del self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return repr(self._values)

    def __reduce__(self) -> tuple[type[Properties], tuple[dict[str, Value], bool, int]]:
        return Properties, (self._values, self.read_only, self._delivery_count)

    def _check_writeable(self) -> None:
        if self.read_only:
            raise MessageNotWriteableError(
                "the properties of a received message are read-only: call clear_properties() first"
            )


def checked(properties: Mapping[str, Value]) -> dict[str, Value]:
    return {check_name(name): check_value(name, value) for name, value in properties.items()}


def check_name(name: str) -> str:
    if not isinstance(name, str):
        raise MessageFormatError(f"the name of a property is a str, not {name!r}")
    if not _is_name(name):
        raise MessageFormatError(
            f"{name!r} cannot name a property: use letters, digits, _ and $, "
            f"and none of the selectors' words {', '.join(_RESERVED)}"
        )
    if name == DELIVERY_COUNT:
        raise MessageFormatError(f"{DELIVERY_COUNT} is counted by the servers and cannot be set")
    return str.__str__(name)


@lru_cache(maxsize=1024)
def _is_name(name: str) -> bool:
    return name.replace("$", "_").isidentifier() and name.upper() not in _RESERVED


def check_value(name: str, value: Value) -> Value:
    """The value as one of the exact types: an `IntEnum` becomes an int."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        if not _fits(value, 64):
            raise MessageFormatError(f"property {name!r}: {value} has more than 64 bits")
        return int(value)
    if isinstance(value, float):
        return float(value)
    if isinstance(value, str):
        return str.__str__(value)
    raise MessageFormatError(
        f"property {name!r} is a bool, int, float, str or None, not a {type(value).__name__}: "
        "put other values into the body"
    )


# -- Reading, by JMS's table --------------------------------------------------------------------


def as_boolean(name: str, value: Value) -> bool:
    if isinstance(value, bool):
        return value
    if value is None or isinstance(value, str):
        return value is not None and value.lower() == "true"
    raise _cannot(name, value, "boolean")


def as_integer(name: str, value: Value, kind: str) -> int:
    if isinstance(value, str) and _INTEGER.fullmatch(value):
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and _fits(value, _BITS[kind]):
        return value
    raise _cannot(name, value, kind)


def as_floating(name: str, value: Value, kind: str) -> float:
    if isinstance(value, str) and _FLOATING.fullmatch(value):
        return float(value)
    if isinstance(value, float) and (kind == "double" or _fits_float(value)):
        return value
    raise _cannot(name, value, kind)


def as_string(value: Value) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    return None if value is None else str(value)


def _fits(value: int, bits: int) -> bool:
    return -(1 << bits - 1) <= value < 1 << bits - 1


def _fits_float(value: float) -> bool:
    try:
        (single,) = struct.unpack("<f", struct.pack("<f", value))
    except OverflowError:
        return False
    return single == value or value != value


def _cannot(name: str, value: Value, kind: str) -> MessageFormatError:
    return MessageFormatError(f"property {name!r} is {value!r}, which cannot be read as {kind}")
