"""One server: drives a node, its journal and its clients with real sockets, files and clocks.

The way of a message through it (`Server.__init__` puts the pieces together in the opposite order):

    listener     `io/transport.py` (or `embedded.py`) takes it from a client's connection,
    session      `clients.py` and `broker/home/home.py` check it and propose it,
    log          `log/node.py` orders it with the other servers,
    journal      `journal/journal.py` has it on disk,
    broker       `broker/machine/machine.py` accepts it: it has a position, and consumers,
    dispatcher   `broker/dispatch/dispatcher.py` sends it to those who are connected here,

and back through session and listener. `counts` has what each of them has done and is waiting for.

Promises: effects are carried out in the order the node gave them; nothing leaves that depends on a
write before the write is synced. All that was collected in one turn of the event loop is one write
(in memory, of several turns, if nobody needs it sooner), and one sync covers every write since the
last one began; syncs run in a single thread, in order, while the loop goes on. Without room on the
disk the server takes part in nothing and tries again until there is room; a failed sync, a damaged
record or a broken invariant ends it (`ended`), for only a restart knows what is really on the disk.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import secrets
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Any, ClassVar, overload

from antiphon.broker.home.home import Home
from antiphon.broker.home.local_acks import OwnJournal
from antiphon.broker.home.settings import HomeSettings
from antiphon.broker.machine.groups import report
from antiphon.broker.machine.machine import Broker
from antiphon.broker.machine.state import LOCAL, REPLICATED
from antiphon.errors import DiskFullError, FormatError, IllegalStateError
from antiphon.formats import protocol as cw
from antiphon.formats.entry import ClusterMember, Membership, ReplicaId, SnapshotMeta
from antiphon.formats.journal import Local
from antiphon.formats.server_messages import Envelope, Hears, Relay
from antiphon.io.sync_thread import Syncing
from antiphon.io.transport import Address, Transport, format_address, parse_address, settle
from antiphon.journal.disk import Disk
from antiphon.journal.journal import SyncJob
from antiphon.journal.opening import open_journal
from antiphon.journal.reached import NOTE_SYNC_S
from antiphon.log.effects import (
    Accepted,
    Applied,
    Decided,
    Effect,
    Install,
    LocalStored,
    Persist,
    Read,
    ReadPart,
    ReadReady,
    Rejected,
    Relayed,
    Send,
    StorePart,
    Tail,
    TakeSnapshot,
)
from antiphon.log.node import Node
from antiphon.log.settings import Settings
from antiphon.server.clients import Clients
from antiphon.server.trace import ServerTrace

logger = logging.getLogger("antiphon.server.server")

RETRY_S = 0.5
"""How often a full disk is tried again."""

LET_GO_S = 2.0
"""How long an orderly end may take that way."""

LEISURE_S = 0.01
"""How long a journal in memory is not written if nobody reads it, nor waits for it."""

LATE_MS, READ_FIRST_S = 100, 0.005
"""A timer so late lets the sockets be read first."""

SWEEP_S = 0.25
CLOCK_S = 1.0


class Server:
    def __init__(
        self,
        node: int,
        listed: dict[int, Address],
        disk: Disk,
        settings: Settings,
        retain: int | None = None,
        home_settings: HomeSettings | None = None,
        contexts: str = REPLICATED,
        trace: str | None = None,
    ) -> None:
        """Opens the journal, and raises what `open_journal` raises. `trace`: a folder to write down
        in what is accepted and handed out (`server/trace.py`). `retain`: how many messages
        stay readable although nobody must have them; None: all. `contexts`: where acknowledgements
        of topics are kept, REPLICATED or LOCAL, which needs a disk that is not volatile."""
        assert contexts == REPLICATED or not disk.volatile
        self._disk = disk
        self._listed = listed
        self.broker = Broker(retain)
        self.journal, recovered = open_journal(
            disk, lambda: secrets.randbits(62) + 1, alone=len(listed) == 1
        )
        if recovered.snapshot is not None:
            self.broker.restore(self.journal.read_snapshot()[1])
        self._damage = recovered.damage
        texts = {n: format_address(address) for n, address in listed.items()}
        now_ms = self.now_ms()
        self.node = Node(node, texts, recovered, self.broker, settings, random.Random(), now_ms)
        life = secrets.randbits(62) + 1
        chosen = home_settings or HomeSettings()
        self._contexts = contexts
        self._check_contexts()
        own = OwnJournal(recovered.incarnation, self.journal.opening, self.journal.found_local)
        self.home = Home(
            node,
            life,
            self.broker,
            self.journal,
            chosen,
            now_ms,
            own if contexts == LOCAL else None,
        )
        self.journal.local = self.home.kept
        self.trace = ServerTrace(trace, node, self.broker) if trace is not None else None
        self.clients = Clients(self)
        self._transport = Transport(
            self.node.replica.id,
            self._on_envelope,
            self.clients.connect,
            partial(self._soon, self._on_gone),
            self._on_part,
            cw.CONTROL_MAX,
        )
        self._effects: deque[Effect] = deque()
        self._accepted: list[Accepted] = []  # not in the index yet
        self._carrying = False
        self._settle_due = False
        self._leisure_due = False
        self._syncing = False
        self._part_lost = False  # of the snapshot that is coming in, for want of room
        self._membership: Membership | None = None  # the one whose addresses are dialled
        self._leader: ReplicaId | None = None  # the one that clients' requests go to
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0
        self._late = False  # what is due waits for what is there to be read
        self._chores: asyncio.Queue[Callable[[], Awaitable[None]]] = asyncio.Queue()
        self._sync_thread = Syncing(disk.sync)
        self._syncs = 0

    # -- Starting and ending -------------------------------------------------------------------

    @overload
    async def start(self, listen: Address) -> Address: ...
    @overload
    async def start(self, listen: None) -> None: ...
    async def start(self, listen: Address | None) -> Address | None:
        """Listen, and begin to take part; returns where. None: only `clients.connect` leads
        here."""
        self._loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[None] = self._loop.create_future()
        self.serves: asyncio.Future[None] = self._loop.create_future()
        self._let_go_of_all: asyncio.Future[None] = self._loop.create_future()
        address = await self._listen(listen) if listen is not None else None
        self._worker = self._loop.create_task(self._do_chores())
        self._worker.add_done_callback(self._on_worker_done)
        self._look_at_the_clock()
        self._sweep()
        self._sync_note()
        self.settle_soon()
        return address

    async def _listen(self, listen: Address) -> Address:
        # The loop is this server's own: whatever goes wrong on it concerns this server.
        self._loop.set_exception_handler(self._on_exception)
        address = await self._transport.listen(*listen)
        own = self.node.replica.id.node
        if self._listed[own][1] == 0:
            self._listed = {**self._listed, own: address}
        return address

    async def close(self) -> None:
        """Let go of everything. What was not synced yet was not acknowledged either."""
        if self._contexts == LOCAL and not self.ended.done():
            await self._let_go()
        self._worker.cancel()
        if not self.ended.done():
            self.ended.set_result(None)
        self.clients.close()
        await self._transport.close()
        if names := self.journal.begin_note_sync():
            self._sync_thread.begin(names, lambda _: None)
        if self.trace is not None:
            self.trace.close()
        await self._loop.run_in_executor(None, self._sync_thread.close)

    async def _let_go(self) -> None:
        """Otherwise the clients would have to wait until this server is back."""
        self.home.let_go()
        self.clients.carry_out()
        self.settle_soon()
        ends = {self._let_go_of_all, self.ended}
        await asyncio.wait(ends, timeout=LET_GO_S, return_when=asyncio.FIRST_COMPLETED)

    def _fail(self, error: BaseException) -> None:
        """End: from here on nothing is carried out and nothing is released."""
        if not self.ended.done():
            logger.critical("this server ends: %s: %s", type(error).__name__, error, exc_info=error)
            self.ended.set_exception(error)

    def _on_exception(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Whatever a callback raised. A socket may fail as it likes; anything else would leave
        this server in a state that nobody has thought of."""
        error = context.get("exception")
        if error is None or (isinstance(error, OSError) and "accept" in context["message"]):
            logger.error("%s: %s", context["message"], error)
        else:
            self._fail(error)

    def guarded(self, call: Callable[..., None], *args: Any) -> None:
        """For what the loop calls: an error in it ends this server, and nothing else."""
        try:
            call(*args)
        except Exception as error:
            self._fail(error)

    def _soon(self, call: Callable[..., None], *args: Any) -> None:
        self._loop.call_soon(self.guarded, call, *args)

    def _later(self, wait_s: float, call: Callable[..., None], *args: Any) -> asyncio.TimerHandle:
        return self._loop.call_later(wait_s, self.guarded, call, *args)

    def _on_worker_done(self, worker: asyncio.Task[None]) -> None:
        if not worker.cancelled() and (error := worker.exception()) is not None:
            self._fail(error)

    # -- Time ----------------------------------------------------------------------------------

    def now_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def _look_at_the_clock(self) -> None:
        if not self.ended.done():
            self.node.set_wall_offset(time.time_ns() // 1_000_000 - self.now_ms())
            self._later(CLOCK_S, self._look_at_the_clock)

    def _sweep(self) -> None:
        if not self.ended.done():
            self.clients.sweep()
            self._transport.sweep()
            self._later(SWEEP_S, self._sweep)

    def _arm_timer(self) -> None:
        """See to it that the node's next deadline is met. One that moved into the future is not
        worth a new timer: the old one fires, finds nothing due, and comes back here."""
        if self.node.replica.impaired:
            return  # nothing is due until there is room again
        due_ms = self.node.next_deadline_ms()
        if (home_ms := self.home.next_deadline_ms()) is not None:
            due_ms = min(due_ms, home_ms)
        if self._timer is None or due_ms < self._timer_ms:
            if self._timer is not None:
                self._timer.cancel()
            self._timer_ms = due_ms
            wait_s = max(0, due_ms - self.now_ms()) / 1000
            self._timer = self._later(wait_s, self._tick)

    def _tick(self) -> None:
        self._timer = None
        if self.now_ms() - self._timer_ms > LATE_MS and not self._late:
            # This process did not run. What the others have said meanwhile is read first: nobody
            # is to be blamed for a silence that was here.
            self._late = True
            self._timer_ms = self.now_ms()
            self._timer = self._later(READ_FIRST_S, self._tick)
            return
        self._late = False
        self.home.tick(self.now_ms())
        self.clients.carry_out()
        self._carry_out(self.node.tick(self.now_ms()))
        self.settle_soon()

    # -- Carrying out what the node asks for ---------------------------------------------------

    def _on_envelope(self, envelope: Envelope) -> None:
        if isinstance(envelope.message, Relay):
            self.clients.relayed(envelope.message)
            return
        replica = self.node.replica
        effects = self.node.receive(envelope, self.now_ms())
        # Otherwise it is one more acknowledgement of what is decided, and nothing is due earlier.
        quiet = replica.leader_id is self._leader and replica.newcomer is None
        if effects or not quiet or isinstance(envelope.message, Hears):
            self._carry_out(effects)
            self.settle_soon()

    def _on_part(self, sender: ReplicaId) -> None:
        self._carry_out(self.node.alive(sender, self.now_ms()))

    def _on_gone(self, node: int) -> None:
        self._carry_out(self.node.gone(node, self.now_ms()))
        self.settle_soon()

    def _carry_out(self, effects: list[Effect]) -> None:
        """In order; what a step itself leads to comes after what was due before it."""
        self._effects += effects
        if self._carrying or not effects:
            return
        self._carrying = True
        while self._effects and not self.ended.done():
            effect = self._effects.popleft()
            self._CARRY_OUT[type(effect)](self, effect)
        self._carrying = False
        self.settle_soon()

    def _send(self, effect: Send) -> None:
        self._transport.send(effect.to, effect.message)

    def _persist(self, effect: Persist) -> None:
        self.journal.append(effect.records, effect.then)

    def _applied(self, effect: Applied) -> None:
        for position, payload in effect.packs():
            self.journal.remember(position, payload)
        self._accepted += effect.accepted
        if self.trace is not None:
            self.trace.applied(effect)
        self.home.applied(effect.accepted, effect.events, self.now_ms())
        self.clients.carry_out()

    def _read(self, effect: Read) -> None:
        # In a later turn of the loop: a long log is read in many pieces, and others have their
        # turn between them.
        self._soon(self._read_now, effect)

    def _read_now(self, effect: Read) -> None:
        self.write()  # what is only collected may replace what would be read
        entries = self.journal.entries(effect.first, effect.max_bytes)
        self._carry_out(self.node.entries_read(effect.reader, effect.first, entries, self.now_ms()))

    def _read_part(self, effect: ReadPart) -> None:
        self._soon(self._read_part_now, effect)

    def _read_part_now(self, effect: ReadPart) -> None:
        live, parked = self.broker.live(), self.broker.parked()
        meta, data, last = self.journal.part(effect.to.node, effect.seq, live, parked)
        self._carry_out(self.node.part_read(effect.to, meta, effect.seq, data, last, self.now_ms()))

    def _store_part(self, effect: StorePart) -> None:
        if effect.seq == 0:
            self._part_lost = False
        try:
            if not self._part_lost:
                self.journal.receive_part(effect.meta, effect.seq, effect.data)
                self._release(effect.then)
        except DiskFullError as error:
            self._part_lost = True
            self.node.install_failed()
            self._disk_full(error)

    def _install_later(self, effect: Install) -> None:
        if not self._part_lost:  # otherwise the leader offers it again
            self._chores.put_nowait(partial(self._install, effect.meta))

    def _snapshot_later(self, effect: TakeSnapshot) -> None:
        try:
            if not self.write():
                raise DiskFullError("the index is not complete up to this snapshot")
            work = self.journal.store_snapshot(
                effect.meta, effect.chunks, effect.live, effect.parked
            )
        except DiskFullError as error:
            self._no_room_for_a_snapshot(error)
        else:
            self._chores.put_nowait(partial(self._store_snapshot, effect.meta, work))

    def _read_ready(self, effect: ReadReady) -> None:
        self.clients.read_ready(effect)

    def _decided(self, effect: Decided) -> None:
        self.clients.decided(effect)

    def _rejected(self, effect: Rejected) -> None:
        self.home.rejected(effect.packs, self.now_ms())

    def _relayed(self, effect: Relayed) -> None:
        self.clients.relayed(effect.message)

    _CARRY_OUT: ClassVar[dict[type, Callable[[Server, Any], None]]] = {
        Send: _send,
        Persist: _persist,
        Applied: _applied,
        Read: _read,
        ReadPart: _read_part,
        StorePart: _store_part,
        Install: _install_later,
        TakeSnapshot: _snapshot_later,
        ReadReady: _read_ready,
        Decided: _decided,
        Rejected: _rejected,
        Relayed: _relayed,
    }

    # -- What clients ask for ------------------------------------------------------------------

    def propose(self, payloads: tuple[bytes, ...]) -> None:
        self._carry_out(self.node.propose(payloads, self.now_ms()))

    def relay(self, node: int, message: Relay) -> None:
        self._carry_out(self.node.relay(node, message))

    def store(self, record: Local, batch: int) -> None:
        self.journal.append((record,), (LocalStored(batch),))
        self.node.wrote_besides(len(record.data))
        self.settle_soon()

    def read(self, request: int) -> None:
        self._carry_out(self.node.read(request, self.now_ms()))

    def change(self, member: ClusterMember | int, request: int) -> None:
        self._carry_out(self.node.change(member, self.now_ms(), request))

    def transfer(self, node: int, request: int) -> None:
        self._carry_out(self.node.transfer(node, self.now_ms(), request))

    def address_of(self, node: int) -> str:
        address = self._addresses().get(node)
        return format_address(address) if address is not None else ""

    def status(self) -> cw.Status:
        r = self.node.replica
        return cw.Status(
            r.id,
            os.getpid(),
            r.role.value,
            r.epoch,
            r.leader_id,
            r.memberships.current,
            {n: format_address(address) for n, address in self._addresses().items()},
            r.commit,
            self.node.applied,
            self.broker.position,
            self.broker.digest,
            time.process_time(),
            tuple(self._trouble()),
            self.counts(),
            report.groups(self.broker),
        )

    def counts(self) -> dict[str, dict[str, int]]:
        """What each part of the chain has done, and what it waits for."""
        return {
            "listener": self._transport.counts(),
            "session": self.home.counts(),
            "log": {
                "uncommitted": self.node.replica.log.last - self.node.replica.commit,
                "unapplied": self.node.replica.commit - self.node.applied,
            },
            "journal": {**self.journal.counts(), "syncs": self._syncs},
            "broker": {
                "sessions": len(self.broker.sessions),
                "held": sum(session.held for session in self.broker.sessions.values()),
                "subscriptions": len(self.broker.topics.subscriptions),
                "queues": len(self.broker.queues),
                "queued": sum(queue.count for queue in self.broker.queues.values()),
                "waiting_again": sum(queue.held_count for queue in self.broker.queues.values()),
                "dropped": self.broker.dropped,
            },
            "dispatcher": self.home.dispatcher.counts(),
        }

    def _trouble(self) -> Iterator[str]:
        r = self.node.replica
        if r.impaired:
            yield r.impaired
        if self._damage and r.id not in r.memberships.current.voters:
            yield f"being repaired from the others: {self._damage}"
        if r.removed:
            yield f"not wanted by the others: {r.removed}"
        if r.newcomer is not None and r.newcomer.complaint:
            yield f"cannot found a cluster: {r.newcomer.complaint}"

    # -- Once a turn of the loop ---------------------------------------------------------------

    def settle_soon(self) -> None:
        if not self._settle_due:
            self._settle_due = True
            self._soon(self._settle)

    def _settle(self) -> None:
        """Everything that came in during one turn of the loop is proposed, written and handed on
        together."""
        if self.ended.done():
            return
        self._check_contexts()
        self._leader = self.node.replica.leader_id
        self.clients.propose()
        self._settle_due = False
        if self._disk.volatile and not (self.journal.awaited or self.clients.waiting):
            self._write_at_leisure()
        else:
            self._write_and_deliver()
            self._arm_timer()
        self._follow_membership()
        if self.node.replica.leader_id is not None and not self.serves.done():
            self.serves.set_result(None)
        if self.home.has_let_go and not self._let_go_of_all.done():
            self._let_go_of_all.set_result(None)

    def _write_and_deliver(self) -> None:
        written = self.write()
        self._start_sync()
        if written:  # the journal has all that was accepted
            self.clients.deliver()

    def _write_at_leisure(self) -> None:
        """Together with what comes meanwhile: what was accepted has been handed out from memory.
        Whether something is due earlier than the timer is not asked for each message either."""
        if self._timer is None:
            self._arm_timer()
        if not self._leisure_due:
            self._leisure_due = True
            self._later(LEISURE_S, self._have_leisure)

    def _have_leisure(self) -> None:
        self._leisure_due = False
        if not self.ended.done():
            self._write_and_deliver()
            self._arm_timer()

    def _check_contexts(self) -> None:
        if self.broker.contexts not in ("", self._contexts):
            raise IllegalStateError(
                f"this server was started with contexts = {self._contexts}, and its cluster has "
                f"contexts = {self.broker.contexts}, which cannot be changed. Start it like the "
                "others"
            )

    def _follow_membership(self) -> None:
        membership = self.node.replica.memberships.current
        if membership is not self._membership:
            self._membership = membership
            self._transport.set_peers(self._addresses())

    def _addresses(self) -> dict[int, Address]:
        """Of all servers. What the operator lists here counts more than what the log says, which
        may be older."""
        addresses = {}
        for member in self.node.replica.memberships.current.members:
            try:
                addresses[member.node] = parse_address(member.address)
            except FormatError:
                continue  # the leader checks addresses; a foreign one is not worth a crash
        return {**addresses, **self._listed}

    # -- Writing and syncing -------------------------------------------------------------------

    def write(self) -> bool:
        """Everything collected, then the rows of what was accepted, which point into it; False:
        there was no room, and it is tried again later."""
        try:
            self.journal.flush()
            if self._accepted:
                accepted, self._accepted = tuple(self._accepted), []
                self.journal.index(accepted)
        except DiskFullError as error:
            self._disk_full(error)
            return False
        return True

    def _start_sync(self) -> None:
        """Sync all that was written, unless a sync is under way: then when that one ends."""
        if self._syncing or self.ended.done():
            return
        job = self.journal.begin_sync()
        if job is None:
            return
        if self._disk.volatile:
            self._release(self.journal.end_sync(job))
        else:
            self._syncing = True
            self._sync_thread.begin(job.names, partial(self.guarded, self._synced, job))

    def _synced(self, job: SyncJob, error: Exception | None) -> None:
        self._syncing = False
        self._syncs += 1
        if self.ended.done():
            return
        if error is not None:
            self._fail(error)
            return
        try:
            tails = self.journal.end_sync(job)
        except DiskFullError as full:
            self._disk_full(full)
            return
        self._release(tails)
        self._start_sync()

    def _sync_note(self) -> None:
        """Of how far the journal is synced."""
        if self.ended.done():
            return
        if names := self.journal.begin_note_sync():
            self._sync_thread.begin(names, partial(self.guarded, self._note_synced))
        self._later(NOTE_SYNC_S, self._sync_note)

    def _note_synced(self, error: Exception | None) -> None:
        if error is not None:
            self._fail(error)

    def _release(self, tails: tuple[Tail, ...] | list[Tail]) -> None:
        """What these waited for is on disk."""
        for tail in tails:
            if isinstance(tail, Send):
                self._send(tail)
            elif isinstance(tail, LocalStored):
                self.home.stored(tail.batch)
                self.clients.carry_out()
                self.settle_soon()  # more may have gathered meanwhile
            else:
                self._carry_out(self.node.stored(tail, self.now_ms()))

    # -- No room -------------------------------------------------------------------------------

    def _disk_full(self, error: DiskFullError) -> None:
        if not self.node.replica.impaired:
            logger.error("no room: %s; trying again every %g s", error, RETRY_S)
            self._later(RETRY_S, self._try_again)
            self._carry_out(self.node.impair(f"disk full: {error}", self.now_ms()))

    def _try_again(self) -> None:
        if self.ended.done():
            return
        try:
            self.journal.flush()
        except DiskFullError:
            self._later(RETRY_S, self._try_again)
        else:
            logger.info("there is room again")
            self._carry_out(self.node.impair("", self.now_ms()))
            self.settle_soon()

    # -- Snapshots, in the background ----------------------------------------------------------

    async def _do_chores(self) -> None:
        """One after the other, and a sync or a piece of writing at a time."""
        while True:
            chore = await self._chores.get()
            await chore()
            self.settle_soon()

    async def _install(self, meta: SnapshotMeta) -> None:
        try:
            await self._step_through(self.journal.install(meta))
        except DiskFullError as error:
            self.node.install_failed()
            self._disk_full(error)
            return
        self._accepted.clear()  # their rows came with the snapshot
        self.broker.restore(self.journal.read_snapshot()[1])
        logger.info("took over the state at entry %d from the leader", meta.index)
        if self.trace is not None:
            self.trace.restored()
        self.home.restored()
        self.clients.carry_out()
        self._carry_out(self.node.installed(meta, self.now_ms()))

    async def _store_snapshot(self, meta: SnapshotMeta, work: Iterator[tuple[str, ...]]) -> None:
        try:
            await self._step_through(work)
        except DiskFullError as error:
            self._no_room_for_a_snapshot(error)
            return
        self.node.snapshot_stored(meta, self.journal.base_index)

    def _no_room_for_a_snapshot(self, error: DiskFullError) -> None:
        # No reason to stop: the log itself may still have room, and says so if it has not.
        logger.error("no room for a snapshot: %s", error)
        self.node.snapshot_failed()

    async def _step_through(self, work: Iterator[tuple[str, ...]]) -> None:
        for names in work:
            if names and not self._disk.volatile:
                await self._sync_apart(names)
            else:
                await asyncio.sleep(0)

    async def _sync_apart(self, names: tuple[str, ...]) -> None:
        synced: asyncio.Future[Exception | None] = self._loop.create_future()
        self._sync_thread.begin(names, partial(settle, synced))
        if (error := await synced) is not None:
            raise error
