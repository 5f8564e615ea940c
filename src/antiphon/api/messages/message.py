"""Messages: headers and properties, and a body that the kinds in `kinds.py` fill.

A received message (`arriving.py`) is decoded only as far as the application reads it, and is
read-only until `clear_body()` or `clear_properties()`, each for its part. A message that is sent
becomes bytes at once (`sending.py`), so that later changes do not reach it.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol, Self, overload

from msgspec.structs import asdict, replace

from antiphon.api.messages import headers
from antiphon.api.messages import properties as props
from antiphon.api.messages.destinations import Destination
from antiphon.api.messages.headers import Headers as Headers
from antiphon.api.messages.properties import Properties, PropertyAccess
from antiphon.api.modes import DeliveryMode
from antiphon.api.protocol.inbox_items import GroupColumns, PeerColumns
from antiphon.errors import (
    IllegalStateError,
    MessageFormatError,
    MessageNotWriteableError,
)
from antiphon.formats import bodies
from antiphon.formats import columns as formats
from antiphon.formats.columns import BYTES, MESSAGE, Columns, Extra
from antiphon.formats.pack import NON_PERSISTENT
from antiphon.model.views import View

JMS_VIEW = "JMS_view"
UNREAD: Any = object()
"""The body of a received message that was not read yet."""


class Owner(Protocol):
    """A consumer, as its messages need it."""

    def acknowledge_message(self, message: Message) -> Any: ...


class Sent(NamedTuple):
    """The headers that a message gets when it is sent."""

    id: str | None
    timestamp: int  # ms
    destination: Destination | None
    delivery_mode: DeliveryMode
    view: View | None = None
    visible: int = 0  # ms; when it could first be delivered, by the servers' clock
    sender: str | None = None  # the name of a member of a channel


_NOT_SENT = Sent(None, 0, None, DeliveryMode.PERSISTENT)


class Arrival:
    """The common part of received messages of one pack."""

    __slots__ = ("columns", "deliveries", "owner", "pickle_allowed", "start")

    def __init__(
        self,
        columns: Columns | None,
        start: int,
        deliveries: int,
        owner: Owner | None = None,
        pickle_allowed: bool = False,
    ) -> None:
        self.columns = columns  # from which they are read; None: the body may be changed
        self.start = start  # the position of message 0
        self.deliveries = deliveries  # of each, this time included
        self.owner = owner
        self.pickle_allowed = pickle_allowed

    def without_columns(self) -> Arrival:
        """Return the arrival of a message whose body is no longer read from the pack."""
        return Arrival(None, self.start, self.deliveries, self.owner, self.pickle_allowed)


_NOT_RECEIVED = Arrival(None, 0, 0)


class _TextHeader:
    """A header that the application may set, even in a received message."""

    def __init__(self, doc: str) -> None:
        self.__doc__ = doc

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
    """A message without a body, and the base of all messages: headers and properties.

    Times are in seconds since 1970. A received message is read-only: `clear_body()` and
    `clear_properties()` change that, each for its part. A message is true, even with an empty body.
    Messages pickle; an unpickled one cannot be acknowledged.
    """

    __slots__ = ("_arrival", "_body", "_extra", "_index", "_properties", "_sent")
    __match_args__ = ("body",)

    correlation_id = _TextHeader("A text that says to which message this one belongs, or None.")
    tag = _TextHeader("The kind of message, by which a group's conflict relation orders; or None.")
    key = _TextHeader("What the message is about: by it a relation orders, or a topic replaces.")
    type = _TextHeader("A text that says what the message is, for its receivers; or None.")

    def __init__(self) -> None:
        self._arrival = _NOT_RECEIVED
        self._index = 0  # in the pack of a received message
        self._body: Any = None

    # Absent until the application asks for them: most are never asked for, and there are many.
    _extra: Extra
    _properties: Properties
    _sent: Sent

    # -- Headers -----------------------------------------------------------------------------------

    @property
    def id(self) -> str | None:
        """The unique name that it got when it was sent; None if it was not sent."""
        return self._origin().id

    @property
    def timestamp(self) -> float:
        """The time at which it was sent, by the sender's clock."""
        return self._origin().timestamp / 1000

    @property
    def destination(self) -> Destination | None:
        """The destination to which it was sent; None if it was not sent."""
        return self._origin().destination

    @property
    def delivery_mode(self) -> DeliveryMode:
        """Whether it outlives the failure of servers; set by `send`."""
        return self._origin().delivery_mode

    @property
    def position(self) -> int:
        """Its place in the one order of all messages; 0 if it was not received."""
        return self._arrival.start + self._index

    @property
    def delivery_count(self) -> int:
        """The number of its deliveries, this one included; 0 if it was not received."""
        return self._arrival.deliveries

    @property
    def redelivered(self) -> bool:
        """Whether it was, or may have been, delivered before."""
        return self.delivery_count > 1

    @property
    def priority(self) -> int:
        """From 0 to 9, set by `send`; in queues, greater ones overtake others."""
        return self._headers().priority

    @property
    def expiration(self) -> float:
        """The time at which it expires, by the servers' clock; 0: never."""
        return formats.expires(self._headers(), self._origin().visible) / 1000

    @property
    def delivery_time(self) -> float:
        """The time before which it is not delivered."""
        origin = self._origin()
        return (origin.visible if self._headers().delivery_delay else origin.timestamp) / 1000

    @property
    def reply_to(self) -> Destination | None:
        """The destination for an answer, or None."""
        text = self._headers().reply_to
        return None if text is None else Destination.parse(text)

    @reply_to.setter
    def reply_to(self, destination: Destination | None) -> None:
        self._extra = replace(self._headers(), reply_to=headers.address(destination))

    @property
    def view(self) -> View | None:
        """The group's view in which it was delivered; None outside groups."""
        return self._origin().view

    @property
    def sender(self) -> str | None:
        """The name of the member of a channel that sent it; None elsewhere."""
        return self._origin().sender

    def acknowledge(self) -> Any:
        """Acknowledge: in the session mode `INDIVIDUAL_ACKNOWLEDGE` this message, in
        `CLIENT_ACKNOWLEDGE` all that the context has delivered; in the other modes do nothing, for
        the context acknowledges by itself. With asyncio it is awaited, but begins at once; an error
        that the program does not await goes to the exception listener. Raise `IllegalStateError`
        for a message that was not received here."""
        owner = self._arrival.owner
        if owner is None:
            raise IllegalStateError(
                "only a received message, where it was received, is acknowledged"
            )
        return owner.acknowledge_message(self)

    # -- Properties --------------------------------------------------------------------------------

    @property
    def properties(self) -> Properties:
        """A mapping of names to values; setting one checks it."""
        if not hasattr(self, "_properties"):
            own, columns = self._headers(), self._arrival.columns
            values = props.arrived(own.properties, own.types)
            reason = columns.reason if columns is not None else ""
            self._properties = Properties(values, columns is not None, self.delivery_count, reason)
        return self._properties

    def clear_properties(self) -> None:
        """Remove all properties; from now on they can be set."""
        self._properties = Properties({}, False, self.delivery_count)

    def get_string_property(self, name: str) -> str | None:
        text = super().get_string_property(name)
        if text is None and name == JMS_VIEW and self.view is not None:
            # It can be read, but is not a property: otherwise this would look like a view message.
            return str(self.view)
        return text

    # -- Body --------------------------------------------------------------------------------------

    @property
    def body(self) -> Any:
        """The content of the message. Raise `MessageFormatError` if it cannot be decoded, or set to
        this, and `MessageNotWriteableError` when that of a received message is set."""
        if self._body is UNREAD:
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
        """The text of a text message. Raise `MessageFormatError` for a message of another kind."""
        raise MessageFormatError(f"a {type(self).__name__} has no text: read its body")

    def clear_body(self) -> None:
        """Make the body empty; from now on it can be written."""
        # The other parts are read from the pack before letting go of it.
        self._sent = self._origin()
        self._properties = self.properties
        self._arrival = self._arrival.without_columns()
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
        """Return kind and bytes of a checked body."""
        return MESSAGE, b""

    def _content(self, allow_pickle: bool) -> tuple[int, bytes, Extra]:
        """Return kind, body and headers to send: its own, or the received ones."""
        columns, i = self._arrival.columns, self._index
        if columns is None:
            kind, body = self._written(self._checked(self._body), allow_pickle)
        else:
            kind, body = columns.kinds[i], columns.body(i)
        own = self._headers()
        properties, types = own.properties, own.types
        if hasattr(self, "_properties"):
            properties, types = self._properties._apart()
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
        """Return the number by which its consumer knows it."""
        return self.position

    def _headers(self) -> Extra:
        if not hasattr(self, "_extra"):
            columns = self._arrival.columns
            data = b"" if columns is None else columns.extra(self._index)
            self._extra = formats.decode_extra(data)
        return self._extra

    def _origin(self) -> Sent:
        if not hasattr(self, "_sent"):
            columns = self._arrival.columns
            self._sent = _NOT_SENT if columns is None else _sent_as(columns, self._index)
        return self._sent

    def __repr__(self) -> str:
        origin = self._origin()
        return f"<{type(self).__name__} {origin.id or 'not sent'} to {origin.destination}>"

    def __reduce__(self) -> tuple[Any, ...]:
        # Only plain values and public classes, whose places do not change: modules may move.
        columns = self._arrival.columns
        pack = None if columns is None else bytes(formats.slice_of(columns.pack, self._index, 1))
        state = (
            pack,
            self.body if columns is None else None,
            tuple(self._origin()),  # parts that are not in the pack, like the view, are kept
            asdict(self._headers()),
            getattr(self, "_properties", None),
            self.position,
            self.delivery_count,
            self._arrival.pickle_allowed,
        )
        return self._restored, state

    @classmethod
    def _restored(
        cls,
        pack: bytes | None,
        body: Any,
        sent: tuple[Any, ...],
        extra: dict[str, Any],
        properties: Properties | None,
        position: int,
        delivery_count: int,
        pickle_allowed: bool,
    ) -> Self:
        message = cls.__new__(cls)
        columns = None if pack is None else Columns(pack)
        message._arrival = Arrival(columns, position, delivery_count, None, pickle_allowed)
        message._index = 0
        if columns is None:
            message._body = body
        else:
            message._body = columns.body(0) if columns.kinds[0] == BYTES else UNREAD
        message._extra = Extra(**extra)
        if properties is not None:
            message._properties = properties
        message._sent = Sent(*sent)
        return message


def _sent_as(columns: Columns, i: int) -> Sent:
    header = columns.header
    mode = DeliveryMode.PERSISTENT
    if header.flags & NON_PERSISTENT:
        mode = DeliveryMode.NON_PERSISTENT
    return Sent(
        formats.message_id(header, i),
        columns.timestamp(i),
        Destination.parse(header.destination),
        mode,
        columns.view if isinstance(columns, GroupColumns) else None,
        columns.stamp or columns.timestamp(i),
        columns.sender if isinstance(columns, PeerColumns) else None,
    )
