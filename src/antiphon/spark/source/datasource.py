"""The format `antiphon` of Spark: `spark.read.format("antiphon")` and its three siblings."""

from __future__ import annotations

from pyspark.sql.datasource import DataSource, DataSourceStreamWriter, DataSourceWriter
from pyspark.sql.types import StructType

from antiphon.spark.source import reading, writing


class AntiphonSource(DataSource):
    """The format `antiphon`, for `read`, `readStream`, `write` and `writeStream`.

    Spark makes one for each use, and calls it for the reader or the writer of that use, which
    checks the options before a job starts.
    """

    @classmethod
    def name(cls) -> str:
        return "antiphon"

    def schema(self) -> StructType:
        return reading.schema()

    def reader(self, schema: StructType) -> reading.BatchReader:
        return reading.batch_reader(self.options, schema)

    def streamReader(self, schema: StructType) -> reading.StreamReader:  # noqa: N802
        return reading.StreamReader(self.options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return writing.batch_writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        return writing.stream_writer(self.options, schema, overwrite)
