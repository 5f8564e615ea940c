"""Snapshots in a journal: storing one, removing files that it makes superfluous, and reading it for
other servers.

Promises: a crash at any point leaves the old snapshot or the new one; a segment goes only when no
live pack, no entry above the snapshot and nothing that only this server knows is in it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from itertools import pairwise

import msgspec

from antiphon.formats import journal as f
from antiphon.formats.entry import Entry, SnapshotMeta
from antiphon.formats.journal import index_name, segment_name, snapshot_name
from antiphon.journal import recovery
from antiphon.journal.disk import DIRECTORY, Disk
from antiphon.journal.reading import Reading
from antiphon.journal.segments import Segments
from antiphon.journal.transfer import Incoming, PartReader, Spans, is_live, write_snapshot

OWN_SNAPSHOT = "own.snap"


class Snapshots(Reading):
    """Segments with a snapshot below them, which can be sent in parts and received in parts."""

    def __init__(self, disk: Disk, manifest: f.Manifest, segment_bytes: int) -> None:
        super().__init__(disk, manifest, segment_bytes)
        self._readers: dict[Hashable, PartReader] = {}
        self._incoming: Incoming | None = None

    def _store_snapshot(
        self,
        meta: SnapshotMeta,
        chunks: Iterator[bytes],
        live: Spans,
        parked: tuple[int, ...],
    ) -> Iterator[tuple[str, ...]]:
        # The index, and the packs it points to, are on disk before the snapshot stands for them: an
        # entry that a majority holds may be committed while our own copy is still unsynced.
        rows, self._checkpointed = tuple(self._checkpointed), {}
        unsynced = [s for s in self.segments if s.base + s.size > self._synced]
        yield (*rows, *(segment_name(s.number) for s in unsynced), DIRECTORY)
        for _ in write_snapshot(self._disk, OWN_SNAPSHOT, meta, chunks):
            yield ()
        yield (OWN_SNAPSHOT,)
        self._disk.rename(OWN_SNAPSHOT, snapshot_name(meta.index))
        yield (DIRECTORY,)
        base_index, base_epoch, first = self._retained(meta, live, parked)
        yield from self.replace_manifest(
            msgspec.structs.replace(
                self.manifest,
                first_segment=first,
                base_index=base_index,
                base_epoch=base_epoch,
                snapshot=meta.index,
                lost=False,
            )
        )
        while self.segments[0].number < first:
            self.remove_segment(self.segments.pop(0).number)
        self.parked = {i: place for i, place in self.parked.items() if place[0] >= first}
        self._remove_old_snapshots()

    def _retained(
        self, meta: SnapshotMeta, live: Spans, parked: tuple[int, ...]
    ) -> tuple[int, int, int]:
        """Return the log's new base (index, epoch) and the first segment to keep. Whole segments
        go, from the oldest on, while the snapshot is past them, they hold nothing live, and the
        promise, and what only this server knows, are on disk in the segment after them."""
        gone = 0
        sources = (*parked, *(row.source for row in self._late_rows(live)))
        holders = {place[0] for place in map(self._place_of, sources) if place is not None}
        for segment, following in pairwise(self.segments):
            if self._synced <= following.base + f.SEGMENT_SIZE and not self._disk.volatile:
                break
            passed = segment.last_index <= meta.index and segment.number not in holders
            if not passed or any(segment.index.touches(*span) for span in live):
                break
            gone += 1
        first = self.segments[gone].number
        # Entries ascend over the segments, so the greatest index that goes is the new base.
        base_index = max([self.manifest.base_index, *(s.last_index for s in self.segments[:gone])])
        if base_index == self.manifest.base_index:
            return base_index, self.manifest.base_epoch, first
        if base_index == meta.index:
            return base_index, meta.epoch, first
        return base_index, self.entries(base_index, 1)[0].epoch, first

    def _remove_old_snapshots(self) -> None:
        used = {reader.meta.index for reader in self._readers.values()}
        keep = {snapshot_name(index) for index in (self.manifest.snapshot, *used)}
        for name in self._disk.names():
            if name.startswith("snap-") and name not in keep:
                self._disk.remove(name)

    def read_snapshot(self) -> tuple[SnapshotMeta, Iterator[bytes]]:
        """Return the newest snapshot and its chunks. Raise `JournalDamagedError`."""
        return recovery.read_snapshot(self._disk, self.manifest.snapshot)

    def part(
        self, to: Hashable, seq: int, live: Spans, parked: tuple[int, ...] = ()
    ) -> tuple[SnapshotMeta | None, bytes, bool]:
        """Return a part of the newest snapshot and the live packs below it: header, data, whether
        it is the last. Part 0 begins again; after that, the last part and the next can be had."""
        reader = self._readers.get(to)
        newest = self.manifest.snapshot
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
        """Yield live packs up to the entry `upto`, each with its row. A pack that is not accepted
        yet, or was accepted by a later entry, has a row with nothing but the source."""
        later = (row.source for row in self._late_rows(live) if row.index > upto)
        for index in sorted({i for i in (*parked, *later) if i <= upto}):
            if (place := self._place_of(index)) is not None:
                yield f.Row(index, 0, 0, 0, 0, 0, "", index), self._entry(*place)
        for segment in list(self.segments):
            for at in range(len(segment.index)):
                row = segment.index.row(at)
                if segment.number < self.manifest.first_segment:
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

    def _build(self, old: Segments, incoming: Incoming) -> Iterator[tuple[str, ...]]:
        """Become the journal behind the incoming snapshot, in segments after the old one's."""
        meta = incoming.meta
        # A number is left out, so that until the manifest names them these segments are not taken
        # for a continuation of the old ones.
        first = old.segments[-1].number + 2
        self.manifest = msgspec.structs.replace(
            old.manifest,
            first_segment=first,
            base_index=meta.index,
            base_epoch=meta.epoch,
            snapshot=meta.index,
            lost=False,
        )
        self.opening = old.opening
        self._synced = old._synced
        self.start_segment(old._end)
        for pairs in incoming.live():
            self._write_live(pairs)
            yield ()
        for segment in self.segments:
            self._checkpoint(segment, meta)
            self.dirty[index_name(segment.number)] = None
