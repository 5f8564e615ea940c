"""The effects that a conversation (`conversation.py`) asks its driver for (`driver.py`)."""

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

    address: str = ""  # this time here


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
    """A group event, for a member: after what arrived before it, before what arrives later."""

    consumer: int
    event: cw.GroupEvent


class Complete(msgspec.Struct, frozen=True):
    """Nothing more comes for this browser."""

    consumer: int


class Dropped(msgspec.Struct, frozen=True):
    """Nothing more comes for this consumer, which the application has not closed."""

    consumer: int
    error: JMSError


class AcksDue(msgspec.Struct, frozen=True):
    """Have the consumers hand over the acknowledgements that they gathered (`Inbox.take_rows`)."""


class Over(msgspec.Struct, frozen=True):
    """The session has ended; None: as the application wanted. Nothing more happens."""

    error: JMSError | None


Event = (
    Dial | HangUp | Settled | Arrived | Occurred | Complete | Dropped | StateEvent | AcksDue | Over
)
