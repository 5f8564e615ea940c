"""The rows of a trace of channels that the audit works on: packs that were sent, delivered and
held, each with where it belongs.

A pack is known by its sender's life and its first number. Which stay a delivery belongs to depends
on where it stands among the rows of its process: a join with the small table of stays.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from antiphon.spark.audit.channels.findings import World
from antiphon.spark.audit.channels.views import COLUMNS, Life, Stay
from antiphon.spark.audit.rows import small

WORLD = ("run", "cluster")
PACK = (*WORLD, "sender", "first")
AGREED, SAFE = 3, 4


def lives(trace: DataFrame) -> tuple[list[Life], int]:
    """Return all lives, and how many rows there are. A life is over if it says so, or if a later
    one of its process follows."""
    found = (
        trace.groupBy(*WORLD, "life")
        .agg(
            F.max("seq").alias("last_seq"),
            F.count("*").alias("rows"),
            F.max(F.struct("incarnation", "process")).alias("file"),
            F.max((F.col("kind") == "end").cast("int")).alias("ends"),
        )
        .toArrow()
        .to_pylist()
    )
    newest: dict[tuple[str, ...], int] = {}
    for row in found:
        name = row["run"], row["cluster"], row["file"]["process"]
        newest[name] = max(newest.get(name, 0), row["file"]["incarnation"])
    own = []
    for row in found:
        name = row["run"], row["cluster"], row["file"]["process"]
        ended = bool(row["ends"]) or row["file"]["incarnation"] < newest[name]
        world = World(row["run"], row["cluster"])
        own.append(Life(world, row["life"], row["last_seq"], ended))
    return own, sum(row["rows"] for row in found)


def shown(trace: DataFrame) -> list[dict[str, Any]]:
    """Return the views, row by row."""
    rows = trace.where("kind = 'view'").select(*COLUMNS).toArrow().to_pylist()
    return [dict(row) for row in rows]


_STAY = {
    "run": pa.string(),
    "cluster": pa.string(),
    "life": pa.string(),
    "stay": pa.int32(),
    "first_seq": pa.int64(),
    "last_seq": pa.int64(),
    "stay_view": pa.string(),
    "members": pa.list_(pa.string()),
    "leads": pa.bool_(),
    "primary": pa.bool_(),
    "founding": pa.string(),
    "keeps_own": pa.bool_(),
    "ended": pa.bool_(),
}


def table_of(spark: SparkSession, stays: Sequence[Stay]) -> DataFrame:
    """Return the stays as a small table; `stay` is the place of each in the list."""
    rows = [
        (
            *stay.life.world,
            stay.life.name,
            number,
            stay.first_seq,
            stay.last_seq,
            stay.view,
            list(stay.shown.order),
            stay.shown.leader == stay.life.name,
            stay.shown.primary,
            stay.shown.founding,
            not stay.onward or (stay.onward_primary and not stay.missed),
            stay.life.ended,
        )
        for number, stay in enumerate(stays)
    ]
    return small(spark, rows, _STAY)


def sends(trace: DataFrame) -> DataFrame:
    """Return the packs that were sent."""
    return trace.where("kind = 'send'").select(
        *PACK,
        F.col("seq").alias("sent_seq"),
        F.col("count").alias("sent_count"),
        F.col("level").alias("sent_level"),
        F.col("to").alias("sent_to"),
    )


def deliveries(
    trace: DataFrame, stays: DataFrame, sent: DataFrame, known: Iterable[Life], spark: SparkSession
) -> DataFrame:
    """Return all deliveries, with the stay in which each was made and what its sender says.
    `is_known`: the sender's trace is there; `for_all`: as far as is known it was sent to all."""
    of_stay = ("stay", "stay_view", "members", "primary", "founding", "leads")
    rows = trace.where("kind = 'deliver'").alias("d")
    where = F.broadcast(stays.alias("s"))
    fits = (
        (F.col("d.run") == F.col("s.run"))
        & (F.col("d.cluster") == F.col("s.cluster"))
        & (F.col("d.life") == F.col("s.life"))
        & (F.col("d.seq") > F.col("s.first_seq"))
        & (F.col("d.seq") < F.col("s.last_seq"))
    )
    told = ("life", "seq", "count", "level", "view", "closing")
    placed = rows.join(where, fits).select(
        *(f"d.{c}" for c in (*PACK, *told)), *(f"s.{c}" for c in of_stay)
    )
    names = {"run": pa.string(), "cluster": pa.string(), "sender": pa.string()}
    senders = small(spark, [(*life.world, life.name) for life in known], names)
    with_senders = placed.join(
        F.broadcast(senders.withColumn("is_known", F.lit(True))), [*WORLD, "sender"], "left"
    )
    return with_senders.join(sent, list(PACK), "left").withColumns(
        {
            "is_known": F.coalesce("is_known", F.lit(False)),
            "for_all": F.col("sent_to").isNull(),
        }
    )
