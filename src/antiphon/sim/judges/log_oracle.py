"""The oracle of a simulated cluster: the rules that hold at every step, under all faults.

It knows all at once, which no server does: the deliveries of all servers, dead ones too, and the
true contents of the simulated disks. Each check explains its finding.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from crc32c import crc32c

from antiphon.errors import FormatError
from antiphon.formats import journal as f
from antiphon.formats.entry import Entry, ReplicaId, SnapshotMeta
from antiphon.log.effects import Accepted, Applied
from antiphon.log.quorum import majority
from antiphon.sim.violations import ViolationError

if TYPE_CHECKING:
    from antiphon.sim.cluster.server import SimServer


class Committed(NamedTuple):
    """An entry as the first server that delivered it has it."""

    epoch: int
    stamp: int
    kind: int
    checksum: int
    by: ReplicaId


class Held:
    """The entries that one incarnation's disk really holds."""

    def __init__(self, base: int, epochs: dict[int, int], since: str) -> None:
        """`since`: the segment in which the disk goes on; earlier ones have no new entries."""
        self.base = base
        self._since = since
        self._epochs = epochs
        self._last = max(epochs, default=base)
        self._parsed: dict[str, int] = {}

    def has(self, index: int, epoch: int) -> bool:
        return index <= self.base or self._epochs.get(index) == epoch

    def durable(self, name: str, data: bytearray) -> None:
        """Read the batches that are whole now, for bytes of a segment have become durable."""
        if name < self._since:
            return
        at = self._parsed.get(name, f.SEGMENT_SIZE)
        view = bytes(data[at:])
        done = 0
        while done < len(view):
            try:
                batch = f.decode_batch(view, done)
            except FormatError:
                break
            for kind, _, payload in batch.records:
                if kind == f.ENTRY:
                    entry = f.decode_entry(payload)
                    self._put(entry.index, entry.epoch)
            done += batch.size
        self._parsed[name] = at + done

    def _put(self, index: int, epoch: int) -> None:
        for gone in range(index + 1, self._last + 1):
            self._epochs.pop(gone, None)
        self._epochs[index] = epoch
        self._last = index


class Oracle:
    """Judges deliveries and answers of servers against all earlier ones of all servers. Raise
    `ViolationError` at the step that breaks a promise."""

    def __init__(self) -> None:
        self.committed: list[Committed] = []
        self.leaders: dict[int, ReplicaId] = {}
        self.accepted: dict[tuple[int, int], int] = {}  # (session, sequence) -> position
        self.acknowledged: dict[int, int] = {}  # session -> last acknowledged sequence
        self.payloads: dict[int, int] = {}  # position -> checksum of its pack
        self.deliveries = 0
        self._digests: dict[int, tuple[int, ReplicaId]] = {}
        self._snapshots: dict[int, tuple[int, ReplicaId]] = {}
        self._delivered: dict[tuple[int, int], int] = {}  # (server, life) -> last index
        self._reads: dict[int, int] = {}

    # -- Elections -----------------------------------------------------------------------------

    def leads(self, epoch: int, id: ReplicaId) -> None:
        first = self.leaders.setdefault(epoch, id)
        if first != id:
            raise ViolationError(f"one leader an epoch: {first} and {id} both lead epoch {epoch}")

    # -- Deliveries ----------------------------------------------------------------------------

    def started(self, server: SimServer, applied: int) -> None:
        self._delivered[server.number, server.lives] = applied

    def installed(self, server: SimServer, meta: SnapshotMeta) -> None:
        self._delivered[server.number, server.lives] = meta.index
        self._same_digest(server, meta.index, server.machine.digest)

    def delivered(
        self, server: SimServer, applied: Applied, holds: Callable[[ReplicaId, Entry], bool]
    ) -> None:
        life = (server.number, server.lives)
        for entry in applied.entries:
            if entry.index != self._delivered[life] + 1:
                raise ViolationError(
                    f"no gaps: {server.id} delivered {entry.index} after {self._delivered[life]}"
                )
            self._delivered[life] = entry.index
            self.deliveries += 1
            if entry.index <= len(self.committed):
                self._same_entry(server, entry)
            else:
                self._new_entry(server, entry, holds)
        self._same_digest(server, applied.entries[-1].index, applied.digest)

    def _same_entry(self, server: SimServer, entry: Entry) -> None:
        first = self.committed[entry.index - 1]
        mine = (entry.epoch, entry.stamp, entry.kind, crc32c(entry.payload))
        if first[:4] != mine:
            raise ViolationError(
                f"one order: entry {entry.index} was epoch {first.epoch} at {first.by} and is "
                f"epoch {entry.epoch} at {server.id}"
            )

    def _new_entry(
        self, server: SimServer, entry: Entry, holds: Callable[[ReplicaId, Entry], bool]
    ) -> None:
        # The membership by which it was counted: a step that commits does not change it afterwards.
        voters = server.node.replica.memberships.current.voters
        having = [voter for voter in voters if holds(voter, entry)]
        if len(having) < majority(voters):
            raise ViolationError(
                f"uniform: {server.id} delivered entry {entry.index} of epoch {entry.epoch}, held "
                f"only by {[*map(str, having)]} of {[*map(str, voters)]}"
            )
        if self.committed and entry.stamp < self.committed[-1].stamp:
            raise ViolationError(
                f"time never goes back: entry {entry.index} has stamp {entry.stamp} after "
                f"{self.committed[-1].stamp}"
            )
        checksum = crc32c(entry.payload)
        self.committed.append(Committed(entry.epoch, entry.stamp, entry.kind, checksum, server.id))

    def _same_digest(self, server: SimServer, index: int, digest: int) -> None:
        first, by = self._digests.setdefault(index, (digest, server.id))
        if first != digest:
            raise ViolationError(
                f"equal state at equal index: {by} and {server.id} differ at {index}"
            )

    def accept(self, accepted: Accepted, checksum: int) -> None:
        key = (accepted.session, accepted.sequence)
        position = self.accepted.setdefault(key, accepted.position)
        if position != accepted.position:
            raise ViolationError(f"accepted twice: {key} at {position} and at {accepted.position}")
        for position in range(accepted.position, accepted.position + accepted.count):
            self.payloads.setdefault(position, checksum)

    def same_snapshot(self, server: SimServer, meta: SnapshotMeta, checksum: int) -> None:
        first, by = self._snapshots.setdefault(meta.index, (checksum, server.id))
        if first != checksum:
            raise ViolationError(f"snapshots at {meta.index} differ at {by} and {server.id}")

    # -- Clients -------------------------------------------------------------------------------

    def acknowledge(self, session: int, sequence: int) -> None:
        if (session, sequence) not in self.accepted:
            raise ViolationError(f"acknowledged, but nowhere accepted: {session}/{sequence}")
        self.acknowledged[session] = max(self.acknowledged.get(session, 0), sequence)

    def read_begins(self, request: int) -> None:
        self._reads[request] = len(self.committed)

    def read_ends(self, server: SimServer, request: int) -> None:
        must_see = self._reads.pop(request, None)
        if must_see is not None and server.node.applied < must_see:
            raise ViolationError(
                f"stale read: {server.id} answered at {server.node.applied}, but {must_see} "
                f"entries were committed before the question"
            )

    def nothing_lost(self, server: SimServer, needed: Callable[[int], bool]) -> None:
        """Check, at the end, that a server that is up to date has all needed messages."""
        for session, sequence in self.acknowledged.items():
            if server.machine.last_sequence(session) < sequence:
                raise ViolationError(
                    f"lost: {session}/{sequence} was acknowledged, not at {server.id}"
                )
        for first, last in server.machine.live():
            position = first
            while position <= last:
                found = server.journal.pack(position)
                if found is None and not needed(position):
                    position += 1
                    continue
                if found is None or crc32c(found[1]) != self.payloads[position]:
                    raise ViolationError(f"{server.id} does not read back position {position}")
                position = found[0].position + found[0].count
