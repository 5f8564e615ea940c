"""The format `antiphon` of Spark: `spark.read.format("antiphon")` and its three siblings."""

from __future__ import annotations

from pyspark.sql.datasource import DataSource


class AntiphonSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "antiphon"
