"""The kinds of messages, by their bodies: text, bytes, map, stream, object."""

from __future__ import annotations

from collections.abc import Mapping
from operator import attrgetter
from typing import Any

from antiphon.api.messages.bytes_access import BytesAccess
from antiphon.api.messages.item_access import MapAccess, StreamAccess
from antiphon.api.messages.message import Message
from antiphon.errors import MessageFormatError, MessageNotReadableError, MessageNotWriteableError
from antiphon.formats import bodies
from antiphon.formats.columns import BYTES, PICKLE
from antiphon.model.read_only import ReadOnlyList


class TextMessage(Message):
    """A message whose body is a str."""

    __slots__ = ()

    def __init__(self, text: str = "") -> None:
        super().__init__()
        self._body = self._checked(text)

    @property
    def text(self) -> str:
        """The body. Raise `MessageNotWriteableError` when it is set on a received message."""
        text: str = self.body
        return text

    @text.setter
    def text(self, text: str) -> None:
        self.body = text

    @staticmethod
    def _empty() -> Any:
        return ""

    @staticmethod
    def _checked(body: Any) -> Any:
        if not isinstance(body, str):
            raise MessageFormatError(
                f"the body of a text message is a str, not a {type(body).__name__}"
            )
        return body

    @staticmethod
    def _written(body: Any, allow_pickle: bool) -> tuple[int, bytes]:
        return bodies.write_text(body)


class _Sequence(Message):
    """A message whose body is written from its start to its end, and then read so.

    While it is being written, it cannot be read item by item; after `reset()`, or received, it can
    only be read, until it is cleared. The whole `body` can be read at any time.
    """

    __slots__ = ("_at",)

    # The place of the next read. Absent while the message is being written, and in a received one
    # until its first read: most are never read so, and there are many.
    _at: int

    def reset(self) -> None:
        """Go to the start of the body, to read it: from now on it cannot be written."""
        if self._arrival.columns is None:
            self._body = self._finished(self._body)
        self._at = 0

    def clear_body(self) -> None:
        super().clear_body()
        if hasattr(self, "_at"):
            del self._at

    @staticmethod
    def _finished(body: Any) -> Any:
        """Return a body that can only be read."""
        raise NotImplementedError

    def _check_writeable(self) -> None:
        super()._check_writeable()
        if hasattr(self, "_at"):
            raise MessageNotWriteableError(
                "the message was reset and can only be read: call clear_body() first"
            )

    def _place(self) -> int:
        if hasattr(self, "_at"):
            return self._at
        if self._arrival.columns is None:
            raise MessageNotReadableError(
                "the message is being written: call reset() first, or look at its body"
            )
        return 0

    def _go_to(self, place: int) -> None:
        self._at = place

    def __reduce__(self) -> tuple[Any, ...]:
        reduced = super().__reduce__()
        return (*reduced, (None, {"_at": self._at})) if hasattr(self, "_at") else reduced


class BytesMessage(_Sequence, BytesAccess):
    """A message whose body is bytes.

    `write_...` appends numbers and texts to them, as Java's `DataOutputStream` does, and `read_...`
    takes them out again, in the same order, after `reset()` or when the message was received. Raise
    `MessageNotWriteableError` for writing to a message that is being read, and
    `MessageNotReadableError` for reading one that is being written.
    """

    __slots__ = ()

    # Loops read it for every message: so it is there from the beginning, as a slot without Python
    # code.
    body = property(
        attrgetter("_body"),
        Message._write_body,
        doc="The whole body. Raise `MessageNotWriteableError` when that of a received one is set.",
    )

    def __init__(self, body: bytes | bytearray | memoryview = b"") -> None:
        super().__init__()
        self._body = self._checked(body)

    def _append(self, data: bytes) -> None:
        self._check_writeable()
        if type(self) is BytesMessage:  # an application's own class stays, and copies each time
            self.__class__ = WrittenBytesMessage
        if isinstance(self, WrittenBytesMessage) and type(self._body) is bytes:
            self._body = bytearray(self._body)
        self._body += data

    @staticmethod
    def _finished(body: Any) -> Any:
        return bytes(body)

    @staticmethod
    def _empty() -> Any:
        return b""

    @staticmethod
    def _checked(body: Any) -> Any:
        if not isinstance(body, bytes | bytearray | memoryview):
            raise MessageFormatError(
                f"the body of a bytes message is bytes, not a {type(body).__name__}"
            )
        return bytes(body)

    @staticmethod
    def _written(body: Any, allow_pickle: bool) -> tuple[int, bytes]:
        return BYTES, body


class WrittenBytesMessage(BytesMessage):
    """A bytes message that is written piece by piece. Its body grows in place; reading it copies
    it."""

    __slots__ = ()

    body = property(lambda self: bytes(self._body), Message._write_body)

    def __reduce__(self) -> tuple[Any, ...]:
        _, *state = super().__reduce__()
        return BytesMessage._restored, *state


class MapMessage(Message, MapAccess):
    """A message whose body is a mapping: names with values, which keep their types.

    `set_...` and `get_...` convert by the rules of JMS. A missing name has the value None.
    """

    __slots__ = ()

    def __init__(self, body: Mapping[str, Any] | None = None) -> None:
        super().__init__()
        self._body = self._checked({} if body is None else body)

    @staticmethod
    def _empty() -> Any:
        return {}

    @staticmethod
    def _checked(body: Any) -> Any:
        if not isinstance(body, Mapping):
            raise MessageFormatError(
                f"the body of a map message is a mapping, not a {type(body).__name__}"
            )
        return dict(body)

    @staticmethod
    def _written(body: Any, allow_pickle: bool) -> tuple[int, bytes]:
        return bodies.write_map(body)


class StreamMessage(_Sequence, StreamAccess):
    """A message whose body is a list of values, which keep their types.

    `write_...` appends values, and `read_...` takes them out again, in the same order and converted
    by the rules of JMS, after `reset()` or when the message was received. Raise
    `MessageNotWriteableError` for writing to a message that is being read, and
    `MessageNotReadableError` for reading one that is being written.
    """

    __slots__ = ()

    def __init__(self, body: list[Any] | None = None) -> None:
        super().__init__()
        self._body = self._checked([] if body is None else body)

    @staticmethod
    def _finished(body: Any) -> Any:
        return ReadOnlyList(body)

    @staticmethod
    def _empty() -> Any:
        return []

    @staticmethod
    def _checked(body: Any) -> Any:
        if not isinstance(body, list):
            raise MessageFormatError(
                f"the body of a stream message is a list, not a {type(body).__name__}"
            )
        return list(body)

    @staticmethod
    def _written(body: Any, allow_pickle: bool) -> tuple[int, bytes]:
        return bodies.write_stream(body)


class ObjectMessage(Message):
    """A message whose body is any value of Python that has a safe encoding: None, numbers, text,
    bytes, times, and lists, tuples, sets and mappings of these.

    Other objects are pickled, which both sides must have allowed (`allow_pickle`); otherwise
    sending or reading them raises `MessageFormatError`.
    """

    __slots__ = ()

    def __init__(self, body: Any = None) -> None:
        super().__init__()
        self._body = body

    @staticmethod
    def _checked(body: Any) -> Any:
        return body

    @staticmethod
    def _written(body: Any, allow_pickle: bool) -> tuple[int, bytes]:
        return bodies.write_object(body, allow_pickle)


CLASSES = (
    Message,
    TextMessage,
    BytesMessage,
    MapMessage,
    StreamMessage,
    ObjectMessage,
    ObjectMessage,
    *[Message] * (255 - PICKLE),  # of a newer program
)
"""By the numbers of `formats/columns.py`."""


def class_for(content: Any) -> type[Message]:
    """Return the class of message that a mere body becomes."""
    if isinstance(content, bytes | bytearray | memoryview):
        return BytesMessage
    if isinstance(content, Mapping):
        return MapMessage
    return StreamMessage if isinstance(content, list) else ObjectMessage
