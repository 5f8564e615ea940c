"""`antiphon trace to-parquet`: the traces of all programs, as one Parquet table.

Promise: the table has the columns of `formats/trace.py`, or of `formats/channel_trace.py` for the
traces of channels, and every event of a file up to a torn
tail. A file that is damaged before its tail is an error that names it. Files may have any size:
events are decoded and written in chunks.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from antiphon.errors import ConfigurationError, FormatError
from antiphon.formats.channel_trace import ChannelReading
from antiphon.formats.trace import Reading
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
CHANNELS = pa.schema(
    [
        ("run", pa.string()),
        ("process", pa.string()),
        ("incarnation", pa.int32()),
        ("seq", pa.int64()),
        ("kind", pa.string()),
        ("cluster", pa.string()),
        ("life", pa.string()),
        ("sender", pa.string()),
        ("first", pa.int64()),
        ("count", pa.int64()),
        ("level", pa.int32()),
        ("to", pa.list_(pa.string())),
        ("view", pa.string()),
        ("closing", pa.bool_()),
        ("members", pa.list_(pa.string())),
        ("leader", pa.string()),
        ("primary", pa.bool_()),
        ("seats", pa.list_(pa.string())),
        ("together", pa.list_(pa.string())),
        ("merged", pa.list_(pa.string())),
        ("past", pa.list_(pa.string())),
        ("founding", pa.string()),
        ("at", pa.float64()),
        ("origin", pa.string()),
    ]
)
"""The columns of traces of channels."""


class Traces(NamedTuple):
    """A kind of traces: how their files end and are read, and the columns of their table."""

    ending: str
    reading: Callable[[mmap], Iterable[Any]]
    schema: pa.Schema


OF_GROUPS = Traces("trace", Reading, SCHEMA)
OF_CHANNELS = Traces("channel", ChannelReading, CHANNELS)

CHUNK_ROWS = 1 << 16
FILES_A_TASK = 64
"""Trace files a task, where there are many; each task writes one Parquet file."""


def run(args: argparse.Namespace) -> int:
    """Carry out `antiphon trace to-parquet`, and return its exit code."""
    kind = kind_of(Path(args.dir))
    files = trace_files(Path(args.dir), kind)
    check_place(files, Path(args.out))
    told = track(files, "reading traces", disable=not sys.stderr.isatty())
    rows = write(told, Path(args.out), kind)
    if args.json:
        say_json({"rows": rows, "files": len(files), "out": args.out})
    else:
        say(f"{rows} rows of {len(files)} files are in {args.out}")
    return 0


def kind_of(folder: Path) -> Traces:
    """Return what kind of traces a folder has. Raise `ConfigurationError` if it has both: they make
    two tables."""
    has_groups, has_channels = any(folder.glob("*.trace")), any(folder.glob("*.channel"))
    if has_groups and has_channels:
        raise ConfigurationError(
            f"{folder} has traces of groups (.trace) and of channels (.channel), whose tables have "
            "different columns: put them into two folders"
        )
    return OF_CHANNELS if has_channels else OF_GROUPS


def trace_files(folder: Path, kind: Traces = OF_GROUPS) -> list[Path]:
    """Return the traces of a folder, in order. Raise `ConfigurationError` if there are none."""
    found = sorted(folder.glob(f"*.{kind.ending}"))
    if not found:
        raise ConfigurationError(f"{folder} has no files that end in .trace or .channel")
    return found


def check_place(files: Iterable[Path], out: Path) -> None:
    """Raise `ConfigurationError` if there can be no table at `out`, before anything is read."""
    if out.is_dir():
        raise ConfigurationError(f"{out} is a folder: name the file that the table is to be in")
    if not out.absolute().parent.is_dir():
        raise ConfigurationError(f"there is no folder {out.absolute().parent} for the table")
    if out.resolve() in {file.resolve() for file in files}:
        raise ConfigurationError(f"{out} is one of the traces: the table would replace it")


def write(files: Iterable[Path], out: Path, kind: Traces = OF_GROUPS) -> int:
    """Write the table; return the number of rows. The file at `out` is whole, or not there."""
    written = 0
    out = out.absolute()  # a relative one may look like a URI
    unfinished = out.with_name(f".{out.name}.unfinished")
    how: dict[str, Any] = {"compression": "zstd", "compression_level": 1}
    with pq.ParquetWriter(unfinished, kind.schema, **how) as writer:
        for batch in batches(events(files, kind), kind.schema):
            writer.write_batch(batch)
            written += batch.num_rows
    os.replace(unfinished, out)
    return written


def write_all(
    files: Sequence[Path], folder: Path, spark: SparkSession, kind: Traces = OF_GROUPS
) -> None:
    """Write several files into a folder, in parallel if there is enough to do."""
    if len(files) <= FILES_A_TASK:
        write(files, folder / "part-0.parquet", kind)
        return
    starts = range(0, len(files), FILES_A_TASK)
    tasks = [(n, [str(f) for f in files[at : at + FILES_A_TASK]]) for n, at in enumerate(starts)]
    frame = spark.createDataFrame(tasks, "number int, files array<string>")
    place = str(folder)

    def write_some(tasks: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in tasks:
            for task in batch.to_pylist():
                part = Path(place) / f"part-{task['number']}.parquet"
                write(map(Path, task["files"]), part, kind)
            yield batch.select(["number"])

    parallel = spark.sparkContext.defaultParallelism
    frame.repartition(min(len(tasks), 4 * parallel)).mapInArrow(write_some, "number int").collect()


def events(files: Iterable[Path], kind: Traces = OF_GROUPS) -> Iterator[Any]:
    """Yield the events of all files. Raise `FormatError` that names a damaged one."""
    for path in files:
        if path.stat().st_size == 0:
            continue  # killed before the first write; and an empty file cannot be mapped
        with path.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as data:
            try:
                yield from kind.reading(data)
            except FormatError as error:
                raise FormatError(f"{path}: {error}") from None


def batches(events: Iterator[Any], schema: pa.Schema = SCHEMA) -> Iterator[pa.RecordBatch]:
    """Yield the events as batches with these columns."""
    while chunk := list(islice(events, CHUNK_ROWS)):
        columns = [_column(chunk, field) for field in schema]
        yield pa.record_batch(columns, schema=schema)


def _column(chunk: list[Any], field: pa.Field) -> pa.Array:
    values: list[Any] = [getattr(event, field.name) for event in chunk]
    if pa.types.is_map(field.type):
        values = [list(value.items()) for value in values]
    return pa.array(values, field.type)
