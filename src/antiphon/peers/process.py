"""One process of a cluster, on the event loop on which it lives.

The stack decides (`peers/stack`), the driver carries out what it decides (`peers/channel`), and
this module gives the driver sockets, timers and the addresses of the others. With the blocking
front the loop is the background thread's, with asyncio it is the program's own; nothing else here
knows the difference.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from antiphon.api.protocol.ticket import Ticket
from antiphon.errors import ConfigurationError, ConnectionLostError, FormatError, JMSError
from antiphon.formats import peer_wire
from antiphon.formats.channel_trace import encode_header, life_text
from antiphon.formats.frames import Body
from antiphon.io.malloc import keep_freed_memory
from antiphon.io.peers.security import Tls, contexts_of
from antiphon.io.peers.transport import PeerTransport
from antiphon.io.trace_file import TraceFile
from antiphon.model.peer_views import MemberId
from antiphon.peers.channel.conversation import Conversation
from antiphon.peers.channel.driver import ChannelDriver
from antiphon.peers.channel.tracing import ChannelTrace, traced
from antiphon.peers.discovery.urls import Cluster
from antiphon.peers.stack.running import Running
from antiphon.peers.stack.stack import Stack
from antiphon.peers.stack.stacks import founded_by

logger = logging.getLogger("antiphon.peers")

LOOK_S = 1.0
"""How often a process looks for the addresses of others."""

NOBODY_S = 2.0
"""An attempt to join waits so long for the first answers from the addresses that were found; the
rest may come later."""


class Settings(msgspec.Struct, frozen=True):
    """How a process takes part in a cluster."""

    stack: Stack
    name: str
    listen: str | None = None  # HOST:PORT; None: as the cluster's URL has it
    tls: Tls | None = None
    plaintext: bool = False  # even off loopback
    trace: str | None = None  # the folder of its trace
    provides_state: bool = False


class Process:
    """One life of a process in a cluster: it is `PeerHandler` to its transport and `Port` to its
    driver.

    Promises: `driver.do` and `driver.wake` may be called on any thread that the front allows;
    `started` is settled when this process can be reached and knows whom to dial, `released` when
    nothing is left of it.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        call: Callable[[Callable[[], object]], object],
        settings: Settings,
        cluster: Cluster,
    ) -> None:
        """`call` has something called on the loop, from the threads that the front allows. Raises
        `ConfigurationError` if there can be no trace where the settings have it."""
        keep_freed_memory()
        self._trace_file: TraceFile | None = None
        self.me = MemberId(settings.name, secrets.randbits(62) + 1)
        trace = None if settings.trace is None else self._begin_trace(settings.trace, cluster.name)
        self.lock = threading.Lock()
        self.started = Ticket()
        self.released = Ticket()
        self.refusals: dict[str, str] = {}  # of those that it dialled, by process or address
        self._turned_away: dict[str, str] = {}  # those that dialled it
        self._refused_for_good = False
        self._loop = loop
        self._call = call
        self._settings = settings
        self._cluster = cluster
        listed = cluster.discovery.listed
        self._stack = founded_by(settings.stack, listed) if listed else settings.stack
        stack = self._stack if trace is None else traced(self._stack, trace)
        self._running = Running(stack, self.me, lambda name: Random(), now_ms())
        view, name = self._running.view, cluster.name
        self.conversation = Conversation(self.me, view, name, f"topic:{name}")
        self.conversation.members_min = cluster.members_min
        self.driver = ChannelDriver(self.conversation, self._running, self.lock, self, trace)
        if settings.provides_state:
            self.driver.provides_state()
        self.reports = {"status": lambda: json.dumps(self.status())}
        """What it answers to questions of programs that do not take part."""
        self._transport: PeerTransport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._found: set[str] = set()  # addresses, when it looked last
        self._entering: asyncio.Task[bool] | None = None
        self._founds = False  # it holds the founding record, and has begun to found

    def _begin_trace(self, place: str, cluster: str) -> ChannelTrace:
        try:
            file = self._trace_file = TraceFile(
                Path(place), self.me.name, life_text(self.me), encode_header(), ending="channel"
            )
        except OSError as error:
            why = f"trace: no file in {place!r}: {error.strerror}"
            raise ConfigurationError(why) from None
        run, process, life = file.run, file.process, file.incarnation
        return ChannelTrace(run, process, life, cluster, self.me, self._write_trace)

    def _write_trace(self, rows: bytes) -> None:
        if self._trace_file is None:
            return
        try:
            self._trace_file.write(rows)
        except OSError as error:
            logger.error("%s: its trace ends here, for it cannot be written: %s", self.me, error)
            self._close_trace()

    def _close_trace(self) -> None:
        file, self._trace_file = self._trace_file, None
        if file is not None:
            file.close()

    @property
    def address(self) -> str:
        """Where this process listens."""
        return "" if self._transport is None else self._transport.own.address

    def status(self) -> dict[str, Any]:
        """Return what people may want to know. Called on the loop."""
        conversation, transport = self.conversation, self._transport
        return {
            "name": self.me.name,
            "pid": os.getpid(),
            "cluster": self._cluster.name,
            "address": self.address,
            "view": str(conversation.view),
            "members": list(conversation.view.members),
            "primary": self.is_primary,
            "waits_for": self.driver.hindrance,
            "unread_bytes": conversation.inbox.waiting_bytes,
            "refused": self._turned_away | self.refusals,
            "connected": [] if transport is None else [p.name for p in transport.linked],
            "transport": {} if transport is None else transport.counts(),
            "layers": dict(self._running.status()),
        }

    @property
    def is_primary(self) -> bool:
        """Whether the view is primary that was formed last, though it may not be shown."""
        return self._running.formed.primary

    # -- Beginning -----------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to join the cluster. Called on the loop."""
        self._spawn(self._start())

    async def _start(self) -> None:
        try:
            await self._enter()
        except FAILURES as error:
            refusal = error if isinstance(error, JMSError) else ConfigurationError(str(error))
            self.started.settle(refusal)
            self.driver.fail(refusal)
        else:
            self.started.settle()
            self._spawn(self._join())
        self.started.tell()

    async def _enter(self) -> None:
        settings, discovery = self._settings, self._cluster.discovery
        own = peer_wire.PeerHello(
            peer_wire.MAGIC,
            peer_wire.OLDEST,
            peer_wire.NEWEST,
            self._cluster.name,
            self._stack.digest,
            peer_wire.printed(str(self._stack)),
            self.me,
            "",
        )
        cluster, files = self._cluster, settings.tls
        if files is None and cluster.files:
            files = Tls(*cluster.files)
        tls = None if files is None else contexts_of(files)
        transport = PeerTransport(own, self, tls, settings.plaintext or cluster.plaintext)
        listen = settings.listen or cluster.listen
        places = discovery.listen if listen is None else (listen,)
        address = transport.listen(places, self._cluster.address)
        self._transport = transport
        self._running.listens(address, now_ms())
        # It is not cancelled: whatever it leaves behind has to be known when this process ends.
        self._entering = self._loop.create_task(discovery.enter(self.me, address))
        may_found = await asyncio.shield(self._entering)
        await self._look()
        if may_found:
            self._founds = True
            self._running.found(now_ms())
        self._pump()

    async def _join(self) -> None:
        """See whether anybody is there, and then look for others now and then."""
        assert self._transport is not None
        await self._transport.first_attempts(NOBODY_S)
        complaint = ""
        while not self.conversation.leaving:  # else it might take a new founding record for its own
            if not (self.conversation.joined.done or self._transport.linked or self._founds):
                self._be_alone()
            await asyncio.sleep(LOOK_S)
            try:
                await self._look()
                await self._claim()
                complaint = ""
            except FAILURES as error:
                if str(error) != complaint:  # once, and not with each attempt
                    complaint = str(error)
                    logger.warning("%s cannot look for others: %s", self.me, error)

    def _be_alone(self) -> None:
        """Nobody who was found wants this process, or nobody was found."""
        if self._refused_for_good:
            self.driver.fail(self.why_refused())
        elif not self.refusals and not self._running.frozen:  # as while only primary views count
            self.conversation.stay_alone()
            self._pump()

    def why_refused(self) -> JMSError:
        """Return the refusals, as an error."""
        reasons = "; ".join(f"{who}: {why}" for who, why in self.refusals.items())
        return ConfigurationError(f"{self.me} is not wanted in {self._cluster.name!r}: {reasons}")

    def whom_it_found(self) -> str:
        """Return that as a sentence, for people."""
        if not self.started.done:
            return "it has not found out who is there"
        linked = [] if self._transport is None else [one.name for one in self._transport.linked]
        return f"it is connected to {', '.join(sorted(linked)) or 'nobody'}"

    async def _claim(self) -> None:
        """Found the cluster if it has ended before this process was in it."""
        if not (self._founds or self.is_primary or self.conversation.has_been_primary):
            self._founds = await self._cluster.discovery.claim()
            if self._founds:
                self._running.found(now_ms())
                self._pump()

    async def _look(self) -> None:
        assert self._transport is not None
        found = set(await self._cluster.discovery.look())
        for address in found:
            try:
                self._transport.dial(address, keep=True)
            except (ConfigurationError, FormatError) as error:
                self.refused(address, str(error), again=False)
        for address in self._found - found:
            self._transport.forget(address)
        self._found = found

    def _drive(self, call: Callable[..., None], *arguments: Any) -> None:
        """Call the driver. A mistake in a layer ends the channel, and nothing else."""
        try:
            call(*arguments, now_ms())
        except Exception as error:
            logger.exception("%s: the stack has failed", self.me)
            self.driver.fail(ConnectionLostError(f"the stack of {self.me} has failed: {error!r}"))

    # -- Called by the transport (`PeerHandler`) -------------------------------------------------

    def welcome(self, process: MemberId) -> peer_wire.Refused | None:
        """Return why this process may not be connected now; None if it may."""
        return self.driver.welcome(process)

    def linked(self, process: MemberId, address: str) -> None:
        """There is a connection to this process."""
        for who in (str(process), address):
            self.refusals.pop(who, None)
            self._turned_away.pop(who, None)
        self._drive(self.driver.linked, process, address)

    def unlinked(self, process: MemberId, goodbye: bool) -> None:
        """It is gone."""
        self._drive(self.driver.unlinked, process, goodbye)

    def arrived(self, process: MemberId, bodies: Sequence[Body]) -> None:
        """Frames have come from this process."""
        self._drive(self.driver.arrived, process, bodies)

    def refused(self, who: str, reason: str, again: bool) -> None:
        """There is no connection to this process, or at this address."""
        _note(self.refusals, who, reason)
        if not again:
            self._refused_for_good = True

    def turned_away(self, who: str, reason: str) -> None:
        """Somebody has dialled this process in vain: that is for people, and says nothing of whom
        it looks for."""
        _note(self._turned_away, who, reason)

    def unreachable(self, address: str) -> None:
        """Nobody is at this address, or no more."""
        self.refusals.pop(address, None)

    def replaced(self, reason: str) -> None:
        """A primary view of others has another process of this one's name."""
        self.driver.replaced(reason)

    def asked(self, what: str) -> peer_wire.Answer:
        """Answer a program that does not take part."""
        if what in self.reports:
            return peer_wire.Answer(True, self.reports[what]())
        if what != "reform":
            return peer_wire.Answer(False, f"{self.me} does not know what {what!r} is")
        if self.is_primary:
            return peer_wire.Answer(False, f"{self.me} is in a primary view")
        logger.warning("%s was told to found %r anew", self.me, self._cluster.name)
        self._running.found(now_ms())
        self.driver.wake()
        return peer_wire.Answer(True, "{}")

    # -- Called by the driver (`Port`) -----------------------------------------------------------

    def wake(self) -> None:
        """Have the driver pumped in a later turn of the loop."""
        self._call(self._pump)

    def _pump(self) -> None:
        self._drive(self.driver.pump)

    def transmit(self, to: Sequence[MemberId], head: bytes, body: Body) -> None:
        """Send a frame to these processes at the next `flush`."""
        if self._transport is not None:
            self._transport.send(to, head, body)

    def flush(self) -> None:
        """Have what was transmitted leave."""
        if self._transport is not None:
            self._transport.flush()

    def dial(self, address: str) -> None:
        """Connect to the process at this address, unless there is a connection."""
        if self._transport is not None:
            with suppress(ConfigurationError, FormatError):
                self._transport.dial(address, keep=False)

    def refuse(self, process: MemberId, refused: peer_wire.Refused) -> None:
        """End the connection to this process, and tell it why."""
        assert self._transport is not None
        self._transport.refuse(process, refused)

    def set_timer(self, due_ms: int, now_ms: int) -> None:
        """Have the driver called at that time, and at no other."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(max(0, due_ms - now_ms) / 1000, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._drive(self.driver.timer_fired)

    def over(self) -> None:
        """The channel has ended: let go of everything."""
        self._spawn(self._release())

    async def _release(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        me = asyncio.current_task()
        for task in self._tasks:
            if task is not me:
                task.cancel()
        try:
            with suppress(*FAILURES):
                last = self.conversation.has_ended_cluster or await self._has_founded_nothing()
                await self._cluster.discovery.leave(last)
            if self._transport is not None:
                await self._transport.close()
        finally:
            self._close_trace()
            self.released.settle()
            self.released.tell()

    async def _has_founded_nothing(self) -> bool:
        """Whether this process may have created the founding record, and has not begun to found."""
        if self._entering is None or self._founds:
            return False
        try:
            return await self._entering
        except FAILURES:
            return True

    def _spawn(self, work: Any) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


FAILURES = (OSError, ValueError, JMSError)
"""How a look at who is there may fail: no text of a program, or of the network, is more than an
error. `ValueError` is what the system's calls raise for names that nothing can have."""

REFUSALS_MAX = 64
"""Refusals that are kept for `status`, each way; beyond that the oldest is forgotten."""


def _note(refusals: dict[str, str], who: str, reason: str) -> None:
    refusals[who] = reason
    if len(refusals) > REFUSALS_MAX:
        del refusals[next(iter(refusals))]


def now_ms() -> int:
    """Return the time, by the clock that the driver is timed by."""
    return time.monotonic_ns() // 1_000_000
