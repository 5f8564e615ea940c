"""The rows of a trace that the audit works on: each delivery with the member that made it.

The member of a row depends on its place among the rows of its process. A join with the stretches of
`members.py` finds it, by ranges of row numbers; so that it costs the same however many views there
are, stretches are cut into pieces of `PIECE` rows and found by a hash.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from antiphon.spark.audit.fingerprints import Agreement
from antiphon.spark.audit.members import COLUMNS, KINDS, Cast, Life, Row, rows_from

PIECE = 4096

_OF_A_DELIVERY = (
    "message",
    "position",
    "sender",
    "sender_seq",
    "view_id",
    "tag",
    "key",
    "redelivered",
    "didx",
    "incarnation",
    "seq",
)
_OF_A_STRETCH = (
    "world",
    "member",
    "view",
    "life",
    "cut",
    "earlier_cut",
    "outside",
    "correct",
    "total",
    "is_reference",
)


def small(
    spark: SparkSession, rows: Sequence[Sequence[Any]], columns: Mapping[str, pa.DataType]
) -> DataFrame:
    """Return a small table of the driver. It goes through Arrow, so Spark starts no Python process
    for it."""
    values = list(zip(*rows, strict=True)) if rows else [()] * len(columns)
    arrays = [pa.array(column, kind) for column, kind in zip(values, columns.values(), strict=True)]
    return spark.createDataFrame(pa.table(arrays, schema=pa.schema(list(columns.items()))))


def lives(trace: DataFrame) -> tuple[list[Life], int]:
    """Return the lives in a trace, and the number of its rows."""
    found = (
        trace.groupBy("run", "process", "incarnation")
        .agg(
            F.max("seq").alias("last_seq"),
            F.count("*").alias("rows"),
        )
        .toArrow()
        .to_pylist()
    )
    own = [Life(f["run"], f["process"], f["incarnation"], f["last_seq"]) for f in found]
    return own, sum(f["rows"] for f in found)


def told(trace: DataFrame) -> list[Row]:
    """Return the rows that are not about messages."""
    rows = trace.where(F.col("kind").isin(*KINDS)).select(*COLUMNS)
    return list(rows_from(rows.toArrow().to_pydict()))


def stretches(spark: SparkSession, cast: Cast, agreement: Agreement | None = None) -> DataFrame:
    """Return the stretches as a small table, for `deliveries`; with an agreement it has the
    references."""
    references = {} if agreement is None else agreement.references
    pieces = [
        (
            *stretch,
            references.get((stretch.world, stretch.view)) == stretch.member,
            piece,
        )
        for stretch in cast.stretches
        for piece in range(stretch.first_seq // PIECE, stretch.last_seq // PIECE + 1)
    ]
    table = small(spark, pieces, _STRETCH)
    where = _where("run", "process", "incarnation", "group", F.col("piece"))
    return table.withColumn("place", where).drop("run", "process", "incarnation", "group", "piece")


_STRETCH = {
    "run": pa.string(),
    "process": pa.string(),
    "incarnation": pa.int32(),
    "group": pa.string(),
    "world": pa.int32(),
    "first_seq": pa.int64(),
    "last_seq": pa.int64(),
    "after_position": pa.int64(),
    "upto_position": pa.int64(),
    "member": pa.int32(),
    "view": pa.int64(),
    "life": pa.int32(),
    "cut": pa.int64(),
    "earlier_cut": pa.int64(),
    "outside": pa.bool_(),
    "correct": pa.bool_(),
    "total": pa.bool_(),
    "is_reference": pa.bool_(),
    "piece": pa.int64(),
}


def deliveries(trace: DataFrame, known: DataFrame) -> DataFrame:
    """Return every delivery to a member or a former one; `known`: the stretches."""
    rows = trace.where(F.col("kind") == "deliver").withColumn(
        "place", _where("run", "process", "incarnation", "group", F.expr(f"seq div {PIECE}"))
    )
    rows = rows.select("place", *_OF_A_DELIVERY).alias("d")
    fits = (
        (F.col("d.place") == F.col("s.place"))
        & F.col("d.seq").between(F.col("s.first_seq"), F.col("s.last_seq"))
        & (F.col("d.position") > F.col("s.after_position"))
        & (F.col("d.position") <= F.col("s.upto_position"))
    )
    joined = rows.join(F.broadcast(known.alias("s")), fits)
    return joined.select(*(f"d.{c}" for c in _OF_A_DELIVERY), *(f"s.{c}" for c in _OF_A_STRETCH))


def _where(run: str, process: str, incarnation: str, group: str, piece: Column) -> Column:
    return F.xxhash64(run, process, incarnation, group, piece)


def sends(trace: DataFrame, spark: SparkSession, cast: Cast) -> DataFrame:
    """Return the messages that were sent to groups, and whether they were acknowledged."""
    numbers = [(world.run, world.group, world.number) for world in cast.worlds]
    worlds = small(spark, numbers, {"run": pa.string(), "group": pa.string(), "world": pa.int32()})
    rows = trace.where(F.col("kind").isin("send", "sent"))
    return rows.join(F.broadcast(worlds), ["run", "group"]).select(
        "world",
        "message",
        "at",
        "clock",
        (F.size("clock") > 0).alias("clocked"),
        "sender_seq",
        ((F.col("kind") == "sent") & F.col("persistent")).alias("acknowledged"),
    )


def sift(spark: SparkSession, found: DataFrame, agreement: Agreement, range_size: int) -> DataFrame:
    """Return the rows to judge: all doubtful ones, and those of the references for the others."""
    with_range = found.withColumn("range", F.expr(f"position div {range_size}"))
    if not agreement.doubtful:
        return with_range.where("is_reference").withColumn("doubtful", F.lit(False))
    doubtful = sorted(agreement.doubtful)
    parts = small(spark, doubtful, {"world": pa.int32(), "range": pa.int64()})
    parts = parts.withColumn("doubt", F.lit(True))
    joined = with_range.join(F.broadcast(parts), ["world", "range"], "left")
    return (
        joined.where(F.col("doubt") | F.col("is_reference"))
        .withColumn("doubtful", F.coalesce("doubt", F.lit(False)))
        .drop("doubt")
    )
