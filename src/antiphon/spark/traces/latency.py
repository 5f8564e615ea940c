"""Latency and throughput of messages, from a trace table: of each run, and over time.

*Early* latency goes from the call that published a message to its first delivery in the group, the
thesis' measure; *late* latency to its last one. Throughput counts from the first call to the last
delivery. Times are those of the column `at`, which is one clock for all processes of a machine and
means nothing across machines.

Each message is gathered once, so all of it is linear in the rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812  (as everybody calls it)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

SETTINGS = {
    # The groups are small; Spark's 200 pieces would cost more than the work.
    "spark.sql.shuffle.partitions": "8",
}
PERCENTS = (50, 99)
ACCURACY = 100_000
"""A percentile's rank is off by at most one in this many; below that many values it is exact."""


def messages(trace: DataFrame) -> DataFrame:
    """Return a row for each message that was sent and delivered: run, message, sent, first, last
    (in seconds) and deliveries."""
    sent, delivered = F.col("kind") == "send", F.col("kind") == "deliver"
    return (
        trace.filter(sent | delivered)
        .groupBy("run", "message")
        .agg(
            F.min(F.when(sent, F.col("at"))).alias("sent"),
            F.min(F.when(delivered, F.col("at"))).alias("first"),
            F.max(F.when(delivered, F.col("at"))).alias("last"),
            F.count(F.when(delivered, True)).alias("deliveries"),
        )
        .filter("sent is not null and first is not null")
    )


def by_run(messages: DataFrame) -> DataFrame:
    """Return a row for each run: run, messages, deliveries, messages_per_s, and in milliseconds
    early and late, each with its mean and percentiles."""
    return (
        messages.groupBy("run")
        .agg(
            F.count("*").alias("messages"),
            F.sum("deliveries").alias("deliveries"),
            (F.count("*") / (F.max("last") - F.min("sent"))).alias("messages_per_s"),
            *_figures("early", _ms("first", "sent")),
            *_figures("late", _ms("last", "sent")),
        )
        .orderBy("run")
    )


def over_time(messages: DataFrame, every_s: float) -> DataFrame:
    """Return a row for each stretch of time with deliveries: run, at (when it begins, in seconds of
    the trace's clock), messages_per_s and early latency."""
    stretch = F.floor(F.col("first") / every_s)
    return (
        messages.groupBy("run", stretch.alias("stretch"))
        .agg(
            (F.count("*") / F.lit(every_s)).alias("messages_per_s"),
            *_figures("early", _ms("first", "sent")),
        )
        .withColumn("at", F.col("stretch") * every_s)
        .orderBy("run", "stretch")
        .drop("stretch")
    )


def rows(frame: DataFrame) -> list[dict[str, Any]]:
    """Return the few rows of a frame, with percentiles by name: `early_p50_ms` and so on."""
    return [_named(row.asDict()) for row in frame.collect()]


def _named(row: dict[str, Any]) -> dict[str, Any]:
    named: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, Sequence) and not isinstance(value, str):
            named |= {f"{name}_p{p}_ms": ms for p, ms in zip(PERCENTS, value, strict=True)}
        else:
            named[name] = value
    return named


def _ms(later: str, earlier: str) -> Column:
    return (F.col(later) - F.col(earlier)) * 1000


def _figures(name: str, ms: Column) -> list[Column]:
    parts = [percent / 100 for percent in PERCENTS]
    return [
        F.avg(ms).alias(f"{name}_mean_ms"),
        F.percentile_approx(ms, parts, ACCURACY).alias(name),
    ]
