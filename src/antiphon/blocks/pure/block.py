"""Building blocks: a block is a pure class over the events that a member of a group gets.

In: views, suspicions, messages and the time. Out: effects, which a host carries out
(`blocks/operations/host.py`), or a simulation (`antiphon.sim`). A block never sends, waits or reads
a clock, so it does the same wherever it runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from antiphon.blocks.pure.scripts import Script
from antiphon.model.views import View


class Heard(NamedTuple):
    """A message to the group."""

    body: Any  # a `MessageFormatError` if it cannot be read here
    reply_to: Any = None  # an address for replies, if its sender waits for them
    call: str = ""  # by which the sender knows the reply
    properties: Mapping[str, Any] = {}
    members: tuple[str, ...] = ()  # who gets it; empty: a durable member that is back may not know
    position: int = 0  # in the order of all messages of the cluster, counted from 1


class Whole(NamedTuple):
    """A body that travels whole, as one object, of whatever kind its value is."""

    value: Any


class Multicast(NamedTuple):
    """Effect: send this to the group."""

    body: Any
    properties: Mapping[str, Any] = {}


class Reply(NamedTuple):
    """Effect: send this to the member that waits for it."""

    to: Any
    call: str
    body: Any
    properties: Mapping[str, Any] = {}


class Settle(NamedTuple):
    """Effect: nobody here need wait for this any more."""

    what: Any
    value: Any


class Remove(NamedTuple):
    """Effect: have these members removed from the group."""

    members: tuple[str, ...]


class Tell(NamedTuple):
    """Effect: tell this to the program that has the block."""

    what: Any


Effect = Multicast | Reply | Settle | Remove | Tell
Effects = Iterable[Effect]


class Block:
    """Does nothing. `name` is its member's, from the first view on."""

    name = ""

    @property
    def title(self) -> str:
        """The block's kind and name, for people to read."""
        return type(self).__name__

    def viewed(self, view: View, now: float) -> Effects:
        """These are the members from now on. Somebody who was replaced by another one of the same
        name is missing in between."""
        return ()

    def suspected(self, suspects: tuple[str, ...], withdrawn: tuple[str, ...]) -> Effects:
        return ()

    def heard(self, message: Heard, now: float) -> Effects:
        return ()

    def hearing(self, message: Heard, now: float) -> Script[Effects]:
        """Do the same as `heard`, for a block whose handler may wait: it is a step."""
        yield from ()
        return self.heard(message, now)

    def snapshot(self) -> bytes | None:
        """The state that a new member takes over; None, always: there is none. The new member is
        given views again that are in it."""
        return None

    def restore(self, data: bytes) -> None:
        """Take over the state of another member."""
