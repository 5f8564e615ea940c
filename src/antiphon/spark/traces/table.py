"""`antiphon trace to-parquet`: the traces of all programs, as one Parquet table.

Promise: the table has the columns of `formats/trace.py`, and every event of a file up to a torn
tail. A file that is damaged before its tail is an error that names it. Files may have any size:
events are decoded and written in chunks.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from antiphon.errors import ConfigurationError, FormatError
from antiphon.formats.trace import Reading, TraceEvent
from antiphon.terminal.lines import say, say_json
from antiphon.terminal.screen import track

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = pa.schema(
    [
        ("run", pa.string()),
        ("process", pa.string()),
        ("incarnation", pa.int32()),
        ("seq", pa.int64()),
        ("didx", pa.int64()),
        ("position", pa.int64()),
        ("kind", pa.string()),
        ("group", pa.string()),
        ("message", pa.string()),
        ("sender", pa.string()),
        ("sender_seq", pa.int64()),
        ("view_id", pa.int64()),
        ("members", pa.list_(pa.string())),
        ("tag", pa.string()),
        ("key", pa.string()),
        ("session", pa.string()),
        ("durable", pa.bool_()),
        ("redelivered", pa.bool_()),
        ("persistent", pa.bool_()),
        ("clock", pa.map_(pa.string(), pa.int64())),
        ("relation", pa.string()),
        ("at", pa.float64()),
    ]
)
CHUNK_ROWS = 1 << 16
FILES_A_TASK = 64
"""Trace files a task, where there are many; each task writes one Parquet file."""


def run(args: argparse.Namespace) -> int:
    """Carry out `antiphon trace to-parquet`, and return its exit code."""
    files = trace_files(Path(args.dir))
    check_place(files, Path(args.out))
    rows = write(track(files, "reading traces", disable=not sys.stderr.isatty()), Path(args.out))
    if args.json:
        say_json({"rows": rows, "files": len(files), "out": args.out})
    else:
        say(f"{rows} rows of {len(files)} files are in {args.out}")
    return 0


def trace_files(folder: Path) -> list[Path]:
    """Return the traces of a folder, in order. Raise `ConfigurationError` if there are none."""
    found = sorted(folder.glob("*.trace"))
    if not found:
        raise ConfigurationError(f"{folder} has no files that end in .trace")
    return found


def check_place(files: Iterable[Path], out: Path) -> None:
    """Raise `ConfigurationError` if there can be no table at `out`, before anything is read."""
    if out.is_dir():
        raise ConfigurationError(f"{out} is a folder: name the file that the table is to be in")
    if not out.absolute().parent.is_dir():
        raise ConfigurationError(f"there is no folder {out.absolute().parent} for the table")
    if out.resolve() in {file.resolve() for file in files}:
        raise ConfigurationError(f"{out} is one of the traces: the table would replace it")


def write(files: Iterable[Path], out: Path) -> int:
    """Write the table; return the number of rows. The file at `out` is whole, or not there."""
    written = 0
    out = out.absolute()  # a relative one may look like a URI
    unfinished = out.with_name(f".{out.name}.unfinished")
    with pq.ParquetWriter(unfinished, SCHEMA, compression="zstd", compression_level=1) as writer:
        for batch in batches(events(files)):
            writer.write_batch(batch)
            written += batch.num_rows
    os.replace(unfinished, out)
    return written


def write_all(files: Sequence[Path], folder: Path, spark: SparkSession) -> None:
    """Write several files into a folder, in parallel if there is enough to do."""
    if len(files) <= FILES_A_TASK:
        write(files, folder / "part-0.parquet")
        return
    starts = range(0, len(files), FILES_A_TASK)
    tasks = [(n, [str(f) for f in files[at : at + FILES_A_TASK]]) for n, at in enumerate(starts)]
    frame = spark.createDataFrame(tasks, "number int, files array<string>")
    place = str(folder)

    def write_some(tasks: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in tasks:
            for task in batch.to_pylist():
                write(map(Path, task["files"]), Path(place) / f"part-{task['number']}.parquet")
            yield batch.select(["number"])

    parallel = spark.sparkContext.defaultParallelism
    frame.repartition(min(len(tasks), 4 * parallel)).mapInArrow(write_some, "number int").collect()


def events(files: Iterable[Path]) -> Iterator[TraceEvent]:
    """Yield the events of all files. Raise `FormatError` that names a damaged one."""
    for path in files:
        if path.stat().st_size == 0:
            continue  # killed before the first write; and an empty file cannot be mapped
        with path.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as data:
            try:
                yield from Reading(data)
            except FormatError as error:
                raise FormatError(f"{path}: {error}") from None


def batches(events: Iterator[TraceEvent]) -> Iterator[pa.RecordBatch]:
    """Yield the events as batches with the columns of `SCHEMA`."""
    while chunk := list(islice(events, CHUNK_ROWS)):
        columns = [_column(chunk, field) for field in SCHEMA]
        yield pa.record_batch(columns, schema=SCHEMA)


def _column(chunk: list[TraceEvent], field: pa.Field) -> pa.Array:
    values: list[Any] = [getattr(event, field.name) for event in chunk]
    if pa.types.is_map(field.type):
        values = [list(value.items()) for value in values]
    return pa.array(values, field.type)
