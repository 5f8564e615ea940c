"""The values in map and stream messages, as JMS reads and writes them: by type.

`model/jms_types.py` has the type of each value, and the types as which it may be read. A value that
is written here keeps its type on its way; one that was put into the body in Python's way has the
smallest type that holds it. A body that can only be read refuses changes by itself
(`model/read_only.py`).
"""

from __future__ import annotations

from typing import Any

from antiphon.errors import MessageEOFError
from antiphon.formats.bodies import check_map_name
from antiphon.model.jms_types import Kind, convert, state


class StreamAccess:
    """Typed reads and writes of a `StreamMessage`, which keeps the place of the next read. A read
    that fails leaves the place as it was, and can be tried as another type."""

    __slots__ = ()

    # -- From the message -------------------------------------------------------------------------

    @property
    def body(self) -> Any:
        raise NotImplementedError

    def _place(self) -> int:
        """The index of the item to read next. Raise `MessageNotReadableError` while the message is
        written."""
        raise NotImplementedError

    def _go_to(self, place: int) -> None:
        raise NotImplementedError

    # -- Reading ----------------------------------------------------------------------------------

    def read_boolean(self) -> bool:
        """Read the next item as a bool. Raise `MessageFormatError` if it cannot be read so, and
        `MessageEOFError` if there is none."""
        return bool(self._read("boolean"))

    def read_byte(self) -> int:
        """Read the next item as an int of 8 bits. Raise `MessageFormatError` if it cannot be read
        so, and `MessageEOFError` if there is none."""
        return int(self._read("byte"))

    def read_short(self) -> int:
        """Read the next item as an int of 16 bits. Raise `MessageFormatError` if it cannot be read
        so, and `MessageEOFError` if there is none."""
        return int(self._read("short"))

    def read_char(self) -> str:
        """Read the next item as one character. Raise `MessageFormatError` if it cannot be read so,
        and `MessageEOFError` if there is none."""
        return str(self._read("char"))

    def read_int(self) -> int:
        """Read the next item as an int of 32 bits. Raise `MessageFormatError` if it cannot be read
        so, and `MessageEOFError` if there is none."""
        return int(self._read("int"))

    def read_long(self) -> int:
        """Read the next item as an int of 64 bits. Raise `MessageFormatError` if it cannot be read
        so, and `MessageEOFError` if there is none."""
        return int(self._read("long"))

    def read_float(self) -> float:
        """Read the next item as a float of 32 bits. Raise `MessageFormatError` if it cannot be read
        so, and `MessageEOFError` if there is none."""
        return float(self._read("float"))

    def read_double(self) -> float:
        """Read the next item as a float. Raise `MessageFormatError` if it cannot be read so, and
        `MessageEOFError` if there is none."""
        return float(self._read("double"))

    def read_string(self) -> str | None:
        """Read the next item as a text. Raise `MessageFormatError` if it cannot be read so, and
        `MessageEOFError` if there is none."""
        text: str | None = self._read("string")
        return text

    def read_bytes(self) -> bytes | None:
        """Read the next item, which is bytes. Raise `MessageFormatError` if it cannot be read so,
        and `MessageEOFError` if there is none."""
        data: bytes | None = self._read("bytes")
        return data

    def read_object(self) -> Any:
        """Read the next item as it is. Raise `MessageEOFError` if there is none."""
        place = self._place()
        item = self._item(place)
        self._go_to(place + 1)
        return item

    def _read(self, kind: Kind) -> Any:
        place = self._place()
        value = convert(f"item {place + 1}", self._item(place), kind)
        self._go_to(place + 1)
        return value

    def _item(self, place: int) -> Any:
        if place >= len(self.body):
            raise MessageEOFError(f"the stream has only {len(self.body)} items")
        return self.body[place]

    # -- Writing ----------------------------------------------------------------------------------

    def write_boolean(self, value: bool) -> None:
        """Append a bool. Raise `MessageFormatError` if the value does not fit."""
        self._write(value, "boolean")

    def write_byte(self, value: int) -> None:
        """Append an int of 8 bits. Raise `MessageFormatError` if the value does not fit."""
        self._write(value, "byte")

    def write_short(self, value: int) -> None:
        """Append an int of 16 bits. Raise `MessageFormatError` if the value does not fit."""
        self._write(value, "short")

    def write_char(self, value: str) -> None:
        """Append one character. Raise `MessageFormatError` if the value does not fit."""
        self._write(value, "char")

    def write_int(self, value: int) -> None:
        """Append an int of 32 bits. Raise `MessageFormatError` if the value does not fit."""
        self._write(value, "int")

    def write_long(self, value: int) -> None:
        """Append an int of 64 bits. Raise `MessageFormatError` if the value does not fit."""
        self._write(value, "long")

    def write_float(self, value: float) -> None:
        """Append a float, rounded to what 32 bits can hold. Raise `MessageFormatError` if the value
        does not fit."""
        self._write(value, "float")

    def write_double(self, value: float) -> None:
        """Append a float. Raise `MessageFormatError` if the value does not fit."""
        self._write(value, "double")

    def write_string(self, value: str | None) -> None:
        """Append a text. Raise `MessageFormatError` if the value does not fit."""
        self._write(value, "string")

    def write_bytes(self, value: bytes | bytearray | memoryview | None) -> None:
        """Append bytes. Raise `MessageFormatError` if the value does not fit."""
        self._write(value, "bytes")

    def write_object(self, value: Any) -> None:
        """Append a value, of the smallest type that holds it. Sending the message raises
        `MessageFormatError` if the value has no type of JMS."""
        self.body.append(value)

    def _write(self, value: Any, kind: Kind) -> None:
        self.body.append(state(f"item {len(self.body) + 1}", value, kind))


class MapAccess:
    """Typed reads and writes of a `MapMessage`. It can be read at any time; a name without a value
    is None."""

    __slots__ = ()

    @property
    def body(self) -> Any:
        """From the message."""
        raise NotImplementedError

    @property
    def map_names(self) -> tuple[str, ...]:
        """The names that have values."""
        return tuple(self.body)

    def item_exists(self, name: str) -> bool:
        """Return whether this name has a value."""
        return name in self.body

    # -- Reading ----------------------------------------------------------------------------------

    def get_boolean(self, name: str) -> bool:
        """Return the value of this name as a bool. Raise `MessageFormatError` if it cannot be read
        so."""
        return bool(self._get(name, "boolean"))

    def get_byte(self, name: str) -> int:
        """Return the value of this name as an int of 8 bits. Raise `MessageFormatError` if it
        cannot be read so."""
        return int(self._get(name, "byte"))

    def get_short(self, name: str) -> int:
        """Return the value of this name as an int of 16 bits. Raise `MessageFormatError` if it
        cannot be read so."""
        return int(self._get(name, "short"))

    def get_char(self, name: str) -> str:
        """Return the value of this name as one character. Raise `MessageFormatError` if it cannot
        be read so."""
        return str(self._get(name, "char"))

    def get_int(self, name: str) -> int:
        """Return the value of this name as an int of 32 bits. Raise `MessageFormatError` if it
        cannot be read so."""
        return int(self._get(name, "int"))

    def get_long(self, name: str) -> int:
        """Return the value of this name as an int of 64 bits. Raise `MessageFormatError` if it
        cannot be read so."""
        return int(self._get(name, "long"))

    def get_float(self, name: str) -> float:
        """Return the value of this name as a float of 32 bits. Raise `MessageFormatError` if it
        cannot be read so."""
        return float(self._get(name, "float"))

    def get_double(self, name: str) -> float:
        """Return the value of this name as a float. Raise `MessageFormatError` if it cannot be read
        so."""
        return float(self._get(name, "double"))

    def get_string(self, name: str) -> str | None:
        """Return the value of this name as a text. Raise `MessageFormatError` if it cannot be read
        so."""
        text: str | None = self._get(name, "string")
        return text

    def get_bytes(self, name: str) -> bytes | None:
        """Return the value of this name as bytes. Raise `MessageFormatError` if it cannot be read
        so."""
        data: bytes | None = self._get(name, "bytes")
        return data

    def get_object(self, name: str) -> Any:
        """Return the value of this name as it is, or None."""
        return self.body.get(name)

    def _get(self, name: str, kind: Kind) -> Any:
        return convert(repr(name), self.body.get(name), kind)

    # -- Writing ----------------------------------------------------------------------------------

    def set_boolean(self, name: str, value: bool) -> None:
        """Set the value of this name, as a bool. Raise `MessageFormatError` if it does not fit."""
        self._set(name, value, "boolean")

    def set_byte(self, name: str, value: int) -> None:
        """Set the value of this name, as an int of 8 bits. Raise `MessageFormatError` if it does
        not fit."""
        self._set(name, value, "byte")

    def set_short(self, name: str, value: int) -> None:
        """Set the value of this name, as an int of 16 bits. Raise `MessageFormatError` if it does
        not fit."""
        self._set(name, value, "short")

    def set_char(self, name: str, value: str) -> None:
        """Set the value of this name, as one character. Raise `MessageFormatError` if it does not
        fit."""
        self._set(name, value, "char")

    def set_int(self, name: str, value: int) -> None:
        """Set the value of this name, as an int of 32 bits. Raise `MessageFormatError` if it does
        not fit."""
        self._set(name, value, "int")

    def set_long(self, name: str, value: int) -> None:
        """Set the value of this name, as an int of 64 bits. Raise `MessageFormatError` if it does
        not fit."""
        self._set(name, value, "long")

    def set_float(self, name: str, value: float) -> None:
        """Set the value of this name, as a float, rounded to what 32 bits can hold. Raise
        `MessageFormatError` if it does not fit."""
        self._set(name, value, "float")

    def set_double(self, name: str, value: float) -> None:
        """Set the value of this name, as a float. Raise `MessageFormatError` if it does not fit."""
        self._set(name, value, "double")

    def set_string(self, name: str, value: str | None) -> None:
        """Set the value of this name, as a text. Raise `MessageFormatError` if it does not fit."""
        self._set(name, value, "string")

    def set_bytes(self, name: str, value: bytes | bytearray | memoryview | None) -> None:
        """Set the value of this name, as bytes. Raise `MessageFormatError` if it does not fit."""
        self._set(name, value, "bytes")

    def set_object(self, name: str, value: Any) -> None:
        """Set the value of this name, of the smallest type that holds it. Raise
        `MessageFormatError` for an empty name; sending the message raises it if the value has no
        type of JMS."""
        check_map_name(name)
        self.body[name] = value

    def _set(self, name: str, value: Any, kind: Kind) -> None:
        check_map_name(name)
        self.body[name] = state(repr(name), value, kind)
