"""A server without its driver: the log, the state machine on it, and the traffic between them.

`Node` has the doors of `Replica`; it applies what the replica delivers, takes snapshots, and lets
reads go when the state has caught up with them. The driver (`driver/log.py`) sees only a node.
"""

from __future__ import annotations

from random import Random

from antiphon.formats.entry import ANY, ClusterMember, Entry, ReplicaId, SnapshotMeta
from antiphon.formats.server_messages import Envelope, Hears, Relay, Via
from antiphon.log.effects import (
    Accepted,
    Applied,
    Deliver,
    Effect,
    EntriesStored,
    ReadReady,
    Send,
    TakeSnapshot,
    VoteStored,
)
from antiphon.log.recovered import Recovered
from antiphon.log.replica import Replica
from antiphon.log.routes import Routes
from antiphon.log.settings import Settings
from antiphon.log.state_machine import Machine


class Node:
    """One server's log, and the state machine on it, for a driver that carries out the effects.

    Promise: the machine applies every committed entry once and in order, and a read is ready only
    when the machine reflects all that was committed before it was asked for.

    Needs: the driver calls the doors with a clock that does not go back, carries out effects in
    order, and reports back where an effect asks for it.
    """

    def __init__(
        self,
        node: int,
        listed: dict[int, str],
        recovered: Recovered,
        machine: Machine,
        settings: Settings,
        random: Random,
        now_ms: int,
    ) -> None:
        """`machine` has been restored from the recovered snapshot, if there is one."""
        self.replica = Replica(node, listed, recovered, settings, random, now_ms)
        self.routes = Routes(self.replica, listed, now_ms)
        self.machine = machine
        self.applied = self.replica.delivered
        self._settings = settings
        self._applied_stamp = recovered.snapshot.stamp if recovered.snapshot else 0
        self._applied_epoch = recovered.snapshot.epoch if recovered.snapshot else 0
        self._taking_snapshot = False
        self._bytes_since_snapshot = 0
        self._waiting_reads: list[tuple[int, int]] = []  # index, request
        self.replica.deadline_stamp = machine.next_deadline()

    # -- Doors ---------------------------------------------------------------------------------

    def receive(self, envelope: Envelope, now_ms: int) -> list[Effect]:
        """Take a message from another server, or pass it on."""
        message = envelope.message
        self.routes.heard[envelope.sender.node] = now_ms
        if isinstance(message, Hears):
            return self.routes.told(envelope.sender, message, now_ms)
        if isinstance(message, Via):
            mine, effects = self.routes.passed_on(message)
            if mine is None:
                return effects
            envelope = mine
        return self._run(self.replica.receive(envelope, now_ms))

    def alive(self, sender: ReplicaId, now_ms: int) -> list[Effect]:
        """Take a part of a large message as a sign of life of its sender."""
        self.routes.heard[sender.node] = now_ms
        return self._run(self.replica.alive(sender, now_ms))

    def tick(self, now_ms: int) -> list[Effect]:
        """Do all that is due; call it at `next_deadline_ms`, more often is harmless."""
        effects = self.routes.tick(now_ms)
        return effects + self._run(self.replica.tick(now_ms))

    def next_deadline_ms(self) -> int:
        """Return when `tick` has work."""
        return min(self.replica.next_deadline_ms(), self.routes.next_deadline_ms)

    def relay(self, node: int, message: Relay) -> list[Effect]:
        """Send a message to the home at another server."""
        return [self.routes.on_its_way(Send(ReplicaId(node, ANY), message))]

    def set_wall_offset(self, offset_ms: int) -> None:
        """Take the wall clock minus the monotonic one, whenever the driver has read them."""
        self.replica.wall_offset_ms = offset_ms

    def propose(self, packs: tuple[bytes, ...], now_ms: int) -> list[Effect]:
        """Order these packs (`Replica.propose`)."""
        return self._run(self.replica.propose(packs, now_ms))

    def stored(self, tail: EntriesStored | VoteStored, now_ms: int) -> list[Effect]:
        """Take a tail that was released: its records are on disk."""
        return self._run(self.replica.stored_back(tail, now_ms))

    def entries_read(
        self, reader: ReplicaId | None, first: int, entries: tuple[Entry, ...], now_ms: int
    ) -> list[Effect]:
        """Take the answer to `Read`."""
        return self._run(self.replica.entries_read(reader, first, entries, now_ms))

    def part_read(
        self,
        to: ReplicaId,
        meta: SnapshotMeta | None,
        seq: int,
        data: bytes,
        last: bool,
        now_ms: int,
    ) -> list[Effect]:
        """Take the answer to `ReadPart`."""
        return self._run(self.replica.part_read(to, meta, seq, data, last, now_ms))

    def installed(self, meta: SnapshotMeta, now_ms: int) -> list[Effect]:
        """Go on behind the snapshot that was installed; the machine was restored from it."""
        self.applied = meta.index
        self._applied_stamp, self._applied_epoch = meta.stamp, meta.epoch
        self._bytes_since_snapshot = 0
        self.replica.deadline_stamp = self.machine.next_deadline()
        return self._run(self.replica.installed(meta, now_ms)) + self._ready_reads()

    def snapshot_stored(self, meta: SnapshotMeta, base_index: int) -> None:
        """The snapshot asked for is on disk, and entries up to `base_index` are gone from it."""
        self._taking_snapshot = False
        if meta.index >= (self.replica.snapshot.index if self.replica.snapshot else 0):
            self.replica.compacted(base_index, meta)

    def count_extra_bytes(self, size: int) -> None:
        """Count bytes that the journal got in addition to the log. They too go when a snapshot lets
        segments go."""
        self._bytes_since_snapshot += size

    def snapshot_failed(self) -> None:
        """Note that there was no room for the snapshot: it is tried again after as much payload as
        before."""
        self._taking_snapshot = False

    def install_failed(self) -> None:
        """Note that there was no room for the snapshot that the leader sends: it begins again."""
        self.replica.following.drop_incoming()

    def read(self, request: int, now_ms: int) -> list[Effect]:
        """Answer with `ReadReady` when the machine reflects all that is committed now."""
        return self._run(self.replica.read(request, now_ms))

    def transfer(self, node: int, now_ms: int, request: int = 0) -> list[Effect]:
        """Hand leadership to another voter (`Replica.transfer`)."""
        return self._run(self.replica.transfer(node, now_ms, request))

    def change(self, member: ClusterMember | int, now_ms: int, request: int = 0) -> list[Effect]:
        """Add or remove a server (`Replica.change`)."""
        return self._run(self.replica.change(member, now_ms, request))

    def gone(self, node: int, now_ms: int) -> list[Effect]:
        """Take note that a server's process has ended, unless other servers hear it."""
        if self.routes.others_hear(node, now_ms):
            return []  # it is the link that refuses, and there is a way around it
        return self._run(self.replica.gone(node, now_ms))

    def impair(self, reason: str, now_ms: int) -> list[Effect]:
        """Stop taking part while the journal cannot be written (`Replica.impair`)."""
        return self._run(self.replica.impair(reason, now_ms))

    # -- Between the log and the machine -------------------------------------------------------

    def _run(self, effects: list[Effect]) -> list[Effect]:
        """Apply all that is delivered in one step as one: the layer above is notified when the
        machine's state is that after the last of these entries."""
        if not effects:
            return effects
        if self.routes.detours:
            for effect in effects:
                if isinstance(effect, Send):
                    effect.assert_free(self.replica.stored)  # the driver cannot look into a `Via`
            effects = self.routes.around(effects)
        out: list[Effect] = []
        entries: list[Entry] = []
        place = 0  # of the output of the last of these
        for effect in effects:
            if isinstance(effect, Deliver):
                entries += effect.entries
                place = len(out)
            elif isinstance(effect, ReadReady) and effect.index > self.applied:
                self._waiting_reads.append((effect.index, effect.request))
            else:
                out.append(effect)
        if entries:
            applied = self._apply(tuple(entries))
            out[place:place] = (applied, *self._ready_reads(), *self._snapshot_if_due())
        return out

    def _apply(self, entries: tuple[Entry, ...]) -> Applied:
        accepted: list[Accepted] = []
        for entry in entries:
            assert entry.index == self.applied + 1
            accepted += self.machine.apply(entry)
            self.applied = entry.index
            self._bytes_since_snapshot += len(entry.payload)
        self._applied_stamp, self._applied_epoch = entries[-1].stamp, entries[-1].epoch
        self.replica.deadline_stamp = self.machine.next_deadline()
        events = self.machine.take_events()
        return Applied(entries, tuple(accepted), self.machine.digest, events)

    def _ready_reads(self) -> list[Effect]:
        if not self._waiting_reads:
            return []
        ready = [read for read in self._waiting_reads if read[0] <= self.applied]
        self._waiting_reads = [read for read in self._waiting_reads if read[0] > self.applied]
        return [ReadReady(request, index) for index, request in ready]

    def _snapshot_if_due(self) -> list[Effect]:
        r = self.replica
        since = self.applied - (r.snapshot.index if r.snapshot else 0)
        due = (
            since >= self._settings.snapshot_every_entries
            or self._bytes_since_snapshot >= self._settings.snapshot_every_bytes
        )
        if not due or self._taking_snapshot or r.installing is not None:
            return []
        self._taking_snapshot = True
        self._bytes_since_snapshot = 0
        membership = r.memberships.at(self.applied)
        meta = SnapshotMeta(self.applied, self._applied_epoch, self._applied_stamp, membership)
        machine = self.machine
        return [TakeSnapshot(meta, machine.snapshot(), machine.live(), machine.parked())]
