"""Reading a journal back: telling whole parts from a torn tail and from damage.

Every batch states up to where everything was synced when it was written, and so does the note
beside the segments (`reached.py`). Bytes that are bad, or missing, below the greatest such offset
were once good: that is *damage*. Above it, they may never have been written to the end: that is a
*torn tail*, which is cut; no answer depended on it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from antiphon.errors import FormatError, JournalDamagedError
from antiphon.formats import journal as f
from antiphon.formats.entry import SnapshotMeta, decode_meta
from antiphon.formats.journal import MANIFEST, segment_name, snapshot_name
from antiphon.formats.notes import Reached, still_true
from antiphon.journal.disk import Disk
from antiphon.journal.reached import notes_on


def segment_numbers(disk: Disk) -> list[int]:
    """Return the numbers of the segments on this disk, in order."""
    return f.segment_numbers(disk.names())


class Place(NamedTuple):
    """Where a whole batch was found. Its records are read again when they are needed, so that a
    large journal is never in memory at once."""

    segment: int
    at: int  # where it starts in its file
    offset: int  # the same, counted over all segments
    size: int


class Bad(NamedTuple):
    """The first place where the journal does not read on."""

    offset: int  # counted over all segments
    segment: int
    at: int  # in that segment's file
    reason: str


class Scan(NamedTuple):
    """The result of reading a journal through once."""

    batches: list[Place]  # the whole ones, in order, up to the first bad place
    start: int  # offset of the first segment
    opening: int  # the newest opening that left a segment
    synced: int  # the greatest offset that any batch, or the note, states as synced
    bad: Bad | None

    @property
    def damaged(self) -> bool:
        """Whether a synced part is missing."""
        return self.bad is not None and self.bad.offset < self.synced

    def trouble(self) -> JournalDamagedError | None:
        """Return the bad place as an error, if there is one; if it is damage, with how much is in
        doubt."""
        if self.bad is None:
            return None
        reason = self.bad.reason
        if self.damaged:
            reason += (
                f". The {self.synced - self.bad.offset} bytes from there on, up to offset "
                f"{self.synced} of the journal, were on disk once; what they held may have been "
                "acknowledged"
            )
        return JournalDamagedError(segment_name(self.bad.segment), self.bad.at, reason)


def scan(disk: Disk, first_segment: int, note: Reached | None) -> Scan:
    """Read all segments. Stops collecting at the first bad place, but looks on for what later
    batches know of it."""
    numbers, headers = _current_segments(disk, first_segment)
    bases = {n: header.base for n, header in headers.items()}
    if note is not None:
        note = still_true(note, headers.values())
        if note.segment >= first_segment:  # whatever stands there: the one before it ends there
            bases[note.segment] = note.base
    batches: list[Place] = []
    bad: Bad | None = None
    end, synced = bases.get(first_segment, 0), note.offset if note is not None else 0
    expected = first_segment
    for number in numbers:
        data = disk.read(segment_name(number), 0, disk.size(segment_name(number)))
        if bad is None:
            bad = _bad_start(number, expected, end, headers, note)
        if bad is None:
            base, stop = bases[number], bases.get(number + 1)
            found, known, bad = _survey(data, number, base, stop)
            batches += found
            end = found[-1].offset + found[-1].size if found else base + f.SEGMENT_SIZE
            synced = max(synced, known)
        if bad is not None:
            start = bad.at + 1 if bad.segment == number else 0
            base = bases.get(number, _base_by_first_batch(data, end))
            later = [b for at, b in f.find_batches(data, start) if b.offset == base + at]
            synced = max([synced, *(batch.synced for batch in later)])
        expected = number + 1
    if not numbers:
        bad = Bad(end, first_segment, 0, "there is no segment")
    if bad is None and note is not None and end < note.offset:
        bad = _missing_end(end, numbers[-1], bases, note)
    opening = max((header.opening for header in headers.values()), default=0)
    return Scan(batches, bases.get(first_segment, 0), opening, synced, bad)


def _bad_start(
    number: int,
    expected: int,
    end: int,
    headers: dict[int, f.SegmentHeader],
    note: Reached | None,
) -> Bad | None:
    """Return why this segment is not the one that follows, if it is not."""
    header, before = headers.get(number), headers.get(number - 1)
    if note is not None and before is not None and note.segment == number - 1 == expected - 1:
        behind = end < note.offset
        if behind:  # this segment was begun after the missing one in any case
            return _missing_end(end, note.segment, {note.segment: before.base}, note)
    if number != expected or header is None:
        return Bad(end, expected, 0, "the segment is missing, or its header is damaged")
    if note is not None and number == note.segment and header.opening < note.opening:
        return Bad(end, number, 0, "an older file stands in the place of this segment")
    if before is not None and header.base > end:
        return Bad(end, number - 1, end - before.base, "the file ends here, and is continued later")
    if header.base != end:
        return Bad(end, number, 0, "the segment does not begin where the one before it ends")
    return None


def _missing_end(end: int, last: int, bases: dict[int, int], note: Reached) -> Bad:
    """Return where the journal ends too early: in its last file, or in one that is gone."""
    until = f"the log went on to entry {note.last}"
    if note.segment > last:
        return Bad(
            end, last + 1, 0, f"the segment is missing, or an older file stands there; {until}"
        )
    return Bad(end, last, end - bases[last], f"the file ends here; {until}")


def _base_by_first_batch(data: bytes, otherwise: int) -> int:
    """Return where a segment with a damaged header begins."""
    try:
        return f.decode_batch(data, f.SEGMENT_SIZE).offset - f.SEGMENT_SIZE
    except FormatError:
        return otherwise


def _current_segments(
    disk: Disk, first_segment: int
) -> tuple[list[int], dict[int, f.SegmentHeader]]:
    numbers = (number for number in segment_numbers(disk) if number >= first_segment)
    return f.current_segments(numbers, lambda number: _header(disk, number))


def _header(disk: Disk, number: int) -> f.SegmentHeader | None:
    try:
        header = f.decode_segment_header(disk.read(segment_name(number), 0, f.SEGMENT_SIZE))
    except FormatError:
        return None
    return header if header.number == number else None


def _survey(
    data: bytes, number: int, base: int, stop: int | None
) -> tuple[list[Place], int, Bad | None]:
    """Batches of one segment up to its end, to `stop` (where the next segment goes on), or to the
    first one that is not whole; and the greatest offset that they know to be synced."""
    places: list[Place] = []
    synced = 0
    at = f.SEGMENT_SIZE
    while at < len(data) and (stop is None or base + at < stop):
        try:
            batch = f.decode_batch(data, at)
            if batch.offset != base + at:
                raise FormatError(f"a batch for offset {batch.offset} stands here")
        except FormatError as error:
            return places, synced, Bad(base + at, number, at, str(error))
        places.append(Place(number, at, batch.offset, batch.size))
        synced = max(synced, batch.synced)
        at += batch.size
    return places, synced, None


class Record(NamedTuple):
    """A record as it was read back, and its place."""

    segment: int
    at: int
    kind: int
    payload: bytes


def replay(disk: Disk, places: list[Place]) -> Iterator[Record]:
    """Yield the records of these batches, in order."""
    for place in places:
        data = disk.read(segment_name(place.segment), place.at, place.size)
        for kind, at, payload in f.decode_batch(data, 0).records:
            yield Record(place.segment, place.at + at, kind, payload)


def read_snapshot(disk: Disk, index: int) -> tuple[SnapshotMeta, Iterator[bytes]]:
    """Return a snapshot's header and its chunks, whose checksums are verified as they come."""
    chunks = _chunks(disk, snapshot_name(index))
    meta = decode_meta(next(chunks))
    return meta, chunks


def _chunks(disk: Disk, name: str) -> Iterator[bytes]:
    at = 0
    try:
        f.check_file_header(disk.read(name, 0, f.FILE_SIZE), f.SNAPSHOT_MAGIC)
        at = f.FILE_SIZE
        while True:
            head = disk.read(name, at, f.CHUNK_SIZE)
            length = f.chunk_length(head)
            data = disk.read(name, at + f.CHUNK_SIZE, length)
            if len(data) != length:
                raise FormatError("a chunk is cut off")
            f.decode_chunk(head, data)
            if not length:
                return
            yield data
            at += f.CHUNK_SIZE + length
    except (FormatError, KeyError, FileNotFoundError) as error:
        raise JournalDamagedError(name, at, str(error)) from None


def read_manifest(disk: Disk) -> f.Manifest | None:
    """None: nothing was ever stored here. Raise `JournalDamagedError`."""
    names = disk.names()
    if MANIFEST not in names:
        if any(name.startswith(("seg-", "snap-")) for name in names):
            raise JournalDamagedError(MANIFEST, 0, "there are segments, but no manifest")
        if any(note.offset for note in notes_on(disk)):
            raise JournalDamagedError(MANIFEST, 0, "a journal was here, and there is no manifest")
        return None
    try:
        return f.decode_manifest(disk.read(MANIFEST, 0, disk.size(MANIFEST)))
    except FormatError as error:
        raise JournalDamagedError(MANIFEST, 0, str(error)) from None


def proven_rows(
    rows: list[tuple[f.Row, int]], name: str, good: int, snapshot: int, complete_to: int
) -> list[tuple[f.Row, int]]:
    """The rows up to the last checkpoint that the snapshot stands for; it must be complete up to
    `complete_to`. Later ones may never have reached the disk, and will be made again."""
    proven = rows[: f.checkpointed(rows, snapshot)]
    reached = proven[-1][0].index if proven else 0
    if reached < complete_to:
        raise JournalDamagedError(
            name, good, f"the index ends at entry {reached}, and should reach {complete_to}"
        )
    return proven
