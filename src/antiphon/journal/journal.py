"""The journal: the log on disk, and the message store.

Promises: what `end_sync` released is there after any crash; what a crash tears off was never
released; a changed byte is noticed, and never taken for the end. Entries are read by index for
servers that lag, and packs by position for readers. Formats: `formats/journal.py`. How a journal is
read back: `opening.py`; how damage is told from a torn tail: `recovery.py`, and
`reached.py` for what is missing at the end. This module does no IO by itself: a `Disk` is
passed in.

A driver calls `append` (collect), `flush` (one write), `begin_sync`, the disk's `sync` for each
name of the job (wherever it likes, also in a thread), then `end_sync`, which returns the tails that
may leave now. Longer work (`store_snapshot`, `install`) is a generator that yields names to sync,
so that the driver can do other things in between.
"""

from __future__ import annotations

import logging
from array import array
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import suppress
from itertools import chain, islice, pairwise
from typing import NamedTuple, cast

import msgspec

from antiphon.errors import DiskFullError, FormatError, JournalDamagedError
from antiphon.formats import journal as f
from antiphon.formats.entry import (
    Entry,
    SnapshotMeta,
)
from antiphon.formats.frames import LARGE_FRAME
from antiphon.formats.journal import MANIFEST, index_name, segment_name, snapshot_name
from antiphon.formats.protocol import LogSlice
from antiphon.formats.segment_index import SegmentIndex
from antiphon.journal import recovery
from antiphon.journal.disk import DIRECTORY, Disk
from antiphon.journal.reached import ReachedFile
from antiphon.journal.transfer import (
    INCOMING,
    Incoming,
    PartReader,
    Spans,
    drop_incoming,
    is_live,
    write_snapshot,
)
from antiphon.log.effects import Accepted, Tail

logger = logging.getLogger("antiphon.journal.journal")

SEGMENT_BYTES = 64 << 20
CACHED_SEGMENTS = 2
"""The newest: who is further behind waits for the disk. If all stayed in the system's memory, a
flood would pay for every fresh page of it, which costs more than to write it."""

CACHE_BYTES = 32 << 20
"""Of packs that were accepted or read last; the very last one may be larger."""

OWN_SNAPSHOT = "own.snap"
_OFFSET_BITS = 40
_OFFSET_MASK = (1 << _OFFSET_BITS) - 1


Record = Entry | f.Promise | f.Local


def parts_of(record: Record) -> tuple[bytes, ...]:
    """As it is written."""
    if isinstance(record, Entry):
        return f.entry_parts(record)
    return (f.encode_promise(record) if isinstance(record, f.Promise) else f.encode_local(record),)


class Segment:
    """One file of the log and its index."""

    def __init__(self, number: int, base: int, size: int) -> None:
        self.number = number
        self.base = base  # the offset of its first byte
        self.size = size
        self.last_index = 0  # greatest index of an entry in it
        self.index = SegmentIndex()


class SyncJob(NamedTuple):
    names: tuple[str, ...]
    upto: int
    segment: int  # the newest
    base: int  # of that one
    last: int  # entry of the log


class Journal:
    """Opened by `journal_opening.open_journal`."""

    def __init__(self, disk: Disk, manifest: f.Manifest, segment_bytes: int) -> None:
        self._disk = disk
        self._manifest = manifest
        self._segment_bytes = segment_bytes
        self._opening = 1  # how often this journal was opened
        self._segments: list[Segment] = []
        self._where = array("Q")  # of the entries after the base: segment and place in it
        # Entries before the base that are here, for their packs may be accepted by later ones:
        # segment and place in it.
        self._parked: dict[int, tuple[int, int]] = {}
        self._promise = f.Promise(0, None)
        self.local: Callable[[], tuple[f.Local, ...]] = tuple
        """What this server alone knows now, the first of them `whole`; to be set by its owner."""

        self.found_local: list[bytes] = []  # by the opening, of former lives
        self._pending: list[Record] = []
        self._pending_tails: list[Tail] = []
        self._unplaced: list[Accepted] = []  # rows of entries that wait for room on the disk
        self._unsynced_tails: list[tuple[int, tuple[Tail, ...]]] = []
        self._dirty: dict[str, None] = {}  # names to sync; a dict keeps their order
        self._checkpointed: dict[str, None] = {}  # indexes to sync before a snapshot counts
        self._synced = 0
        self._reached = ReachedFile(disk)
        self._held = False  # an installation is changing files: writes wait
        self._cache: OrderedDict[int, bytes] = OrderedDict()
        self._cache_bytes = 0
        self._readers: dict[Hashable, PartReader] = {}
        self._incoming: Incoming | None = None

    # -- Writing -------------------------------------------------------------------------------

    def append(self, records: tuple[Record, ...], then: tuple[Tail, ...]) -> None:
        """Collect records for the next write. `then` is released when they, and all before them,
        are on disk."""
        self._pending += records
        self._pending_tails += then

    @property
    def awaited(self) -> bool:
        """Something that was collected is to be on disk before something else may happen."""
        return bool(self._pending_tails)

    def flush(self) -> None:
        """Write what was collected as one batch. Raises `DiskFullError`: then everything is still
        collected, nothing was released, and a later `flush` tries again."""
        if self._held or not (self._pending or self._pending_tails):
            return
        if self._pending:
            self._write_batch(self._pending)
            self._pending = []
            unplaced, self._unplaced = self._unplaced, []
            self.index(tuple(unplaced))
        if self._pending_tails or not self._disk.volatile:
            self._unsynced_tails.append((self._end, tuple(self._pending_tails)))
            self._pending_tails = []
        else:
            self._dirty = {}  # nobody waits for it to be synced, and there is nothing to sync

    def begin_sync(self) -> SyncJob | None:
        """What must be synced so that tails can leave; None: none is waiting."""
        if not self._unsynced_tails or self._held:
            return None
        names, self._dirty = tuple(self._dirty), {}
        newest = self._segments[-1]
        return SyncJob(names, self._end, newest.number, newest.base, self.last)

    def end_sync(self, job: SyncJob) -> list[Tail]:
        """The names of the job are synced: note it, and only then let go of what waited for it.
        Raises `DiskFullError`: then nothing was released, and a later sync tries again."""
        if job.upto > self._synced:
            self._reached.note(self._opening, job.segment, job.base, job.upto, job.last)
            self._synced = job.upto
        released: list[Tail] = []
        while self._unsynced_tails and self._unsynced_tails[0][0] <= job.upto:
            released += self._unsynced_tails.pop(0)[1]
        return released

    def begin_note_sync(self) -> tuple[str, ...]:
        """The names to sync so that the note of what is synced is, too; none if it is. To be asked
        for now and then (`NOTE_SYNC_S`): only a power failure can take the note back."""
        return self._reached.begin_sync()

    def note_all(self) -> None:
        """Everything is synced."""
        newest = self._segments[-1]
        self._reached.note(self._opening, newest.number, newest.base, self._end, self.last)
        self._synced = self._end

    @property
    def unsynced(self) -> bool:
        return bool(self._unsynced_tails)

    @property
    def _end(self) -> int:
        return self._segments[-1].base + self._segments[-1].size

    def _write_batch(self, records: Sequence[Record]) -> None:
        segment = self._segments[-1]
        if segment.size >= self._segment_bytes:
            segment = self._start_segment(self._end)
        if segment.size == f.SEGMENT_SIZE:
            # An old segment may go, the promise and what only this server knows may not.
            records = [self._promise, *self.local(), *records]
        encoded = [parts_of(record) for record in records]
        sizes = [sum(map(len, parts)) for parts in encoded]
        offset = segment.base + segment.size
        head = f.encode_batch_head(sum(sizes), len(records), offset, self._synced)
        name = segment_name(segment.number)
        self._disk.write(name, segment.size, head, *chain.from_iterable(encoded))
        at = segment.size + len(head)
        for record, size in zip(records, sizes, strict=True):
            self._note(record, segment, at)
            at += size
        segment.size = at
        self._dirty[name] = None

    def _start_segment(self, base: int) -> Segment:
        number = self._segments[-1].number + 1 if self._segments else self._manifest.first_segment
        self._remove_segment(number)  # what an abandoned installation may have left
        header = f.encode_segment_header(number, base, self._opening)
        self._disk.write(segment_name(number), 0, header)
        segment = Segment(number, base, len(header))
        self._segments.append(segment)
        if len(self._segments) > CACHED_SEGMENTS:
            self._disk.evict(segment_name(self._segments[-1 - CACHED_SEGMENTS].number))
        self._dirty[segment_name(number)] = None
        self._dirty[DIRECTORY] = None
        return segment

    def _note(self, record: Record, segment: Segment, at: int) -> None:
        """Remember where a record stands."""
        if isinstance(record, f.Promise):
            self._promise = record
        if not isinstance(record, Entry):
            return
        place = record.index - self._manifest.base_index - 1
        assert 0 <= place <= len(self._where), f"entry {record.index} leaves a gap"
        del self._where[place:]  # an entry replaces what was there and after it
        self._where.append(segment.number << _OFFSET_BITS | at)
        segment.last_index = max(segment.last_index, record.index)

    # -- Reading -------------------------------------------------------------------------------

    @property
    def last(self) -> int:
        return self._manifest.base_index + len(self._where)

    def entries(self, first: int, max_bytes: int) -> tuple[Entry, ...]:
        """Entries from `first` on, at least one if it is there; raises `JournalDamagedError`."""
        found: list[Entry] = []
        size = 0
        for index in range(max(first, self._manifest.base_index + 1), self.last + 1):
            if index == first or found:
                where = self._where[index - self._manifest.base_index - 1]
                found.append(self._entry(where >> _OFFSET_BITS, where & _OFFSET_MASK))
                size += len(found[-1].payload) + 1
            if size >= max_bytes or not found:
                break
        return tuple(found)

    def pack(self, position: int) -> tuple[f.Row, bytes] | None:
        """The pack that holds this position; None: nobody accepted it, or it is gone."""
        for segment in reversed(self._segments):
            row = segment.index.find(position)
            if row is not None:
                return (row, self._payload(segment, row)) if self._has_pack(row) else None
        return None

    def rows(self, first: int, most: int) -> list[f.Row]:
        """Rows of the index from position `first` on."""
        found: list[f.Row] = []
        for segment in self._segments:
            if segment.index.last_position >= first and len(found) < most:
                rows = filter(self._has_pack, segment.index.rows_from(first))
                found += islice(rows, most - len(found))
        return found

    def rows_for(self, pattern: str, first: int, most: int) -> list[f.Row]:
        """The same of those destinations only that match (`model/destinations.py`)."""
        found: list[f.Row] = []
        for segment in self._segments:
            if segment.index.last_position >= first and len(found) < most:
                rows = filter(self._has_pack, segment.index.rows_for(pattern, first))
                found += islice(rows, most - len(found))
        return found

    def whole_from(self, upto: int) -> int:
        """The first position from which on every pack is here, up to the one that was accepted
        last."""
        whole = upto + 1
        for segment in reversed(self._segments):
            index = segment.index
            if not len(index):
                continue
            if index.last_position < whole - 1:
                break  # others were between this segment and the next
            whole = index.whole_from(self._manifest, self._parked)
            if whole > index.first_position:
                break
        return whole

    def position_at(self, stamp: int) -> int | None:
        """The first one here that was accepted then or later; None: all were before."""
        found = (segment.index.since(stamp) for segment in self._segments)
        return next((position for position in found if position is not None), None)

    def slices(
        self, matches: Callable[[str], bool], first: int, last: int, most: int, rows: int
    ) -> tuple[list[LogSlice], int]:
        """Where messages are whose destinations match (`SegmentIndex.slices`), and where to go on:
        looks at so many rows, of one segment."""
        for segment in self._segments:
            if len(segment.index) and segment.index.last_position >= first:
                found, following = segment.index.slices(matches, first, last, most, rows)
                if following > first:
                    return found, following
        return [], last + 1

    def payload(self, row: f.Row) -> bytes:
        """The pack of a row, for who reads much and once: it is not kept in memory for that."""
        if (payload := self._cache.get(row.position)) is not None:
            return payload
        holders = (s for s in reversed(self._segments) if len(s.index))
        segment = next(s for s in holders if s.index.first_position <= row.position)
        return self._entry_of(segment, row).payload

    @property
    def rows_wait(self) -> bool:
        """Some that were accepted are not in the index yet, for want of room on the disk."""
        return bool(self._unplaced)

    def remember(self, position: int, payload: bytes) -> None:
        """A pack that was just accepted, and will probably be read soon."""
        if position not in self._cache:
            self._cache[position] = payload
            self._cache_bytes += len(payload)
            self._bound_cache()

    def fresh(self, position: int) -> bytes | None:
        """The pack that begins there, if it is remembered."""
        return self._cache.get(position)

    def counts(self) -> dict[str, int]:
        return {
            "segments": len(self._segments),
            "bytes": sum(segment.size for segment in self._segments),
            "packs": sum(len(segment.index) for segment in self._segments),
            "cached_bytes": self._cache_bytes,
            "unsynced": len(self._unsynced_tails),
        }

    def _payload(self, segment: Segment, row: f.Row) -> bytes:
        payload = self._cache.get(row.position)
        if payload is None:
            payload = self._entry_of(segment, row).payload
            self._cache_bytes += len(payload)
        self._cache[row.position] = payload
        self._cache.move_to_end(row.position)
        self._bound_cache()
        return payload

    def _entry_of(self, segment: Segment, row: f.Row) -> Entry:
        """The one that has the pack of this row, which is in this segment's index."""
        place = self._place_of(row.source) if row.source else (segment.number, row.offset)
        assert place is not None, f"the pack of {row} is gone"
        return self._entry(*place)

    def _has_pack(self, row: f.Row) -> bool:
        """False: it was in an earlier entry, and went with that when it was not live any more."""
        return not row.source or self._place_of(row.source) is not None

    def _place_of(self, index: int) -> tuple[int, int] | None:
        """Segment and place in it of an entry; None: it is gone."""
        if index <= self._manifest.base_index:
            return self._parked.get(index)
        where = self._where[index - self._manifest.base_index - 1]
        return where >> _OFFSET_BITS, where & _OFFSET_MASK

    def _bound_cache(self) -> None:
        while self._cache_bytes > CACHE_BYTES and len(self._cache) > 1:
            self._cache_bytes -= len(self._cache.popitem(last=False)[1])

    def _entry(self, number: int, at: int) -> Entry:
        name = segment_name(number)
        head = self._disk.read(name, at, f.ENTRY_SIZE)
        try:
            length = f.record_length(head)
            if length > LARGE_FRAME:  # is read again rather than copied
                data = cast(bytes, memoryview(self._disk.read(name, at, length)))
            else:
                data = head + self._disk.read(name, at + f.ENTRY_SIZE, length - len(head))
            return f.decode_entry(f.decode_record(data, 0)[1])
        except FormatError as error:
            raise JournalDamagedError(name, at, str(error)) from None

    # -- The index of accepted packs -----------------------------------------------------------

    def index(self, accepted: tuple[Accepted, ...]) -> None:
        """Add rows for packs that were just accepted. They are not synced: until the next snapshot
        they can be made again from the log."""
        touched: dict[int, Segment] = {}
        collected = (r.index for r in self._pending if isinstance(r, Entry))
        written_to = min(collected, default=self.last + 1) - 1
        for a in accepted:
            if a.index > written_to:
                self._unplaced.append(a)  # its entry is collected, but not written yet
                continue
            if a.source and self._place_of(a.source) is None:
                continue  # nobody needed it when this server was brought up to date
            segment, at = self._place(a.index)
            segment.index.add(
                f.Row(a.index, a.position, a.count, at, a.stamp, a.view, a.destination, a.source)
            )
            touched[segment.number] = segment
        for segment in touched.values():
            self._write_rows(segment)

    def _place(self, index: int) -> tuple[Segment, int]:
        where = self._where[index - self._manifest.base_index - 1]
        # By number, not by place: a segment that recovery found empty is not in the list.
        at = bisect_left(self._segments, where >> _OFFSET_BITS, key=lambda s: s.number)
        return self._segments[at], where & _OFFSET_MASK

    def _write_rows(self, segment: Segment) -> None:
        index = segment.index
        data = b"".join(index.unwritten)
        self._disk.write(index_name(segment.number), index.file_size, data)
        index.file_size += len(data)
        index.unwritten = []

    def _checkpoint(self, segment: Segment, meta: SnapshotMeta) -> None:
        """Note in a segment's index that it is complete up to the snapshot."""
        row = f.Row(meta.index, segment.index.last_position, 0, 0, meta.stamp, 0, "")
        segment.index.unwritten.append(f.encode_row(row))
        self._write_rows(segment)
        segment.index.complete_to = meta.index

    # -- Snapshots of the state machine --------------------------------------------------------

    def store_snapshot(
        self,
        meta: SnapshotMeta,
        chunks: Iterator[bytes],
        live: Spans,
        parked: tuple[int, ...] = (),
    ) -> Iterator[tuple[str, ...]]:
        """Store a snapshot, then let go of the segments that it makes superfluous. `parked`: the
        entries whose packs are not accepted yet, and are needed too. Yields names to sync. A crash
        at any point leaves the old snapshot or the new one. Raises `DiskFullError`, and then the
        old one stays. To be called before later entries are indexed."""
        self.flush()  # whatever the snapshot stands for is written, and its rows are known
        if self._pending or self._unplaced:
            raise DiskFullError("the journal has no room for the entries below this snapshot")
        due = [s for s in self._segments if s.index.complete_to < min(meta.index, s.last_index)]
        for segment in due:
            # At once, so that no row of a later entry stands before the checkpoint: it may be
            # made again after a restart, and point elsewhere.
            self._checkpoint(segment, meta)
            self._checkpointed[index_name(segment.number)] = None
        return self._store_snapshot(meta, chunks, live, parked)

    def _store_snapshot(
        self,
        meta: SnapshotMeta,
        chunks: Iterator[bytes],
        live: Spans,
        parked: tuple[int, ...],
    ) -> Iterator[tuple[str, ...]]:
        # The index, and the packs it points to, are on disk before the snapshot stands for them:
        # what a majority holds may be committed while our own copy is still unsynced.
        rows, self._checkpointed = tuple(self._checkpointed), {}
        unsynced = [s for s in self._segments if s.base + s.size > self._synced]
        yield (*rows, *(segment_name(s.number) for s in unsynced), DIRECTORY)
        for _ in write_snapshot(self._disk, OWN_SNAPSHOT, meta, chunks):
            yield ()
        yield (OWN_SNAPSHOT,)
        self._disk.rename(OWN_SNAPSHOT, snapshot_name(meta.index))
        yield (DIRECTORY,)
        base_index, base_epoch, first = self._retained(meta, live, parked)
        yield from self._replace_manifest(
            msgspec.structs.replace(
                self._manifest,
                first_segment=first,
                base_index=base_index,
                base_epoch=base_epoch,
                snapshot=meta.index,
                lost=False,
            )
        )
        while self._segments[0].number < first:
            self._remove_segment(self._segments.pop(0).number)
        self._parked = {i: place for i, place in self._parked.items() if place[0] >= first}
        self._remove_old_snapshots()

    def _retained(
        self, meta: SnapshotMeta, live: Spans, parked: tuple[int, ...]
    ) -> tuple[int, int, int]:
        """The log's new base and the first segment to keep: whole segments go, from the oldest on,
        while the snapshot is past them, they hold nothing live, and the promise, and what only this
        server knows, are on disk in the segment after them."""
        gone = 0
        sources = (*parked, *(row.source for row in self._late_rows(live)))
        holders = {place[0] for place in map(self._place_of, sources) if place is not None}
        for segment, following in pairwise(self._segments):
            if self._synced <= following.base + f.SEGMENT_SIZE and not self._disk.volatile:
                break
            passed = segment.last_index <= meta.index and segment.number not in holders
            if not passed or any(segment.index.touches(*span) for span in live):
                break
            gone += 1
        first = self._segments[gone].number
        # Entries ascend over the segments, so the greatest index that goes is the new base.
        base_index = max(
            [self._manifest.base_index, *(s.last_index for s in self._segments[:gone])]
        )
        if base_index == self._manifest.base_index:
            return base_index, self._manifest.base_epoch, first
        if base_index == meta.index:
            return base_index, meta.epoch, first
        return base_index, self.entries(base_index, 1)[0].epoch, first

    def _late_rows(self, live: Spans) -> Iterator[f.Row]:
        """Live ones whose packs are in earlier entries."""
        for segment in self._segments:
            yield from (row for row in segment.index.late_rows() if is_live(row, live))

    def _replace_manifest(self, manifest: f.Manifest) -> Iterator[tuple[str, ...]]:
        self._disk.write(MANIFEST + ".new", 0, f.encode_manifest(manifest))
        yield (MANIFEST + ".new",)
        self._disk.rename(MANIFEST + ".new", MANIFEST)
        yield (DIRECTORY,)
        gone = manifest.base_index - self._manifest.base_index
        self._park(gone, manifest.first_segment)
        self._manifest = manifest
        del self._where[:gone]

    def _park(self, gone: int, first_segment: int) -> None:
        """Of the first `gone` entries, which the base is moved past, remember those that stay: they
        took the place of entries that an older segment had."""
        stays = bisect_left(self._where, first_segment << _OFFSET_BITS, hi=gone)
        for at in range(stays, gone):
            where = self._where[at]
            index = self._manifest.base_index + 1 + at
            self._parked[index] = (where >> _OFFSET_BITS, where & _OFFSET_MASK)

    def _remove_old_snapshots(self) -> None:
        used = {reader.meta.index for reader in self._readers.values()}
        keep = {snapshot_name(index) for index in (self._manifest.snapshot, *used)}
        for name in self._disk.names():
            if name.startswith("snap-") and name not in keep:
                self._disk.remove(name)

    def _remove_segment(self, number: int) -> None:
        for name in (segment_name(number), index_name(number)):
            self._dirty.pop(name, None)
            self._checkpointed.pop(name, None)
            if name in self._disk.names():
                self._disk.remove(name)

    @property
    def base_index(self) -> int:
        return self._manifest.base_index

    @property
    def opening(self) -> int:
        """How often this journal was opened, by this incarnation."""
        return self._opening

    def read_snapshot(self) -> tuple[SnapshotMeta, Iterator[bytes]]:
        """The newest snapshot and its chunks; raises `JournalDamagedError`."""
        return recovery.read_snapshot(self._disk, self._manifest.snapshot)

    # -- Snapshots for other servers -----------------------------------------------------------

    def part(
        self, to: Hashable, seq: int, live: Spans, parked: tuple[int, ...] = ()
    ) -> tuple[SnapshotMeta | None, bytes, bool]:
        """Part `seq` of the newest snapshot and the live packs below it: header, data, whether it
        is the last. Part 0 begins anew; after that, the last part and the next one can be had."""
        reader = self._readers.get(to)
        newest = self._manifest.snapshot
        if seq == 0 and newest and (reader is None or not reader.repeats(newest)):
            reader = self._readers[to] = PartReader(self, live, parked)
        answer = reader.part(seq) if reader is not None else None
        if answer is None:
            self._readers.pop(to, None)
            return None, b"", False
        return answer

    def live_pairs(
        self, upto: int, live: Spans, parked: tuple[int, ...] = ()
    ) -> Iterator[tuple[f.Row, Entry]]:
        """Live packs up to the entry `upto`, each with its row; those that are not accepted yet, or
        were by later entries, with a row that has only the source."""
        later = (row.source for row in self._late_rows(live) if row.index > upto)
        for index in sorted({i for i in (*parked, *later) if i <= upto}):
            if (place := self._place_of(index)) is not None:
                yield f.Row(index, 0, 0, 0, 0, 0, "", index), self._entry(*place)
        for segment in list(self._segments):
            for at in range(len(segment.index)):
                row = segment.index.row(at)
                if segment.number < self._manifest.first_segment:
                    break  # no longer live, and gone, since this began
                if row.index <= upto and is_live(row, live) and self._has_pack(row):
                    yield row, self._entry_of(segment, row)

    def receive_part(self, meta: SnapshotMeta, seq: int, data: bytes) -> None:
        """Keep a part that another server's journal has made."""
        if seq == 0:
            self._incoming = Incoming(self._disk, meta)
        assert self._incoming is not None
        assert self._incoming.meta == meta
        self._incoming.take(data)

    def install(self, meta: SnapshotMeta) -> Iterator[tuple[str, ...]]:
        """Make the received snapshot the base: live packs in new segments, the log empty behind
        it. Nothing counts until the manifest is replaced; then all of it does. Yields names to
        sync; raises `DiskFullError`, and then everything is as before."""
        incoming, self._incoming = self._incoming, None
        assert incoming is not None
        assert incoming.meta == meta
        self._held = True
        fresh = Journal(self._disk, self._manifest, self._segment_bytes)
        try:
            incoming.finish()
            yield (INCOMING,)
            yield from fresh._build(self, incoming)
            self._disk.rename(INCOMING, snapshot_name(meta.index))
            yield (DIRECTORY,)
            # The vote that was collected last goes along, and what only this server knows: their
            # places in the old segments go.
            fresh._write_batch([self._newest_promise(), *self.local()])
            yield tuple(fresh._dirty)
            yield from fresh._replace_manifest(fresh._manifest)
            self._take_over(fresh)
        except DiskFullError:
            for segment in fresh._segments:
                self._remove_segment(segment.number)
            drop_incoming(self._disk)
            raise
        finally:
            self._held = False

    def _build(self, old: Journal, incoming: Incoming) -> Iterator[tuple[str, ...]]:
        """Be the journal behind the incoming snapshot, in segments after the old one's."""
        meta = incoming.meta
        # A number is left out, so that until the manifest names them nobody takes these segments
        # for a continuation of the old ones.
        first = old._segments[-1].number + 2
        self._manifest = msgspec.structs.replace(
            old._manifest,
            first_segment=first,
            base_index=meta.index,
            base_epoch=meta.epoch,
            snapshot=meta.index,
            lost=False,
        )
        self._opening = old._opening
        self._synced = old._synced
        self._start_segment(old._end)
        for pairs in incoming.live():
            self._write_live(pairs)
            yield ()
        for segment in self._segments:
            self._checkpoint(segment, meta)
            self._dirty[index_name(segment.number)] = None

    def _take_over(self, fresh: Journal) -> None:
        for segment in self._segments:
            self._remove_segment(segment.number)
        self._manifest = fresh._manifest
        self._segments = fresh._segments
        self._where = fresh._where
        self._parked = fresh._parked
        self._promise = fresh._promise
        with suppress(DiskFullError):  # too late to go back: the next sync notes it
            self.note_all()
        # Tails of the old log may leave: the snapshot stands for all that they acknowledge.
        self._unsynced_tails = [(self._end, then) for _, then in self._unsynced_tails]
        self._pending = [r for r in self._pending if not isinstance(r, Entry)]
        self._unplaced = []
        self._dirty = {}
        self._cache.clear()
        self._cache_bytes = 0
        self._readers.clear()
        self._remove_old_snapshots()
        drop_incoming(self._disk)

    def _newest_promise(self) -> f.Promise:
        waiting = [r for r in self._pending if isinstance(r, f.Promise)]
        return waiting[-1] if waiting else self._promise

    def _write_live(self, pairs: list[tuple[f.Row, Entry]]) -> None:
        segment = self._segments[-1]
        if segment.size >= self._segment_bytes:
            segment = self._start_segment(self._end)
        encoded = [f.encode_entry(entry, f.LIVE) for _, entry in pairs]
        data = f.encode_batch(encoded, self._end, self._synced)
        self._disk.write(segment_name(segment.number), segment.size, data)
        at = segment.size + f.BATCH_SIZE
        for (row, _), record in zip(pairs, encoded, strict=True):
            if row.count:
                segment.index.add(msgspec.structs.replace(row, offset=at, source=0))
            else:
                segment.index.park(msgspec.structs.replace(row, offset=at))
                self._parked[row.source] = (segment.number, at)
            segment.last_index = max(segment.last_index, row.index)
            at += len(record)
        segment.size += len(data)
