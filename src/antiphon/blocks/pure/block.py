"""Building blocks: a block is a pure class over the events of a group's member.

In: views, suspicions, messages and the time. Out: effects, which a host carries out
(`blocks/operations/host.py`), or a simulation (`antiphon.sim`). A block never sends, waits or reads
a clock, so it behaves the same wherever it runs.
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
    call: str = ""  # the number of the call, for its reply
    properties: Mapping[str, Any] = {}
    members: tuple[str, ...] = ()  # of its view; empty: a durable member that is back may not know
    position: int = 0  # in the order of all messages of the cluster, counted from 1


class Whole(NamedTuple):
    """A body that travels whole, as one object, even a text, bytes or a mapping."""

    value: Any


class Multicast(NamedTuple):
    """Effect: send this body to the group."""

    body: Any
    properties: Mapping[str, Any] = {}


class Reply(NamedTuple):
    """Effect: send this body to the caller that waits for it."""

    to: Any
    call: str
    body: Any
    properties: Mapping[str, Any] = {}


class Settle(NamedTuple):
    """Effect: end the wait of the caller here that submitted `what`, with a value or an error."""

    what: Any
    value: Any


class Remove(NamedTuple):
    """Effect: remove these members from the group."""

    members: tuple[str, ...]


class Tell(NamedTuple):
    """Effect: hand this value to the program that has the block."""

    what: Any


Effect = Multicast | Reply | Settle | Remove | Tell
Effects = Iterable[Effect]


class Block:
    """The base of all blocks, which does nothing. `name` is its member's, from the first view
    on."""

    name = ""

    @property
    def title(self) -> str:
        """The block's kind and name, for people to read."""
        return type(self).__name__

    def viewed(self, view: View, now: float) -> Effects:
        """Take a new view. If a member was replaced by another one of the same name, there is a
        view without that name in between."""
        return ()

    def suspected(self, suspects: tuple[str, ...], withdrawn: tuple[str, ...]) -> Effects:
        return ()

    def heard(self, message: Heard, now: float) -> Effects:
        return ()

    def hearing(self, message: Heard, now: float) -> Script[Effects]:
        """Do the same as `heard`, for a block whose handler may wait, as a step."""
        yield from ()
        return self.heard(message, now)

    def snapshot(self) -> bytes | None:
        """Return the state that a new member takes over; None, always, for a block without a state.
        The new member gets some views again that are in the state."""
        return None

    def restore(self, data: bytes) -> None:
        """Take over the state of another member."""
