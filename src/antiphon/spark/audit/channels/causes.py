"""FIFO and causal order, of packs for all.

What anybody delivers in a view is *known* there. Along each sender's numbers, a process has reached
a known pack when it delivered it, or never; the latest of all earlier packs must not be later than
the pack itself. A cause is what the sender had been given, or had sent, since it last sent: with
the causes of that, and FIFO, these are all causes.
"""

from __future__ import annotations

from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.window import WindowSpec

from antiphon.spark.audit.channels.messages import shaped
from antiphon.spark.audit.channels.rows import AGREED, PACK, WORLD

FIFO, CAUSAL = 1, 2
NEVER = 1 << 62
_BEFORE = (Window.unboundedPreceding, -1)


def firsts(rows: DataFrame) -> DataFrame:
    """Return the first delivery of each pack for all to each process."""
    first = F.min(F.struct("seq", "stay", "stay_view", "level")).alias("one")
    found = rows.where(f"for_all AND level >= {FIFO}").groupBy(*PACK, "life").agg(first)
    return found.select(*PACK, "life", "one.*")


def known(first: DataFrame) -> DataFrame:
    """Return what anybody delivers in each view."""
    return first.groupBy(*PACK, "stay_view").agg(F.max("level").alias("level"))


def _latest(value: Column, window: WindowSpec, at_least: bool) -> Column:
    """Return the greatest value before this row, of rows of this row's level and below (`at_least`:
    and above)."""
    levels = range(FIFO, 5)
    latest = F.lit(None).cast("long")
    for level in levels:
        counts = F.col("level") >= level if at_least else F.col("level") <= level
        top = F.max(F.when(counts, value)).over(window)
        latest = F.when(F.col("level") == level, top).otherwise(latest)
    return latest


def fifo(first: DataFrame, in_views: DataFrame, stays: DataFrame) -> DataFrame:
    """Delivered, and an earlier one of the same sender later or never; or after a later one."""
    who = stays.select(*WORLD, "life", "stay", "stay_view")
    expected = in_views.join(F.broadcast(who), [*WORLD, "stay_view"])
    reached = first.select(*PACK, "life", "seq", F.col("stay").alias("own_stay"))
    rows = expected.join(reached, [*PACK, "life"], "left").withColumn(
        "at", F.coalesce("seq", F.lit(NEVER))
    )
    along = Window.partitionBy(*WORLD, "life", "stay", "sender").orderBy("first")
    late = rows.withColumn("latest", _latest(F.col("at"), along.rowsBetween(*_BEFORE), False))
    late = late.where("own_stay = stay AND latest > at")
    ahead = Window.partitionBy(*WORLD, "life", "sender").orderBy("seq").rowsBetween(*_BEFORE)
    behind = first.withColumn("latest", _latest(F.col("first"), ahead, True))
    return shaped(late, "fifo").unionByName(shaped(behind.where("latest > first"), "fifo late"))


def causes(first: DataFrame, sent: DataFrame) -> DataFrame:
    """Return for each pack, by sender and level of the cause, the last one that it needs."""
    return reduce(
        DataFrame.unionByName,
        [_needed(first, sent, CAUSAL, CAUSAL), _needed(first, sent, AGREED, 4)],
    )


def _needed(first: DataFrame, sent: DataFrame, lowest: int, highest: int) -> DataFrame:
    """Return what packs of these levels need: what came since the one before, up to their level."""
    mine = sent.where(f"sent_to IS NULL AND sent_level BETWEEN {lowest} AND {highest}")
    sending = mine.select(
        *WORLD,
        F.col("sender").alias("life"),
        F.col("sent_seq").alias("seq"),
        F.col("first").alias("effect"),
        *(F.lit(None).cast(kind).alias(name) for name, kind in _CAUSE.items()),
    )
    given = first.where(f"level BETWEEN {CAUSAL} AND {highest} AND sender <> life").select(
        *WORLD, "life", "seq", "sender", "first", "level"
    )
    own = sent.where(f"sent_to IS NULL AND sent_level BETWEEN {CAUSAL} AND {highest}").select(
        *WORLD,
        F.col("sender").alias("life"),
        F.col("sent_seq").alias("seq"),
        "sender",
        "first",
        F.col("sent_level").alias("level"),
    )
    come = given.unionByName(own).select(
        *WORLD,
        "life",
        "seq",
        F.lit(None).cast("long").alias("effect"),
        F.col("sender").alias("cause_sender"),
        F.col("first").alias("cause"),
        (F.col("level") >= AGREED).alias("is_agreed"),
    )
    along = Window.partitionBy(*WORLD, "life").orderBy("seq", F.col("effect").isNull())
    after = along.rowsBetween(1, Window.unboundedFollowing)
    following = F.first("effect", ignorenulls=True).over(after)
    told = sending.unionByName(come).withColumn("needs", following)
    told = told.where("cause IS NOT NULL AND needs IS NOT NULL")
    return told.groupBy(
        *WORLD,
        F.col("life").alias("sender"),
        F.col("needs").alias("first"),
        "cause_sender",
        "is_agreed",
    ).agg(F.max("cause").alias("cause"))


_CAUSE = {"cause_sender": "string", "cause": "long", "is_agreed": "boolean"}


def causal(first: DataFrame, in_views: DataFrame, needed: DataFrame) -> DataFrame:
    """Delivered, and a cause later or never, though it is known in that view."""
    effects = first.where(f"level >= {CAUSAL}").select(*PACK, "life", "seq", "stay_view")
    rows = effects.join(needed, list(PACK))
    as_cause = (F.col("sender").alias("cause_sender"), F.col("first").alias("cause"))
    got = first.select(*WORLD, "life", *as_cause, F.col("seq").alias("cause_seq"))
    there = in_views.select(*WORLD, "stay_view", *as_cause, F.lit(True).alias("is_there"))
    told = rows.join(got, [*WORLD, "life", "cause_sender", "cause"], "left").join(
        there, [*WORLD, "stay_view", "cause_sender", "cause"], "left"
    )
    late = told.where("is_there AND (cause_seq IS NULL OR cause_seq > seq)")
    return shaped(late, "causal", other=F.concat_ws(" ", "cause_sender", "cause"))
