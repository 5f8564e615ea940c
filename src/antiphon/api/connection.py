"""One connection of a program, and the event loop on which it lives: what the contexts share.

The conversation decides (`conversation.py`); this carries out what it decides. With the blocking
front the loop is the background thread's, with asyncio it is the program's own; nothing else here
knows the difference. Application threads touch the conversation under `lock` and wake the loop at
most once for whatever they have put in meanwhile.

Locks, in this order: a context's, then this one's. Neither is held while user code runs.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import Any, Protocol, TypeVar

import msgspec

from antiphon.api.operations import arguments
from antiphon.api.protocol.conversation import Conversation, Terms
from antiphon.api.protocol.effects import (
    AcksDue,
    Arrived,
    Complete,
    Dial,
    Dropped,
    Event,
    HangUp,
    Occurred,
    Over,
    Settled,
)
from antiphon.api.protocol.inbox import Slice
from antiphon.api.protocol.packing import Packing, SelfClocking, policy_of
from antiphon.api.protocol.state_transfer import StateEvent
from antiphon.api.protocol.ticket import Ticket
from antiphon.api.tracing import Trace
from antiphon.api.urls import Route
from antiphon.errors import JMSError
from antiphon.formats.frames import Body
from antiphon.formats.protocol import GroupEvent
from antiphon.io.client_link import ClientLink
from antiphon.model.conflicts import ConflictRelation

logger = logging.getLogger("antiphon.api")
Outcome = TypeVar("Outcome")


class Options(msgspec.Struct, frozen=True):
    """What the application asked for when it connected, besides the `Terms`."""

    send_timeout: float | None = None
    close_timeout: float | None = 10.0
    allow_pickle: bool = False
    trace: str | None = None  # the folder for it
    packing: Packing = msgspec.field(default_factory=SelfClocking)  # this connection's own


def options_of(
    send_timeout: float | None,
    close_timeout: float | None,
    allow_pickle: bool,
    trace: str | None,
    packing: str,
) -> Options:
    """Raises `TypeError` or `ValueError`."""
    return Options(
        arguments.timeout("send_timeout", send_timeout),
        arguments.timeout("close_timeout", close_timeout),
        arguments.switch("allow_pickle", allow_pickle),
        arguments.path("trace", trace),
        policy_of(packing),
    )


class Receiver(Protocol):
    """A consumer, as seen from here. Called on the loop's thread."""

    def arrive(self, slice_: Slice) -> None: ...
    def occur(self, event: GroupEvent) -> None:
        """Of a group: after what has arrived before it."""

    def complete(self) -> None:
        """Of a browser: all has arrived."""

    def dropped(self, error: JMSError) -> None:
        """Nothing more comes."""

    def state(self, event: StateEvent) -> None:
        """Of a group: what becomes of the state that this member takes over."""

    def report(self) -> None:
        """Hand the acknowledgements that were gathered to the conversation."""


class Member(Protocol):
    """A context, as seen from here. Called on the loop's thread."""

    def ended(self, error: JMSError | None) -> None: ...
    def complain(self, error: JMSError) -> None:
        """Tell the exception listener."""

    def forked(self) -> None:
        """This is the child of a fork: nothing works here. Called on whatever thread there is."""


class Connection:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        call: Callable[[Callable[[], object]], object],
        route: Route,
        terms: Terms,
        options: Options,
    ) -> None:
        """`call` has something called on the loop, from the threads that the front allows."""
        self.options = options
        self.lock = threading.Lock()
        session, token = secrets.randbits(62) + 1, secrets.token_bytes(16)
        self.conversation = Conversation(session, token, Random(), now_ms(), terms, options.packing)
        self.trace: Trace | None = None
        if options.trace is not None:
            self.trace = Trace(options.trace, terms.client_id, self.conversation.session)
        self.started = True  # `stop()` holds deliveries
        self.exception_listener: Callable[[JMSError], Any] | None = None
        self.members: list[Member] = []  # the first one owns the connection
        self.receivers: dict[int, Receiver] = {}  # by the consumer's number
        self.relations: dict[str, ConflictRelation] = {}  # of groups, by destination
        # How this program last said that they are to be (`CreateGroup`): if one is over meanwhile,
        # and this program joins it, that is said again.
        self.asked_of_groups: dict[str, tuple[str, int]] = {}
        self.released = Ticket()  # nothing is left of it
        self._loop = loop
        self._call = call
        self._route = route
        self._link: ClientLink | None = None
        self._links = 0  # attempts to connect: what comes from an earlier one is not heard
        self._dialling: asyncio.Task[None] | None = None
        self._releasing: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0
        self._woken = False
        self._gathering: dict[Receiver, None] = {}  # have acknowledgements that nobody waits for
        _connections.add(self)

    # -- From any thread that the front allows --------------------------------------------------

    def do(self, what: Callable[[Conversation], Outcome]) -> Outcome:
        """Ask the conversation for something, and have it carried out."""
        with self.lock:
            outcome = what(self.conversation)
        self.wake()
        return outcome

    def wake(self) -> None:
        if not self._woken:
            self._woken = True
            self._call(self._pump)

    def acks_wait(self, receiver: Receiver) -> None:
        """This one has gathered acknowledgements, and nobody waits for them."""
        self._gathering[receiver] = None
        self.do(Conversation.acks_wait)

    def after(self, ms: int, what: Callable[[], object]) -> None:
        """Have it called on the loop, later."""
        self._call(lambda: self._loop.call_later(ms / 1000, what))

    # -- On the loop ----------------------------------------------------------------------------

    def _pump(self) -> None:
        """Send what is to be sent, do what is to be done."""
        self._woken = False
        self._carry_out(self._advance())
        if self.conversation.has_neglected:
            self._complain()

    def _advance(self) -> list[Event]:
        now = now_ms()
        with self.lock:
            self.conversation.tick(now)
            requests = self.conversation.flush(now)
            events = self.conversation.take_events()
            deadline = self.conversation.next_deadline_ms()
        if requests and self._link is not None:
            self._link.send(requests)
        self._set_timer(deadline, now)
        return events

    def _set_timer(self, deadline: int | None, now: int) -> None:
        if self._timer is not None and (deadline is None or deadline < self._timer_ms):
            self._timer.cancel()
            self._timer = None
        if self._timer is None and deadline is not None:
            # An earlier timer than needed is left alone: it finds out that it is too early.
            self._timer_ms = deadline
            self._timer = self._loop.call_later(max(0, deadline - now) / 1000, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._pump()

    def _carry_out(self, events: list[Event]) -> None:
        for event in events:
            if isinstance(event, Arrived):
                receiver = self.receivers.get(event.consumer)
                if receiver is not None:
                    receiver.arrive(event.slice)
            elif isinstance(event, Settled):
                event.ticket.tell()
            elif isinstance(event, Complete):
                if (receiver := self.receivers.get(event.consumer)) is not None:
                    receiver.complete()
            elif isinstance(event, Occurred):
                receiver = self.receivers.get(event.consumer)
                if receiver is not None:
                    receiver.occur(event.event)
            elif isinstance(event, Dropped):
                receiver = self.receivers.pop(event.consumer, None)
                if receiver is not None:
                    receiver.dropped(event.error)
            elif isinstance(event, StateEvent):
                receiver = self.receivers.get(event.consumer)
                if receiver is not None:
                    receiver.state(event)
            elif isinstance(event, AcksDue):
                self._report()
            elif isinstance(event, Dial):
                self._begin_to_dial(event.address or self._route.next())
            elif isinstance(event, HangUp):
                self._hang_up(event.reason)
            elif isinstance(event, Over):
                self._over(event)

    def _report(self) -> None:
        gathering, self._gathering = self._gathering, {}
        for receiver in gathering:
            receiver.report()

    def _begin_to_dial(self, address: str) -> None:
        with self.lock:
            self.conversation.dials(address)
        self._links += 1
        self._dialling = self._loop.create_task(self._dial(self._links, address))

    async def _dial(self, number: int, address: str) -> None:
        try:
            link = await self._route.dial(
                address, partial(self._on_bodies, number), partial(self._on_lost, number)
            )
        except OSError as error:
            self._on_lost(number, error)
            return
        except JMSError as error:
            with self.lock:
                self.conversation.fail(error)
            self._pump()
            return
        if number != self._links:
            link.close()
            return
        self._link = link
        with self.lock:
            self.conversation.connected(now_ms())
        self._pump()

    def _on_bodies(self, number: int, bodies: Sequence[Body]) -> None:
        if number != self._links:
            return
        now = now_ms()
        with self.lock:
            for body in bodies:
                self.conversation.received(body, now)
            if not bodies:
                self.conversation.part_came(now)
        self._pump()

    def _on_lost(self, number: int, error: Exception | None) -> None:
        if number != self._links:
            return
        reason = str(error or "it closed the connection")
        logger.info("no connection: %s", reason)
        self._link = None
        with self.lock:
            self.conversation.lost(now_ms(), reason)
        self._pump()

    def _hang_up(self, reason: str) -> None:
        logger.info("hanging up: %s", reason)
        self._links += 1
        if self._dialling is not None:
            self._dialling.cancel()
        if self._link is not None:
            self._link.close()
            self._link = None

    def _over(self, event: Over) -> None:
        if self.trace is not None and event.error is not None and self.receivers:
            self.trace.add("crash")  # so it is to those who are in groups with its members
        for member in list(self.members):
            member.ended(event.error)
        if event.error is not None and self.conversation.ready.error is None:
            self.members[0].complain(event.error)  # otherwise `connect` raises it
        self._releasing = self._loop.create_task(self._release())

    async def _release(self) -> None:
        try:
            await self._route.release()
        finally:
            if self.trace is not None:
                self.trace.close()
            self.released.settle()
            self.released.tell()

    def _complain(self) -> None:
        with self.lock:
            errors = self.conversation.take_neglected()
        for error in errors:
            self.members[0].complain(error)


def now_ms() -> int:
    return time.monotonic_ns() // 1_000_000


# -- After a fork ----------------------------------------------------------------------------------

_connections: weakref.WeakSet[Connection] = weakref.WeakSet()


def _forked() -> None:
    for connection in list(_connections):
        for member in connection.members:
            member.forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
