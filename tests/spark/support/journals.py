"""Journals to read and to archive: real files, with small segments and messages as one likes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from antiphon.formats import columns as formats
from antiphon.formats import pack as packs
from antiphon.formats.columns import Outgoing
from antiphon.formats.entry import ClusterMember, Entry, Kind, Membership, SnapshotMeta
from antiphon.io.file_disk import FileDisk
from antiphon.journal.journal import Journal
from antiphon.journal.opening import open_journal
from antiphon.log.effects import Accepted, EntriesStored
from antiphon.spark.logs.arrow import SCHEMA
from antiphon.spark.logs.log import Log

NOW = 1_700_000_000_000
SEGMENT_BYTES = 2000


class Book:
    """A journal that is written here, and all that was accepted."""

    def __init__(self, folder: Path, segment_bytes: int = SEGMENT_BYTES) -> None:
        self.folder = folder
        self._segment_bytes = segment_bytes
        self._index = 0
        self.position = 0
        self.stamp = NOW
        self.messages: list[tuple[int, str, str]] = []  # position, topic, text
        self._accepted: list[Accepted] = []
        self._snapshot = 0
        self._open()

    def _open(self) -> None:
        self._disk = FileDisk(self.folder)
        self.journal: Journal
        self.journal, _ = open_journal(self._disk, lambda: 7, segment_bytes=self._segment_bytes)

    def close(self) -> None:
        self._disk.close()

    def restart(self) -> None:
        """Killed, and started again: what is not synced is written, and what no snapshot stands
        for is applied, once more."""
        self.close()
        self._open()
        self.journal.index(tuple(a for a in self._accepted if a.index > self._snapshot))

    def send(self, topic: str, *texts: str) -> None:
        self.accept(self.store(f"topic:{topic}", *texts), f"topic:{topic}", texts)

    def store(self, destination: str, *texts: str) -> int:
        """A pack that nobody gets yet; its entry."""
        body, flags = formats.encode(
            [Outgoing(formats.TEXT, text.encode(), b"", self.stamp) for text in texts]
        )
        pack = packs.encode(destination, len(texts), body, 7, self._index * 100, 0, flags)
        self._write(Kind.PACK, pack)
        return self._index

    def accept(
        self, stored: int, destination: str, texts: Sequence[str], *, late: bool = False
    ) -> None:
        if late:
            self._write(Kind.TICK, b"")
        source = stored if late else 0
        row = Accepted(
            self._index if late else stored,
            self.position + 1,
            len(texts),
            self.stamp,
            3,
            destination,
            7,
            0,
            source=source,
        )
        self._accepted.append(row)
        self.journal.index((row,))
        kind, _, topic = destination.partition(":")
        if kind == "topic":
            self.messages += [(self.position + 1 + i, topic, t) for i, t in enumerate(texts)]
        self.position += len(texts)

    def _write(self, kind: int, payload: bytes) -> None:
        self._index += 1
        self.journal.append((Entry(self._index, 1, self.stamp, kind, payload),), ())
        self.journal.flush()

    def sync(self) -> None:
        """All of it is on the disk, and the journal knows."""
        self.journal.append((), (EntriesStored(self._index, 0),))
        self.journal.flush()
        job = self.journal.begin_sync()
        assert job is not None
        for name in job.names:
            self._disk.sync(name)
        self.journal.end_sync(job)

    def snapshot(self, live: tuple[tuple[int, int], ...]) -> None:
        """With which segments go that have nothing live."""
        members = Membership(1, (ClusterMember(1, 1, True),))
        meta = SnapshotMeta(self._index, 1, self.stamp, members)
        for names in self.journal.store_snapshot(meta, iter([b"state"]), live):
            for name in names:
                self._disk.sync(name)
        self._snapshot = self._index

    def of(self, topic: str) -> list[tuple[int, str, str]]:
        return [message for message in self.messages if message[1] == topic]


def told(
    log: Log, topics: Sequence[str] = (">",), first: int = 1, last: int = 1 << 40, most: int = 3
) -> list[tuple[int, str, str]]:
    """Position, topic and text of all that a log tells, in order."""
    columns = ("position", "topic", "text")
    rows = [
        tuple(row[name] for name in columns)
        for piece in log.slices(topics, first, last, most)
        for row in rows_of(log.read(piece, columns))
    ]
    return sorted(rows)  # type: ignore[arg-type]


def everything(log: Log) -> list[dict[str, Any]]:
    """Every column of every message, in order."""
    pieces = log.slices((">",), 1, 1 << 40, 100)
    rows = [row for piece in pieces for row in rows_of(log.read(piece, SCHEMA.names))]
    return sorted(rows, key=lambda row: row["position"])


def rows_of(batches: Iterator[Any]) -> Iterator[dict[str, Any]]:
    for batch in batches:
        yield from batch.to_pylist()
