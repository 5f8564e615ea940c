"""Reading a journal back: what is whole, what is torn, what is damaged.

Every batch states up to where everything was synced when it was written. So a bad batch below the
greatest such offset, found anywhere, was once good and is *damage*; above it, it may never have
been written to the end, and is a *torn tail* which is cut: nobody was told of what it held.
(A flip inside the last synced batch, before any later batch has recorded that sync, cannot be told
from a torn write. The marker batch that follows a sync keeps that window short.)
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from antiphon.errors import FormatError, JournalDamagedError
from antiphon.formats import journal as f
from antiphon.formats.entry import SnapshotMeta, decode_meta
from antiphon.formats.journal import MANIFEST, segment_name, snapshot_name
from antiphon.io.journal_disk import Disk


def segment_numbers(disk: Disk) -> list[int]:
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
    batches: list[Place]  # the whole ones, in order, up to the first bad place
    start: int  # offset of the first segment
    opening: int  # the newest opening that left a segment
    synced: int  # the greatest offset that any batch states as synced
    bad: Bad | None

    @property
    def damaged(self) -> bool:
        return self.bad is not None and self.bad.offset < self.synced


def scan(disk: Disk, first_segment: int) -> Scan:
    """Read all segments. Stops collecting at the first bad place, but looks on for what later
    batches know of it."""
    numbers, headers = _current_segments(disk, first_segment)
    bases = {n: header.base for n, header in headers.items()}
    batches: list[Place] = []
    bad: Bad | None = None
    end, synced = bases.get(first_segment, 0), 0
    expected = first_segment
    for number in numbers:
        data = disk.read(segment_name(number), 0, disk.size(segment_name(number)))
        if bad is None and (number != expected or bases.get(number, end + 1) > end):
            bad = Bad(end, expected, 0, "a segment is missing, or its header is damaged")
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
        bad = Bad(0, first_segment, 0, "there is no segment")
    opening = max((header.opening for header in headers.values()), default=0)
    return Scan(batches, bases.get(first_segment, 0), opening, synced, bad)


def _base_by_first_batch(data: bytes, otherwise: int) -> int:
    """Where a segment with a damaged header begins."""
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
    segment: int
    at: int
    kind: int
    payload: bytes


def replay(disk: Disk, places: list[Place]) -> Iterator[Record]:
    """The records of these batches, in order."""
    for place in places:
        data = disk.read(segment_name(place.segment), place.at, place.size)
        for kind, at, payload in f.decode_batch(data, 0).records:
            yield Record(place.segment, place.at + at, kind, payload)


def read_snapshot(disk: Disk, index: int) -> tuple[SnapshotMeta, Iterator[bytes]]:
    """The snapshot's header and its chunks, every checksum verified as they come."""
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
    if MANIFEST not in disk.names():
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
