"""The properties of a message: a mapping that checks its values, and JMS's typed access to it.

A name is an identifier as in Java, and not a word of the selector language. A value is a bool, an
int of 64 bits, a float, a str or None. `model/jms_types.py` has the type of each value, and the
types as which it may be read; an absent property is read as None.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import suppress
from functools import lru_cache
from typing import Any

from antiphon.api.signatures import made_by
from antiphon.errors import MessageFormatError, MessageNotWriteableError
from antiphon.model.identifiers import is_identifier
from antiphon.model.jms_scalars import CODES, Double, Int, Long, Short, fits
from antiphon.model.jms_types import Kind, convert, state
from antiphon.model.redelivery import DEAD_REASON as DEAD_REASON

PropertyValue = bool | int | float | str | None

DELIVERY_COUNT = "JMSXDeliveryCount"
"""Name that can be read like a property of every received message, though it was not sent as
one."""

_RESERVED = ("NULL", "TRUE", "FALSE", "NOT", "AND", "OR", "BETWEEN", "LIKE", "IN", "IS", "ESCAPE")
_STATED: dict[type, tuple[type, Kind]] = {
    Short: (int, "short"),
    Int: (int, "int"),
    Long: (int, "long"),
    Double: (float, "double"),
}
_AS_THEY_ARE = {type(None), bool, float, str, *_STATED}
_BY_CODE = {CODES[cls]: plain_and_kind for cls, plain_and_kind in _STATED.items()}


class Properties(MutableMapping[str, PropertyValue]):
    """The properties of one message, as a mapping.

    Setting one raises `MessageFormatError` for a name that is not an identifier or a value that is
    not a bool, an int of 64 bits, a float, a str or None, and `MessageNotWriteableError` if the
    message was received.
    """

    __slots__ = ("_dead_reason", "_delivery_count", "_read_only", "_values")

    @made_by("`Message.properties`")
    def __init__(
        self,
        values: dict[str, PropertyValue],
        read_only: bool,
        delivery_count: int,
        dead_reason: str = "",
    ) -> None:
        self._values = values
        self._read_only = read_only
        self._delivery_count = delivery_count  # 0: not received
        self._dead_reason = dead_reason

    def __getitem__(self, name: str) -> PropertyValue:
        if name == DELIVERY_COUNT and self._delivery_count:
            return Int(self._delivery_count)
        if name == DEAD_REASON and self._dead_reason:
            return self._dead_reason
        return self._values[name]

    def __setitem__(self, name: str, value: PropertyValue) -> None:
        self._check_writeable()
        self._values[check_name(name)] = check_value(name, value)

    def _state(self, name: str, value: Any, kind: Kind) -> None:
        """Set a value of this type, which it keeps on its way."""
        self._check_writeable()
        self._values[check_name(name)] = state(_called(name), value, kind)

    def _apart(self) -> tuple[dict[str, PropertyValue], dict[str, int]]:
        """Return them as they are sent: plain values, and stated types."""
        return _plain(self._values), types_of(self._values)

    def __delitem__(self, name: str) -> None:
        self._check_writeable()
        del self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return repr(self._values)

    def __reduce__(
        self,
    ) -> tuple[Any, ...]:
        received = (self._delivery_count, self._dead_reason)
        return Properties, (self._values, self._read_only, *received)

    def _check_writeable(self) -> None:
        if self._read_only:
            raise MessageNotWriteableError(
                "the properties of a received message are read-only: call clear_properties() first"
            )


class PropertyAccess:
    """JMS's getters and setters of properties. A value keeps the type that a setter stated, for the
    receiver too. A getter raises `MessageFormatError` for a value that cannot be read as its type;
    a property that is not there is None, which only some types can be read from."""

    __slots__ = ()

    @property
    def properties(self) -> Properties:
        """From the message."""
        raise NotImplementedError

    def property_exists(self, name: str) -> bool:
        """Return whether there is a property of this name."""
        return name in self.properties

    def _property(self, name: str, kind: Kind) -> Any:
        return convert(_called(name), self.properties.get(name), kind)

    def get_object_property(self, name: str) -> PropertyValue:
        """Return the property as it is, or None."""
        return self.properties.get(name)

    def get_boolean_property(self, name: str) -> bool:
        """Return the property as a bool. Raise `MessageFormatError` if it cannot be read so."""
        return bool(self._property(name, "boolean"))

    def get_byte_property(self, name: str) -> int:
        """Return the property as an int of 8 bits. Raise `MessageFormatError` if it cannot be read
        so."""
        return int(self._property(name, "byte"))

    def get_short_property(self, name: str) -> int:
        """Return the property as an int of 16 bits. Raise `MessageFormatError` if it cannot be read
        so."""
        return int(self._property(name, "short"))

    def get_int_property(self, name: str) -> int:
        """Return the property as an int of 32 bits. Raise `MessageFormatError` if it cannot be read
        so."""
        return int(self._property(name, "int"))

    def get_long_property(self, name: str) -> int:
        """Return the property as an int of 64 bits. Raise `MessageFormatError` if it cannot be read
        so."""
        return int(self._property(name, "long"))

    def get_float_property(self, name: str) -> float:
        """Return the property as a float of 32 bits. Raise `MessageFormatError` if it cannot be
        read so."""
        return float(self._property(name, "float"))

    def get_double_property(self, name: str) -> float:
        """Return the property as a float. Raise `MessageFormatError` if it cannot be read so."""
        return float(self._property(name, "double"))

    def get_string_property(self, name: str) -> str | None:
        """Return the property as a text. Raise `MessageFormatError` if it cannot be read so."""
        text: str | None = self._property(name, "string")
        return text

    def set_object_property(self, name: str, value: PropertyValue) -> None:
        """Set the property, of the smallest type that holds the value. Raise `MessageFormatError`
        for a value that is none of `PropertyValue`."""
        self.properties[name] = value

    def set_boolean_property(self, name: str, value: bool) -> None:
        """Set the property as a bool. Raise `MessageFormatError` if it does not fit."""
        self.properties._state(name, value, "boolean")

    def set_byte_property(self, name: str, value: int) -> None:
        """Set the property as an int of 8 bits. Raise `MessageFormatError` if it does not fit."""
        self.properties._state(name, value, "byte")

    def set_short_property(self, name: str, value: int) -> None:
        """Set the property as an int of 16 bits. Raise `MessageFormatError` if it does not fit."""
        self.properties._state(name, value, "short")

    def set_int_property(self, name: str, value: int) -> None:
        """Set the property as an int of 32 bits. Raise `MessageFormatError` if it does not fit."""
        self.properties._state(name, value, "int")

    def set_long_property(self, name: str, value: int) -> None:
        """Set the property as an int of 64 bits. Raise `MessageFormatError` if it does not fit."""
        self.properties._state(name, value, "long")

    def set_float_property(self, name: str, value: float) -> None:
        """Set the property as a float of 32 bits, rounded to what that can hold. Raise
        `MessageFormatError` if it does not fit."""
        self.properties._state(name, value, "float")

    def set_double_property(self, name: str, value: float) -> None:
        """Set the property as a float. Raise `MessageFormatError` if it does not fit."""
        self.properties._state(name, value, "double")

    def set_string_property(self, name: str, value: str | None) -> None:
        """Set the property as a text. Raise `MessageFormatError` if it does not fit."""
        self.properties._state(name, value, "string")


def _called(name: str) -> str:
    return f"property {name!r}"


# -- Checking --------------------------------------------------------------------------------------


def checked(properties: Mapping[str, PropertyValue]) -> dict[str, PropertyValue]:
    """Return properties as they are sent; `types_of` returns their stated types."""
    values = {check_name(name): check_value(name, value) for name, value in properties.items()}
    return values if _STATED.keys().isdisjoint(map(type, values.values())) else _plain(values)


def check_name(name: str) -> str:
    if not isinstance(name, str):
        raise MessageFormatError(f"the name of a property is a str, not {name!r}")
    complaint = _complaint_about(name)
    if complaint:
        raise MessageFormatError(f"{name!r} cannot name a property: {complaint}")
    return str.__str__(name)


@lru_cache(maxsize=1024)
def _complaint_about(name: str) -> str:
    """Return the reason why a name is not allowed; empty: it is."""
    if not is_identifier(name) or name.upper() in _RESERVED:
        words = ", ".join(_RESERVED)
        return f"use letters, digits, _ and $, and none of the selectors' words {words}"
    if name == DELIVERY_COUNT:
        return "it is counted by the servers and cannot be set"
    if name.startswith("JMS") and not name.startswith(("JMSX", "JMS_")):
        return "JMS keeps it for headers"
    return ""


def check_value(name: str, value: PropertyValue) -> PropertyValue:
    """Return the value as one of the exact types: an `IntEnum` becomes an int. A stated type is
    kept."""
    if type(value) in _AS_THEY_ARE:
        return value
    if isinstance(value, int):
        if not fits(value, 64):
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


# -- On their way: plain values, and stated types --------------------------------------------------


def types_of(properties: Mapping[str, PropertyValue]) -> dict[str, int]:
    return {name: CODES[type(v)] for name, v in properties.items() if type(v) in _STATED}


def arrived(
    values: Mapping[str, PropertyValue], types: Mapping[str, int]
) -> dict[str, PropertyValue]:
    """Return each value with its stated type. A type that does not fit its value is ignored."""
    properties = dict(values)
    for name, code in types.items():
        if code in _BY_CODE:
            plain, kind = _BY_CODE[code]
            if type(values.get(name)) is plain:
                with suppress(MessageFormatError):
                    properties[name] = state(name, values[name], kind)
    return properties


def _plain(properties: Mapping[str, PropertyValue]) -> dict[str, PropertyValue]:
    return {
        name: _STATED[type(value)][0](value) if type(value) in _STATED else value
        for name, value in properties.items()
    }
