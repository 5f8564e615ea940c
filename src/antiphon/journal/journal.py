"""The journal: the log on disk, and the message store.

Promises: records that `end_sync` released are there after any crash; records that a crash tears off
were never released; a changed byte is noticed, and never taken for the end. Entries are read by
index for servers that lag, and packs by position for readers. Formats: `formats/journal.py`. How a
journal is read back: `opening.py`; how damage is distinguished from a torn tail: `recovery.py`, and
`reached.py` for an end that is missing. No module here does IO by itself: the caller passes a
`Disk`.

A driver calls `append` (collect), `flush` (one write), `begin_sync`, the disk's `sync` for each
name of the job (wherever it likes, also in a thread), then `end_sync`, which returns the tails that
may leave now. Longer work (`store_snapshot`, `install`) is a generator that yields names to sync,
so that the driver can do other things in between.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from antiphon.errors import DiskFullError
from antiphon.formats import journal as f
from antiphon.formats.entry import Entry, SnapshotMeta
from antiphon.formats.journal import index_name, snapshot_name
from antiphon.journal.disk import DIRECTORY, Disk
from antiphon.journal.segments import Record, Segment
from antiphon.journal.snapshots import Snapshots
from antiphon.journal.transfer import INCOMING, Spans, drop_incoming
from antiphon.log.effects import Accepted, Tail


class SyncJob(NamedTuple):
    """The names to sync, after which the journal is on disk up to the offset `upto`."""

    names: tuple[str, ...]
    upto: int
    segment: int  # the newest
    base: int  # of that one
    last: int  # entry of the log


class Journal(Snapshots):
    """The log of one server on its disk, as drivers use it; `opening.open_journal` makes it.

    Its parts, each on the one before: `Segments` (files and places), `Reading`, `Snapshots`; this
    class collects records, writes them as batches, and releases their tails.
    """

    def __init__(self, disk: Disk, manifest: f.Manifest, segment_bytes: int) -> None:
        super().__init__(disk, manifest, segment_bytes)
        self.found_local: list[bytes] = []  # by the opening, of former lives
        self._pending: list[Record] = []
        self._pending_tails: list[Tail] = []
        self._unplaced: list[Accepted] = []  # rows of entries that wait for room on the disk
        self._unsynced_tails: list[tuple[int, tuple[Tail, ...]]] = []
        self._held = False  # an installation is changing files: writes wait

    # -- Writing -------------------------------------------------------------------------------

    def append(self, records: tuple[Record, ...], then: tuple[Tail, ...]) -> None:
        """Collect records for the next write. `then` is released when they, and all before them,
        are on disk."""
        self._pending += records
        self._pending_tails += then

    @property
    def awaited(self) -> bool:
        """Whether a tail waits for collected records, and so for a `flush`."""
        return bool(self._pending_tails)

    def flush(self) -> None:
        """Write the collected records as one batch. Raise `DiskFullError`: then everything is still
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
            self.dirty = {}  # nothing waits for a sync, and there is nothing to sync

    def begin_sync(self) -> SyncJob | None:
        """Return what to sync so that tails can leave; None: none is waiting."""
        if not self._unsynced_tails or self._held:
            return None
        names, self.dirty = tuple(self.dirty), {}
        newest = self.segments[-1]
        return SyncJob(names, self._end, newest.number, newest.base, self.last)

    def end_sync(self, job: SyncJob) -> list[Tail]:
        """Note that the names of the job are synced, and only then return the tails that waited.
        Raise `DiskFullError`: then nothing was released, and a later sync tries again."""
        if job.upto > self._synced:
            self.reached.note(self.opening, job.segment, job.base, job.upto, job.last)
            self._synced = job.upto
        released: list[Tail] = []
        while self._unsynced_tails and self._unsynced_tails[0][0] <= job.upto:
            released += self._unsynced_tails.pop(0)[1]
        return released

    def begin_note_sync(self) -> tuple[str, ...]:
        """Return the names to sync so that the note of how far the journal is synced is itself on
        disk. Call it every `NOTE_SYNC_S`: only a power failure can take the note back."""
        return self.reached.begin_sync()

    @property
    def unsynced(self) -> bool:
        """Whether tails wait for a sync."""
        return bool(self._unsynced_tails)

    @property
    def rows_wait(self) -> bool:
        """Whether rows of accepted packs are not in the index yet, for lack of room on the disk."""
        return bool(self._unplaced)

    def counts(self) -> dict[str, int]:
        """Return the journal's part of a server's status."""
        return {
            "segments": len(self.segments),
            "bytes": sum(segment.size for segment in self.segments),
            "packs": sum(len(segment.index) for segment in self.segments),
            "cached_bytes": self._cache_bytes,
            "unsynced": len(self._unsynced_tails),
        }

    # -- The index of accepted packs -----------------------------------------------------------

    def index(self, accepted: tuple[Accepted, ...]) -> None:
        """Add rows for packs that were just accepted. The rows are not synced: until the next
        snapshot, `open_journal` can make them again from the log."""
        touched: dict[int, Segment] = {}
        collected = (r.index for r in self._pending if isinstance(r, Entry))
        written_to = min(collected, default=self.last + 1) - 1
        for a in accepted:
            if a.index > written_to:
                self._unplaced.append(a)  # its entry is collected, but not written yet
                continue
            if a.source and self._place_of(a.source) is None:
                continue  # it was not needed when this server was brought up to date
            segment, at = self._place(a.index)
            segment.index.add(
                f.Row(a.index, a.position, a.count, at, a.stamp, a.view, a.destination, a.source)
            )
            touched[segment.number] = segment
        for segment in touched.values():
            self._write_rows(segment)

    # -- Snapshots -----------------------------------------------------------------------------

    def store_snapshot(
        self,
        meta: SnapshotMeta,
        chunks: Iterator[bytes],
        live: Spans,
        parked: tuple[int, ...] = (),
    ) -> Iterator[tuple[str, ...]]:
        """Store a snapshot, then remove the segments that it makes superfluous. `parked` names the
        entries whose packs are not accepted yet, and are needed too. Yields names to sync. A crash
        at any point leaves the old snapshot or the new one. Raise `DiskFullError`, and then the old
        one stays. The caller indexes later entries only after this call."""
        self.flush()  # all that the snapshot covers is written, and its rows are known
        if self._pending or self._unplaced:
            raise DiskFullError("the journal has no room for the entries below this snapshot")
        due = [s for s in self.segments if s.index.complete_to < min(meta.index, s.last_index)]
        for segment in due:
            # At once, so that no row of a later entry stands before the checkpoint: it may be
            # made again after a restart, and point elsewhere.
            self._checkpoint(segment, meta)
            self._checkpointed[index_name(segment.number)] = None
        return self._store_snapshot(meta, chunks, live, parked)

    def install(self, meta: SnapshotMeta) -> Iterator[tuple[str, ...]]:
        """Make the received snapshot the base: live packs in new segments, the log empty behind
        it. Nothing counts until the manifest is replaced; then all of it does. Yields names to
        sync; raises `DiskFullError`, and then everything is as before."""
        incoming, self._incoming = self._incoming, None
        assert incoming is not None
        assert incoming.meta == meta
        self._held = True
        fresh = Snapshots(self._disk, self.manifest, self._segment_bytes)
        try:
            incoming.finish()
            yield (INCOMING,)
            yield from fresh._build(self, incoming)
            self._disk.rename(INCOMING, snapshot_name(meta.index))
            yield (DIRECTORY,)
            # With the vote that was collected last, and what only this server knows, since they
            # are in the old segments.
            fresh._write_batch([self._newest_promise(), *self._local()])
            yield tuple(fresh.dirty)
            yield from fresh.replace_manifest(fresh.manifest)
            self._take_over(fresh)
        except DiskFullError:
            for segment in fresh.segments:
                self.remove_segment(segment.number)
            drop_incoming(self._disk)
            raise
        finally:
            self._held = False

    def _take_over(self, fresh: Snapshots) -> None:
        """Take over the segments that were built behind the snapshot."""
        for segment in self.segments:
            self.remove_segment(segment.number)
        self.manifest = fresh.manifest
        self.segments = fresh.segments
        self._where = fresh._where
        self.parked = fresh.parked
        self.promise = fresh.promise
        with suppress(DiskFullError):  # too late to go back: the next sync notes it
            self.note_all()
        # Tails of the old log may leave: the snapshot stands for all that they acknowledge.
        self._unsynced_tails = [(self._end, then) for _, then in self._unsynced_tails]
        self._pending = [r for r in self._pending if not isinstance(r, Entry)]
        self._unplaced = []
        self.dirty = {}
        self.forget_packs()
        self._readers.clear()
        self._remove_old_snapshots()
        drop_incoming(self._disk)

    def _newest_promise(self) -> f.Promise:
        waiting = [r for r in self._pending if isinstance(r, f.Promise)]
        return waiting[-1] if waiting else self.promise
