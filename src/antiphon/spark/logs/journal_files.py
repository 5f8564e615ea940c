"""Reads the files of a journal: which packs were accepted, and where they are.

Promise: no file is changed, created or locked, so that a server may run on the folder. A `Sight`
has the packs that were accepted up to some moment, each once:

- Segments count from the manifest's first one on, and unless a recovery has replaced them.
- A row of an index counts if its entry is at its offset, before the place where the next segment
  goes on. Recovery writes entries again elsewhere, and leaves rows behind.
- Indexes are read from the newest to the oldest. A server writes them in order, so the older ones
  have all rows before those of a newer one.
- A pack that was stored before it was accepted is read from the entry that has it. If that is gone,
  so is the pack.

Rows that cannot be read are damage (`JournalDamagedError`), unless the server was just writing one,
or all others are complete without them. So are segments that end before the place up to which the
server noted them as synced, and rows below it whose entries are gone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import NamedTuple

from antiphon.errors import FormatError, IllegalStateError, JournalDamagedError
from antiphon.formats import journal as f
from antiphon.formats.journal import MANIFEST, Manifest, Row, SegmentHeader
from antiphon.formats.notes import REACHED, Reached, decode_reached, newest_of, still_true
from antiphon.formats.pack import LogPack, read_header
from antiphon.formats.segment_index import SegmentIndex

TRIES = 20
"""Attempts to read a folder of which a running server drops segments meanwhile."""


class Segment:
    """One file of the log and the rows of its index that count."""

    def __init__(self, folder: Path, number: int, base: int, stop: int | None) -> None:
        self.number = number
        self.base = base
        self._path = folder / f.segment_name(number)
        self._stop = stop  # where in the file the next segment goes on; None: this is the last
        self.index = SegmentIndex()
        self.parked: dict[int, int] = {}  # packs that came with a snapshot, by entry: their places
        self.complete_to = 0  # the last checkpoint that a stored snapshot covers
        self.unreadable: int | None = None  # where in the index's file rows cannot be read
        self.absent: int | None = None  # the place of a row's entry that is not there

    @cached_property
    def data(self) -> f.Buffer:
        with self._path.open("rb") as file:
            try:
                return mmap(file.fileno(), 0, access=ACCESS_READ)
            except ValueError:  # it is empty
                return b""

    def size(self) -> int:
        return self._path.stat().st_size

    @property
    def stop(self) -> int:
        return len(self.data) if self._stop is None else min(self._stop, len(self.data))

    @property
    def is_last(self) -> bool:
        return self._stop is None

    def load(self, data: bytes, snapshot: int) -> None:
        """Take the rows of its index."""
        rows, good = f.decode_rows(data)
        if good < len(data) and not (self.is_last and f.is_cut_off(data, good)):
            self.unreadable = good
        proven = f.checkpointed(rows, snapshot)
        self.complete_to = rows[proven - 1][0].index if proven else 0
        for n, (row, _) in enumerate(rows):
            if self._stop is not None and row.offset >= self._stop:
                continue  # from before a restart, which wrote its entry again elsewhere
            if row.count:
                if row.position <= self.index.last_position:
                    continue
                if n < proven or self._has(row):
                    self.index.load(row)
                elif self.absent is None:
                    self.absent = row.offset
            elif row.source:
                self.parked[row.source] = row.offset

    def _has(self, row: Row) -> bool:
        """Return whether the entry of a row is there. One that a snapshot covers is; another may
        have been lost, and its pack with it."""
        found = f.entry_at(self.data, row.offset)
        return found is not None and found.number == row.index

    @cached_property
    def entries(self) -> dict[int, int]:
        """Return the places of its entries. Of an entry that is there twice the last one counts: it
        replaced the first."""
        found = f.entries_in(self.data, self.base, self.stop)
        return {entry.number: entry.at for entry in found if entry.kind == f.ENTRY}

    def is_complete(self) -> bool:
        """Return whether a snapshot covers all of it."""
        return max(self.entries, default=0) <= self.complete_to

    def pack(self, row: Row, at: int) -> bytes:
        """Return the pack of a row, whose record is at this place. Raise `JournalDamagedError`."""
        found = f.entry_at(self.data, at)
        try:
            if found is None:
                raise FormatError("there is no entry here")
            record = self.data[at : found.end]
            f.check_record(record)
            pack = record[found.payload - at :]
            header = read_header(pack)
            if (header.destination, header.count) != (row.destination, row.count):
                raise FormatError(f"this is not the pack of position {row.position}")
        except FormatError as error:
            raise JournalDamagedError(self._path.name, at, str(error)) from None
        return pack


class Accepted(NamedTuple):
    """A pack that was accepted: its row, and where it is."""

    row: Row
    segment: Segment
    at: int

    @property
    def last(self) -> int:
        return self.row.position + self.row.count - 1

    def read(self) -> LogPack:
        row = self.row
        return LogPack(row.position, row.stamp, row.view, self.segment.pack(row, self.at))


class Sight:
    """A journal as it was at one moment."""

    def __init__(self, segments: Sequence[Segment]) -> None:
        self.segments = segments
        self._sources: dict[int, tuple[Segment, int] | None] = {}

    @property
    def first(self) -> int:
        return min((s.index.first_position for s in self.segments if len(s.index)), default=1)

    @property
    def last(self) -> int:
        return max((s.index.last_position for s in self.segments), default=0)

    def destinations(self) -> set[str]:
        return {name for segment in self.segments for name in segment.index.destinations}

    def accepted(self, destination: str, first: int, last: int) -> Iterator[Accepted]:
        """Yield the packs with messages between two positions."""
        for segment in self._between(first, last):
            for row in segment.index.rows_for(destination, first):
                if row.position > last:
                    break
                if (place := self._place(segment, row)) is not None:
                    yield Accepted(row, *place)

    def missing(self, first: int, last: int) -> list[tuple[int, int]]:
        """Return positions whose messages are not there any more, of all destinations."""
        gaps = []
        expected = first
        for segment in self._between(first, last):
            for row in segment.index.rows_from(first):
                if self._place(segment, row) is None:
                    continue
                if row.position > expected:
                    gaps.append((expected, min(row.position - 1, last)))
                expected = max(expected, row.position + row.count)
                if expected > last:
                    return gaps
        return [*gaps, (expected, last)] if expected <= last else gaps

    def sealed(self) -> int:
        """The last position in a segment that is finished, with its index: entries of a later one
        were accepted, or a snapshot covers all of it."""
        finished = [segment for segment in self.segments if len(segment.index)]
        if finished and (finished[-1].is_last or not finished[-1].is_complete()):
            finished.pop()
        return finished[-1].index.last_position if finished else self.first - 1

    def _between(self, first: int, last: int) -> Iterator[Segment]:
        for segment in self.segments:
            index = segment.index
            if len(index) and index.last_position >= first and index.first_position <= last:
                yield segment

    def _place(self, segment: Segment, row: Row) -> tuple[Segment, int] | None:
        """Return the place of a row's pack; None: it is gone."""
        if not row.source:
            return segment, row.offset
        if row.source not in self._sources:
            self._sources[row.source] = self._find(row.source, segment)
        return self._sources[row.source]

    def _find(self, index: int, latest: Segment) -> tuple[Segment, int] | None:
        for segment in reversed(self.segments):
            if segment.number > latest.number:
                continue
            if index in segment.parked:
                return segment, segment.parked[index]
            if index in segment.entries:
                return segment, segment.entries[index]
            if next(iter(segment.entries), index + 1) <= index:
                return None  # before this segment are older ones
        return None


class JournalFiles:
    """The folder of a journal, for repeated looks; parts that do not change are read once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._known: dict[tuple[int, ...], Segment] = {}

    def look(self) -> Sight:
        """Return the journal as it is now. Raise `JournalDamagedError`, and `IllegalStateError` if
        there is no journal."""
        for _ in range(TRIES):
            try:
                manifest = self._manifest()
                note = self._note(manifest)  # read before the segments, which only grow
                headers = self._headers(manifest.first_segment)
                sight = Sight(self._segments(headers, manifest))
                if self._manifest() == manifest:
                    if note is not None:
                        _check_reached(sight, still_true(note, headers))
                    return _checked(sight)
            except FileNotFoundError:
                pass  # dropped between two looks
        raise IllegalStateError(f"the journal in {str(self.folder)!r} changes all the time")

    def _manifest(self) -> Manifest:
        path = self.folder / MANIFEST
        if not path.is_file():
            raise IllegalStateError(f"there is no journal in {str(self.folder)!r}")
        try:
            return f.decode_manifest(path.read_bytes())
        except FormatError as error:
            raise JournalDamagedError(MANIFEST, 0, str(error)) from None

    def _note(self, manifest: Manifest) -> Reached | None:
        path = self.folder / REACHED
        try:
            notes = decode_reached(path.read_bytes() if path.is_file() else b"")
            return newest_of(notes, manifest)
        except FormatError as error:
            if self._manifest() != manifest:  # the server was just becoming another
                raise FileNotFoundError(path) from None
            raise JournalDamagedError(REACHED, 0, str(error)) from None

    def _segments(self, headers: list[SegmentHeader], manifest: Manifest) -> list[Segment]:
        """Return the segments in order; their indexes are read from the newest to the oldest."""
        segments = []
        newer: SegmentHeader | None = None
        for header in reversed(headers):
            stop = None if newer is None else newer.base - header.base
            segments.append(self._segment(header, stop, manifest.snapshot))
            newer = header
        self._known = {key: s for key, s in self._known.items() if s in segments}
        return segments[::-1]

    def _headers(self, first: int) -> list[SegmentHeader]:
        names = [path.name for path in self.folder.iterdir()]
        numbers = [number for number in f.segment_numbers(names) if number >= first]
        current, headers = f.current_segments(numbers, self._header)
        in_order: list[SegmentHeader] = []
        for number in current:
            if number != first + len(in_order):
                self._check_end(in_order, headers.get(number))
                break  # the segments behind it are of an installation that is not finished
            if number not in headers:
                raise JournalDamagedError(f.segment_name(number), 0, "not a segment header")
            in_order.append(headers[number])
        if not in_order:
            raise FileNotFoundError(f.segment_name(first))
        return in_order

    def _check_end(self, in_order: list[SegmentHeader], later: SegmentHeader | None) -> None:
        """Raise if a segment is gone from the middle of the journal."""
        if in_order and later is not None:
            path = self.folder / f.segment_name(in_order[-1].number)
            if later.base > in_order[-1].base + path.stat().st_size:
                name = f.segment_name(in_order[-1].number + 1)
                raise JournalDamagedError(name, 0, "the segment is missing")

    def _header(self, number: int) -> SegmentHeader | None:
        with (self.folder / f.segment_name(number)).open("rb") as file:
            try:
                return f.decode_segment_header(file.read(f.SEGMENT_SIZE))
            except FormatError:
                return None

    def _segment(self, header: SegmentHeader, stop: int | None, snapshot: int) -> Segment:
        path = self.folder / f.index_name(header.number)
        size, changed = 0, 0
        if path.exists():
            status = path.stat()
            size, changed = status.st_size, status.st_mtime_ns
        key = (*header, stop or 0, snapshot, size, changed)
        if key not in self._known:
            segment = Segment(self.folder, header.number, header.base, stop)
            segment.load(path.read_bytes() if size else b"", snapshot)
            self._known[key] = segment
        return self._known[key]


def _check_reached(sight: Sight, note: Reached) -> None:
    """Raise if the journal has lost a part that was synced."""
    last = sight.segments[-1]
    size = last.size()
    if last.base + size < note.offset:
        gone = note.segment > last.number
        name = f.segment_name(last.number + 1 if gone else last.number)
        reason = f"the journal ends here, and was on disk up to entry {note.last}"
        raise JournalDamagedError(name, 0 if gone else size, reason)
    for segment in sight.segments:
        if segment.absent is not None and segment.base + segment.absent < note.offset:
            name = f.segment_name(segment.number)
            raise JournalDamagedError(name, segment.absent, "an entry that was on disk is gone")


def _checked(sight: Sight) -> Sight:
    """Return the sight. Raise if rows are missing because they cannot be read."""
    last, bad = 0, None
    for segment in sight.segments:
        if len(segment.index):
            if bad is not None and segment.index.first_position > last + 1:
                _refuse(bad)
            bad, last = None, segment.index.last_position
        if segment.unreadable is not None:
            bad = segment
            if segment.is_last:
                _refuse(segment)
    return sight


def _refuse(segment: Segment) -> None:
    assert segment.unreadable is not None
    name = f.index_name(segment.number)
    raise JournalDamagedError(name, segment.unreadable, "a row does not match its checksum")
