"""Messages: what programs send and receive.

A received message is decoded only as far as somebody looks at it, and is read-only until
`clear_body()` or `clear_properties()`; each leaves the other as it is. Nothing here keeps a message
that was sent: `outgoing` turns it into bytes at once, so that later changes do not reach it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import repeat, starmap
from operator import attrgetter
from typing import Any, NamedTuple, Protocol, Unpack, overload

from msgspec.structs import replace

from antiphon.api.messages import headers
from antiphon.api.messages import properties as props
from antiphon.api.messages.bytes_access import BytesAccess
from antiphon.api.messages.destinations import Destination
from antiphon.api.messages.headers import Headers as Headers
from antiphon.api.messages.item_access import MapAccess, StreamAccess
from antiphon.api.messages.properties import Properties, PropertyAccess, PropertyValue
from antiphon.api.modes import DeliveryMode
from antiphon.api.protocol.inbox_items import GroupColumns
from antiphon.errors import (
    IllegalStateError,
    MessageFormatError,
    MessageNotReadableError,
    MessageNotWriteableError,
    ResourceAllocationError,
)
from antiphon.formats import bodies
from antiphon.formats import columns as formats
from antiphon.formats.columns import BYTES, MESSAGE, PICKLE, PLAIN, Columns, Extra, Outgoing
from antiphon.formats.pack import NON_PERSISTENT
from antiphon.model.read_only import ReadOnlyList
from antiphon.model.views import View as View

BODY_MAX = 64 << 20
JMS_VIEW = "JMS_view"
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
    view: View | None = None
    visible: int = 0  # ms; when it could first be delivered, by the servers' clock


_NOT_SENT = _Sent(None, 0, None, DeliveryMode.PERSISTENT)


@dataclass(slots=True, eq=False)
class Arrival:
    """What received messages of one pack have in common."""

    columns: Columns | None  # from which they are read; None: the body may be changed
    start: int  # the position of message 0
    deliveries: int  # of each, this time included
    owner: Owner | None = None
    pickle_allowed: bool = False


_NOT_RECEIVED = Arrival(None, 0, 0)


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
        message._extra = replace(
            message._headers(), **{self._name: headers.text(self._name, value)}
        )


class Message(PropertyAccess):
    """A message without a body, and what all messages have. Times are in seconds since 1970."""

    __slots__ = ("_arrival", "_body", "_extra", "_index", "_properties", "_sent")
    __match_args__ = ("body",)

    correlation_id = _TextHeader()
    tag = _TextHeader()
    key = _TextHeader()
    type = _TextHeader()

    def __init__(self) -> None:
        self._arrival = _NOT_RECEIVED
        self._index = 0  # in the pack of a received message
        self._body: Any = None

    # Not there until somebody asks for them: most are never asked for, and there are many.
    _extra: Extra
    _properties: Properties
    _sent: _Sent

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
    def position(self) -> int:
        """Its number in the order of all messages; 0 if it was not received."""
        return self._arrival.start + self._index

    @property
    def delivery_count(self) -> int:
        """How often it was delivered, this time included; 0 if it was not received."""
        return self._arrival.deliveries

    @property
    def redelivered(self) -> bool:
        return self.delivery_count > 1

    @property
    def priority(self) -> int:
        return self._headers().priority

    @property
    def expiration(self) -> float:
        """When it ceases to be of use, by the servers' clock; 0 means never."""
        return formats.expires(self._headers(), self._origin().visible) / 1000

    @property
    def delivery_time(self) -> float:
        """Before which it is not delivered."""
        origin = self._origin()
        return (origin.visible if self._headers().delivery_delay else origin.timestamp) / 1000

    @property
    def reply_to(self) -> Destination | None:
        text = self._headers().reply_to
        return None if text is None else Destination.parse(text)

    @reply_to.setter
    def reply_to(self, destination: Destination | None) -> None:
        self._extra = replace(self._headers(), reply_to=headers.address(destination))

    @property
    def view(self) -> View | None:
        """The group's view in which it was delivered; None outside groups."""
        return self._origin().view

    def acknowledge(self) -> Any:
        """With asyncio, to be awaited."""
        owner = self._arrival.owner
        if owner is None:
            raise IllegalStateError(
                "only a received message, where it was received, is acknowledged"
            )
        return owner.acknowledge_message(self)

    # -- Properties --------------------------------------------------------------------------------

    @property
    def properties(self) -> Properties:
        if not hasattr(self, "_properties"):
            own, columns = self._headers(), self._arrival.columns
            values = props.arrived(own.properties, own.types)
            reason = columns.reason if columns is not None else ""
            self._properties = Properties(values, columns is not None, self.delivery_count, reason)
        return self._properties

    def clear_properties(self) -> None:
        self._properties = Properties({}, False, self.delivery_count)

    def get_string_property(self, name: str) -> str | None:
        text = super().get_string_property(name)
        if text is None and name == JMS_VIEW and self.view is not None:
            # It answers, but it is no property: otherwise this would look like a view message.
            return str(self.view)
        return text

    # -- Body --------------------------------------------------------------------------------------

    @property
    def body(self) -> Any:
        if self._body is _UNREAD:
            columns, i = self._arrival.columns, self._index
            assert columns is not None
            kind = columns.kinds[i]
            self._body = bodies.read(kind, columns.body(i), self._arrival.pickle_allowed)
        return self._body

    @body.setter
    def body(self, body: Any) -> None:
        self._write_body(body)

    def _write_body(self, body: Any) -> None:
        self._check_writeable()
        self._body = self._checked(body)

    def _check_writeable(self) -> None:
        if self._arrival.columns is not None:
            raise MessageNotWriteableError(
                "the body of a received message is read-only: call clear_body() first"
            )

    @property
    def text(self) -> str:
        raise MessageFormatError(f"a {type(self).__name__} has no text: read its body")

    def clear_body(self) -> None:
        # Whatever else was still to be read from the pack is read before letting go of it.
        self._sent = self._origin()
        self._properties = self.properties
        self._arrival = dataclasses.replace(self._arrival, columns=None)
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
        columns, i = self._arrival.columns, self._index
        if columns is None:
            kind, body = self._written(self._checked(self._body), allow_pickle)
        else:
            kind, body = columns.kinds[i], columns.body(i)
        own = self._headers()
        properties, types = own.properties, own.types
        if hasattr(self, "_properties"):
            properties, types = self._properties.apart()
        extra = Extra(
            properties=properties,
            correlation_id=own.correlation_id,
            reply_to=own.reply_to,
            type=own.type,
            tag=own.tag,
            key=own.key,
            types=types,
        )
        return kind, body, extra

    # -- Inside ------------------------------------------------------------------------------------

    def _key(self) -> int:
        """By which its consumer knows it."""
        return self.position

    def _headers(self) -> Extra:
        if not hasattr(self, "_extra"):
            columns = self._arrival.columns
            data = b"" if columns is None else columns.extra(self._index)
            self._extra = formats.decode_extra(data)
        return self._extra

    def _origin(self) -> _Sent:
        if not hasattr(self, "_sent"):
            columns = self._arrival.columns
            self._sent = _NOT_SENT if columns is None else _sent_as(columns, self._index)
        return self._sent

    def __repr__(self) -> str:
        origin = self._origin()
        return f"<{type(self).__name__} {origin.id or 'not sent'} to {origin.destination}>"

    def __reduce__(self) -> tuple[Any, ...]:
        columns = self._arrival.columns
        pack = None if columns is None else formats.cut(columns.pack, self._index, 1)
        state = (
            pack,
            self.body if columns is None else None,
            self._origin(),  # what is not in the pack, like the view, is kept
            self._headers(),
            getattr(self, "_properties", None),
            self.position,
            self.delivery_count,
            self._arrival.pickle_allowed,
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
            raise MessageFormatError(
                f"the body of a text message is a str, not a {type(body).__name__}"
            )
        return body

    @staticmethod
    def _written(body: Any, allow_pickle: bool) -> tuple[int, bytes]:
        return bodies.write_text(body)


class _Sequence(Message):
    """A body that is written from its start to its end, and then read so.

    Being written, it cannot be read item by item; from `reset()` on, or received, it can only be
    read, until it is cleared. The whole body can be looked at any time.
    """

    __slots__ = ("_at",)

    # Where the next item is read. Not there while the message is being written, and of a received
    # one until somebody reads: most are never read so, and there are many.
    _at: int

    def reset(self) -> None:
        """Have it read, from the start."""
        if self._arrival.columns is None:
            self._body = self._finished(self._body)
        self._at = 0

    def clear_body(self) -> None:
        super().clear_body()
        if hasattr(self, "_at"):
            del self._at

    @staticmethod
    def _finished(body: Any) -> Any:
        """The body as one that can only be read."""
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
    """Bytes; `BytesAccess` has numbers and text in them, as Java writes them."""

    __slots__ = ()

    # Loops read it for every message: so it is there from the beginning, and read without a step
    # in Python.
    body = property(attrgetter("_body"), Message._write_body)

    def __init__(self, body: bytes | bytearray | memoryview = b"") -> None:
        super().__init__()
        self._body = self._checked(body)

    def _append(self, data: bytes) -> None:
        self._check_writeable()
        if type(self) is BytesMessage:  # a class of the application stays, and copies each time
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
    """One that is written piece by piece. Its body grows in place, and who looks gets a copy."""

    __slots__ = ()

    body = property(lambda self: bytes(self._body), Message._write_body)


class MapMessage(Message, MapAccess):
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
            raise MessageFormatError(
                f"the body of a map message is a mapping, not a {type(body).__name__}"
            )
        return dict(body)

    @staticmethod
    def _written(body: Any, allow_pickle: bool) -> tuple[int, bytes]:
        return bodies.write_map(body)


class StreamMessage(_Sequence, StreamAccess):
    """A list of values, which keep their types (`formats/values.py`)."""

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
        return bodies.write_object(body, allow_pickle)


# By the kinds of `formats/columns.py`.
_CLASSES = (
    Message,
    TextMessage,
    BytesMessage,
    MapMessage,
    StreamMessage,
    ObjectMessage,
    ObjectMessage,
    *[Message] * (255 - PICKLE),  # of a newer program
)


# -- Received -------------------------------------------------------------------------------------


def arrived(arrival: Arrival, indexes: Iterable[int]) -> Iterator[Message]:
    """Messages of a pack. Little is done, for it is done for every message: of plain bytes the body
    is cut out, nothing else is decoded yet."""
    columns = arrival.columns
    assert columns is not None
    pack, at, bounds, kinds = columns.pack, columns.bodies, columns.body_bounds, columns.kinds
    unread, new = _UNREAD, object.__new__
    for i in indexes:
        kind = kinds[i]
        if kind == BYTES:
            message: Message = new(BytesMessage)
            message._body = pack[at + bounds[i] : at + bounds[i + 1]]
        else:
            message = new(_CLASSES[kind])
            message._body = unread
        message._arrival = arrival
        message._index = i
        yield message


def arrived_together(
    arrival: Arrival, first: int, end: int, indexes: Iterator[int]
) -> Iterator[Message]:
    """Messages `first` to `end - 1`, as long as `indexes` gives their numbers."""
    columns = arrival.columns
    assert columns is not None
    if columns.kinds.count(BYTES, first, end) < end - first:
        return arrived(arrival, indexes)
    return _bytes_arrived(arrival, columns, first, end, indexes)


def _bytes_arrived(
    arrival: Arrival, columns: Columns, first: int, end: int, indexes: Iterator[int]
) -> Iterator[Message]:
    """As `arrived`: what can be done for all of them at once takes a quarter of its time off."""
    at, bounds = columns.bodies, columns.body_bounds
    begin = bounds[first]
    blob = columns.pack[at + begin : at + bounds[end]]
    stops = bounds[first + 1 : end + 1]
    if begin:
        stops = tuple(bound - begin for bound in stops)
    blank = starmap(object.__new__, repeat((BytesMessage,)))  # a fifth faster than `map`
    start = 0
    for i, stop, message in zip(indexes, stops, blank, strict=False):
        message._body = blob[start:stop]
        message._arrival = arrival
        message._index = i
        start = stop
        yield message


def _restored(
    cls: type[Message],
    pack: bytes | None,
    body: Any,
    sent: _Sent,
    extra: Extra,
    properties: Properties | None,
    position: int,
    delivery_count: int,
    pickle_allowed: bool,
) -> Message:
    message = cls.__new__(cls)
    columns = None if pack is None else Columns(pack)
    message._arrival = Arrival(columns, position, delivery_count, None, pickle_allowed)
    message._index = 0
    if columns is None:
        message._body = body
    else:
        message._body = columns.body(0) if columns.kinds[0] == BYTES else _UNREAD
    message._extra = extra
    if properties is not None:
        message._properties = properties
    message._sent = sent
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
        columns.view if isinstance(columns, GroupColumns) else None,
        columns.stamp or columns.timestamp(i),
    )


# -- Sent -----------------------------------------------------------------------------------------


def outgoing(
    content: Any, *, now_ms: int, allow_pickle: bool = False, **given: Unpack[Headers]
) -> Outgoing:
    """A message or a mere body, as it is sent. What is given here wins over what a message has,
    whose priority and times belong to how it was sent before and do not count."""
    if isinstance(content, str):
        kind, body = bodies.write_text(content)
        extra = PLAIN
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
    if given:
        fields = headers.fields_of(given, extra)
        if properties := given.get("properties"):
            types = props.types_of(properties)
            if types or extra.types:
                fields["types"] = _without(extra.types, properties) | types
        extra = replace(extra, **fields)
    written = b"" if extra is PLAIN else headers.written(extra)
    # Twice as fast as `Outgoing(...)`, and this is done for every message.
    return tuple.__new__(Outgoing, (kind, body, written, now_ms))


def _without(types: dict[str, int], given: Mapping[str, PropertyValue]) -> dict[str, int]:
    """The types of properties that are not given anew."""
    return {name: code for name, code in types.items() if name not in given}


def _class_for(content: Any) -> type[Message]:
    if isinstance(content, bytes | bytearray | memoryview):
        return BytesMessage
    if isinstance(content, Mapping):
        return MapMessage
    return StreamMessage if isinstance(content, list) else ObjectMessage


def sent(
    message: Message,
    id: str,
    destination: Destination,
    delivery_mode: DeliveryMode,
    outgoing: Outgoing,
) -> None:
    """Tell a message that the application made how it was sent."""
    extra = formats.decode_extra(outgoing.extra)
    visible = outgoing.timestamp + extra.delivery_delay
    message._sent = _Sent(id, outgoing.timestamp, destination, delivery_mode, visible=visible)
    message._extra = replace(
        message._headers(),
        priority=extra.priority,
        time_to_live=extra.time_to_live,
        delivery_delay=extra.delivery_delay,
    )
