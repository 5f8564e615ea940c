"""Messages: what programs send and receive.

A received message is decoded only as far as somebody looks at it, and is read-only until
`clear_body()` or `clear_properties()`; each leaves the other as it is. Nothing here keeps a message
that was sent: `outgoing` turns it into bytes at once, so that later changes do not reach it.

Bodies are read and written as `formats/columns.py` and `formats/values.py` say. A pickled body is
read only if the program that receives it has agreed to, for it runs code of the sender's choice.
"""

from __future__ import annotations

import math
import pickle
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol, TypedDict, Unpack, overload

from msgspec.structs import replace

from antiphon.api import properties as props
from antiphon.api.destination import Destination
from antiphon.api.modes import DeliveryMode
from antiphon.api.properties import Properties, Value
from antiphon.errors import (
    FormatError,
    IllegalStateError,
    InvalidDestinationError,
    MessageFormatError,
    MessageNotWriteableError,
    ResourceAllocationError,
)
from antiphon.formats import columns as formats
from antiphon.formats import values
from antiphon.formats.columns import (
    BYTES,
    MAP,
    MESSAGE,
    OBJECT,
    PICKLE,
    PLAIN,
    STREAM,
    TEXT,
    Columns,
    Extra,
    Outgoing,
)
from antiphon.formats.pack import NON_PERSISTENT
from antiphon.formats.read_only import ReadOnlyDict, ReadOnlyList

BODY_MAX = 64 << 20
HEADERS_MAX = 1_000_000
"""Headers and properties of one message; with a body of the greatest size they fit a pack."""

SECONDS_MAX = 1e11
_UNREAD: Any = object()


class Owner(Protocol):
    """What a received message knows of its consumer."""

    def acknowledge_message(self, message: Message) -> Any: ...


class _Sent(NamedTuple):
    """What a message gets by being sent."""

    id: str | None
    timestamp: int  # ms
    destination: Destination | None
    delivery_mode: DeliveryMode


_NOT_SENT = _Sent(None, 0, None, DeliveryMode.PERSISTENT)


class _TextHeader:
    """A header that the application may set, also of a received message."""

    def __set_name__(self, owner: type[Message], name: str) -> None:
        self._name = name

    @overload
    def __get__(self, message: None, owner: type[Message]) -> _TextHeader: ...

    @overload
    def __get__(self, message: Message, owner: type[Message]) -> str | None: ...

    def __get__(self, message: Message | None, owner: type[Message]) -> _TextHeader | str | None:
        if message is None:
            return self
        value: str | None = getattr(message._headers(), self._name)
        return value

    def __set__(self, message: Message, value: str | None) -> None:
        message._extra = replace(message._headers(), **{self._name: _text(self._name, value)})


class Message:
    """A message without a body, and what all messages have. Times are in seconds since 1970."""

    __slots__ = (
        "_body",
        "_columns",
        "_extra",
        "_index",
        "_owner",
        "_pickle_allowed",
        "_properties",
        "_sent",
        "delivery_count",
        "position",
    )
    __match_args__ = ("body",)

    position: int
    """Its number in the order of all messages; 0 if it was not received."""

    delivery_count: int
    """How often it was delivered, this time included; 0 if it was not received."""

    # The pack of a received message, from which it is read, and its index there. None as soon as
    # the body may be changed.
    _columns: Columns | None
    _index: int

    correlation_id = _TextHeader()
    tag = _TextHeader()
    key = _TextHeader()
    type = _TextHeader()

    def __init__(self) -> None:
        self._columns = None
        self._index = 0
        self._owner: Owner | None = None
        self._pickle_allowed = False
        self._body: Any = None
        self._extra: Extra | None = None
        self._properties: Properties | None = None
        self._sent: _Sent | None = None
        self.position = 0
        self.delivery_count = 0

    # -- Headers -----------------------------------------------------------------------------------

    @property
    def id(self) -> str | None:
        return self._origin().id

    @property
    def timestamp(self) -> float:
        """When it was sent, by the sender's clock."""
        return self._origin().timestamp / 1000

    @property
    def destination(self) -> Destination | None:
        return self._origin().destination

    @property
    def delivery_mode(self) -> DeliveryMode:
        return self._origin().delivery_mode

    @property
    def redelivered(self) -> bool:
        return self.delivery_count > 1

    @property
    def priority(self) -> int:
        return self._headers().priority

    @property
    def expiration(self) -> float:
        """When it ceases to be of use; 0 means never."""
        return self._headers().expiration / 1000

    @property
    def delivery_time(self) -> float:
        """Before which it is not delivered."""
        return (self._headers().delivery_time or self._origin().timestamp) / 1000

    @property
    def reply_to(self) -> Destination | None:
        text = self._headers().reply_to
        return None if text is None else Destination.parse(text)

    @reply_to.setter
    def reply_to(self, destination: Destination | None) -> None:
        self._extra = replace(self._headers(), reply_to=_address(destination))

    @property
    def view(self) -> None:
        """The group's view in which it was delivered; None outside groups."""
        return None

    def acknowledge(self) -> Any:
        """With asyncio, to be awaited."""
        if self._owner is None:
            raise IllegalStateError(
                "only a received message, where it was received, is acknowledged"
            )
        return self._owner.acknowledge_message(self)

    # -- Properties --------------------------------------------------------------------------------

    @property
    def properties(self) -> Properties:
        if self._properties is None:
            received = self._columns is not None
            self._properties = Properties(
                dict(self._headers().properties), received, self.delivery_count
            )
        return self._properties

    def clear_properties(self) -> None:
        self._properties = Properties({}, False, self.delivery_count)

    def property_exists(self, name: str) -> bool:
        return name in self.properties

    def get_object_property(self, name: str) -> Value:
        return self.properties.get(name)

    def get_string_property(self, name: str) -> str | None:
        return props.as_string(self.properties.get(name))

    def get_boolean_property(self, name: str) -> bool:
        return props.as_boolean(name, self.properties.get(name))

    def get_byte_property(self, name: str) -> int:
        return props.as_integer(name, self.properties.get(name), "byte")

    def get_short_property(self, name: str) -> int:
        return props.as_integer(name, self.properties.get(name), "short")

    def get_int_property(self, name: str) -> int:
        return props.as_integer(name, self.properties.get(name), "int")

    def get_long_property(self, name: str) -> int:
        return props.as_integer(name, self.properties.get(name), "long")

    def get_float_property(self, name: str) -> float:
        return props.as_floating(name, self.properties.get(name), "float")

    def get_double_property(self, name: str) -> float:
        return props.as_floating(name, self.properties.get(name), "double")

    # -- Body --------------------------------------------------------------------------------------

    @property
    def body(self) -> Any:
        if self._body is _UNREAD:
            assert self._columns is not None
            kind = self._columns.kinds[self._index]
            self._body = _read(kind, self._columns.body(self._index), self._pickle_allowed)
        return self._body

    @body.setter
    def body(self, body: Any) -> None:
        if self._columns is not None:
            raise MessageNotWriteableError(
                "the body of a received message is read-only: call clear_body() first"
            )
        self._body = self._checked(body)

    @property
    def text(self) -> str:
        raise MessageFormatError(f"a {type(self).__name__} has no text: read its body")

    def clear_body(self) -> None:
        # Whatever else was still to be read from the pack is read before letting go of it.
        self._sent = self._origin()
        self._properties = self.properties
        self._columns = None
        self._body = self._empty()

    @staticmethod
    def _empty() -> Any:
        return None

    @staticmethod
    def _checked(body: Any) -> Any:
        if body is not None:
            raise MessageFormatError(
                "a plain message has no body: create a message of another kind"
            )

    @staticmethod
    def _written(body: Any, allow_pickle: bool) -> tuple[int, bytes]:
        """Kind and bytes of a body that was checked."""
        return MESSAGE, b""

    def _content(self, allow_pickle: bool) -> tuple[int, bytes, Extra]:
        """Kind, body and headers to be sent: its own, or as received."""
        columns, i = self._columns, self._index
        if columns is None:
            kind, body = self._written(self._checked(self._body), allow_pickle)
        else:
            kind, body = columns.kinds[i], columns.body(i)
        headers = self._headers()
        properties = headers.properties if self._properties is None else dict(self._properties)
        extra = Extra(
            properties=properties,
            correlation_id=headers.correlation_id,
            reply_to=headers.reply_to,
            type=headers.type,
            tag=headers.tag,
            key=headers.key,
        )
        return kind, body, extra

    # -- Inside ------------------------------------------------------------------------------------

    def _headers(self) -> Extra:
        if self._extra is None:
            columns = self._columns
            data = b"" if columns is None else columns.extra(self._index)
            self._extra = formats.decode_extra(data)
        return self._extra

    def _origin(self) -> _Sent:
        if self._sent is None:
            columns = self._columns
            self._sent = _NOT_SENT if columns is None else _sent_as(columns, self._index)
        return self._sent

    def __repr__(self) -> str:
        origin = self._origin()
        return f"<{type(self).__name__} {origin.id or 'not sent'} to {origin.destination}>"

    def __reduce__(self) -> tuple[Any, ...]:
        columns = self._columns
        pack = None if columns is None else formats.cut(columns.pack, self._index, 1)
        state = (
            pack,
            self._body if columns is None else None,
            self._sent,
            self._extra,
            self._properties,
            self.position,
            self.delivery_count,
            self._pickle_allowed,
        )
        return _restored, (type(self), *state)


class TextMessage(Message):
    __slots__ = ()

    def __init__(self, text: str = "") -> None:
        super().__init__()
        self._body = self._checked(text)

    @property
    def text(self) -> str:
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
            raise MessageFormatError(f"the body of a text message is a str, not {_kind(body)}")
        return body

    @staticmethod
    def _written(body: Any, allow_pickle: bool) -> tuple[int, bytes]:
        return TEXT, _utf8(body)


class BytesMessage(Message):
    __slots__ = ()

    def __init__(self, body: bytes | bytearray | memoryview = b"") -> None:
        super().__init__()
        self._body = self._checked(body)

    @staticmethod
    def _empty() -> Any:
        return b""

    @staticmethod
    def _checked(body: Any) -> Any:
        if not isinstance(body, bytes | bytearray | memoryview):
            raise MessageFormatError(f"the body of a bytes message is bytes, not {_kind(body)}")
        return bytes(body)

    @staticmethod
    def _written(body: Any, allow_pickle: bool) -> tuple[int, bytes]:
        return BYTES, body


class MapMessage(Message):
    """Names with values, which keep their types (`formats/values.py`)."""

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
            raise MessageFormatError(f"the body of a map message is a mapping, not {_kind(body)}")
        return dict(body)

    @staticmethod
    def _written(body: Any, allow_pickle: bool) -> tuple[int, bytes]:
        for name in body:
            if type(name) is not str or not name:
                raise MessageFormatError(
                    f"a map message has names that are not empty, not {name!r}: "
                    "send it as an object message"
                )
        return MAP, values.encode(body)


class StreamMessage(Message):
    """A list of values, which keep their types (`formats/values.py`)."""

    __slots__ = ()

    def __init__(self, body: list[Any] | None = None) -> None:
        super().__init__()
        self._body = self._checked([] if body is None else body)

    @staticmethod
    def _empty() -> Any:
        return []

    @staticmethod
    def _checked(body: Any) -> Any:
        if not isinstance(body, list):
            raise MessageFormatError(f"the body of a stream message is a list, not {_kind(body)}")
        return list(body)

    @staticmethod
    def _written(body: Any, allow_pickle: bool) -> tuple[int, bytes]:
        return STREAM, values.encode(body)


class ObjectMessage(Message):
    """Any value that `formats/values.py` knows; other objects only pickled, by consent."""

    __slots__ = ()

    def __init__(self, body: Any = None) -> None:
        super().__init__()
        self._body = body

    @staticmethod
    def _checked(body: Any) -> Any:
        return body

    @staticmethod
    def _written(body: Any, allow_pickle: bool) -> tuple[int, bytes]:
        try:
            return OBJECT, values.encode(body)
        except MessageFormatError:
            if not allow_pickle:
                raise
        try:
            return PICKLE, pickle.dumps(body)
        except Exception as error:  # whatever the object's own code raises
            raise MessageFormatError(f"{_kind(body)} cannot be pickled: {error!r}") from error


# By the kinds of `formats/columns.py`.
_CLASSES = (
    Message,
    TextMessage,
    BytesMessage,
    MapMessage,
    StreamMessage,
    ObjectMessage,
    ObjectMessage,
)


# -- Received -------------------------------------------------------------------------------------


def arrived(
    columns: Columns,
    i: int,
    position: int,
    deliveries: int,
    owner: Owner | None,
    pickle_allowed: bool = False,
) -> Message:
    """Message `i` of a pack. Nothing of it is decoded yet."""
    kind = columns.kinds[i]
    cls = _CLASSES[kind] if kind <= PICKLE else Message
    message = cls.__new__(cls)
    message._columns = columns
    message._index = i
    message._owner = owner
    message._pickle_allowed = pickle_allowed
    message._body = _UNREAD
    message._extra = None
    message._properties = None
    message._sent = None
    message.position = position
    message.delivery_count = deliveries
    return message


def _restored(
    cls: type[Message],
    pack: bytes | None,
    body: Any,
    sent: _Sent | None,
    extra: Extra | None,
    properties: Properties | None,
    position: int,
    delivery_count: int,
    pickle_allowed: bool,
) -> Message:
    message = cls.__new__(cls)
    message._columns = None if pack is None else Columns(pack)
    message._index = 0
    message._owner = None
    message._pickle_allowed = pickle_allowed
    message._body = _UNREAD if pack else body
    message._extra = extra
    message._properties = properties
    message._sent = sent
    message.position = position
    message.delivery_count = delivery_count
    return message


def _sent_as(columns: Columns, i: int) -> _Sent:
    header = columns.header
    mode = DeliveryMode.PERSISTENT
    if header.flags & NON_PERSISTENT:
        mode = DeliveryMode.NON_PERSISTENT
    return _Sent(
        formats.message_id(header, i),
        columns.timestamp(i),
        Destination.parse(header.destination),
        mode,
    )


def _read(kind: int, data: bytes, pickle_allowed: bool) -> Any:
    if kind == TEXT:
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise MessageFormatError(f"the text of the message is not UTF-8: {error}") from None
    if kind == BYTES:
        return data
    if kind == MESSAGE:
        return None
    if kind == PICKLE:
        return _unpickled(data, pickle_allowed)
    try:
        body = values.decode(data)
    except FormatError as error:
        raise MessageFormatError(f"the body of the message cannot be read: {error}") from None
    if kind == OBJECT:
        return body
    if kind == MAP and isinstance(body, dict):
        return ReadOnlyDict(body)
    if kind == STREAM and isinstance(body, list):
        return ReadOnlyList(body)
    raise MessageFormatError(f"a body of kind {kind} is not known to this release")


def _unpickled(data: bytes, allowed: bool) -> Any:
    if not allowed:
        raise MessageFormatError(
            "the body is pickled, and reading it could run any code: if you trust all who can send "
            "here, allow pickle when connecting"
        )
    try:
        return pickle.loads(data)
    except Exception as error:  # whatever the object's own code raises
        raise MessageFormatError(f"the body cannot be unpickled: {error!r}") from error


# -- Sent -----------------------------------------------------------------------------------------


class Headers(TypedDict, total=False):
    """What may be said when sending. None is as good as not given."""

    properties: Mapping[str, Value] | None
    priority: int | None  # 0 to 9
    time_to_live: float | None  # seconds; 0: for ever
    delivery_delay: float | None  # seconds
    correlation_id: str | None
    reply_to: Destination | None
    type: str | None
    tag: str | None
    key: str | None


def outgoing(
    content: Any, *, now_ms: int, allow_pickle: bool = False, **headers: Unpack[Headers]
) -> Outgoing:
    """A message or a mere body, as it is sent. What is given here wins over what a message has,
    whose priority and times belong to how it was sent before and do not count."""
    if isinstance(content, str):
        kind, body, extra = TEXT, _utf8(content), PLAIN
    elif type(content) is bytes:
        kind, body, extra = BYTES, content, PLAIN
    elif isinstance(content, Message):
        kind, body, extra = content._content(allow_pickle)
    else:
        cls = _class_for(content)
        kind, body = cls._written(cls._checked(content), allow_pickle)
        extra = PLAIN
    if len(body) > BODY_MAX:
        raise ResourceAllocationError(
            f"a body of {len(body)} bytes: a message has at most {BODY_MAX}. Nothing was sent."
        )
    if headers:
        extra = replace(extra, **_checked_headers(headers, extra, now_ms))
    written = b"" if extra is PLAIN else _written_headers(extra)
    # Twice as fast as `Outgoing(...)`, and this is done for every message.
    return tuple.__new__(Outgoing, (kind, body, written, now_ms))


def _class_for(content: Any) -> type[Message]:
    if isinstance(content, bytes | bytearray | memoryview):
        return BytesMessage
    if isinstance(content, Mapping):
        return MapMessage
    return StreamMessage if isinstance(content, list) else ObjectMessage


def _checked_headers(given: Headers, extra: Extra, now_ms: int) -> dict[str, Any]:
    """The fields of `Extra` that are given."""
    fields: dict[str, Any] = {}
    value: Any
    for name, value in given.items():
        match name:
            case _ if value is None:
                pass
            case "correlation_id" | "type" | "tag" | "key":
                fields[name] = _text(name, value)
            case "properties":
                fields[name] = extra.properties | props.checked(value)
            case "priority":
                fields[name] = _priority(value)
            case "time_to_live":
                fields["expiration"] = now_ms + _milliseconds(name, value) if value else 0
            case "delivery_delay":
                fields["delivery_time"] = now_ms + _milliseconds(name, value) if value else 0
            case "reply_to":
                fields[name] = _address(value)
            case _:
                raise TypeError(f"a message has no header {name!r}")
    return fields


def _written_headers(extra: Extra) -> bytes:
    try:
        data = formats.encode_extra(extra)
    except UnicodeEncodeError as error:
        raise MessageFormatError(
            f"a header or property cannot be written as UTF-8: {error}"
        ) from None
    if len(data) > HEADERS_MAX:
        raise ResourceAllocationError(
            f"headers and properties of {len(data)} bytes: a message has at most {HEADERS_MAX}. "
            "Nothing was sent."
        )
    return data


def sent(
    message: Message,
    id: str,
    destination: Destination,
    delivery_mode: DeliveryMode,
    outgoing: Outgoing,
) -> None:
    """Tell a message that the application made how it was sent."""
    extra = formats.decode_extra(outgoing.extra)
    message._sent = _Sent(id, outgoing.timestamp, destination, delivery_mode)
    message._extra = replace(
        message._headers(),
        priority=extra.priority,
        expiration=extra.expiration,
        delivery_time=extra.delivery_time,
    )


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise MessageFormatError(f"the text cannot be written as UTF-8: {error}") from None


def _text(name: str, value: str | None) -> str | None:
    if value is not None and not isinstance(value, str):
        raise MessageFormatError(f"{name} is a str, not {_kind(value)}")
    return value


def _address(destination: Destination | None) -> str | None:
    if destination is None:
        return None
    if not isinstance(destination, Destination):
        raise InvalidDestinationError(f"reply_to is a destination, not {_kind(destination)}")
    destination.check_sendable()
    return destination.text


def _priority(priority: int) -> int:
    if not isinstance(priority, int) or not 0 <= priority <= 9:
        raise ValueError(f"a priority is a number from 0 to 9, not {priority!r}")
    return priority


def _milliseconds(name: str, seconds: float) -> int:
    if not 0 < seconds <= SECONDS_MAX:
        raise ValueError(
            f"{name} is a number of seconds from 0 to {SECONDS_MAX:g}, not {seconds!r}"
        )
    # Rounded up: nothing expires early.
    return math.ceil(seconds * 1000)


def _kind(value: object) -> str:
    return f"a {type(value).__name__}"
