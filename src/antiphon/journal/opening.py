"""Opening a journal: its files are read back, and half-done work of a crash is cleaned up.

Promises: nothing that was released is lost, and nothing is lost silently. An empty folder begins a
journal; a torn tail is cut; on damage, of which a missing end is one kind, this server becomes a
new incarnation (`Recovered.damage`), keeps everything before the damage, and counts for nothing
until the others have brought it up to date. The end that no record on the disk proves to be synced
is written, and synced, again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import suppress

import msgspec

from antiphon.errors import FormatError, JournalDamagedError
from antiphon.formats import journal as f
from antiphon.formats.entry import (
    Entry,
    Kind,
    Membership,
    SnapshotMeta,
    decode_membership,
)
from antiphon.formats.journal import MANIFEST, index_name, segment_name, snapshot_name
from antiphon.formats.notes import REACHED
from antiphon.journal import recovery
from antiphon.journal.disk import DIRECTORY, Disk
from antiphon.journal.journal import Journal
from antiphon.journal.reached import newest_note, notes_in
from antiphon.journal.segments import SEGMENT_BYTES, Record, Segment, parts_of
from antiphon.journal.snapshots import OWN_SNAPSHOT
from antiphon.journal.transfer import INCOMING, INCOMING_LIVE
from antiphon.log.recovered import Recovered

logger = logging.getLogger("antiphon.journal.journal")

NEW_TAIL = "tail.new"

EARLIER = "earlier damage"

ALONE = (
    "This server runs alone, so nobody else has what is lost. It does not start, and nothing was "
    "changed. Restore a backup of its folder"
)


def open_journal(
    disk: Disk,
    new_incarnation: Callable[[], int],
    *,
    alone: bool = False,
    segment_bytes: int = SEGMENT_BYTES,
) -> tuple[Journal, Recovered]:
    """Open what is on the disk, or begin again. On damage this server becomes a new incarnation,
    which counts for nothing until the others have brought it up to date; `alone`, it has no server
    to ask, and `JournalDamagedError` is raised with everything left as it is."""
    try:
        manifest = recovery.read_manifest(disk)
        if manifest is None:
            aside = not alone and _set_aside(disk)  # and it ended before it had begun again
            earlier = EARLIER if aside else ""
            return _begin(disk, new_incarnation(), segment_bytes, earlier)
        return _Opening(disk, manifest, new_incarnation, alone, segment_bytes).run()
    except JournalDamagedError as damage:
        if alone:
            reason = f"{damage.detail}. {ALONE}"
            raise JournalDamagedError(damage.file, damage.offset, reason) from None
        logger.error("starting over, without what was stored here: %s", damage)
        number = max(_set_aside(disk), default=0) + 1
        for name in disk.names():
            if not name.startswith("damaged-"):
                disk.rename(name, f"damaged-{number}-{name}")
        disk.sync(DIRECTORY)
        return _begin(disk, new_incarnation(), segment_bytes, str(damage))


def _set_aside(disk: Disk) -> list[int]:
    """Return the numbers of earlier damages whose files are here."""
    return [int(name.split("-")[1]) for name in disk.names() if name.startswith("damaged-")]


def _last_opening(disk: Disk) -> int:
    """Return the newest opening of the journals that were set aside here. A new journal counts on
    from it: its files have the names of theirs, and one of theirs in the place of its own is older
    than its note says."""
    openings = [0]
    for name in disk.names():
        if not name.startswith("damaged-"):
            continue
        with suppress(FormatError):
            if name.endswith(REACHED):
                openings += [note.opening for note in notes_in(disk, name)]
            elif name.endswith(".log"):
                header = f.decode_segment_header(disk.read(name, 0, f.SEGMENT_SIZE))
                openings.append(header.opening)
    return max(openings)


def _begin(
    disk: Disk, incarnation: int, segment_bytes: int, damage: str
) -> tuple[Journal, Recovered]:
    manifest = f.Manifest(incarnation, 1, 0, 0, 0, bool(damage), not disk.volatile)
    journal = Journal(disk, manifest, segment_bytes)
    journal.opening = 1 + _last_opening(disk)
    _sync_all(disk, journal.reached.begin(incarnation))
    _sync_all(disk, journal.replace_manifest(manifest))
    journal.start_segment(0)
    _sync_all(disk, iter([tuple(journal.dirty)]))
    journal.note_all()
    return journal, Recovered(incarnation, damage=damage)


def _sync_all(disk: Disk, work: Iterator[tuple[str, ...]]) -> None:
    for names in work:
        for name in names:
            disk.sync(name)


_TEMPORARY = (MANIFEST + ".new", OWN_SNAPSHOT, NEW_TAIL, INCOMING, INCOMING_LIVE)


class _Opening:
    """Reads a journal back: snapshot, log, index; then writes the unproven tail again."""

    def __init__(
        self,
        disk: Disk,
        manifest: f.Manifest,
        new_incarnation: Callable[[], int],
        alone: bool,
        segment_bytes: int,
    ) -> None:
        self._disk = disk
        self._new_incarnation = new_incarnation
        self._alone = alone
        self.manifest = manifest
        self._journal = Journal(disk, manifest, segment_bytes)
        self._snapshot: SnapshotMeta | None = None
        self._memberships: list[tuple[int, Membership]] = []
        self._runs: list[tuple[int, int]] = []
        self._last_stamp = 0
        self._covered: dict[int, int] = {}  # by segment: the last entry below the snapshot
        self._proven = 0  # offset of the last record that the snapshot stands for
        self._damage = ""

    def run(self) -> tuple[Journal, Recovered]:
        """Return the journal, and the facts in it that a replica needs."""
        self._check_snapshot()
        note = newest_note(self._disk, self.manifest)
        scan = recovery.scan(self._disk, self.manifest.first_segment, note)
        damage = scan.trouble() if scan.damaged else None
        if damage is not None:
            assert scan.bad is not None
            if self._alone or self._loses_packs(scan.bad):
                raise damage
            self._damage = str(damage)
            logger.error("%s", damage)
        self._remove_leftovers()
        self._replay(scan)
        journal = self._journal
        if self._snapshot is not None and journal.last < self._snapshot.index:
            name = segment_name(self.manifest.first_segment)
            raise damage or JournalDamagedError(name, 0, "the log ends before its snapshot")
        self._load_index()
        _sync_all(self._disk, journal.reached.go_on(self.manifest.incarnation))
        self._set_identity()
        self._write_tail(scan)
        self._note_all()
        m = journal.manifest
        return journal, Recovered(
            m.incarnation,
            journal.promise,
            self._snapshot,
            m.base_index,
            m.base_epoch,
            tuple(self._runs),
            journal.last,
            self._last_stamp,
            tuple(self._memberships),
            self._damage or (EARLIER if m.lost and not journal.last else ""),
        )

    def _loses_packs(self, bad: recovery.Bad) -> bool:
        """Return whether the damage took packs that the snapshot stands for: the others send the
        log again entry by entry, but these only with a whole snapshot."""
        names = self._disk.names()
        gone = bad.at == 0 and index_name(bad.segment) not in names
        if gone and self.manifest.snapshot:
            return True  # a whole segment, and nothing says what was in it
        for number in f.index_numbers(names):
            name = index_name(number)
            if number < bad.segment:
                continue
            rows, _ = f.decode_rows(self._disk.read(name, 0, self._disk.size(name)))
            for row, _ in rows:
                # A row with neither is a checkpoint.
                has_pack = row.count > 0 or row.source > 0
                covered = has_pack and row.index <= self.manifest.snapshot
                if covered and (number > bad.segment or row.offset >= bad.at):
                    return True
        return False

    def _remove_leftovers(self) -> None:
        m = self.manifest
        kept = snapshot_name(m.snapshot)
        for name in self._disk.names():
            old = name.startswith("seg-") and int(name[4:12]) < m.first_segment
            other = name.startswith("snap-") and name != kept
            if old or other or name in _TEMPORARY:
                self._disk.remove(name)

    def _check_snapshot(self) -> None:
        if self.manifest.snapshot:
            self._snapshot, chunks = recovery.read_snapshot(self._disk, self.manifest.snapshot)
            for _ in chunks:
                pass
            self._memberships = [(self._snapshot.index, self._snapshot.membership)]
            self._last_stamp = self._snapshot.stamp

    def _replay(self, scan: recovery.Scan) -> None:
        for place in scan.batches:
            if not self._journal.segments or self._journal.segments[-1].number != place.segment:
                base = place.offset - place.at
                self._journal.segments.append(Segment(place.segment, base, 0))
            self._journal.segments[-1].size = place.at + place.size
        by_number = {s.number: s for s in self._journal.segments}
        for record in recovery.replay(self._disk, scan.batches):
            segment = by_number[record.segment]
            if record.kind == f.PROMISE:
                self._journal.promise = f.decode_promise(record.payload)
                continue
            if record.kind == f.LOCAL:
                self._find_local(f.decode_local(record.payload))
                continue
            entry = f.decode_entry(record.payload)
            if self._snapshot is not None and entry.index <= self._snapshot.index:
                self._proven = segment.base + record.at
                self._covered[segment.number] = entry.index
            segment.last_index = max(segment.last_index, entry.index)
            if record.kind == f.LIVE:
                continue
            if entry.index > self.manifest.base_index:
                self._journal.note(entry, segment, record.at)
                self._remember(entry)
            else:
                self._journal.parked[entry.index] = (segment.number, record.at)

    def _find_local(self, local: f.Local) -> None:
        if local.whole:
            self._journal.found_local.clear()
        self._journal.found_local.append(local.data)

    def _remember(self, entry: Entry) -> None:
        while self._runs and self._runs[-1][0] >= entry.index:
            self._runs.pop()
        if not self._runs or self._runs[-1][1] != entry.epoch:
            self._runs.append((entry.index, entry.epoch))
        self._last_stamp = max(self._last_stamp, entry.stamp)
        base = self._snapshot.index if self._snapshot else 0
        while self._memberships and self._memberships[-1][0] >= max(entry.index, base + 1):
            self._memberships.pop()
        if entry.kind == Kind.MEMBERSHIP and entry.index > base:
            self._memberships.append((entry.index, decode_membership(entry.payload)))

    def _load_index(self) -> None:
        upto = self._snapshot.index if self._snapshot else 0
        for segment in self._journal.segments:
            name = index_name(segment.number)
            present = name in self._disk.names()
            data = self._disk.read(name, 0, self._disk.size(name)) if present else b""
            rows, good = f.decode_rows(data)
            covered = self._covered.get(segment.number, 0)
            rows = recovery.proven_rows(rows, name, good, upto, covered)
            index = segment.index
            index.file_size = rows[-1][1] if rows else 0
            index.complete_to = rows[-1][0].index if rows else 0
            for row, _ in rows:
                if row.offset >= segment.size:
                    continue  # from before a restart, which wrote its entry again elsewhere
                if row.count and row.index <= upto and row.position > index.last_position:
                    index.load(row)
                elif row.source and not row.count:
                    self._journal.parked[row.source] = (segment.number, row.offset)

    def _set_identity(self) -> None:
        """Become a new incarnation, before anything else, if this one cannot vouch for its
        promises: an empty journal (a promise to found may be forgotten), or a damaged one."""
        empty = self._journal.last == 0 and self._journal.promise.epoch == 0
        if empty or self._damage:
            self._journal.found_local.clear()  # some of it may be lost
            m = self.manifest
            incarnation = self._new_incarnation()
            _sync_all(self._disk, self._journal.reached.begin(incarnation))
            changed = msgspec.structs.replace(
                m,
                incarnation=incarnation,
                lost=m.lost or bool(self._damage),
                reached=not self._disk.volatile,
            )
            _sync_all(self._disk, self._journal.replace_manifest(changed))

    def _write_tail(self, scan: recovery.Scan) -> None:
        """Write the end that no batch proves to be synced into a new segment, and sync it: it may
        have been read from a cache that a failed sync left behind, and never have reached the disk.
        The old bytes stay, and do not count: the new segment's base says where the old one ends."""
        journal = self._journal
        # Entries that a stored snapshot replaces were synced before it.
        proven_to = max(scan.synced, self._proven)
        proven = [p for p in scan.batches if p.offset < proven_to]
        unproven = scan.batches[len(proven) :]
        cut = proven[-1].offset + proven[-1].size if proven else scan.start
        entries: list[Entry] = []
        for record in recovery.replay(self._disk, unproven):
            if record.kind == f.ENTRY:
                entry = f.decode_entry(record.payload)
                while entries and entries[-1].index >= entry.index:
                    entries.pop()  # replaced by this one
                entries.append(entry)
        local = [f.Local(not at, data) for at, data in enumerate(journal.found_local)]
        again: list[Record] = [*entries, journal.promise, *local]
        kept = [s for s in journal.segments if s.base + f.SEGMENT_SIZE < cut]
        journal.segments = kept
        if kept:
            kept[-1].size = cut - kept[-1].base
        number = kept[-1].number + 1 if kept else self.manifest.first_segment
        # Under another name first: until it is whole, the old bytes are all there is.
        tail = [b"".join(parts_of(record)) for record in again]
        journal.opening = scan.opening + 1
        header = f.encode_segment_header(number, cut, journal.opening)
        batch = f.encode_batch(tail, cut + len(header), cut)
        self._disk.write(NEW_TAIL, 0, header + batch)
        self._disk.sync(NEW_TAIL)
        # Before it: an index that returned after a power failure would be taken for its own.
        if index_name(number) in self._disk.names():
            self._disk.remove(index_name(number))
        self._disk.rename(NEW_TAIL, segment_name(number))
        self._disk.sync(DIRECTORY)
        segment = Segment(number, cut, len(header) + len(batch))
        at = len(header) + f.BATCH_SIZE
        for note, size in zip(again, map(len, tail), strict=True):
            journal.note(note, segment, at)
            at += size
        journal.segments.append(segment)
        for later in recovery.segment_numbers(self._disk):
            if later > number:
                journal.remove_segment(later)

    def _note_all(self) -> None:
        """Make a note, also for a journal of a version that made none."""
        journal = self._journal
        journal.note_all()
        _sync_all(self._disk, iter([journal.begin_note_sync()]))
        if not (journal.manifest.reached or self._disk.volatile):
            manifest = msgspec.structs.replace(journal.manifest, reached=True)
            _sync_all(self._disk, journal.replace_manifest(manifest))
