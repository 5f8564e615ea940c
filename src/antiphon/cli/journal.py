"""`antiphon journal inspect`: lists the contents of a journal's files, and checks them for damage.

Promise: no file is changed, created or locked, so it may inspect a running server's folder, too
(whose newest batch may then look torn). Exit code 1 if a file is damaged; a torn tail is not
damage.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from antiphon.errors import JournalDamagedError
from antiphon.formats import journal as f
from antiphon.formats.notes import Reached
from antiphon.journal import recovery
from antiphon.journal.disk import DIRECTORY, Disk
from antiphon.journal.reached import newest_note
from antiphon.terminal.lines import say, say_json
from antiphon.terminal.screen import Screen, Table


class ReadOnlyDisk:
    """A folder that is only read."""

    volatile = False

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def names(self) -> list[str]:
        return sorted(path.name for path in self._folder.iterdir() if path.is_file())

    def size(self, name: str) -> int:
        return (self._folder / name).stat().st_size

    def read(self, name: str, offset: int, size: int) -> bytes:
        with (self._folder / name).open("rb") as file:
            file.seek(offset)
            return file.read(size)

    def write(self, name: str, offset: int, *data: bytes) -> None:
        raise AssertionError(f"an inspection would write {name}")

    def truncate(self, name: str, size: int) -> None:
        raise AssertionError(f"an inspection would truncate {name}")

    def rename(self, old: str, new: str) -> None:
        raise AssertionError(f"an inspection would rename {old}")

    def remove(self, name: str) -> None:
        raise AssertionError(f"an inspection would remove {name}")

    def evict(self, name: str) -> None:
        raise AssertionError(f"an inspection would evict {name}")

    def sync(self, name: str) -> None:
        raise AssertionError(f"an inspection would sync {name or DIRECTORY!r}")


class SegmentReport(NamedTuple):
    """The contents of one segment."""

    file: str
    bytes: int
    batches: int
    entries: int
    indexes: tuple[int, int] | None  # of its entries
    live: int  # packs below the log's base, kept for readers
    local: int  # records of acknowledgements that this server alone knows
    synced: int  # the greatest offset that a batch in it knows to be synced
    rows: int  # of its index, checkpoints not counted
    positions: tuple[int, int] | None  # of the messages in those rows


class Report(NamedTuple):
    """The contents of a journal's folder, and its damage."""

    manifest: dict[str, Any] | None = None
    reached: dict[str, Any] | None = None  # the note of how far all of it is synced
    snapshot: dict[str, Any] | None = None
    segments: tuple[SegmentReport, ...] = ()
    end: int = 0  # the offset behind the last whole batch
    synced: int = 0
    torn: JournalDamagedError | None = None  # where the last write ends too early
    damage: tuple[JournalDamagedError, ...] = ()
    set_aside: tuple[str, ...] = ()  # files that were found damaged earlier


def run(args: argparse.Namespace) -> int:
    folder = Path(args.dir)
    if not folder.is_dir():
        say(f"there is no folder {args.dir}", error=True)
        return 2
    report = examine(ReadOnlyDisk(folder))
    if args.json:
        say_json(_as_json(report))
    else:
        _show(report, Screen(), args.dir)
    return 1 if report.damage else 0


# -- Looking ---------------------------------------------------------------------------------------


def examine(disk: Disk) -> Report:
    set_aside = tuple(name for name in disk.names() if name.startswith("damaged-"))
    try:
        manifest = recovery.read_manifest(disk)
        if manifest is None:
            return Report(set_aside=set_aside)
    except JournalDamagedError as error:
        return Report(damage=(error,), set_aside=set_aside)
    damage: list[JournalDamagedError] = []
    note = _examine_note(disk, manifest, damage)
    scan = recovery.scan(disk, manifest.first_segment, note)
    bad = scan.trouble()
    if bad is not None and scan.damaged:
        damage.append(bad)
    snapshot = _examine_snapshot(disk, manifest.snapshot, damage)
    segments = tuple(_examine_segments(disk, scan, manifest.snapshot, damage))
    last = max([manifest.base_index, *(s.indexes[1] for s in segments if s.indexes)])
    if last < manifest.snapshot and not scan.damaged:
        name = f.segment_name(manifest.first_segment)
        damage.append(JournalDamagedError(name, 0, "the log ends before its snapshot"))
    return Report(
        msgspec.structs.asdict(manifest),
        note._asdict() if note is not None else None,
        snapshot,
        segments,
        max((place.offset + place.size for place in scan.batches), default=0),
        scan.synced,
        None if scan.damaged else bad,
        tuple(damage),
        set_aside,
    )


def _examine_note(
    disk: Disk, manifest: f.Manifest, damage: list[JournalDamagedError]
) -> Reached | None:
    """Return the note of how far the journal is synced. Call this before the segments are read:
    they only grow, so they have all that the note names."""
    try:
        return newest_note(disk, manifest)
    except JournalDamagedError as error:
        damage.append(error)
        return None


def _examine_snapshot(
    disk: Disk, index: int, damage: list[JournalDamagedError]
) -> dict[str, Any] | None:
    if not index:
        return None
    try:
        meta, chunks = recovery.read_snapshot(disk, index)
        sizes = [len(chunk) for chunk in chunks]
    except JournalDamagedError as error:
        damage.append(error)
        return None
    members = [f"{m.id}{'' if m.voter else ' (learner)'}" for m in meta.membership.members]
    return {
        "file": f.snapshot_name(index),
        "index": meta.index,
        "epoch": meta.epoch,
        "stamp": meta.stamp,
        "members": members,
        "chunks": len(sizes),
        "bytes": sum(sizes),
    }


def _examine_segments(
    disk: Disk, scan: recovery.Scan, snapshot: int, damage: list[JournalDamagedError]
) -> Iterator[SegmentReport]:
    for number, places in groupby(scan.batches, key=lambda place: place.segment):
        name = f.segment_name(number)
        batches = [f.decode_batch(disk.read(name, p.at, p.size), 0) for p in places]
        records = [
            (kind, f.decode_entry(payload).index)
            for batch in batches
            for kind, _, payload in batch.records
            if kind in (f.ENTRY, f.LIVE)
        ]
        entries = [index for kind, index in records if kind == f.ENTRY]
        covered = [index for _, index in records if index <= snapshot]
        rows = _examine_index(disk, number, snapshot, covered[-1] if covered else 0, damage)
        yield SegmentReport(
            name,
            disk.size(name),
            len(batches),
            len(entries),
            (min(entries), max(entries)) if entries else None,
            len(records) - len(entries),
            sum(kind == f.LOCAL for batch in batches for kind, _, _ in batch.records),
            max(batch.synced for batch in batches),
            len(rows),
            (rows[0].position, rows[-1].position + rows[-1].count - 1) if rows else None,
        )


def _examine_index(
    disk: Disk, number: int, snapshot: int, complete_to: int, damage: list[JournalDamagedError]
) -> list[f.Row]:
    """Return the rows of a segment's index. Up to the snapshot they must be complete; later ones
    can be made again from the log."""
    name = f.index_name(number)
    data = disk.read(name, 0, disk.size(name)) if name in disk.names() else b""
    rows, good = f.decode_rows(data)
    try:
        recovery.proven_rows(rows, name, good, snapshot, complete_to)
    except JournalDamagedError as error:
        damage.append(error)
    return [row for row, _ in rows if row.count]


# -- Showing ---------------------------------------------------------------------------------------


def _as_json(report: Report) -> dict[str, Any]:
    return {
        **report._asdict(),
        "segments": [segment._asdict() for segment in report.segments],
        "torn": report.torn and _place(report.torn),
        "damage": [_place(error) for error in report.damage],
    }


def _place(error: JournalDamagedError) -> dict[str, Any]:
    return {"file": error.file, "offset": error.offset, "detail": error.detail}


def _show(report: Report, screen: Screen, folder: str) -> None:
    if report.manifest is None and not report.damage:
        screen.print(f"there is no journal in {folder}")
    parts = {"manifest": report.manifest, "synced": report.reached, "snapshot": report.snapshot}
    for title, facts in parts.items():
        if facts is not None:
            screen.print(_facts(title, facts))
    if report.segments:
        screen.print(_segments_table(report))
    if report.set_aside:
        screen.print(f"set aside as damaged, earlier: {', '.join(report.set_aside)}")
    if report.torn is not None:
        where = f"{report.torn.file} at offset {report.torn.offset}"
        screen.print(f"torn tail in {where}, which the next start cuts: {report.torn.detail}")
    for error in report.damage:
        screen.print(f"DAMAGED: {error}", style="bold red")
    if report.manifest is not None and not report.damage:
        screen.print("whole")


def _facts(title: str, facts: dict[str, Any]) -> Table:
    table = Table(title=title, show_header=False)
    for name, fact in facts.items():
        table.add_row(name, ", ".join(fact) if isinstance(fact, list) else str(fact))
    return table


def _segments_table(report: Report) -> Table:
    title = f"segments: whole up to offset {report.end}, known synced up to {report.synced}"
    table = Table(title=title)
    for column in SegmentReport._fields:
        table.add_column(column)
    for segment in report.segments:
        table.add_row(*map(_cell, segment))
    return table


def _cell(value: object) -> str:
    if isinstance(value, tuple):
        return f"{value[0]} to {value[1]}"
    return "" if value is None else str(value)
