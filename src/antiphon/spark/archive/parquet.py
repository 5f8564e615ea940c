"""A slice of a log as Parquet files, one for each day.

Rows are sorted by position, with all columns of `spark/logs/arrow.py: SCHEMA`; but a body that
equals the text of its message is null, so that it is not written twice. Days are those of the log's
clock, in UTC: as it never goes back, a later day has later positions. A file is synced before it is
returned.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from antiphon import LogSlice
from antiphon.spark.archive.files import File, Group, file_path
from antiphon.spark.logs.arrow import SCHEMA
from antiphon.spark.logs.log import Log

LEVEL = 3
"""The level of zstd, the same as in Spark's own writer."""

_REPEATING = ["topic", "session", "kind", "type", "priority", "reply_to", "tag", "view_id"]
"""Columns that are dictionary-encoded: numbers into a list of their values."""

_DAY_US = 86_400_000_000


def write(log: Log, piece: LogSlice, folder: Path, run: str) -> list[File]:
    """Write a slice; return its files."""
    files: list[File] = []
    writer: _Writer | None = None
    for batch in log.read(piece, SCHEMA.names):
        for day, rows in _by_day(batch):
            if writer is not None and writer.day != day:
                files.append(writer.finish())
                writer = None
            if writer is None:
                writer = _Writer(folder, piece, day, run)
            writer.write(rows)
    return files if writer is None else [*files, writer.finish()]


def _by_day(batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    days = batch["stamp"].cast(pa.int64()).to_numpy() // _DAY_US
    starts = [0, *(np.flatnonzero(np.diff(days)) + 1).tolist(), len(days)]
    for start, end in pairwise(starts):
        if start < end:
            day = datetime.fromtimestamp(int(days[start]) * 86_400, UTC)
            yield f"{day:%Y-%m-%d}", batch.slice(start, end - start)


class _Writer:
    """Writes one file."""

    def __init__(self, folder: Path, piece: LogSlice, day: str, run: str) -> None:
        self.day = day
        self._topic = piece.topic
        self._path = file_path(piece.topic, day, piece.first, piece.last, run)
        self._whole = folder / self._path
        self._groups: list[Group] = []
        self._stamps: list[int] = []
        self._whole.parent.mkdir(parents=True, exist_ok=True)
        self._file = self._whole.open("xb")
        self._writer = pq.ParquetWriter(
            self._file,
            SCHEMA,
            compression="zstd",
            compression_level=LEVEL,
            use_dictionary=_REPEATING,
            write_page_checksum=True,
            sorting_columns=[pq.SortingColumn(SCHEMA.get_field_index("position"))],
        )

    def write(self, rows: pa.RecordBatch) -> None:
        self._writer.write_batch(_said_once(rows))
        positions, stamps = rows["position"], rows["stamp"].cast(pa.int64())
        self._groups.append(Group(positions[0].as_py(), positions[-1].as_py(), rows.num_rows))
        self._stamps += [stamps[0].as_py() // 1000, stamps[-1].as_py() // 1000]

    def finish(self) -> File:
        self._writer.close()
        self._file.flush()
        os.fsync(self._file.fileno())
        size = self._file.tell()
        self._file.close()
        return File(
            self._path,
            self._topic,
            self._groups[0].first,
            self._groups[-1].last,
            sum(group.rows for group in self._groups),
            size,
            self._stamps[0],
            self._stamps[-1],
            tuple(self._groups),
        )


def _said_once(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows without bodies that equal their text."""
    is_text = pc.and_(pc.equal(rows["kind"], "text"), pc.is_valid(rows["text"]))
    bodies = pc.if_else(pc.fill_null(is_text, False), pa.scalar(None, pa.binary()), rows["body"])
    return rows.set_column(SCHEMA.get_field_index("body"), SCHEMA.field("body"), bodies)


def with_bodies(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows with such bodies again; `rows` have body and text."""
    bodies = pc.coalesce(rows["body"], rows["text"].cast(pa.binary()))
    return rows.set_column(rows.schema.get_field_index("body"), SCHEMA.field("body"), bodies)
