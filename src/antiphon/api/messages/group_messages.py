"""Messages that tell members about their group: views and suspicions.

Python code matches on the classes; plain JMS code looks at the properties (thesis, tables 6.2 to
6.4): a view message has `JMS_view`, the view as text, with `JMS_join` or `JMS_leave`, and the view
as its body; a suspicion is an empty text message with `JMS_suspect` or `JMS_withdraw`. Several
names in one property are separated by blanks.
"""

from __future__ import annotations

from typing import Any, Self

from msgspec.structs import asdict

from antiphon.api.messages.destinations import Destination
from antiphon.api.messages.kinds import ObjectMessage, TextMessage
from antiphon.api.messages.message import JMS_VIEW, Arrival, Message, Owner, Sent
from antiphon.api.messages.properties import Properties, PropertyValue
from antiphon.api.modes import DeliveryMode
from antiphon.errors import MessageNotWriteableError
from antiphon.formats.columns import Extra
from antiphon.formats.protocol import VIEW, GroupEvent
from antiphon.model.views import View


class _GroupMessage(Message):
    """Made of a group event."""

    __slots__ = ("_came", "_merged", "_read_only", "_serial", "_together", "_went")

    def _fill(
        self,
        view: View | None,
        body: Any,
        came: tuple[str, ...],
        went: tuple[str, ...],
        properties: dict[str, PropertyValue],
    ) -> None:
        Message.__init__(self)
        self._serial = 0
        self._together: tuple[str, ...] | None = None
        self._merged: tuple[View, ...] = ()
        self._came = came
        self._went = went
        self._body = body
        self._read_only = False
        self._extra = Extra(properties=properties)
        self._sent = Sent(None, 0, None, DeliveryMode.PERSISTENT, view)

    def _key(self) -> int:
        return -self._serial

    @property
    def body(self) -> Any:
        return self._body

    @body.setter
    def body(self, body: Any) -> None:
        if self._read_only:
            raise MessageNotWriteableError(
                "the body of a received message is read-only: call clear_body() first"
            )
        self._body = self._checked(body)

    def clear_body(self) -> None:
        self._read_only = False
        self._body = self._empty()

    def __reduce__(self) -> tuple[Any, ...]:
        # Only plain values and public classes, whose places do not change: modules may move.
        own = {name: getattr(self, name) for name in _GroupMessage.__slots__}
        own |= {"_body": self._body, "_properties": getattr(self, "_properties", None)}
        state = (
            own,
            tuple(self._origin()),
            asdict(self._headers()),
            self.position,
            self.delivery_count,
        )
        return self._restored_event, state

    @classmethod
    def _restored_event(
        cls,
        own: dict[str, Any],
        sent: tuple[Any, ...],
        extra: dict[str, Any],
        position: int,
        delivery_count: int,
    ) -> Self:
        message = cls.__new__(cls)
        message._arrival = Arrival(None, position, delivery_count)
        message._index = 0
        message._sent, message._extra = Sent(*sent), Extra(**extra)
        for name, value in own.items():
            if value is not None or name != "_properties":
                setattr(message, name, value)
        return message


class ViewMessage(_GroupMessage, ObjectMessage):
    """A message to a member that its group has another view: `view`, `joined`, `left`.

    Plain JMS code finds the view in the property `JMS_view`, and the names in `JMS_join` and
    `JMS_leave`.
    """

    __slots__ = ()
    __match_args__ = ("view", "joined", "left")

    def __init__(self, view: View, joined: tuple[str, ...] = (), left: tuple[str, ...] = ()):
        properties: dict[str, PropertyValue] = {JMS_VIEW: str(view)}
        self._fill(view, view, joined, left, properties | _names(JMS_join=joined, JMS_leave=left))

    @property
    def view(self) -> View:
        """The new view."""
        view = self._origin().view
        assert view is not None
        return view

    @property
    def joined(self) -> tuple[str, ...]:
        """The names of the members that this view has and the one before had not."""
        return self._came

    @property
    def left(self) -> tuple[str, ...]:
        """The names of the members that the view before had and this one has not."""
        return self._went

    @property
    def together(self) -> tuple[str, ...]:
        """The names of the members that come from the same view as this one, itself among them: in
        a group, those that were in the view before; in a channel, where views may part and come
        together again, perhaps fewer."""
        if self._together is not None:
            return self._together
        return tuple(name for name in self.view.members if name not in self.joined)

    @property
    def merged(self) -> tuple[View, ...]:
        """The former views of the members of a channel that were put together in this one; a
        process that has just joined comes from a view of itself alone. Empty for a group."""
        return self._merged

    @staticmethod
    def _written(body: Any, allow_pickle: bool) -> tuple[int, bytes]:
        if isinstance(body, View):
            body = body._asdict() | {"members": list(body.members)}
        return ObjectMessage._written(body, allow_pickle)

    def __repr__(self) -> str:
        return f"<ViewMessage {self.view} joined {self.joined} left {self.left}>"


class SuspicionMessage(_GroupMessage, TextMessage):
    """A message to a member about members that the servers cannot hear: `suspects` are newly
    suspected, `withdrawn` are heard again. Suspects stay members until they are removed.

    Plain JMS code finds the names in the properties `JMS_suspect` and `JMS_withdraw`.
    """

    __slots__ = ()
    __match_args__ = ("suspects", "withdrawn")

    def __init__(self, suspects: tuple[str, ...] = (), withdrawn: tuple[str, ...] = ()):
        names = _names(JMS_suspect=suspects, JMS_withdraw=withdrawn)
        self._fill(None, "", suspects, withdrawn, names)

    @property
    def suspects(self) -> tuple[str, ...]:
        """The names of members that are newly suspected."""
        return self._came

    @property
    def withdrawn(self) -> tuple[str, ...]:
        """The names of members that are no longer suspected."""
        return self._went

    def __repr__(self) -> str:
        return f"<SuspicionMessage suspects {self.suspects} withdrawn {self.withdrawn}>"


def peer_view(
    view: View,
    joined: tuple[str, ...],
    left: tuple[str, ...],
    together: tuple[str, ...],
    merged: tuple[View, ...],
    destination: Destination,
) -> ViewMessage:
    """Return the message for a member of a channel."""
    message = ViewMessage(view, joined, left)
    message._together, message._merged = together, merged
    message._read_only = True
    message._arrival = Arrival(None, 0, 1)
    message._sent = Sent(None, 0, destination, DeliveryMode.PERSISTENT, view)
    return message


def _names(**properties: tuple[str, ...]) -> dict[str, PropertyValue]:
    return {name: " ".join(members) for name, members in properties.items() if members}


def occurred(
    event: GroupEvent, view: View | None, destination: Destination, deliveries: int, owner: Owner
) -> ViewMessage | SuspicionMessage:
    """Return the message for a member; `view` is the one from here on."""
    message: ViewMessage | SuspicionMessage
    if event.kind == VIEW:
        message = ViewMessage(View(event.view, event.members), event.came, event.went)
    else:
        message = SuspicionMessage(event.came, event.went)
    message._serial = event.serial
    message._arrival = Arrival(None, event.position, deliveries, owner)
    message._read_only = True
    message._sent = Sent(
        f"ID:{destination.name}.{event.serial}", 0, destination, DeliveryMode.PERSISTENT, view
    )
    message._properties = Properties(dict(message._headers().properties), True, deliveries)
    return message
