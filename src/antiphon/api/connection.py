"""A program's connection to the servers, on the event loop on which it lives.

The conversation decides (`api/protocol/conversation.py`), the driver carries out its decisions
(`api/protocol/driver.py`), and this module gives the driver sockets, timers and threads. With the
blocking front the loop is the background thread's, with asyncio it is the program's own; nothing
else here knows the difference. Application threads use the conversation under `lock`, and wake the
loop once for all that they put in until it has run.
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
from typing import Any, Protocol

import msgspec

from antiphon.api import arguments
from antiphon.api.protocol.attaching import Terms
from antiphon.api.protocol.conversation import Conversation
from antiphon.api.protocol.driver import ClientDriver
from antiphon.api.protocol.packing import Packing, SelfClocking, policy_of
from antiphon.api.protocol.ticket import Ticket
from antiphon.api.tracing import Trace
from antiphon.errors import JMSError
from antiphon.formats.frames import Body
from antiphon.io.client_link import Route
from antiphon.model.conflicts import ConflictRelation

logger = logging.getLogger("antiphon.api")


class Options(msgspec.Struct, frozen=True):
    """The options of a connection that are not `Terms` of its session."""

    send_timeout: float | None = None
    close_timeout: float | None = 10.0
    allow_pickle: bool = False
    trace: str | None = None  # its folder
    packing: Packing = msgspec.field(default_factory=SelfClocking)  # this connection's own


def options_of(
    send_timeout: float | None,
    close_timeout: float | None,
    allow_pickle: bool,
    trace: str | None,
    packing: str,
) -> Options:
    """Return checked options. Raise `TypeError` or `ValueError`."""
    return Options(
        arguments.timeout("send_timeout", send_timeout),
        arguments.timeout("close_timeout", close_timeout),
        arguments.switch("allow_pickle", allow_pickle),
        arguments.path("trace", trace),
        policy_of(packing),
    )


class ConnectionUser(Protocol):
    """A context, as its connection sees it. Called on the loop's thread."""

    def ended(self, error: JMSError | None) -> None:
        """Take the end of the session; None: the application has closed it."""

    def complain(self, error: JMSError) -> None:
        """Tell the exception listener."""

    def forked(self) -> None:
        """Become unusable, in the child of a fork. Called on its only thread."""


class Connection:
    """One session with the servers, over all its connections, and the common state of its contexts.

    Promises: `do`, `wake` and `acks_wait` may be called on any thread that the front allows; what
    they ask for is carried out on the loop. `released` is settled when nothing is left of it.

    Locks, in this order: a context's, then `lock`. Neither is held while user code runs.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        call: Callable[[Callable[[], object]], object],
        route: Route,
        terms: Terms,
        options: Options,
    ) -> None:
        """`call` makes a call on the loop, from the threads that the front allows."""
        self.options = options
        self.lock = threading.Lock()
        session, token = secrets.randbits(62) + 1, secrets.token_bytes(16)
        self.conversation = Conversation(session, token, Random(), now_ms(), terms, options.packing)
        self.trace: Trace | None = None
        if options.trace is not None:
            self.trace = Trace(options.trace, terms.client_id, self.conversation.session)
        self.started = True  # `stop()` holds deliveries
        self.exception_listener: Callable[[JMSError], Any] | None = None
        self.users: list[ConnectionUser] = []  # the first one owns the connection
        self.relations: dict[str, ConflictRelation] = {}  # of groups, by destination
        # How this program last said that they are to be (`CreateGroup`): if one is over meanwhile,
        # and this program joins it, that is said again.
        self.asked_of_groups: dict[str, tuple[str, int]] = {}
        self.released = Ticket()  # nothing is left of it
        self._loop = loop
        self._call = call
        self._route = route
        self._releasing: asyncio.Task[None] | None = None
        self.driver = ClientDriver(
            self.conversation, self.lock, ConnectionPort(self, loop, call, route)
        )
        # The driver's own methods, without a detour.
        self.do = self.driver.do
        self.wake = self.driver.wake
        self.acks_wait = self.driver.acks_wait
        self.receivers = self.driver.receivers
        _connections.add(self)

    def after(self, ms: int, what: Callable[[], object]) -> None:
        """Have it called on the loop, later."""
        self._call(lambda: self._loop.call_later(ms / 1000, what))

    # -- On the loop ----------------------------------------------------------------------------

    def over(self, error: JMSError | None) -> None:
        """The session has ended: tell its contexts, and let go of the servers."""
        if self.trace is not None and error is not None and self.receivers:
            self.trace.add("crash")  # so it is to those who are in groups with its members
        for user in list(self.users):
            user.ended(error)
        self._releasing = self._loop.create_task(self._release())

    def complain(self, error: JMSError) -> None:
        """Tell the exception listener."""
        self.users[0].complain(error)

    async def _release(self) -> None:
        try:
            await self._route.release()
        finally:
            if self.trace is not None:
                self.trace.close()
            self.released.settle()
            self.released.tell()


class ConnectionPort:
    """The port of a connection's driver (`api/protocol/driver.py: Port`): sockets, timers and tasks
    of one event loop. It decides nothing."""

    def __init__(
        self,
        connection: Connection,
        loop: asyncio.AbstractEventLoop,
        call: Callable[[Callable[[], object]], object],
        route: Route,
    ) -> None:
        self.over = connection.over
        self.complain = connection.complain
        self._connection = connection
        self._loop = loop
        self._call = call
        self._route = route
        self._dialling: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def wake(self) -> None:
        """Have the driver pumped in a later turn of the loop."""
        self._call(self._pump)

    def _pump(self) -> None:
        self._connection.driver.pump(now_ms())

    def set_timer(self, due_ms: int, now_ms: int) -> None:
        """Have the driver called at that time, and at no other."""
        self.cancel_timer()
        self._timer = self._loop.call_later(max(0, due_ms - now_ms) / 1000, self._on_timer)

    def cancel_timer(self) -> None:
        """Have the driver called at no time."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_timer(self) -> None:
        self._timer = None
        self._connection.driver.timer_fired(now_ms())

    def dial(self, attempt: int, address: str) -> str:
        """Begin to connect, in a task of its own; return where to."""
        address = address or self._route.next()
        self._dialling = self._loop.create_task(self._dial(attempt, address))
        return address

    async def _dial(self, attempt: int, address: str) -> None:
        on_bodies, on_lost = partial(self._on_bodies, attempt), partial(self._on_lost, attempt)
        driver = self._connection.driver
        try:
            link = await self._route.dial(address, on_bodies, on_lost)
        except (OSError, JMSError) as error:
            driver.dial_failed(attempt, error, now_ms())
        else:
            driver.connected(attempt, link, now_ms())

    def stop_dialling(self) -> None:
        """Give up the attempt that was begun last."""
        if self._dialling is not None:
            self._dialling.cancel()

    def _on_bodies(self, attempt: int, bodies: Sequence[Body]) -> None:
        self._connection.driver.arrived(attempt, bodies, now_ms())

    def _on_lost(self, attempt: int, error: Exception | None) -> None:
        self._connection.driver.link_ended(attempt, error, now_ms())

    def note(self, text: str) -> None:
        """Log this."""
        logger.info("%s", text)


def now_ms() -> int:
    """Return the time, by the clock that the driver is timed by."""
    return time.monotonic_ns() // 1_000_000


# -- After a fork ----------------------------------------------------------------------------------

_connections: weakref.WeakSet[Connection] = weakref.WeakSet()


def _forked() -> None:
    for connection in list(_connections):
        for user in connection.users:
            user.forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
