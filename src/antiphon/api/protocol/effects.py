"""The effects that a conversation (`conversation.py`) has its driver carry out (`driver.py`)."""

from __future__ import annotations

import msgspec

from antiphon.api.protocol.inbox import Slice
from antiphon.api.protocol.state_transfer import StateEvent
from antiphon.api.protocol.ticket import Ticket
from antiphon.errors import JMSError
from antiphon.formats import protocol as cw


class Dial(msgspec.Struct, frozen=True):
    """Connect to one server after the other, each time to the next: call `dials` with its address,
    if it has one, and then `connected`, or `lost` if that fails."""

    address: str = ""  # the server to begin with; empty: the next one


class HangUp(msgspec.Struct, frozen=True):
    """End the connection, or the attempt at one. Do not call `lost` for it."""

    reason: str


class Settled(msgspec.Struct, frozen=True):
    """Call `tell` on this ticket."""

    ticket: Ticket


class Arrived(msgspec.Struct, frozen=True):
    """Messages for a consumer."""

    consumer: int
    slice: Slice


class Occurred(msgspec.Struct, frozen=True):
    """A group event, for a member: after earlier arrivals, and before later ones."""

    consumer: int
    event: cw.GroupEvent


class Complete(msgspec.Struct, frozen=True):
    """This browser has all its messages."""

    consumer: int


class Dropped(msgspec.Struct, frozen=True):
    """The servers have closed this consumer, and the application has not."""

    consumer: int
    error: JMSError


class AcksDue(msgspec.Struct, frozen=True):
    """Have the consumers hand over the acknowledgements that they gathered (`Inbox.take_rows`)."""


class Over(msgspec.Struct, frozen=True):
    """The session has ended, and no more effects follow; None: the application has closed it."""

    error: JMSError | None


Event = (
    Dial | HangUp | Settled | Arrived | Occurred | Complete | Dropped | StateEvent | AcksDue | Over
)
