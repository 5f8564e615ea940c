"""Events: the state machine's reports to the servers, in addition to `Accepted` packs.

Every replica has the same events at the same entry; each server acts on those that concern its own
clients (`broker/home/home.py`).
"""

from __future__ import annotations

import msgspec

from antiphon.formats.protocol import NotPublished, Result


class Attached(msgspec.Struct, frozen=True, array_like=True, tag=1, gc=False):
    """The session is now served by `node`; the server that served it before lets go of it."""

    session: int
    attachment: int
    node: int
    life: int
    link: int


class AttachRefused(msgspec.Struct, frozen=True, array_like=True, tag=2, gc=False):
    """The session is not attached, for this reason."""

    session: int
    node: int
    life: int
    link: int
    code: str
    text: str


class Redirected(msgspec.Struct, frozen=True, array_like=True, tag=20, gc=False):
    """This client cannot go on at `node` yet: `home` alone knows its acknowledgements, and has to
    put them into the log first."""

    session: int
    node: int
    life: int
    link: int
    home: int


class Answered(msgspec.Struct, frozen=True, array_like=True, tag=3, gc=False):
    """A request was granted or refused."""

    session: int
    result: Result


class PackRefused(msgspec.Struct, frozen=True, array_like=True, tag=4, gc=False):
    """A pack was not accepted, for this reason."""

    session: int
    refusal: NotPublished


class Assigned(msgspec.Struct, frozen=True, array_like=True, tag=5, gc=False):
    """These messages of a queue are for this consumer, and for no other."""

    session: int
    consumer: int
    first: int  # positions; the range may reach over several packs
    last: int
    deliveries: int


class SessionEnded(msgspec.Struct, frozen=True, array_like=True, tag=6, gc=False):
    """The session is over; the server that serves it lets go of it."""

    session: int
    code: str  # empty: it was closed in order
    text: str


class AcksDone(msgspec.Struct, frozen=True, array_like=True, tag=7, gc=False):
    """This batch of acknowledgements of a server is in the log."""

    node: int
    life: int
    batch: int


class Early(msgspec.Struct, frozen=True, array_like=True, tag=10, gc=False):
    """A request was ordered before packs that it names, and has changed nothing: its server has to
    propose it again, behind them."""

    session: int
    number: int


class Taken(msgspec.Struct, frozen=True, array_like=True, tag=9, gc=False):
    """A pack was taken and its messages have no positions, or none yet: they are for a group
    itself, or parked. Their sender gets its answer."""

    session: int
    producer: int


class GroupChanged(msgspec.Struct, frozen=True, array_like=True, tag=8, gc=False):
    """The group has an event that its members do not know."""

    destination: str


Event = (
    Attached
    | AttachRefused
    | Redirected
    | Answered
    | PackRefused
    | Assigned
    | SessionEnded
    | AcksDone
    | GroupChanged
    | Early
    | Taken
)
