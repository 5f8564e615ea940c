"""One connection of a program, and the event loop on which it lives: what the contexts share.

The conversation decides (`conversation.py`); this carries out what it decides. With the blocking
front the loop is the background thread's, with asyncio it is the program's own. Application threads
touch the conversation under `lock` and wake the loop at most once for whatever they have put in
meanwhile. Blocking ones do without the loop's thread where that would only stand between them and
the socket: who waits reads (`reading.py`), and a message that travels alone leaves from where it
was sent (`post`).

Locks, in this order: the turn, a context's, then `lock`. Who has the turn carries out what the
conversation decides; nobody waits for it who has another lock. None is held while user code runs.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import Any, Protocol, TypeVar

import msgspec

from antiphon.api.connecting import Route
from antiphon.api.conversation import Conversation, Terms
from antiphon.api.conversation_effects import (
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
from antiphon.api.conversation_inbox import Slice
from antiphon.api.conversation_policies import Packing, SelfClocking
from antiphon.api.conversation_state import StateEvent
from antiphon.api.conversation_ticket import Ticket
from antiphon.api.reading import Reading
from antiphon.api.tracing import Trace
from antiphon.core.conflicts import ConflictRelation
from antiphon.errors import FormatError, JMSError
from antiphon.formats.client_wire import GroupEvent, Request
from antiphon.formats.wire import Body
from antiphon.io.dialing import ClientLink, TcpLink
from antiphon.io.interrupts import uninterrupted

logger = logging.getLogger("antiphon.api")
Outcome = TypeVar("Outcome")


FLOOD_BYTES = 32 << 10
"""What comes in larger pieces the loop reads, while the program handles what came before."""


class Options(msgspec.Struct, frozen=True):
    """What the application asked for when it connected, besides the `Terms`."""

    send_timeout: float | None = None
    close_timeout: float = 10.0
    allow_pickle: bool = False
    trace: str | None = None  # the folder for it
    packing: Packing = msgspec.field(default_factory=SelfClocking)  # this connection's own


class Receiver(Protocol):
    """A consumer, as seen from here. Called by who has the turn, on one thread at a time."""

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
    """A context, as seen from here. Called on the loop's thread, but for `complain`."""

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
        threads: bool = False,
    ) -> None:
        """`call` has something called on the loop, from the threads that the front allows.
        `threads`: those of the program may use the socket themselves."""
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
        self.released = Ticket()  # nothing is left of it
        self.reading = Reading(loop, partial(uninterrupted, self._read), self._take_back)
        self._loop = loop
        self._call = call
        self._route = route
        self._threads = threads
        self._turn = threading.Lock()
        self._events: deque[Event] = deque()  # to be carried out
        self._link: ClientLink | None = None
        self._shared: TcpLink | None = None  # the same, if threads may use it
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

    # -- From threads of the program that block ---------------------------------------------------

    def post(self) -> None:
        """Something was put in that may leave. From here, if nothing else is on its way; in a flood
        the loop sends while the program gathers more."""
        if self._woken:
            return  # asked first: in a flood that is so for almost every message
        if self._shared is not None and self.conversation.is_quiet:
            uninterrupted(self._post)
        else:
            self.wake()

    def _post(self) -> None:
        if self._turn.acquire(blocking=False):
            try:
                self._flush_here()
            finally:
                self._turn.release()
            if not self._events:
                return
        self.wake()  # this thread may have a lock that carrying them out needs

    def _read(self) -> None:
        """Take what has arrived on the link that is lent, and do what follows from it."""
        with self._turn:
            link = self._shared
            if link is None:
                return
            try:
                bodies = link.read()
            except OSError:
                self.reading.give_back()  # the loop sees the same
                return
            except FormatError as error:
                self._call(partial(link.fail, error))
                return
            if link.came >= FLOOD_BYTES:
                self.reading.give_back()
            self._take(bodies)
            self._flush_here()
            while self._events and not isinstance(self._events[0], _FOR_THE_LOOP):
                self._carry_out(self._events.popleft())
        if self._events or self.conversation.has_neglected:
            self.wake()

    def _flush_here(self) -> None:
        """Having the turn: so the link stays what it is. What is due by now is left to the loop."""
        deadline, requests = self._flush(now_ms())
        if requests and self._shared is not None:
            self._shared.send_here(requests)
        if deadline is not None and (self._timer is None or deadline < self._timer_ms):
            self.wake()

    # -- On the loop ----------------------------------------------------------------------------

    def _pump(self) -> None:
        """Send what is to be sent, do what is to be done."""
        self._woken = False
        with self._turn:
            self._go_on()
        if not self.conversation.is_quiet:
            self.reading.recall()  # an answer comes, for which nobody may wait

    def _go_on(self) -> None:
        now = now_ms()
        with self.lock:
            self.conversation.tick(now)
        deadline, requests = self._flush(now)
        if requests and self._link is not None:
            self._link.send(requests)
        self._set_timer(deadline, now)
        while self._events:
            self._carry_out(self._events.popleft())
        if self.conversation.has_neglected:
            self._complain()

    def _flush(self, now: int) -> tuple[int | None, list[Request]]:
        """When there is something to do next, and what is to be sent."""
        with self.lock:
            requests = self.conversation.flush(now)
            self._events += self.conversation.take_events()
            return self.conversation.next_deadline_ms(), requests

    def _take(self, bodies: Sequence[Body]) -> None:
        now = now_ms()
        with self.lock:
            for body in bodies:
                self.conversation.received(body, now)

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

    def _take_back(self, link: TcpLink) -> None:
        with self._turn:
            link.take_back()

    def _carry_out(self, event: Event) -> None:
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
            self._links += 1
            self._dialling = self._loop.create_task(self._dial(self._links, event.address))
        elif isinstance(event, HangUp):
            self._hang_up(event.reason)
        elif isinstance(event, Over):
            self._over(event)

    def _report(self) -> None:
        gathering, self._gathering = self._gathering, {}
        for receiver in gathering:
            receiver.report()

    async def _dial(self, number: int, address: str) -> None:
        try:
            link = await self._route.dial(
                partial(self._on_bodies, number), partial(self._on_lost, number), address
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
        with self._turn:
            self._link = link
            if self._threads and isinstance(link, TcpLink) and link.share():
                self._shared = link
            with self.lock:
                self.conversation.connected(now_ms())
            self._go_on()

    def _on_bodies(self, number: int, bodies: Sequence[Body]) -> None:
        if number != self._links:
            return
        with self._turn:
            self._take(bodies)
            self._go_on()
        # Who has several consumers waits for one of them, and the others' messages go on.
        link = self._shared
        if link is not None and len(self.receivers) <= 1 and link.came < FLOOD_BYTES:
            self.reading.offer(link)

    def _on_lost(self, number: int, error: Exception | None) -> None:
        if number != self._links:
            return
        reason = str(error or "it closed the connection")
        logger.info("no connection: %s", reason)
        with self._turn:
            self._let_go()
            with self.lock:
                self.conversation.lost(now_ms(), reason)
            self._go_on()

    def _hang_up(self, reason: str) -> None:
        logger.info("hanging up: %s", reason)
        self._links += 1
        if self._dialling is not None:
            self._dialling.cancel()
        if self._link is not None:
            self._link.close()
            self._let_go()

    def _let_go(self) -> None:
        self._link = self._shared = None
        self.reading.end()

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


_FOR_THE_LOOP = (Dial, HangUp, Over)


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
