"""Ports: all that a block needs of a group, and all that its callers need. Members of groups and
peer channels offer them.

Promise of each implementation of `Port`: the events of a group come one at a time, in one order
that is the same for all of its ports, and all ports install a view between the same two messages.
The first event is the view with which this port joined, or for a port that took over the state of
another, the first one after that state.

A body is a value that the port can send, or a `Whole` around one of any kind; blocks get the value
without the `Whole`.

Methods that wait do so when they are called (threads), or return an awaitable (asyncio); scripts
yield them as steps (`scripts.py`). `blocks/threads/ports.py` and `blocks/aio/ports.py` are ports
over a member of a group, `blocks/threads/channel_ports.py` over a channel of peers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol, TypeAlias

from antiphon.blocks.pure.block import Block, Effects, Heard, Reply
from antiphon.blocks.pure.scripts import Script
from antiphon.model.views import View


class Installed(NamedTuple):
    """Event: a new view. If a member was replaced by another one of the same name, there are two:
    one without that name, and one with it."""

    position: int  # of the event in the order
    views: tuple[View, ...]


class Suspected(NamedTuple):
    """Event: the servers do not hear these members, or hear them again."""

    position: int
    suspects: tuple[str, ...]
    withdrawn: tuple[str, ...]


class Arrived(NamedTuple):
    """Event: a message to the group."""

    position: int
    message: Heard


class Replaced(NamedTuple):
    """Event: the others have gone on without this port, and this is their state; its block has
    missed what led to it. Ports of a group's members end instead."""

    position: int  # of the next view
    state: bytes


Event: TypeAlias = Installed | Suspected | Arrived | Replaced
Handle: TypeAlias = Callable[[Event], Script[None]]
Provide: TypeAlias = Callable[[], bytes]


class Port(Protocol):
    """A place in a group, for one block.

    Opened once, closed once. After its end (`why_over` has the reason) it delivers nothing, and
    sending raises `IllegalStateError`.
    """

    @property
    def group(self) -> str:
        """The name of the group."""

    @property
    def name(self) -> str:
        """The member's name in the group. Raise `IllegalStateError` before the port is open."""

    @property
    def view(self) -> View:
        """The last view that was delivered."""

    def why_over(self) -> str:
        """Return why this port is not part of the group (any more); empty while it is."""

    def is_lost(self) -> bool:
        """Return whether the connection is gone for good, or was closed."""

    def end(self, why: str) -> None:
        """Note why this port is not part of the group any more, if that is not known yet."""

    def open(self, provide: Provide | None, ended: Callable[[], None]) -> Any:
        """Wait until the group has this member. `provide` hands out the state of the block; None:
        it has none. `ended` is called when this port is not part of the group any more, if the
        front notices that. Raise the errors of joining."""

    def initial_state(self) -> Any:
        """Wait for the state of another member, as bytes; None: there is none to take over. Raise
        `ConnectionLostError` if all who had it have gone."""

    def deliver(self, handle: Handle) -> None:
        """Call `handle` with each event from now on, the next one when the script for the last has
        ended."""

    def multicast(self, body: Any, timeout: float | None) -> Any:
        """Send to all members, and wait until a majority of the servers has it. Raise
        `OutcomeUnknownError` after `timeout` seconds."""

    def cast(self, body: Any, properties: Any = None) -> Any:
        """Send to all members, after earlier messages, and wait only for room."""

    def reply(self, reply: Reply) -> Any:
        """Send to one address, and wait only for room. Raise `MessageFormatError` or
        `ResourceAllocationError` if the body cannot travel."""

    def remove(self, *members: str) -> Any:
        """Remove these members from the group."""

    def close(self) -> Any:
        """Leave the group, and wait until the running handler has ended, unless it is the
        caller."""


class Replied(NamedTuple):
    """A reply to a call."""

    call: str  # the number of the call
    properties: Mapping[str, Any]
    body: Any  # a `MessageFormatError` if it cannot be read here


class Sent(Protocol):
    """A message on its way to the servers."""

    def done(self) -> bool:
        """Return whether it has arrived, or has failed."""

    def exception(self) -> BaseException | None:
        """Return why it has failed, or None. Call it when it is done."""


class CallerPort(Protocol):
    """Sends calls to a group, and gets the replies at an address of its own.

    Opened once, closed once.
    """

    @property
    def group(self) -> Any:
        """The group, as the program gave it."""

    def check(self) -> None:
        """Raise `IllegalStateError` if it is not open (and the front knows)."""

    def why_over(self) -> str:
        """Return why no replies come (any more); empty while they do."""

    def open(self, ended: Callable[[], None]) -> Any:
        """Wait until there is an address for replies. `ended` is called when no more will come, if
        the front notices that."""

    def deliver(self, handle: Callable[[Replied], Script[None]]) -> None:
        """Call `handle` with each reply from now on."""

    def multicast(self, body: Any, properties: Any, timeout: float | None) -> Any:
        """Send without an address for replies, and wait until the servers have it. Raise
        `OutcomeUnknownError` after `timeout` seconds."""

    def cast(self, body: Any, properties: Any) -> Any:
        """Send without an address for replies, and wait only for room."""

    def ask(self, number: str, body: Any, properties: Any) -> Any:
        """Send with an address for replies, which will have this number (`Replied.call`); return
        a `Sent`."""

    def acknowledged(self, sent: Any, timeout: float | None) -> Any:
        """Wait until the servers have a message. Raise `OutcomeUnknownError` if not in time."""

    def close(self) -> Any:
        """Give up the address for replies."""


def reaction(block: Block, event: Event, now: float) -> Script[Effects]:
    """Return a block's effects for an event; its handler may wait."""
    if isinstance(event, Installed):
        return [effect for view in event.views for effect in block.viewed(view, now)]
    if isinstance(event, Suspected):
        return list(block.suspected(event.suspects, event.withdrawn))
    if isinstance(event, Replaced):
        block.restore(event.state)
        return ()
    effects = yield from block.hearing(event.message, now)
    return list(effects)
