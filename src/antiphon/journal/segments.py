"""The files of the log on one disk: segments, where each entry is in them, and the manifest.

Promises: a batch is one write, and an entry replaces those at its index and after it; a segment
counts only from when the manifest leads to it. Reads raise `JournalDamagedError`, writes
`DiskFullError`: then the state here is as before. Needs: the caller syncs the names in `dirty`
before any output relies on the writes.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import cast

import msgspec

from antiphon.errors import FormatError, JournalDamagedError
from antiphon.formats import journal as f
from antiphon.formats.entry import Entry, SnapshotMeta
from antiphon.formats.frames import LARGE_FRAME
from antiphon.formats.journal import MANIFEST, index_name, segment_name
from antiphon.formats.segment_index import SegmentIndex
from antiphon.journal.disk import DIRECTORY, Disk
from antiphon.journal.reached import ReachedFile
from antiphon.journal.transfer import Spans, is_live

SEGMENT_BYTES = 64 << 20
"""A segment of this size is followed by a new one."""

CACHED_SEGMENTS = 2
"""This many, the newest, stay in the system's memory: a reader that is further behind waits for the
disk. If all stayed there, a flood would pay for every fresh page, more than for writing it."""

OFFSET_BITS = 40
"""A place is one integer: the number of a segment, and in the lower bits the offset in it."""

OFFSET_MASK = (1 << OFFSET_BITS) - 1

Record = Entry | f.Promise | f.Local


def parts_of(record: Record) -> tuple[bytes, ...]:
    """Return a record as it is written."""
    if isinstance(record, Entry):
        return f.entry_parts(record)
    return (f.encode_promise(record) if isinstance(record, f.Promise) else f.encode_local(record),)


class Segment:
    """One file of the log, and its index of accepted packs."""

    def __init__(self, number: int, base: int, size: int) -> None:
        self.number = number
        self.base = base  # the offset of its first byte
        self.size = size
        self.last_index = 0  # greatest index of an entry in it
        self.index = SegmentIndex()


class Segments:
    """The files on the disk, and where things are in them: the ground of a `Journal`, which opening
    it builds again.

    Promises and needs are the module's. It does not know who waits for what, nor how packs are
    read.
    """

    def __init__(self, disk: Disk, manifest: f.Manifest, segment_bytes: int) -> None:
        self._disk = disk
        self.manifest = manifest
        self._segment_bytes = segment_bytes
        self.opening = 1  # how often this journal was opened, and those before it in this folder
        self.segments: list[Segment] = []
        self._where = array("Q")  # of the entries after the base: segment and place in it
        # Entries before the base that are here, for their packs may be accepted by later ones:
        # segment and place in it.
        self.parked: dict[int, tuple[int, int]] = {}
        self.promise = f.Promise(0, None)
        self._local: Callable[[], tuple[f.Local, ...]] = tuple
        self.dirty: dict[str, None] = {}  # names to sync; a dict keeps their order
        self._checkpointed: dict[str, None] = {}  # indexes to sync before a snapshot counts
        self._synced = 0
        self.reached = ReachedFile(disk)

    @property
    def _end(self) -> int:
        return self.segments[-1].base + self.segments[-1].size

    @property
    def last(self) -> int:
        """The index of the last entry."""
        return self.manifest.base_index + len(self._where)

    @property
    def base_index(self) -> int:
        """The index up to which only the snapshot has the entries."""
        return self.manifest.base_index

    def repeat(self, local: Callable[[], tuple[f.Local, ...]]) -> None:
        """Repeat at the beginning of each segment what only this server knows: `local` returns it,
        the first record `whole`."""
        self._local = local

    # -- Writing -------------------------------------------------------------------------------

    def _write_batch(self, records: Sequence[Record]) -> None:
        segment = self.segments[-1]
        if segment.size >= self._segment_bytes:
            segment = self.start_segment(self._end)
        if segment.size == f.SEGMENT_SIZE:
            # An old segment may be removed; the promise, and what only this server knows, not.
            records = [self.promise, *self._local(), *records]
        encoded = [parts_of(record) for record in records]
        sizes = [sum(map(len, parts)) for parts in encoded]
        offset = segment.base + segment.size
        head = f.encode_batch_head(sum(sizes), len(records), offset, self._synced)
        name = segment_name(segment.number)
        self._disk.write(name, segment.size, head, *chain.from_iterable(encoded))
        at = segment.size + len(head)
        for record, size in zip(records, sizes, strict=True):
            self.note(record, segment, at)
            at += size
        segment.size = at
        self.dirty[name] = None

    def start_segment(self, base: int) -> Segment:
        """Begin the next file, at this offset of the whole journal."""
        number = self.segments[-1].number + 1 if self.segments else self.manifest.first_segment
        self.remove_segment(number)  # an abandoned installation may have left it
        header = f.encode_segment_header(number, base, self.opening)
        self._disk.write(segment_name(number), 0, header)
        segment = Segment(number, base, len(header))
        self.segments.append(segment)
        if len(self.segments) > CACHED_SEGMENTS:
            self._disk.evict(segment_name(self.segments[-1 - CACHED_SEGMENTS].number))
        self.dirty[segment_name(number)] = None
        self.dirty[DIRECTORY] = None
        return segment

    def note(self, record: Record, segment: Segment, at: int) -> None:
        """Remember where a record stands."""
        if isinstance(record, f.Promise):
            self.promise = record
        if not isinstance(record, Entry):
            return
        place = record.index - self.manifest.base_index - 1
        assert 0 <= place <= len(self._where), f"entry {record.index} leaves a gap"
        del self._where[place:]  # an entry replaces those there and after it
        self._where.append(segment.number << OFFSET_BITS | at)
        segment.last_index = max(segment.last_index, record.index)

    def remove_segment(self, number: int) -> None:
        """Remove a file and its index, if they are there."""
        for name in (segment_name(number), index_name(number)):
            self.dirty.pop(name, None)
            self._checkpointed.pop(name, None)
            if name in self._disk.names():
                self._disk.remove(name)

    def _write_live(self, pairs: list[tuple[f.Row, Entry]]) -> None:
        """Write packs that a snapshot brought with it."""
        segment = self.segments[-1]
        if segment.size >= self._segment_bytes:
            segment = self.start_segment(self._end)
        encoded = [f.encode_entry(entry, f.LIVE) for _, entry in pairs]
        data = f.encode_batch(encoded, self._end, self._synced)
        self._disk.write(segment_name(segment.number), segment.size, data)
        at = segment.size + f.BATCH_SIZE
        for (row, _), record in zip(pairs, encoded, strict=True):
            if row.count:
                segment.index.add(msgspec.structs.replace(row, offset=at, source=0))
            else:
                segment.index.park(msgspec.structs.replace(row, offset=at))
                self.parked[row.source] = (segment.number, at)
            segment.last_index = max(segment.last_index, row.index)
            at += len(record)
        segment.size += len(data)

    # -- Places --------------------------------------------------------------------------------

    def _place(self, index: int) -> tuple[Segment, int]:
        """Return segment and offset of an entry after the base."""
        where = self._where[index - self.manifest.base_index - 1]
        # By number, not by place: a segment that recovery found empty is not in the list.
        at = bisect_left(self.segments, where >> OFFSET_BITS, key=lambda s: s.number)
        return self.segments[at], where & OFFSET_MASK

    def _place_of(self, index: int) -> tuple[int, int] | None:
        """Return the number of the segment and the offset of an entry; None: it is gone."""
        if index <= self.manifest.base_index:
            return self.parked.get(index)
        where = self._where[index - self.manifest.base_index - 1]
        return where >> OFFSET_BITS, where & OFFSET_MASK

    def _entry(self, number: int, at: int) -> Entry:
        entry = self._entry_within(number, at, sys.maxsize)
        assert entry is not None
        return entry

    def _entry_within(self, number: int, at: int, most: int) -> Entry | None:
        """Return an entry; None: its record has more bytes than `most`, and was not read."""
        name = segment_name(number)
        head = self._disk.read(name, at, f.ENTRY_SIZE)
        try:
            length = f.record_length(head)
            if length > most:
                return None
            if length > LARGE_FRAME:  # read it again rather than copy it
                data = cast(bytes, memoryview(self._disk.read(name, at, length)))
            else:
                data = head + self._disk.read(name, at + f.ENTRY_SIZE, length - len(head))
            return f.decode_entry(f.decode_record(data, 0)[1])
        except FormatError as error:
            raise JournalDamagedError(name, at, str(error)) from None

    def _entry_of(self, segment: Segment, row: f.Row) -> Entry:
        """Return the entry with the pack of this row, which is in this segment's index."""
        place = self._place_of(row.source) if row.source else (segment.number, row.offset)
        assert place is not None, f"the pack of {row} is gone"
        return self._entry(*place)

    def _has_pack(self, row: f.Row) -> bool:
        """Return False if the pack was in an earlier entry, and was removed with it."""
        return not row.source or self._place_of(row.source) is not None

    def _late_rows(self, live: Spans) -> Iterator[f.Row]:
        """Yield the live rows whose packs are in earlier entries."""
        for segment in self.segments:
            yield from (row for row in segment.index.late_rows() if is_live(row, live))

    # -- Indexes and the manifest --------------------------------------------------------------

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

    def replace_manifest(self, manifest: f.Manifest) -> Iterator[tuple[str, ...]]:
        """Make this the manifest, in one step that a crash cannot halve. Yields names to sync."""
        self._disk.write(MANIFEST + ".new", 0, f.encode_manifest(manifest))
        yield (MANIFEST + ".new",)
        self._disk.rename(MANIFEST + ".new", MANIFEST)
        yield (DIRECTORY,)
        gone = manifest.base_index - self.manifest.base_index
        self._park(gone, manifest.first_segment)
        self.manifest = manifest
        del self._where[:gone]

    def _park(self, gone: int, first_segment: int) -> None:
        """Remember those of the first `gone` entries that stay although the base moves past them:
        they replaced entries of an older segment."""
        stays = bisect_left(self._where, first_segment << OFFSET_BITS, hi=gone)
        for at in range(stays, gone):
            where = self._where[at]
            index = self.manifest.base_index + 1 + at
            self.parked[index] = (where >> OFFSET_BITS, where & OFFSET_MASK)

    def note_all(self) -> None:
        """Note that everything is synced."""
        newest = self.segments[-1]
        self.reached.note(self.opening, newest.number, newest.base, self._end, self.last)
        self._synced = self._end
