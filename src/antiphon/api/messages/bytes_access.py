"""Numbers and text in the body of a bytes message, as JMS reads and writes them.

Their layout is that of Java's `DataOutputStream`, the greatest byte first, so that programs in Java
and Python read each other's. The body does not have the types of its values: a reader must know
them. A read that fails leaves the place as it was, and can be tried as another type.
"""

from __future__ import annotations

import struct
from typing import Any

from antiphon.errors import FormatError, MessageEOFError, MessageFormatError
from antiphon.formats import modified_utf8
from antiphon.model.jms_types import Kind, state

UTF_MAX = 0xFFFF
"""Limit of the bytes of one text: its length is written in two bytes."""

_BYTE, _UNSIGNED_BYTE = struct.Struct(">b"), struct.Struct(">B")
_SHORT, _UNSIGNED_SHORT = struct.Struct(">h"), struct.Struct(">H")
_INT, _LONG = struct.Struct(">i"), struct.Struct(">q")
_FLOAT, _DOUBLE = struct.Struct(">f"), struct.Struct(">d")


class BytesAccess:
    """Numbers and texts in the body of a `BytesMessage`, which keeps the place of the next read. A
    read past the end raises `MessageEOFError`, a value that does not fit `MessageFormatError`."""

    __slots__ = ()

    # -- From the message -------------------------------------------------------------------------

    @property
    def body(self) -> Any:
        """From the message."""
        raise NotImplementedError

    def _place(self) -> int:
        """The place of the next read. Raise `MessageNotReadableError` while the message is
        written."""
        raise NotImplementedError

    def _go_to(self, place: int) -> None:
        raise NotImplementedError

    def _append(self, data: bytes) -> None:
        """Append bytes. Raise `MessageNotWriteableError` if the message can only be read."""
        raise NotImplementedError

    # -- Reading ----------------------------------------------------------------------------------

    @property
    def body_length(self) -> int:
        """The number of bytes in the body. Raise `MessageNotReadableError` while it is written."""
        self._place()
        return len(self.body)

    def read_boolean(self) -> bool:
        """Read a bool. Raise `MessageEOFError` if too few bytes are left."""
        return self._number(_BYTE) != 0

    def read_byte(self) -> int:
        """Read an int of 8 bits. Raise `MessageEOFError` if too few bytes are left."""
        return int(self._number(_BYTE))

    def read_unsigned_byte(self) -> int:
        """Read an int from 0 to 255. Raise `MessageEOFError` if too few bytes are left."""
        return int(self._number(_UNSIGNED_BYTE))

    def read_short(self) -> int:
        """Read an int of 16 bits. Raise `MessageEOFError` if too few bytes are left."""
        return int(self._number(_SHORT))

    def read_unsigned_short(self) -> int:
        """Read an int from 0 to 65,535. Raise `MessageEOFError` if too few bytes are left."""
        return int(self._number(_UNSIGNED_SHORT))

    def read_char(self) -> str:
        """Read one character. Raise `MessageEOFError` if too few bytes are left."""
        return chr(int(self._number(_UNSIGNED_SHORT)))

    def read_int(self) -> int:
        """Read an int of 32 bits. Raise `MessageEOFError` if too few bytes are left."""
        return int(self._number(_INT))

    def read_long(self) -> int:
        """Read an int of 64 bits. Raise `MessageEOFError` if too few bytes are left."""
        return int(self._number(_LONG))

    def read_float(self) -> float:
        """Read a float of 32 bits. Raise `MessageEOFError` if too few bytes are left."""
        return self._number(_FLOAT)

    def read_double(self) -> float:
        """Read a float. Raise `MessageEOFError` if too few bytes are left."""
        return self._number(_DOUBLE)

    def read_utf(self) -> str:
        """Read a text that `write_utf` has written. Raise `MessageEOFError` if too few bytes are
        left, and `MessageFormatError` if they are not such a text."""
        place = self._place()
        (length,) = _UNSIGNED_SHORT.unpack(self._part(place, _UNSIGNED_SHORT.size))
        begin = place + _UNSIGNED_SHORT.size
        try:
            text = modified_utf8.decode(self._part(begin, length))
        except FormatError as error:
            raise MessageFormatError(f"at byte {place} there is no text: {error}") from None
        self._go_to(begin + length)
        return text

    def read_bytes(self, count: int) -> bytes:
        """Read the next `count` bytes, fewer if there are no more: at the end none. Raise
        `MessageNotReadableError` while the message is written."""
        if count < 0:
            raise ValueError(f"a number of bytes is not negative: {count}")
        place = self._place()
        data: bytes = self.body[place : place + count]
        self._go_to(place + len(data))
        return data

    def _number(self, form: struct.Struct) -> int | float:
        place = self._place()
        number: int | float
        (number,) = form.unpack(self._part(place, form.size))
        self._go_to(place + form.size)
        return number

    def _part(self, place: int, size: int) -> bytes:
        data: bytes = self.body[place : place + size]
        if len(data) < size:
            raise MessageEOFError(
                f"{size} bytes at byte {place}: the body has only {len(self.body)}"
            )
        return data

    # -- Writing ----------------------------------------------------------------------------------

    def write_boolean(self, value: bool) -> None:
        """Append a bool. Raise `MessageFormatError` if the value does not fit."""
        self._put(_BYTE, value, "boolean")

    def write_byte(self, value: int) -> None:
        """Append an int of 8 bits. Raise `MessageFormatError` if the value does not fit."""
        self._put(_BYTE, value, "byte")

    def write_short(self, value: int) -> None:
        """Append an int of 16 bits. Raise `MessageFormatError` if the value does not fit."""
        self._put(_SHORT, value, "short")

    def write_char(self, value: str) -> None:
        """Append one character. Raise `MessageFormatError` if the value does not fit."""
        self._append(_UNSIGNED_SHORT.pack(ord(_stated(value, "char"))))

    def write_int(self, value: int) -> None:
        """Append an int of 32 bits. Raise `MessageFormatError` if the value does not fit."""
        self._put(_INT, value, "int")

    def write_long(self, value: int) -> None:
        """Append an int of 64 bits. Raise `MessageFormatError` if the value does not fit."""
        self._put(_LONG, value, "long")

    def write_float(self, value: float) -> None:
        """Append a float of 32 bits. Raise `MessageFormatError` if the value does not fit."""
        self._put(_FLOAT, value, "float")

    def write_double(self, value: float) -> None:
        """Append a float. Raise `MessageFormatError` if the value does not fit."""
        self._put(_DOUBLE, value, "double")

    def write_utf(self, value: str) -> None:
        """Append a text of at most 65,535 bytes, with its length before it. Raise
        `MessageFormatError` for a longer one."""
        text = modified_utf8.encode(_text(value))
        if len(text) > UTF_MAX:
            raise MessageFormatError(
                f"a text of {len(text)} bytes: write_utf takes at most {UTF_MAX}; send a text "
                "message, or write_bytes"
            )
        self._append(_UNSIGNED_SHORT.pack(len(text)) + text)

    def write_bytes(self, value: bytes | bytearray | memoryview) -> None:
        """Append bytes, without their number. Raise `MessageFormatError` if the value does not
        fit."""
        if value is None:
            raise MessageFormatError("None has no bytes to be written")
        self._append(_stated(value, "bytes"))

    def _put(self, form: struct.Struct, value: Any, kind: Kind) -> None:
        self._append(form.pack(_stated(value, kind)))


def _stated(value: Any, kind: Kind) -> Any:
    return state("the body", value, kind)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise MessageFormatError(f"a text is a str, not a {type(value).__name__}")
    return value
