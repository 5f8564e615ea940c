"""Writes the notes of a run's processes as rows of a trace table (`formats/trace.py`) in Parquet.

Only the columns that such a run has: its rows are `send` and `deliver`.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from antiphon.lab.experiments.processes import GROUP, Delivered, Done, Sent
from antiphon.spark.traces import table as trace_table

PUBLISHER = "publisher"
COLUMNS = (
    "run",
    "process",
    "incarnation",
    "seq",
    "didx",
    "position",
    "kind",
    "group",
    "message",
    "sender",
    "sender_seq",
    "view_id",
    "at",
)
SCHEMA = pa.schema([trace_table.SCHEMA.field(name) for name in COLUMNS])


def write(done: Done, folder: Path) -> None:
    with pq.ParquetWriter(
        folder / f"{done.run.name}.parquet", SCHEMA, compression="zstd"
    ) as writer:
        for table in tables(done):
            writer.write_table(table)


def tables(done: Done) -> Iterator[pa.Table]:
    yield _sends(done.run.name, done.sent)
    for delivered in done.delivered:
        yield _deliveries(done.run.name, delivered)


def _sends(run: str, sent: Sent) -> pa.Table:
    numbers = pa.array(range(len(sent.times)), pa.int64())
    return _table(run, PUBLISHER, "send", numbers, _column(sent.times))


def _deliveries(run: str, delivered: Delivered) -> pa.Table:
    index = pa.array(range(len(delivered.numbers)), pa.int64())
    return _table(
        run,
        delivered.member,
        "deliver",
        _column(delivered.numbers),
        _column(delivered.times),
        didx=index,
        position=_column(delivered.positions),
        view_id=delivered.view_id,
    )


def _column(values: array[Any]) -> pa.Array:
    type_ = pa.float64() if values.typecode == "d" else pa.int64()
    return pa.Array.from_buffers(type_, len(values), [None, pa.py_buffer(values.tobytes())])


def _table(
    run: str, process: str, kind: str, numbers: pa.Array, times: pa.Array, **more: Any
) -> pa.Table:
    columns = {
        "run": run,
        "process": process,
        "incarnation": 1,
        "seq": pa.array(range(1, len(numbers) + 1), pa.int64()),
        "didx": -1,
        "position": -1,
        "kind": kind,
        "group": f"topic:{GROUP}",
        "message": pc.binary_join_element_wise(PUBLISHER, numbers.cast(pa.string()), "."),
        "sender": PUBLISHER,
        "sender_seq": numbers,
        "view_id": -1,
        "at": times,
        **more,
    }
    filled = [_filled(columns[field.name], len(numbers), field.type) for field in SCHEMA]
    return pa.table(filled, schema=SCHEMA)


def _filled(value: Any, count: int, type_: pa.DataType) -> pa.Array:
    """Return a column as it is, or one value in all rows."""
    return value if isinstance(value, pa.Array) else pa.repeat(pa.scalar(value, type_), count)
