"""A snapshot on its way from one journal to another: state chunks, then the live packs below it.

To the log the parts are opaque bytes; only journals look inside.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING

from antiphon.errors import FormatError
from antiphon.formats import journal as f
from antiphon.formats.entry import Entry, SnapshotMeta, encode_meta
from antiphon.journal.disk import Disk

if TYPE_CHECKING:
    from antiphon.journal.snapshots import Snapshots

INCOMING = "incoming.snap"
INCOMING_LIVE = "incoming.live"
LIVE_BYTES = 256 << 10
"""Live packs that travel, and are written, together; a larger one goes alone."""

Spans = tuple[tuple[int, int], ...]


class PartReader:
    """The sending side: parts in order, of which the newest can be had again."""

    def __init__(self, journal: Snapshots, live: Spans, parked: tuple[int, ...]) -> None:
        self.meta, chunks = journal.read_snapshot()
        parts = parts_of(journal, self.meta, chunks, live, parked)
        self._parts = parts
        self._ahead: bytes | None = next(parts, None)
        self._seq = -1
        self._data = b""

    def repeats(self, snapshot: int) -> bool:
        """Return whether part 0 of this snapshot was read, and nothing after it."""
        return self._seq <= 0 and self.meta.index == snapshot

    def part(self, seq: int) -> tuple[SnapshotMeta, bytes, bool] | None:
        """Return a part: header, data, whether it is the last; None: it cannot be had any more."""
        if seq == self._seq + 1 and self._ahead is not None:
            self._seq, self._data = seq, self._ahead
            self._ahead = next(self._parts, None)
        if seq != self._seq:
            return None
        return self.meta, self._data, self._ahead is None


def parts_of(
    journal: Snapshots,
    meta: SnapshotMeta,
    chunks: Iterator[bytes],
    live: Spans,
    parked: tuple[int, ...],
) -> Iterator[bytes]:
    """Yield the parts of a snapshot with these chunks, and of the live packs below it."""
    pairs = journal.live_pairs(meta.index, live, parked)
    return chain(
        (f.PART_STATE + chunk for chunk in chunks),
        (f.encode_live(some) for some in _gather(pairs)),
    )


def _gather(pairs: Iterator[tuple[f.Row, Entry]]) -> Iterator[list[tuple[f.Row, Entry]]]:
    some: list[tuple[f.Row, Entry]] = []
    size = 0
    for row, entry in pairs:
        some.append((row, entry))
        size += len(entry.payload)
        if size >= LIVE_BYTES:
            yield some
            some, size = [], 0
    if some:
        yield some


class Incoming:
    """The receiving side: parts gathered in temporary files, which count for nothing yet."""

    def __init__(self, disk: Disk, meta: SnapshotMeta) -> None:
        self.meta = meta
        self._disk = disk
        drop_incoming(disk)
        self._size = write_snapshot_start(disk, INCOMING, meta)
        self._live: list[tuple[int, int]] = []  # where each live part is
        self._live_size = 0

    def take(self, part: bytes) -> None:
        """Keep the next part."""
        if part[:1] == f.PART_STATE:
            data = f.encode_chunk(part[1:])
            self._disk.write(INCOMING, self._size, data)
            self._size += len(data)
        else:
            self._disk.write(INCOMING_LIVE, self._live_size, part)
            self._live.append((self._live_size, len(part)))
            self._live_size += len(part)

    def finish(self) -> None:
        """End the snapshot file: all parts are here."""
        self._disk.write(INCOMING, self._size, f.encode_chunk(b""))

    def live(self) -> Iterator[list[tuple[f.Row, Entry]]]:
        """Yield the live packs that came, with their rows."""
        for at, size in self._live:
            yield f.decode_live(self._disk.read(INCOMING_LIVE, at, size))


def drop_incoming(disk: Disk) -> None:
    """Remove the temporary files."""
    for name in (INCOMING, INCOMING_LIVE):
        if name in disk.names():
            disk.remove(name)


def write_snapshot_start(disk: Disk, name: str, meta: SnapshotMeta) -> int:
    """Write the beginning of a snapshot file; return its size."""
    start = f.file_header(f.SNAPSHOT_MAGIC) + f.encode_chunk(encode_meta(meta))
    disk.write(name, 0, start)
    return len(start)


def write_snapshot(
    disk: Disk, name: str, meta: SnapshotMeta, chunks: Iterator[bytes]
) -> Iterator[None]:
    """Write a snapshot file, a chunk between two pauses. It is not synced."""
    if name in disk.names():
        disk.remove(name)
    size = write_snapshot_start(disk, name, meta)
    for chunk in chunks:
        if not chunk:
            raise FormatError("a state machine's snapshot has no empty chunks")
        data = f.encode_chunk(chunk)
        disk.write(name, size, data)
        size += len(data)
        yield
    disk.write(name, size, f.encode_chunk(b""))


def is_live(row: f.Row, live: Spans) -> bool:
    """Return whether one of the row's positions may still be read."""
    last = row.position + row.count - 1
    return any(row.position <= end and last >= start for start, end in live)
