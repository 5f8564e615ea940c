"""The journal as a state machine against a model, on a disk that loses what it may lose.

The model knows every state that the journal's files have stood for since the last sync. After a
power failure the journal must stand for one of them, after a mere kill for the last.

The state machine on it has packs that are stored by one entry and accepted by a later one, so their
rows point back; some never are.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from random import Random
from typing import NamedTuple

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from antiphon.errors import DiskFullError
from antiphon.formats import pack
from antiphon.formats.entry import (
    ClusterMember,
    Entry,
    Kind,
    Membership,
    ReplicaId,
    SnapshotMeta,
    encode_membership,
)
from antiphon.formats.journal import Promise, encode_entry
from antiphon.journal.disk import RamDisk
from antiphon.journal.journal import Journal, SyncJob
from antiphon.journal.opening import open_journal
from antiphon.log.effects import Accepted, EntriesStored, Tail
from antiphon.log.recovered import Recovered
from antiphon.log.state_machine import PackMachine
from antiphon.sim.cluster.disk import SimDisk, SyncToken

pytestmark = pytest.mark.timeout(180)  # hundreds of runs of fifty steps, on a busy machine

EVERYTHING = 1 << 40
SEGMENT_BYTES = 250
LATE, NOW, NEVER = "late", "now", "never"
DESTINATIONS = ("", LATE, "q1", NOW, LATE, "q2", NOW, NEVER)


class ParkingMachine(PackMachine):
    """What is sent to `LATE` is stored, and accepted with the next pack for `NOW`, which is none
    itself; or dropped with one for `NEVER`."""

    def __init__(self, retain: int | None = None) -> None:
        super().__init__(retain)
        self._parked: dict[int, tuple[str, int]] = {}  # entry -> destination, count

    def _accept(self, entry: Entry) -> list[Accepted]:
        header = pack.read_header(entry.payload)
        if header.destination == LATE:
            self._parked[entry.index] = (header.destination, header.count)
            return []
        if header.destination not in (NOW, NEVER):
            return super()._accept(entry)
        parked, self._parked = self._parked, {}
        visible = parked if header.destination == NOW else {}
        return [self._appear(entry, source, *pack_) for source, pack_ in visible.items()]

    def _appear(self, entry: Entry, source: int, destination: str, count: int) -> Accepted:
        first, self.position = self.position + 1, self.position + count
        return Accepted(entry.index, first, count, entry.stamp, 0, destination, 0, 0, source=source)

    def parked(self) -> tuple[int, ...]:
        return tuple(self._parked)

    def snapshot(self) -> Iterator[bytes]:
        return chain(super().snapshot(), [msgspec.msgpack.encode(list(self._parked.items()))])

    def restore(self, chunks: Iterator[bytes]) -> None:
        *rest, last = chunks
        super().restore(iter(rest))
        kind = list[tuple[int, tuple[str, int]]]
        self._parked = dict(msgspec.msgpack.decode(last, type=kind))


Told = tuple[int, int, int, int, str]  # of a row: index, position, count, stamp, destination


class Files(NamedTuple):
    """What the files stand for: a log from entry 1 on, and a promise."""

    entries: tuple[Entry, ...] = ()
    promise: Promise = Promise(0, None)

    def after(self, records: list[Entry | Promise]) -> Files:
        entries, promise = list(self.entries), self.promise
        for record in records:
            if isinstance(record, Entry):
                del entries[record.index - 1 :]
                entries.append(record)
            else:
                promise = record
        return Files(tuple(entries), promise)


def membership_at(entries: tuple[Entry, ...], index: int) -> Membership:
    """Every membership entry of this test names its own index as the cluster."""
    of = [e.index for e in entries[:index] if e.kind == Kind.MEMBERSHIP]
    return membership(of[-1] if of else 0)


def membership(number: int) -> Membership:
    return Membership(number, (ClusterMember(1, 1, True),) if number else ())


class JournalMachine(RuleBasedStateMachine):
    volatile = False

    def __init__(self) -> None:
        super().__init__()
        self.committed: list[Entry] = []  # never changes any more, here and everywhere
        self.snapshot: SnapshotMeta | None = None
        self.files = [Files()]  # after each write since the last that is known to be on disk
        self.collected: list[Entry | Promise] = []
        self.tails: list[Tail] = []  # not yet released, in order
        self.written_tails = 0
        self.syncing: tuple[SyncJob, SyncToken | None, int, int] | None = None
        self.chore: Iterator[tuple[str, ...]] | None = None
        self.chore_meta: SnapshotMeta | None = None
        self.installing = False
        self.epoch = 1
        self.present = 0  # the entry up to which others had gone when they sent us a snapshot
        self.appended = 0
        self.incarnations = 0

    @initialize(seed=st.integers(0, 1 << 30), retain=st.sampled_from([None, 0, 5]))
    def begin(self, seed: int, retain: int | None) -> None:
        self.disk = RamDisk() if self.volatile else SimDisk(Random(seed))
        self.retain = retain
        self.open()

    def open(self) -> Recovered:
        self.journal, recovered = open_journal(
            self.disk, self.new_incarnation, segment_bytes=SEGMENT_BYTES
        )
        self.machine = ParkingMachine(self.retain)
        if recovered.snapshot is not None:
            self.machine.restore(self.journal.read_snapshot()[1])
        self.applied = recovered.snapshot.index if recovered.snapshot else 0
        return recovered

    def new_incarnation(self) -> int:
        self.incarnations += 1
        return self.incarnations

    @property
    def expected(self) -> Files:
        """With what is collected, but not yet written."""
        return self.files[-1].after(self.collected)

    @property
    def full(self) -> bool:
        return not self.volatile and self.disk.full

    # -- Writing -------------------------------------------------------------------------------

    def collect(self, records: list[Entry | Promise]) -> None:
        self.appended += 1
        tail = EntriesStored(self.appended, 0)
        self.journal.append(tuple(records), (tail,))
        self.collected += records
        self.tails.append(tail)

    def new_entry(self, index: int, draw: int) -> Entry:
        if index <= len(self.committed):
            return self.committed[index - 1]
        stamp = index * 10
        if draw % 8 == 0:
            payload = encode_membership(membership(index))
            return Entry(index, self.epoch, stamp, Kind.MEMBERSHIP, payload)
        destination = DESTINATIONS[draw % 8]
        payload = pack.encode(destination, 1 + draw % 4, bytes([draw % 256]) * (draw % 90))
        return Entry(index, self.epoch, stamp, Kind.PACK, payload)

    @precondition(lambda self: not self.installing)
    @rule(draws=st.lists(st.integers(0, 1000), min_size=1, max_size=5))
    def append(self, draws: list[int]) -> None:
        first = self.next_index()
        self.collect([self.new_entry(first + at, draw) for at, draw in enumerate(draws)])

    def next_index(self) -> int:
        """Behind the log, or where it contradicts what was committed without us."""
        both = zip(self.expected.entries, self.committed, strict=False)
        wrong = [mine.index for mine, theirs in both if mine != theirs]
        return wrong[0] if wrong else len(self.expected.entries) + 1

    @precondition(lambda self: not self.installing)
    @rule(back=st.integers(1, 6), draw=st.integers(0, 1000))
    def replace(self, back: int, draw: int) -> None:
        """A new leader's entry takes the place of a tail that was not committed."""
        self.epoch += 1
        first = min(self.next_index(), max(len(self.committed) + 1, self.next_index() - back))
        self.collect([self.new_entry(first, draw)])

    @rule()
    def promise(self) -> None:
        self.epoch += 1
        self.collect([Promise(self.epoch, ReplicaId(1 + self.epoch % 3, 1))])

    @rule()
    def flush(self) -> None:
        try:
            self.journal.flush()
        except DiskFullError:
            assert self.full
            return
        if not self.installing:
            self.was_flushed()

    def was_flushed(self) -> None:
        self.files.append(self.expected)
        self.collected = []
        self.written_tails = len(self.tails)

    @precondition(lambda self: self.syncing is None)
    @rule()
    def begin_sync(self) -> None:
        job = self.journal.begin_sync()
        if job is not None:
            token = None if self.volatile else self.disk.begin_sync(job.names)
            self.syncing = (job, token, len(self.files) - 1, self.written_tails)

    @precondition(lambda self: self.syncing is not None)
    @rule()
    def end_sync(self) -> None:
        job, token, sure, tails = self.syncing
        self.syncing = None
        if token is not None:
            self.disk.finish_sync(token)
        del self.files[:sure]
        try:
            released = self.journal.end_sync(job)
        except DiskFullError:
            assert self.full
            return
        assert released == self.tails[:tails], "those written before the sync began, and no others"
        del self.tails[: len(released)]
        self.written_tails -= len(released)

    @rule()
    def sync_note(self) -> None:
        for name in self.journal.begin_note_sync():
            self.disk.sync(name)

    @rule(full=st.booleans())
    def change_room(self, full: bool) -> None:
        if not self.volatile:
            self.disk.full = full

    # -- Applying, snapshots -------------------------------------------------------------------

    @precondition(lambda self: not self.installing)
    @rule(count=st.integers(1, 5))
    def apply(self, count: int) -> None:
        """Entries are committed (elsewhere, too), and applied here. A server has written them
        before, unless its disk is full."""
        self.flush()
        upto = min(self.applied + count, self.next_index() - 1)
        entries = self.expected.entries[self.applied : upto]
        accepted: list[Accepted] = []
        for entry in entries:
            if entry.index > len(self.committed):
                self.committed.append(entry)
            assert entry == self.committed[entry.index - 1]
            accepted += self.machine.apply(entry)
        self.applied += len(entries)
        try:
            self.journal.index(tuple(accepted))
        except DiskFullError:
            assert self.full

    @precondition(lambda self: self.chore is None)
    @rule()
    def begin_snapshot(self) -> None:
        self.flush()
        if self.applied > (self.snapshot.index if self.snapshot else 0):
            last = self.committed[self.applied - 1]
            members = membership_at(tuple(self.committed), self.applied)
            meta = SnapshotMeta(self.applied, last.epoch, last.stamp, members)
            try:
                self.chore = self.journal.store_snapshot(
                    meta, self.machine.snapshot(), self.machine.live(), self.machine.parked()
                )
                self.chore_meta = meta
            except DiskFullError:
                assert self.full or self.collected

    @precondition(lambda self: self.chore is None)
    @rule(draws=st.lists(st.integers(0, 1000), min_size=1, max_size=8))
    def go_on(self, draws: list[int]) -> None:
        """What mostly happens, all at once: entries come, are applied, and a snapshot is stored."""
        self.append(draws)
        self.apply(len(draws))
        self.begin_snapshot()
        if self.chore is not None:
            self.work(EVERYTHING)

    @precondition(lambda self: self.chore is None and self.syncing is None)
    @rule(draws=st.lists(st.integers(0, 1000), min_size=1, max_size=8), more=st.integers(0, 4))
    def begin_install(self, draws: list[int], more: int) -> None:
        """Another server has gone on without us, and sends its snapshot, from which it has itself
        gone on by some entries `more`."""
        self.epoch += 1
        self.committed += [
            self.new_entry(len(self.committed) + 1 + at, draw) for at, draw in enumerate(draws)
        ]
        upto = max(self.applied + 1, len(self.committed) - more)
        donor, live, parked = donor_of(self.committed, upto, self.retain)
        self.present = len(self.committed)
        seq, last = 0, False
        try:
            while not last:
                meta, data, last = donor.part("us", seq, live, parked)
                assert meta is not None
                self.journal.receive_part(meta, seq, data)
                seq += 1
        except DiskFullError:
            assert self.full
            return
        self.chore, self.chore_meta = self.journal.install(meta), meta
        self.installing = True
        self.work(1)

    @precondition(lambda self: self.chore is not None)
    @rule(steps=st.integers(1, 9))
    def work(self, steps: int) -> None:
        for _ in range(steps):
            try:
                names = next(self.chore, None)
            except DiskFullError:
                assert self.full
                self.chore = self.chore_meta = None
                self.installing = False
                return
            if names is None:
                self.finish_chore()
                return
            for name in names:
                self.disk.sync(name)

    def finish_chore(self) -> None:
        self.chore, self.snapshot, self.chore_meta = None, self.chore_meta, None
        assert self.snapshot is not None
        assert self.journal.base_index <= self.snapshot.index
        if self.installing:
            promise = self.journal.promise  # the newest when it was written; others still wait
            assert promise in [self.files[-1].promise, *self.collected]
            assert self.journal.base_index == self.journal.last == self.snapshot.index
            self.files = [Files(tuple(self.committed[: self.snapshot.index]), promise)]
            self.collected = [r for r in self.collected if isinstance(r, Promise)]
            self.machine = ParkingMachine(self.retain)
            self.machine.restore(self.journal.read_snapshot()[1])
            self.applied = self.snapshot.index
            self.installing = False

    # -- Dying ---------------------------------------------------------------------------------

    @rule()
    def kill(self) -> None:
        """The process dies; what it wrote stays with the operating system."""
        self.reopen([self.files[-1]])

    @precondition(lambda self: not self.volatile)
    @rule()
    def power_failure(self) -> None:
        self.disk.power_failure()
        self.reopen(self.files)

    def reopen(self, possible: list[Files]) -> None:
        if self.full:
            self.disk.full = False
        recovered = self.open()
        assert recovered.damage == ""
        snapshots = [self.snapshot, self.chore_meta]
        assert recovered.snapshot in snapshots
        if self.installing and recovered.snapshot == self.chore_meta:
            # With it went the newest promise there was when it was written.
            promises = [r for r in self.collected if isinstance(r, Promise)]
            promises += [files.promise for files in possible]
            installed = tuple(self.committed[: self.chore_meta.index])
            possible = [Files(installed, promise) for promise in promises]
        self.snapshot = recovered.snapshot
        found = Files(
            (
                *self.committed[: self.journal.base_index],
                *self.journal.entries(self.journal.base_index + 1, EVERYTHING),
            ),
            recovered.promise,
        )
        assert found in possible
        self.check_recovered(recovered, found)
        self.files = [found]
        self.collected, self.tails, self.written_tails = [], [], 0
        self.syncing = self.chore = self.chore_meta = None
        self.installing = False

    def check_recovered(self, recovered: Recovered, found: Files) -> None:
        entries, base = found.entries, self.journal.base_index
        assert (recovered.base_index, recovered.last) == (base, len(entries))
        assert recovered.base_epoch == (self.committed[base - 1].epoch if base else 0)
        epochs = {
            index: [epoch for first, epoch in recovered.runs if first <= index][-1]
            for index in range(base + 1, len(entries) + 1)
        }
        assert epochs == {e.index: e.epoch for e in entries[base:]}
        start = recovered.snapshot.index if recovered.snapshot else 0
        history = [(start, recovered.snapshot.membership)] if recovered.snapshot else []
        later = [e.index for e in entries[start:] if e.kind == Kind.MEMBERSHIP]
        assert list(recovered.memberships) == [*history, *((i, membership(i)) for i in later)]
        assert recovered.last_stamp >= max((e.stamp for e in entries), default=0)

    # -- Reading -------------------------------------------------------------------------------

    @rule(first=st.integers(1, 40), max_bytes=st.integers(1, 400))
    def read_entries(self, first: int, max_bytes: int) -> None:
        entries = self.files[-1].entries
        found = self.journal.entries(first, max_bytes)
        if not self.journal.base_index < first <= len(entries):
            assert found == ()
            return
        assert found == entries[first - 1 : first - 1 + len(found)]
        room = max_bytes - sum(len(e.payload) + 1 for e in found)
        assert room >= 0 or len(found) == 1
        if room > 0 and found[-1].index < len(entries):
            assert len(encode_entry(entries[found[-1].index])) > room

    @invariant()
    def every_live_position_can_be_read(self) -> None:
        if not hasattr(self, "journal"):
            return
        all_rows = self.rows_of_all()
        rows = self.journal.rows(1, EVERYTHING)
        told = [(r.index, r.position, r.count, r.stamp, r.destination) for r in rows]
        self.check_that_only_old_ones_are_gone(all_rows, told)
        for row in rows:
            source = all_rows[row.index, row.position, row.count, row.stamp, row.destination]
            found = self.journal.pack(row.position + row.count - 1)
            assert found == (row, self.committed[source - 1].payload)

    def check_that_only_old_ones_are_gone(
        self, all_rows: dict[Told, int], told: list[Told]
    ) -> None:
        """Whole segments go, the oldest first, and with them the packs of later rows that are not
        live. What is left is the rest, without any other gap."""
        left = set(told)
        gone = [row for row in all_rows if row not in left]
        assert [row for row in all_rows if row in left] == told
        if self.applied < self.present:
            return  # what is live now was not any more for those who sent us their snapshot
        first = told[0][1] if told else EVERYTHING
        assert all(row[1] < first or all_rows[row] != row[0] for row in gone)
        for first, last in self.machine.live():
            assert not [row for row in gone if row[1] <= last and row[1] + row[2] > first]

    def rows_of_all(self) -> dict[Told, int]:
        """What was applied here and is written, with the entry that has the pack: with a full disk
        entries can only be collected."""
        machine = ParkingMachine()
        rows: dict[Told, int] = {}
        unwritten = [r.index for r in self.collected if isinstance(r, Entry)]
        written = min([self.journal.last, *(index - 1 for index in unwritten)])
        for entry in self.committed[: min(self.applied, written)]:
            for a in machine.apply(entry):
                row = (a.index, a.position, a.count, a.stamp, a.destination)
                rows[row] = a.source or a.index
        return rows


def donor_of(
    entries: list[Entry], upto: int, retain: int | None
) -> tuple[Journal, tuple[tuple[int, int], ...], tuple[int, ...]]:
    """Another server's journal with a snapshot at entry `upto` of these; what is live and what is
    parked there after all of them."""
    disk = RamDisk()
    journal, _ = open_journal(disk, lambda: 99, segment_bytes=SEGMENT_BYTES)
    machine = ParkingMachine(retain)
    for entry in entries:
        journal.append((entry,), ())
        journal.flush()
        journal.index(tuple(machine.apply(entry)))
        if entry.index == upto:
            members = membership_at(tuple(entries), entry.index)
            meta = SnapshotMeta(entry.index, entry.epoch, entry.stamp, members)
            state = machine.snapshot()
            for _ in journal.store_snapshot(meta, state, machine.live(), machine.parked()):
                pass
    return journal, machine.live(), machine.parked()


class InMemory(JournalMachine):
    volatile = True


TestJournal = JournalMachine.TestCase
TestJournal.settings = settings(max_examples=300, stateful_step_count=50, derandomize=True)
TestInMemory = InMemory.TestCase
TestInMemory.settings = settings(max_examples=60, stateful_step_count=50, derandomize=True)
