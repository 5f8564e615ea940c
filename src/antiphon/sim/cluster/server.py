"""A simulated server: the driver's half of a node, with a process that can die at any moment.

It does what `server/server.py` does: carries out effects in order, flushes, syncs, releases tails.
A crash can fall between any two effects.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from antiphon.broker.machine.machine import Broker
from antiphon.errors import DiskFullError, JournalDamagedError, SyncFailedError
from antiphon.formats.entry import ClusterMember, ReplicaId, SnapshotMeta
from antiphon.formats.frames import NEWEST
from antiphon.formats.server_messages import Envelope, Relay
from antiphon.journal.journal import Journal, SyncJob
from antiphon.journal.opening import open_journal
from antiphon.journal.reached import NOTE_SYNC_S
from antiphon.log.effects import (
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
from antiphon.sim.cluster.alarm_machine import AlarmMachine
from antiphon.sim.cluster.disk import SimDisk, SyncToken
from antiphon.sim.seeds import stream

if TYPE_CHECKING:
    from antiphon.sim.cluster.world import World

RETRY_FULL_US = 200_000


class CrashError(Exception):
    """The process dies here."""


class SimServer:
    def __init__(self, world: World, number: int, disk: SimDisk) -> None:
        self.world = world
        self.number = number
        self.disk = disk
        self.lives = 0  # starts so far
        self.alive = False
        self.paused_until_us = 0
        self.clock_rate = 1.0
        self.wall_offset_ms = 0
        self.wire_version = NEWEST
        self.crash_after_effects: int | None = None
        self.refuses_to_start = ""
        self.damaged = False  # its disk was, at some time
        self.misses = ""  # the file whose end is gone, until that is found
        self.waits_for_room = False  # to start
        self.node: Node
        self.machine: AlarmMachine | Broker
        self.journal: Journal
        self.waiting: dict[tuple[int, int], int] = {}  # (session, sequence) -> client
        self._random = stream(world.seed, "server", number)
        self._syncing = False
        self._chores: deque[Iterator[tuple[str, ...]]] = deque()
        self._timer_us: int | None = None
        self._retrying = False

    @property
    def id(self) -> ReplicaId:
        return self.node.replica.id

    def now_ms(self) -> int:
        return int(self.world.now_us * self.clock_rate) // 1000

    # -- Life ----------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the process on whatever is on the disk."""
        if self.alive:
            return
        world, plan = self.world, self.world.plan
        self.lives += 1
        if plan.volatile:
            self.disk.wipe()
        copies = self.disk.contents() if not plan.volatile else {}
        try:
            self.journal, recovered = open_journal(
                self.disk,
                lambda: self._random.getrandbits(62) + 1,
                alone=len(plan.listed) == 1,
                segment_bytes=plan.segment_bytes,
            )
        except SyncFailedError as error:
            self.misses = ""  # it may be somebody new by now, and then nothing is missing
            world.note(self.number, f"cannot start: {error}")
            self.waits_for_room = False
            return
        except DiskFullError as error:
            self.misses = ""
            world.note(self.number, f"waits for room to start: {error}")
            self.waits_for_room = True
            world.at(RETRY_FULL_US, self._start_again, self.lives)
            return
        except JournalDamagedError as error:
            self.refuses_to_start = str(error)
            world.refused(self, str(error))
            self.waits_for_room = False
            return
        self.disk.copies = copies
        self.machine = self.make_machine()
        if recovered.snapshot is not None:
            self.machine.restore(self.journal.read_snapshot()[1])
        self.alive = True
        self.paused_until_us = 0
        self.waiting = {}
        self._syncing = False
        self._chores.clear()
        self._timer_us = None
        self._retrying = False
        self.node = Node(
            self.number,
            plan.listed,
            recovered,
            self.machine,
            plan.settings,
            stream(world.seed, "node", self.number, self.lives),
            self.now_ms(),
        )
        self.node.set_wall_offset(self.wall_offset_ms)
        self.begin()
        world.started(self, recovered)
        self.waits_for_room = False
        self._set_timer()
        if not self.disk.volatile:
            self._note_later()

    def _start_again(self, life: int) -> None:
        if life == self.lives:  # otherwise somebody else has started it
            self.start()

    def crash(self, power: bool) -> None:
        """Kill the process; with the power goes what was not synced."""
        if not self.alive:
            return
        self.alive = False
        self.crash_after_effects = None
        self._chores.clear()
        if power:
            self.disk.power_failure()
        self.end(power)
        self.world.crashed(self)

    def pause(self, for_us: int) -> None:
        self.paused_until_us = max(self.paused_until_us, self.world.now_us + for_us)

    # -- What a server with clients does in addition (`server_with_clients.py`) --------------------

    def make_machine(self) -> AlarmMachine | Broker:
        return AlarmMachine(self.world.plan.retain)

    def begin(self) -> None:
        """A new life begins."""

    def end(self, power: bool) -> None:
        """It is over."""

    def propose_waiting(self) -> None:
        """Before what was collected is written."""

    def dispatch(self) -> None:
        """After the journal has all that was accepted."""

    def applied(self, effect: Applied) -> None:
        pass

    def rejected(self, effect: Rejected) -> None:
        pass

    def passed_on(self, message: Relay) -> None:
        """Another home's message came through a third server."""

    def stored(self, tail: LocalStored) -> None:
        """What it keeps to itself is on its disk."""

    def restored(self) -> None:
        """The machine has jumped ahead."""

    def deadline_ms(self) -> int:
        return self.node.next_deadline_ms()

    # -- Inputs --------------------------------------------------------------------------------

    def receive(self, envelope: Envelope) -> None:
        self.carry_out(self.node.receive(envelope, self.now_ms()))

    def part(self, sender: ReplicaId) -> None:
        """Of something large, which has not arrived whole."""
        self.carry_out(self.node.alive(sender, self.now_ms()))

    def told_gone(self, node: int) -> None:
        """By the network: nobody listens there. It may listen again by now."""
        self.carry_out(self.node.gone(node, self.now_ms()))

    def propose(self, pack: bytes, session: int, sequence: int, client: int) -> None:
        if self.machine.last_sequence(session) >= sequence:
            self.world.acknowledge(self, client, session, sequence)
            return
        self.waiting[session, sequence] = client
        self.carry_out(self.node.propose((pack,), self.now_ms()))

    def read(self, request: int) -> None:
        self.carry_out(self.node.read(request, self.now_ms()))

    def transfer(self, node: int) -> None:
        self.carry_out(self.node.transfer(node, self.now_ms()))

    def change(self, member: ClusterMember | int) -> None:
        if self.world.core is None:  # what an operator asked of a paused server came to nothing
            request = self.world.changes.asked(self, member)
            self.carry_out(self.node.change(member, self.now_ms(), request))

    def tick(self, due_us: int) -> None:
        if self._timer_us == due_us:
            self._timer_us = None
            self.carry_out(self.node.tick(self.now_ms()))

    # -- Effects -------------------------------------------------------------------------------

    def run(self, call: Callable[..., None], *args: Any) -> None:
        """Do something inside this process, which may die of it."""
        try:
            call(*args)
            self.propose_waiting()
            if self._flush():
                self.dispatch()
        except CrashError:
            self.crash(power=self._random.random() < 0.5)
        except (SyncFailedError, JournalDamagedError) as error:
            self.world.note(self.number, f"stops itself: {error}")
            self.crash(power=False)
        self._set_timer()

    def carry_out(self, effects: list[Effect]) -> None:
        for effect in effects:
            if more := self._effect(effect):
                self._carry_out_deeply(more)

    def _carry_out_deeply(self, effects: list[Effect]) -> None:
        """In the same order, and without recursion: a log may be read entry by entry."""
        stack = [iter(effects)]
        while stack:
            effect = next(stack[-1], None)
            if effect is None:
                stack.pop()
            elif more := self._effect(effect):
                stack.append(iter(more))

    def _count_down(self) -> None:
        if self.crash_after_effects is not None:
            self.crash_after_effects -= 1
            if self.crash_after_effects < 0:
                raise CrashError

    def _effect(self, effect: Effect) -> list[Effect] | None:
        """Returns what is to be done next because of it."""
        self._count_down()
        if isinstance(effect, Send):
            self.world.send(self, effect.to, effect.message)
        elif isinstance(effect, Persist):
            self.journal.append(effect.records, effect.then)
        elif isinstance(effect, Applied):
            self._index(effect)
            for position, payload in effect.packs():
                self.journal.remember(position, payload)
            self.world.applied(self, effect)
            self.applied(effect)
        elif isinstance(effect, Read):
            entries = self.journal.entries(effect.first, effect.max_bytes)
            return self.node.entries_read(effect.reader, effect.first, entries, self.now_ms())
        elif isinstance(effect, ReadPart):
            live, parked = self.machine.live(), self.machine.parked()
            meta, data, last = self.journal.part(effect.to.node, effect.seq, live, parked)
            return self.node.part_read(effect.to, meta, effect.seq, data, last, self.now_ms())
        elif isinstance(effect, StorePart):
            self._store_part(effect)
        elif isinstance(effect, Install):
            self._chore(self._install(effect.meta))
        elif isinstance(effect, TakeSnapshot):
            self._take_snapshot(effect)
        elif isinstance(effect, ReadReady):
            self.world.read_ready(self, effect.request, effect.index)
        elif isinstance(effect, Decided):
            self.world.changes.decided(self, effect)
        elif isinstance(effect, Rejected):
            self.rejected(effect)
        elif isinstance(effect, Relayed):
            self.passed_on(effect.message)
        return None

    def _index(self, effect: Applied) -> None:
        try:
            self.journal.index(effect.accepted)
        except DiskFullError as error:
            self._full(error)

    def _store_part(self, effect: StorePart) -> None:
        try:
            self.journal.receive_part(effect.meta, effect.seq, effect.data)
        except DiskFullError as error:
            self.node.install_failed()
            self._full(error)
            return
        self.carry_out(list(effect.then))

    # -- The journal ---------------------------------------------------------------------------

    def _flush(self) -> bool:
        try:
            self.journal.flush()
            self.journal.index(())  # what waited for room
        except DiskFullError as error:
            self._full(error)
            return False
        self._sync()
        return True

    def _full(self, error: DiskFullError) -> None:
        if not self.node.replica.impaired:
            self.world.note(self.number, f"stops acknowledging: {error}")
            self.carry_out(self.node.impair(str(error), self.now_ms()))
        if not self._retrying:
            self._retrying = True
            self.world.at(RETRY_FULL_US, self.world.on_server, self, self.lives, self._retry_full)

    def _retry_full(self) -> None:
        self._retrying = False
        try:
            self.journal.flush()
            self.journal.index(())
        except DiskFullError as error:
            self._full(error)
            return
        if not self.disk.full:
            self.carry_out(self.node.impair("", self.now_ms()))
        else:
            self._full(DiskFullError("still full"))

    def _sync(self) -> None:
        """Group commit: one sync at a time; what is written meanwhile waits for the next."""
        if self._syncing:
            return
        job = self.journal.begin_sync()
        if job is None:
            return
        if self.disk.volatile:
            self._release(self.journal.end_sync(job))
            return
        self._syncing = True
        token = self.disk.begin_sync(job.names)
        self.world.at(
            self.world.sync_latency_us(self),
            self.world.on_server,
            self,
            self.lives,
            self._synced,
            job,
            token,
        )

    def _synced(self, job: SyncJob, token: SyncToken) -> None:
        self._syncing = False
        self.disk.finish_sync(token)
        try:
            tails = self.journal.end_sync(job)
        except DiskFullError as error:
            self._full(error)
            return
        self._release(tails)
        self._flush()

    def _sync_note(self, token: SyncToken) -> None:
        """Of how far the journal is synced: the last one is, and after a while the next."""
        self.disk.finish_sync(token)
        self._note_later()

    def _note_later(self) -> None:
        self.world.at(
            int(NOTE_SYNC_S * 1e6), self.world.on_server, self, self.lives, self._begin_note_sync
        )

    def _begin_note_sync(self) -> None:
        token = self.disk.begin_sync(self.journal.begin_note_sync())
        latency_us = self.world.sync_latency_us(self)
        self.world.at(latency_us, self.world.on_server, self, self.lives, self._sync_note, token)

    def _release(self, tails: list[Tail]) -> None:
        for tail in tails:
            if isinstance(tail, Send):
                self._effect(tail)
            elif isinstance(tail, LocalStored):
                self._count_down()
                self.stored(tail)
            else:
                self._count_down()
                self.carry_out(self.node.stored(tail, self.now_ms()))

    # -- Longer work ---------------------------------------------------------------------------

    def _chore(self, work: Iterator[tuple[str, ...]]) -> None:
        self._chores.append(work)
        if len(self._chores) == 1:
            self._schedule_chore(())

    def _schedule_chore(self, names: tuple[str, ...]) -> None:
        token = self.disk.begin_sync(names)
        delay = self.world.sync_latency_us(self) if names and not self.disk.volatile else 50
        self.world.at(delay, self.world.on_server, self, self.lives, self._do_chore, token)

    def _do_chore(self, token: SyncToken) -> None:
        self.disk.finish_sync(token)
        self._count_down()
        names = next(self._chores[0], None)
        if names is not None:
            self._schedule_chore(names)
            return
        self._chores.popleft()
        if self._chores:
            self._schedule_chore(())

    def _take_snapshot(self, effect: TakeSnapshot) -> None:
        try:
            work = self.journal.store_snapshot(
                effect.meta, effect.chunks, effect.live, effect.parked
            )
        except DiskFullError as error:
            self.node.snapshot_failed()
            self._full(error)
        else:
            self._chore(self._store_snapshot(effect, work))

    def _store_snapshot(
        self, effect: TakeSnapshot, work: Iterator[tuple[str, ...]]
    ) -> Iterator[tuple[str, ...]]:
        try:
            yield from work
        except DiskFullError as error:
            self.node.snapshot_failed()
            self._full(error)
            return
        self.node.snapshot_stored(effect.meta, self.journal.base_index)
        self.world.snapshot_taken(self, effect.meta)

    def _install(self, meta: SnapshotMeta) -> Iterator[tuple[str, ...]]:
        try:
            yield from self.journal.install(meta)
        except DiskFullError as error:
            self.node.install_failed()
            self._full(error)
            return
        self.machine.restore(self.journal.read_snapshot()[1])
        self.restored()
        self.world.installed(self, meta)
        self.carry_out(self.node.installed(meta, self.now_ms()))

    def _set_timer(self) -> None:
        if not self.alive:
            return
        due_ms = self.deadline_ms()
        due_us = max(self.world.now_us + 1000, int((due_ms + 1) * 1000 / self.clock_rate))
        if self._timer_us is None or due_us < self._timer_us:
            self._timer_us = due_us
            self.world.at(
                due_us - self.world.now_us,
                self.world.on_server,
                self,
                self.lives,
                self.tick,
                due_us,
            )
