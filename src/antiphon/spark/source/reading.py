"""Reading topics with Spark, in batches and as streams.

Promises: a batch is one range of positions, fixed when it is planned. A stream goes on exactly
where its checkpoint is, never back, and its offset is the last position that it has read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, Filter, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from antiphon import LogSlice
from antiphon.errors import IllegalStateError
from antiphon.spark.logs import arrow
from antiphon.spark.logs.log import Log
from antiphon.spark.source import filters, planning
from antiphon.spark.source.filters import Wanted
from antiphon.spark.source.reading_options import ReadingOptions, log_of, parse

ROWS_A_BATCH = 8192
"""Rows that Spark gets at a time: a tenth faster than larger batches, which fit no cache."""

Offset = dict[str, Any]


def schema() -> StructType:
    return from_arrow_schema(arrow.SCHEMA)


def chosen_columns(wanted: StructType) -> list[str]:
    """Return the columns of a schema that the user may have given. Raise `ValueError`."""
    known = {field.name: field.dataType for field in schema().fields}
    for field in wanted.fields:
        if field.name not in known:
            raise ValueError(f"there is no column {field.name!r}, only: {', '.join(known)}")
        if field.dataType != known[field.name]:
            raise ValueError(
                f"column {field.name!r} is of type {known[field.name].simpleString()}, not "
                f"{field.dataType.simpleString()}"
            )
        if not field.nullable:
            raise ValueError(f"column {field.name!r} may be null: leave out NOT NULL")
    return [field.name for field in wanted.fields]


class Piece(InputPartition):
    """The part of a query that one task reads."""

    def __init__(self, slices: tuple[LogSlice, ...]) -> None:
        super().__init__(slices)
        self.slices = slices


class BatchReader(DataSourceReader):
    """Reads a range of the log once, in as many tasks as it has slices.

    The range is fixed when the query is planned: what is sent later is not in it.
    """

    def __init__(self, options: ReadingOptions, wanted_schema: StructType) -> None:
        self._options = options
        self._log = log_of(options)
        self._columns = chosen_columns(wanted_schema)
        self._wanted = Wanted()

    def partitions(self) -> list[InputPartition]:
        first, last = planning.batch_range(self._log, self._options)
        first, last = planning.narrowed(self._log, self._wanted, first, last)
        topics = planning.chosen_topics(self._options.topics, self._wanted)
        most = self._options.messages_per_task
        return [Piece(some) for some in planning.tasks(self._log, topics, first, last, most)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read(self._log, partition, self._columns, self._wanted)


class FilteringReader(BatchReader):
    """Takes the filters of a query. Spark 4.3 keeps the plan of one query with the frame, and other
    queries over that frame get the same rows: so this is for frames that are used once.
    """

    def pushFilters(self, filters_: list[Filter]) -> list[Filter]:  # noqa: N802
        self._wanted, rest = filters.take(filters_)
        return rest


def batch_reader(options: Mapping[str, str], wanted_schema: StructType) -> BatchReader:
    """Return the reader for these options. Raise `ValueError` if one of them is wrong."""
    given = parse(options, stream=False)
    return (FilteringReader if given.push_filters else BatchReader)(given, wanted_schema)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a stream. Offsets are `{"position": the last one that was read}`, and the `purpose` of
    the query if there is one, so that another query cannot use its checkpoint."""

    def __init__(self, options: Mapping[str, str], wanted_schema: StructType) -> None:
        self._options = parse(options, stream=True)
        self._log = log_of(self._options)
        self._columns = chosen_columns(wanted_schema)
        self._end: int | None = None  # where this run ends; None: never

    def initialOffset(self) -> Offset:  # noqa: N802
        bounds = self._log.bounds()
        return self._offset(planning.start(self._log, self._options.start, bounds) - 1)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        most = self._options.messages_per_trigger
        return ReadMaxRows(most) if most else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._end = self._log.bounds().last

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        done, bounds = self._position(start), self._log.bounds()
        planning.check_kept(done + 1, bounds)
        last = bounds.last if self._end is None else min(self._end, bounds.last)
        if last <= done:
            return start  # even if another server, or a copy of a journal, is behind
        if isinstance(limit, ReadMaxRows):
            topics = self._options.topics
            last = planning.limited(self._log, topics, done + 1, last, limit.max_rows)
        return self._offset(last)

    def reportLatestOffset(self) -> Offset:  # noqa: N802
        return self._offset(self._log.bounds().last)

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        first, last = self._position(start) + 1, self._position(end)
        most = self._options.messages_per_task
        some = planning.tasks(self._log, self._options.topics, first, last, most)
        return [Piece(slices) for slices in some]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read(self._log, partition, self._columns, Wanted())

    def _offset(self, position: int) -> Offset:
        purpose = self._options.purpose
        return {"position": position, **({"purpose": purpose} if purpose else {})}

    def _position(self, offset: Offset) -> int:
        """Return the position in an offset. Raise `IllegalStateError` if it is from the checkpoint
        of another query. One without a purpose is of a query that had none, or of version 0.1."""
        purpose = self._options.purpose
        if purpose and offset.get("purpose", purpose) != purpose:
            raise IllegalStateError(
                f"the checkpoint was made for something else: for {offset['purpose']}, and this "
                f"is {purpose}. Give it a checkpoint of its own, an empty folder"
            )
        return int(offset["position"])


def read(
    log: Log, partition: InputPartition, columns: Sequence[str], wanted: Wanted
) -> Iterator[pa.RecordBatch]:
    if not isinstance(partition, Piece):
        return  # Spark's own piece for an empty range
    for piece in partition.slices:
        batches = log.read(piece, filters.columns_for(wanted, [*columns]))
        for batch in filters.compared(batches, wanted, [*columns]):
            for start in range(0, batch.num_rows, ROWS_A_BATCH):
                yield batch.slice(start, ROWS_A_BATCH)
