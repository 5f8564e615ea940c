"""An archive as a log, and an archive joined with the log that continues it.

Promise of `Joined`: every message that either has, once. Messages that both have are read from the
archive; positions behind it that the log does not have any more are an error that names them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from antiphon import LogBounds, LogSlice
from antiphon.errors import FormatError, MessagesGoneError
from antiphon.model.destinations import TOPIC
from antiphon.spark.archive.files import ArchiveFiles, File, Group, Manifest
from antiphon.spark.logs.journal_log import JournalLog, matching
from antiphon.spark.logs.log import Log

if TYPE_CHECKING:
    import pyarrow as pa


class ArchiveLog:
    """A `Log` over an archive: it has the messages of its manifests, and nothing after them.

    Every call reads the manifests again, so it finds the messages of later runs.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = str(Path(folder).absolute())

    def bounds(self) -> LogBounds:
        manifests = self._manifests()
        if not manifests:
            return LogBounds(1, 0)
        return LogBounds(manifests[0].first, manifests[-1].last)

    def position_at(self, stamp: int) -> int:
        manifests = self._manifests()
        behind = manifests[-1].last + 1 if manifests else 1
        for manifest in manifests:
            late = [file for file in manifest.files if file.last_stamp >= stamp]
            if late:
                return self._first_since(sorted(late, key=lambda file: file.first), stamp)
        return behind

    def slices(self, topics: Sequence[str], first: int, last: int, most: int) -> list[LogSlice]:
        files = [file for manifest in self._manifests() for file in manifest.files]
        wanted = set(matching({f"{TOPIC}:{file.topic}" for file in files}, topics))
        chosen = [file for file in files if file.topic in wanted]
        chosen.sort(key=lambda file: (file.topic, file.first))
        return [piece for file in chosen for piece in _cut(file, first, last, most)]

    def read(self, piece: LogSlice, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        files = [
            file
            for manifest in self._manifests()
            for file in manifest.files
            if file.topic == piece.topic and _overlap(file, piece.first, piece.last)
        ]
        for file in sorted(files, key=lambda file: file.first):
            yield from self._rows(file, piece.first, piece.last, columns)

    def missing(self, first: int, last: int) -> list[LogBounds]:
        """Return positions between these two that were gone before a run could archive them."""
        gaps = (gap for manifest in self._manifests() for gap in manifest.missing)
        return [LogBounds(max(a, first), min(b, last)) for a, b in gaps if a <= last and b >= first]

    def _manifests(self) -> list[Manifest]:
        return ArchiveFiles(self.folder).manifests()

    def _first_since(self, files: list[File], stamp: int) -> int:
        """Return the first position at this time or later in these files, which end at that time or
        later."""
        found = files[0].last
        for file in files:
            if file.first >= found:
                break
            if file.first_stamp >= stamp:
                return min(found, file.first)
            for batch in self._rows(file, file.first, found, ["position", "stamp"]):
                stamps = batch["stamp"].cast("int64").to_numpy()
                at = int(np.searchsorted(stamps, stamp * 1000))
                if at < len(stamps):
                    found = batch["position"][at].as_py()
                    break
        return found

    def _rows(
        self, file: File, first: int, last: int, columns: Sequence[str]
    ) -> Iterator[pa.RecordBatch]:
        from pyarrow import ArrowException
        from pyarrow.parquet import ParquetFile

        from antiphon.spark.archive.parquet import with_bodies
        from antiphon.spark.logs.arrow import schema

        path = Path(self.folder) / file.path
        asked = {*columns, "position", *(["text"] if "body" in columns else [])}
        groups = [n for n, group in enumerate(file.groups) if _overlap(group, first, last)]
        try:
            with ParquetFile(path, page_checksum_verification=True) as parquet:
                if parquet.metadata.num_rows != file.rows:
                    raise FormatError(f"it has {parquet.metadata.num_rows} rows")
                for batch in parquet.iter_batches(row_groups=groups, columns=sorted(asked)):
                    positions = batch["position"].to_numpy()
                    start, end = np.searchsorted(positions, (first, last + 1)).tolist()
                    rows = batch.slice(start, end - start)
                    if "body" in columns:
                        rows = with_bodies(rows)
                    if rows.num_rows:
                        yield rows.select(list(columns)).cast(schema(columns))
        except (OSError, ArrowException, FormatError) as error:
            raise FormatError(
                f"archive file {str(path)!r} is not as its manifest says: {error}"
            ) from None


def _overlap(one: File | Group, first: int, last: int) -> bool:
    return one.first <= last and one.last >= first


def _cut(file: File, first: int, last: int, most: int) -> Iterator[LogSlice]:
    begin = end = messages = 0
    for group in file.groups:
        if not _overlap(group, first, last):
            continue
        begin = begin or max(first, group.first)
        end = min(last, group.last)
        messages += min(group.rows, end - max(first, group.first) + 1)
        if messages >= most:
            yield LogSlice(file.topic, begin, end, messages)
            begin = messages = 0
    if messages:
        yield LogSlice(file.topic, begin, end, messages)


class Joined:
    """An archive up to its end, and behind it the log that continues it."""

    def __init__(self, archive: ArchiveLog, log: Log) -> None:
        self.archive = archive
        self.log = log

    def bounds(self) -> LogBounds:
        old, new = self.archive.bounds(), self.log.bounds()
        if old.last < old.first:
            return new
        return LogBounds(old.first, max(old.last, new.last))

    def position_at(self, stamp: int) -> int:
        position, end = self.archive.position_at(stamp), self.archive.bounds().last
        return position if position <= end else max(self.log.position_at(stamp), end + 1)

    def slices(self, topics: Sequence[str], first: int, last: int, most: int) -> list[LogSlice]:
        end = self.archive.bounds().last
        self._check_reaches(end, first, last)
        old = self.archive.slices(topics, first, min(last, end), most)
        new = self.log.slices(topics, max(first, end + 1), last, most)
        return sorted([*old, *new], key=lambda piece: (piece.topic, piece.first))

    def read(self, piece: LogSlice, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Read a slice. The archive may have grown since the slice was made, into it or beyond."""
        end = self.archive.bounds().last
        archived = 0
        if piece.first <= end:
            for batch in self.archive.read(piece._replace(last=min(piece.last, end)), columns):
                archived += batch.num_rows
                yield batch
        if piece.last > end:
            first, messages = max(piece.first, end + 1), piece.messages - archived
            yield from self.log.read(piece._replace(first=first, messages=messages), columns)

    def missing(self, first: int, last: int) -> list[LogBounds]:
        """Return positions between these two that neither has any more."""
        end = self.archive.bounds().last
        old = self.archive.missing(first, min(last, end))
        return [*old, *self._gone(max(first, end + 1), last)]

    def _gone(self, first: int, last: int) -> list[LogBounds]:
        bounds = self.log.bounds()
        last = min(last, bounds.last)
        if first > last:
            return []
        if isinstance(self.log, JournalLog):
            return self.log.missing(first, last)
        return [LogBounds(first, min(bounds.first - 1, last))] if bounds.first > first else []

    def _check_reaches(self, end: int, first: int, last: int) -> None:
        if gaps := self._gone(max(first, end + 1), last):
            named = ", ".join(f"{gap.first} to {gap.last}" for gap in gaps)
            raise MessagesGoneError(
                f"the archive ends with position {end}, and these positions behind it are not in "
                f"the log any more: {named}. Let the log keep more (limits.retain), or archive it "
                "more often"
            )
