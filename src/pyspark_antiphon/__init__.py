"""Where Spark looks for the format `antiphon`: it needs no registering."""

from antiphon.spark.source.datasource import AntiphonSource as DefaultSource

__all__ = ["DefaultSource"]
