"""A source that hands Spark the same rows one by one as tuples, for comparison."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from antiphon.spark.source import reading


class TupleSource(DataSource):
    """Spark's format of the comparison."""

    @classmethod
    def name(cls) -> str:
        return "antiphon_tuples"

    def schema(self) -> StructType:
        return reading.schema()

    def reader(self, schema: StructType) -> DataSourceReader:
        return TupleReader(reading.batch_reader(self.options, schema))


class TupleReader(DataSourceReader):
    """Reads messages and yields a tuple for each."""

    def __init__(self, batches: reading.BatchReader) -> None:
        self._batches = batches

    def partitions(self) -> list[InputPartition]:
        return self._batches.partitions()

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        for batch in self._batches.read(partition):
            yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)
