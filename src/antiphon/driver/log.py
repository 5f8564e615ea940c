"""The driver of one server's log: carries out the effects of its `Node`, on its `Journal`.

Promises: effects are carried out in the order in which the node gave them. All records of one turn
are one write, and one sync at a time covers every write since the last one began. A message that
waits for a write leaves after the sync of that write, and no sooner: `_release` counts, and `_send`
checks each message that leaves without waiting (the node has checked those inside a `Via`). A
journal in memory is written later, for several turns together, unless the layer above needs it
sooner. Without room on the disk the server takes part in nothing and tries again until there is
room; a failed sync ends it.

Needs: a `Port`, which has the clock, the network, the disk's syncs and the turns; and the layer
above the log (`Above`). No clock, socket, file or thread is in here. Each call from outside is an
input: the port makes one at a time, and calls `settle` once after those of one turn.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from antiphon.driver.ports import Above, Port
from antiphon.errors import DiskFullError
from antiphon.formats.entry import ClusterMember, ReplicaId, SnapshotMeta
from antiphon.formats.journal import Local
from antiphon.formats.server_messages import Envelope, Hears, Relay
from antiphon.journal.journal import Journal, SyncJob
from antiphon.journal.reached import NOTE_SYNC_S
from antiphon.log.effects import (
    Accepted,
    Applied,
    Decided,
    Effect,
    EntriesStored,
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
    VoteStored,
)
from antiphon.log.node import Node

RETRY_S = 0.5
"""Seconds until a full disk is tried again."""

DEFER_S = 0.01
"""Seconds until a journal in memory is written that no client reads or waits for."""

LATE_MS, READ_FIRST_MS = 100, 5
"""A timer that rings this late lets what has arrived be read first."""


class LogDriver:
    """One server's log in a process; `start` after construction. When `closed`, it carries out
    nothing any more, and releases nothing."""

    def __init__(
        self,
        node: Node,
        journal: Journal,
        port: Port,
        volatile: bool,
        watch: Callable[[Effect | Tail], None] | None = None,
    ) -> None:
        """`volatile`: the journal is in memory. `watch`: called before each effect and each
        released tail; it may raise, as a process may die there."""
        self.node = node
        self.journal = journal
        self.closed = False
        self.reads_first = False  # deadlines wait until arrived messages were read
        self.syncs = 0  # done
        self._port = port
        self._volatile = volatile
        self._above: Above
        self._effects: deque[Effect] = deque()
        self._carrying = False
        self._accepted: list[Accepted] = []  # not in the index yet
        self._settle_due = False
        self._write_due = False
        self._syncing = False
        self._part_lost = False  # of the snapshot that is coming in, for lack of room
        self._work: deque[Iterator[tuple[str, ...]]] = deque()  # snapshots, in the background
        self._leader: ReplicaId | None = None  # the one that clients' requests go to
        self._timer_ms: int | None = None
        # Tails, counted: given to the journal, written, known to be synced, released.
        self._collected = self._written = self._durable = self._released = 0
        self._carry_out: dict[type, Callable[[Any], None]] = {
            Send: self._send,
            Persist: self._persist,
            Applied: self._applied,
            Read: partial(port.soon, self._read_now),
            ReadPart: partial(port.soon, self._read_part_now),
            StorePart: self._store_part,
            Install: self._install,
            TakeSnapshot: self._take_snapshot,
            ReadReady: self._read_ready,
            Decided: self._decided,
            Rejected: self._rejected,
            Relayed: self._relayed,
        }
        self._let_go: dict[type, Callable[[Any], None]] = {
            Send: self._send_released,
            EntriesStored: self._stored,
            VoteStored: self._stored,
            LocalStored: self._local_stored,
        }
        if watch is not None:
            self._carry_out = {t: watched(watch, do) for t, do in self._carry_out.items()}
            self._let_go = {t: watched(watch, do) for t, do in self._let_go.items()}

    def start(self, above: Above) -> None:
        """Begin to take part in the cluster."""
        self._above = above
        self._sync_note()
        self.settle_soon()

    def close(self, done: Callable[[], None]) -> None:
        """End. Records that were not synced yet were not acknowledged either. Call `done` when the
        journal has noted how far it is synced."""
        self.closed = True
        if names := self.journal.begin_note_sync():
            self._port.sync(names, lambda _: done())
        else:
            self._port.soon(done)

    def _fail(self, error: Exception) -> None:
        self.closed = True
        self._port.failed(error)

    # -- Inputs from other servers -------------------------------------------------------------

    def receive(self, envelope: Envelope) -> None:
        message = envelope.message
        if isinstance(message, Relay):
            self._above.relayed(message)
            return
        replica = self.node.replica
        effects = self.node.receive(envelope, self._port.now_ms())
        # Otherwise it is one more acknowledgement of decided entries, and nothing is due earlier.
        quiet = replica.leader_id is self._leader and replica.newcomer is None
        if effects or not quiet or isinstance(message, Hears):
            self.carry_out(effects)
            self.settle_soon()

    def alive(self, sender: ReplicaId) -> None:
        """Note that a part of a large message has come from this server, so it is alive."""
        self.carry_out(self.node.alive(sender, self._port.now_ms()))

    def gone(self, node: int) -> None:
        """Note that no process listens at the address of this server, as its host reported."""
        self.carry_out(self.node.gone(node, self._port.now_ms()))
        self.settle_soon()

    # -- Inputs from above (`clients.py: Log`) -------------------------------------------------

    @property
    def reign(self) -> tuple[int, int] | None:
        return self.node.replica.reign

    @property
    def leads(self) -> bool:
        return self.node.replica.leading is not None

    def propose(self, payloads: tuple[bytes, ...]) -> None:
        self.carry_out(self.node.propose(payloads, self._port.now_ms()))

    def relay(self, node: int, message: Relay) -> None:
        """Send a message to the home at another server."""
        self.carry_out(self.node.relay(node, message))

    def store(self, record: Local, batch: int) -> None:
        """Keep a record in this server's journal only; then call `Above.stored`."""
        self.journal.append((record,), (LocalStored(batch),))
        self._collected += 1
        self.node.count_extra_bytes(len(record.data))
        self.settle_soon()

    def read(self, request: int) -> None:
        self.carry_out(self.node.read(request, self._port.now_ms()))

    def change(self, member: ClusterMember | int, request: int) -> None:
        self.carry_out(self.node.change(member, self._port.now_ms(), request))

    def transfer(self, node: int, request: int) -> None:
        self.carry_out(self.node.transfer(node, self._port.now_ms(), request))

    def hand_over(self) -> None:
        """If this server leads, begin to hand leadership to a voter that answers."""
        leading = self.node.replica.leading
        if leading is not None and (heir := leading.heir()) is not None:
            self.transfer(heir, 0)  # nobody asked: the answer is for nobody

    @property
    def hands_over(self) -> bool:
        """Whether this server leads, and is handing leadership to another one."""
        leading = self.node.replica.leading
        return leading is not None and leading.hands_over

    # -- Once a turn ---------------------------------------------------------------------------

    def settle_soon(self) -> None:
        if not self._settle_due:
            self._settle_due = True
            self._port.turn_soon()

    def settle(self) -> None:
        """Propose, write and hand on the inputs of one turn together."""
        if self.closed:
            return
        self._leader = self.node.replica.leader_id
        self._above.propose()
        self._settle_due = False
        if self._volatile and not (self.journal.awaited or self._above.waiting):
            self._write_later()
        else:
            self._write_and_deliver()

    def _write_and_deliver(self) -> None:
        written = self.write()
        self._start_sync()
        if written:  # the journal has all that was accepted
            self._above.deliver()
        self._arm_timer()

    def _write_later(self) -> None:
        """Write together with the inputs of the next turns: accepted packs were handed out from
        memory. For speed, a timer that is set is not compared with new deadlines here either."""
        if self._timer_ms is None:
            self._arm_timer()
        if not self._write_due:
            self._write_due = True
            self._port.later(DEFER_S, self._write_deferred)

    def _write_deferred(self) -> None:
        self._write_due = False
        if not self.closed:
            self._write_and_deliver()

    # -- Time ----------------------------------------------------------------------------------

    def _arm_timer(self) -> None:
        """Set a timer for the next deadline. A deadline that moved into the future needs no new
        timer: the old one rings, finds nothing due, and comes back here."""
        if self.reads_first or self.node.replica.impaired:
            return  # it is set already; nothing is due until there is room again
        due_ms = self.node.next_deadline_ms()
        if (above_ms := self._above.next_deadline_ms()) is not None:
            due_ms = min(due_ms, above_ms)
        if self._timer_ms is None or due_ms < self._timer_ms:
            self._timer_ms = due_ms
            self._port.set_timer(due_ms)

    def tick(self) -> None:
        """The timer rings."""
        due_ms, self._timer_ms = self._timer_ms, None
        now_ms = self._port.now_ms()
        if due_ms is not None and now_ms - due_ms > LATE_MS and not self.reads_first:
            # This process did not run. Messages of the other servers that came meanwhile are read
            # first: no server must be blamed for a silence that was here.
            self.reads_first = True
            self._timer_ms = now_ms + READ_FIRST_MS
            self._port.set_timer(self._timer_ms)
            return
        self.reads_first = False
        self._above.tick(now_ms)
        self.carry_out(self.node.tick(now_ms))
        self.settle_soon()

    # -- Carrying out --------------------------------------------------------------------------

    def carry_out(self, effects: list[Effect]) -> None:
        """Carry out effects in order; those that a step leads to come after the ones before it."""
        self._effects += effects
        if self._carrying or not effects:
            return
        self._carrying = True
        while self._effects and not self.closed:
            effect = self._effects.popleft()
            self._carry_out[type(effect)](effect)
        self._carrying = False
        self.settle_soon()

    def _send(self, effect: Send) -> None:
        """Send a message that waits for no write, so it must promise nothing that a crash can
        undo."""
        effect.assert_free(self.node.replica.stored)
        self._port.send(effect.to, effect.message)

    def _send_released(self, tail: Send) -> None:
        self._port.send(tail.to, tail.message)

    def _persist(self, effect: Persist) -> None:
        self.journal.append(effect.records, effect.then)
        self._collected += len(effect.then)

    def _applied(self, effect: Applied) -> None:
        for position, payload in effect.packs():
            self.journal.remember(position, payload)
        self._accepted += effect.accepted
        self._above.applied(effect)

    def _read_now(self, effect: Read) -> None:
        """Read entries, in a turn of its own: a long log is read in many pieces, and other work has
        its turn between them."""
        if not self.closed:
            self.write()  # collected entries may replace those that would be read
            found = self.journal.entries(effect.first, effect.max_bytes)
            now_ms = self._port.now_ms()
            self.carry_out(self.node.entries_read(effect.reader, effect.first, found, now_ms))

    def _read_part_now(self, effect: ReadPart) -> None:
        if self.closed:
            return
        machine, to, seq = self.node.machine, effect.to, effect.seq
        meta, data, last = self.journal.part(to.node, seq, machine.live(), machine.parked())
        self.carry_out(self.node.part_read(to, meta, seq, data, last, self._port.now_ms()))

    def _read_ready(self, effect: ReadReady) -> None:
        self._above.read_ready(effect)

    def _decided(self, effect: Decided) -> None:
        self._above.decided(effect)

    def _rejected(self, effect: Rejected) -> None:
        self._above.rejected(effect)

    def _relayed(self, effect: Relayed) -> None:
        self._above.relayed(effect.message)

    # -- Writing and syncing -------------------------------------------------------------------

    def write(self) -> bool:
        """Write all collected records, then the rows of accepted packs, which point into them.
        Return False if there was no room; it is tried again later."""
        try:
            self._flush()
            if self._accepted:
                accepted, self._accepted = tuple(self._accepted), []
                self.journal.index(accepted)
        except DiskFullError as error:
            self._impair(error)
            return False
        return True

    def _flush(self) -> None:
        self.journal.flush()
        if not self.journal.awaited:  # otherwise an installation holds writes back
            self._written = self._collected

    def _start_sync(self) -> None:
        """Sync all that was written, unless a sync is under way: then when that one ends."""
        if self._syncing or self.closed:
            return
        job = self.journal.begin_sync()
        if job is None:
            return
        if self._volatile:
            self._durable = self._written
            self._release(self.journal.end_sync(job))
        else:
            self._syncing = True
            self._port.sync(job.names, partial(self._synced, job, self._written))

    def _synced(self, job: SyncJob, covered: int, error: Exception | None) -> None:
        self._syncing = False
        self.syncs += 1
        if self.closed:
            return
        if error is not None:
            self._fail(error)
            return
        try:
            tails = self.journal.end_sync(job)
        except DiskFullError as full:
            self._impair(full)
            return
        self._durable = covered
        self._release(tails)
        self._start_sync()

    def _release(self, tails: list[Tail]) -> None:
        """Release these tails: the records that they waited for were written when the last sync
        began."""
        for tail in tails:
            self._released += 1
            assert self._released <= self._durable, f"{tail} leaves before its sync"
            self._let_go[type(tail)](tail)

    def _stored(self, tail: EntriesStored | VoteStored) -> None:
        self.carry_out(self.node.stored(tail, self._port.now_ms()))

    def _local_stored(self, tail: LocalStored) -> None:
        self._above.stored(tail.batch)
        self.settle_soon()  # more may have gathered meanwhile

    def _sync_note(self) -> None:
        """Sync the note of how far the journal is synced; then again, after a while."""
        if self.closed:
            return
        if names := self.journal.begin_note_sync():
            self._port.sync(names, self._note_synced)
        else:
            self._port.later(NOTE_SYNC_S, self._sync_note)

    def _note_synced(self, error: Exception | None) -> None:
        if self.closed:
            return
        if error is not None:
            self._fail(error)
        else:
            self._port.later(NOTE_SYNC_S, self._sync_note)

    # -- No room -------------------------------------------------------------------------------

    def _impair(self, error: DiskFullError) -> None:
        if not self.node.replica.impaired:
            self._port.impaired(str(error))
            self._port.later(RETRY_S, self._try_again)
            self.carry_out(self.node.impair(f"disk full: {error}", self._port.now_ms()))

    def _try_again(self) -> None:
        if self.closed:
            return
        try:
            self._flush()
        except DiskFullError:
            self._port.later(RETRY_S, self._try_again)
        else:
            self._port.recovered()
            self.carry_out(self.node.impair("", self._port.now_ms()))
            self.settle_soon()

    # -- Snapshots, in the background ----------------------------------------------------------

    def _store_part(self, effect: StorePart) -> None:
        if effect.seq == 0:
            self._part_lost = False
        if self._part_lost:
            return
        try:
            self.journal.receive_part(effect.meta, effect.seq, effect.data)
        except DiskFullError as error:
            self._part_lost = True
            self.node.install_failed()
            self._impair(error)
        else:
            self.carry_out([*effect.then])

    def _install(self, effect: Install) -> None:
        if not self._part_lost:  # otherwise the leader offers it again
            self._begin_work(self._steps_of_installing(effect.meta))

    def _take_snapshot(self, effect: TakeSnapshot) -> None:
        try:
            if not self.write():
                raise DiskFullError("the index is not complete up to this snapshot")
            steps = self.journal.store_snapshot(
                effect.meta, effect.chunks, effect.live, effect.parked
            )
        except DiskFullError as error:
            self._no_room_for_snapshot(error)
        else:
            self._begin_work(self._steps_of_storing(effect.meta, steps))

    def _steps_of_storing(
        self, meta: SnapshotMeta, steps: Iterator[tuple[str, ...]]
    ) -> Iterator[tuple[str, ...]]:
        try:
            yield from steps
        except DiskFullError as error:
            self._no_room_for_snapshot(error)
            return
        self.node.snapshot_stored(meta, self.journal.base_index)
        self._port.snapshot_stored(meta)

    def _no_room_for_snapshot(self, error: DiskFullError) -> None:
        # No reason to stop: the log itself may still have room, and fails if it has not.
        self._port.no_room_for_snapshot(str(error))
        self.node.snapshot_failed()

    def _steps_of_installing(self, meta: SnapshotMeta) -> Iterator[tuple[str, ...]]:
        try:
            yield from self.journal.install(meta)
        except DiskFullError as error:
            self.node.install_failed()
            self._impair(error)
            return
        self._accepted.clear()  # their rows came with the snapshot
        self.node.machine.restore(self.journal.read_snapshot()[1])
        self._port.installed(meta)
        self._above.restored()
        self.carry_out(self.node.installed(meta, self._port.now_ms()))

    def _begin_work(self, steps: Iterator[tuple[str, ...]]) -> None:
        """Carry out these steps in the background, after earlier ones, and one at a time."""
        self._work.append(steps)
        if len(self._work) == 1:
            self._port.soon(self._step, None)

    def _step(self, error: Exception | None) -> None:
        if self.closed:
            return
        if error is not None:
            self._fail(error)
            return
        names = next(self._work[0], None)
        if names is None:
            self._work.popleft()
            self.settle_soon()
        if names and not self._volatile:
            self._port.sync(names, self._step)
        elif self._work:
            self._port.soon(self._step, None)


def watched(watch: Callable[[Any], None], do: Callable[[Any], None]) -> Callable[[Any], None]:
    def watch_and_do(effect: Any) -> None:
        watch(effect)
        do(effect)

    return watch_and_do
