"""P1 to P4 over messages (thesis 4.2.2), also for durable members and states.

`rows` below come from `rows.py: sift`: doubtful deliveries of all members, and other deliveries of
the references. Findings are rows of one shape (`SHAPE`), so that one job finds all; `sentences.py`
makes sentences of them.
"""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from antiphon.spark.audit.fingerprints import Print, reach_of
from antiphon.spark.audit.members import Cast
from antiphon.spark.audit.rows import small

SHAPE = {
    "rule": "string",
    "world": "int",
    "member": "int",
    "other_member": "int",
    "message": "string",
    "position": "long",
    "other": "long",  # the position or view with which the rule compares
    "times": "long",
    "never": "boolean",  # it was left out
}
_MEMBER_BITS = 24


def shaped(rows: DataFrame, rule: str, **columns: Column) -> DataFrame:
    """Return findings of a rule with all columns of `SHAPE`; those that are not given are null."""
    given = {"rule": F.lit(rule), **columns}
    return rows.select(
        *(given.get(name, F.lit(None)).cast(kind).alias(name) for name, kind in SHAPE.items())
    )


def firsts(rows: DataFrame) -> DataFrame:
    """Return each member's first delivery of each doubtful message; only it counts for order and
    view."""
    doubtful = rows.where("doubtful AND NOT outside")
    told = ("position", "view", "view_id", "tag", "key", "sender", "sender_seq", "earlier_cut")
    flags = ("redelivered", "correct", "total")
    first = F.min(F.struct("life", "seq", *told, *flags)).alias("first")
    plain = F.sum((~F.col("redelivered")).cast("int")).alias("unmarked")
    grouped = doubtful.groupBy("world", "message", "member").agg(first, plain)
    return grouped.select("world", "message", "member", "first.*", "unmarked")


def messages(rows: DataFrame, first: DataFrame, sends: DataFrame) -> DataFrame:
    """Return one row for each message that was sent or delivered."""
    delivered = rows.where("NOT doubtful").select(*_DELIVERED, F.lit(True).alias("correct"))
    delivered = delivered.unionByName(first.select(*_DELIVERED, "correct"))
    who = F.shiftleft("view", _MEMBER_BITS) + F.col("member")
    facts = delivered.select(
        "world",
        "message",
        F.lit(0).alias("sends"),
        F.lit(0).alias("acknowledged"),
        F.lit(None).cast("double").alias("at"),
        F.lit(0).alias("placed"),
        F.lit(0).alias("clocked"),
        F.lit(1).alias("deliveries"),
        F.col("correct").cast("int").alias("correct"),
        F.col("total").cast("int").alias("total"),
        "position",
        who.alias("who"),
        F.xxhash64("sender").alias("sender"),
        "sender_seq",
    )
    asked = sends.select(
        "world",
        "message",
        F.lit(1).alias("sends"),
        F.col("acknowledged").cast("int").alias("acknowledged"),
        "at",
        (F.col("sender_seq") >= 0).cast("int").alias("placed"),
        F.col("clocked").cast("int").alias("clocked"),
        F.lit(0).alias("deliveries"),
        F.lit(0).alias("correct"),
        F.lit(0).alias("total"),
        *(F.lit(None).cast("long").alias(n) for n in ("position", "who", "sender", "sender_seq")),
    )
    return (
        facts.unionByName(asked)
        .groupBy("world", "message")
        .agg(
            *(F.sum(n).alias(n) for n in ("sends", "deliveries")),
            *(F.max(n).alias(n) for n in _FLAGS),
            F.min("at").alias("at"),
            F.min("position").alias("position"),
            F.max("position").alias("last_position"),
            F.min("who").alias("who"),
            F.max("who").alias("last_who"),
            F.max("sender").alias("sender"),
            F.max("sender_seq").alias("sender_seq"),
        )
    )


_FLAGS = ("acknowledged", "placed", "clocked", "correct", "total")
_DELIVERED = ("world", "message", "member", "position", "view", "sender", "sender_seq", "total")


def _member_of(who: str) -> Column:
    return F.col(who).bitwiseAND(F.lit((1 << _MEMBER_BITS) - 1))


def _view_of(who: str) -> Column:
    return F.shiftright(who, _MEMBER_BITS)


def validity(spark: SparkSession, cast: Cast, known: DataFrame) -> DataFrame:
    """(P1) Find messages that were acknowledged and no correct member delivered, though one was
    there before."""
    there = []
    for world in cast.worlds:
        correct = [m for m in world.members if m.correct]
        since = min((m.views[0].at for m in correct if m.stays), default=None)
        if since is not None:
            there.append((world.number, since, max(m.cut for m in correct)))
    table = small(
        spark, there, {"world": pa.int32(), "since": pa.float64(), "in_state": pa.int64()}
    )
    lost = known.where("acknowledged = 1 AND correct = 0").join(F.broadcast(table), "world")
    lost = lost.where("since <= at AND (position IS NULL OR position > in_state)")
    return shaped(
        lost, "P1", world=F.col("world"), message=F.col("message"), position=F.col("position")
    )


def agreement(spark: SparkSession, cast: Cast, first: DataFrame) -> DataFrame:
    """(P2) Find messages that one member delivered in a view, and another one that is correct in it
    did not."""
    table = _owing(spark, cast)
    by_message = _deliverers(first).where("view = last_view")
    lacking = by_message.join(F.broadcast(table), ["world", "view"]).where(
        "position > cut AND NOT array_contains(members, owing)"
    )
    return shaped(
        lacking,
        "P2",
        world=F.col("world"),
        member=F.col("owing"),
        other_member=F.col("members")[0],
        message=F.col("message"),
        position=F.col("position"),
        other=F.col("view"),
    )


def _owing(spark: SparkSession, cast: Cast) -> DataFrame:
    """Return the members that are correct in each view."""
    rows = [
        (world.number, view, number, cast.members[number].cut)
        for world in cast.worlds
        for view in world.views
        for number in world.owing(view)
    ]
    columns = {"world": pa.int32(), "view": pa.int64(), "owing": pa.int32(), "cut": pa.int64()}
    return small(spark, rows, columns)


def _deliverers(first: DataFrame) -> DataFrame:
    return first.groupBy("world", "message").agg(
        F.min("position").alias("position"),
        F.min("view").alias("view"),
        F.max("view").alias("last_view"),
        F.min("tag").alias("tag"),
        F.min("key").alias("key"),
        F.max("total").alias("total"),
        F.array_sort(F.collect_set("member")).alias("members"),
    )


def gaps(spark: SparkSession, cast: Cast, first: DataFrame, prints: list[Print]) -> DataFrame:
    """Return the messages left out by members that owe nothing in that view: with them an order may
    still break (P5)."""
    reach = reach_of(prints)
    spans = [
        (m.world, m.number, m.start, reach[m.number]) for m in cast.members if m.number in reach
    ]
    span_columns = {
        "world": pa.int32(),
        "member": pa.int32(),
        "start": pa.int64(),
        "reach": pa.int64(),
    }
    span = small(spark, spans, span_columns)
    debts = _owing(spark, cast).withColumnRenamed("owing", "member")
    return (
        _deliverers(first)
        .where("view = last_view")
        .join(F.broadcast(span), "world")
        .where("position > start AND position < reach AND NOT array_contains(members, member)")
        .join(F.broadcast(debts), ["world", "view", "member"], "left_anti")
    )


def integrity(known: DataFrame, first: DataFrame | None) -> DataFrame:
    """(P3) Find messages that were delivered and not sent, or delivered again and not marked so."""
    message = {"world": F.col("world"), "message": F.col("message"), "position": F.col("position")}
    nowhere = known.where("deliveries > 0 AND sends = 0")
    found = shaped(nowhere, "nowhere", member=_member_of("who"), **message)
    # The reference of a view stands for all its members; a message has one view.
    again = known.where("deliveries > 1 AND who = last_who")
    if first is None:
        twice = shaped(again, "twice", member=_member_of("who"), **message)
        return found.unionByName(twice)
    doubtful = first.where("unmarked > IF(redelivered, 0, 1)")
    marked = first.select("world", "message").distinct()
    again = again.join(marked, ["world", "message"], "left_anti")
    return (
        found.unionByName(shaped(again, "twice", member=_member_of("who"), **message))
    ).unionByName(shaped(doubtful, "twice", member=F.col("member"), **message))


def same_view(known: DataFrame, first: DataFrame | None) -> DataFrame:
    """(P4) Find messages that two members delivered in different views, or one in another view than
    the message's."""
    message = {"world": F.col("world"), "message": F.col("message"), "position": F.col("position")}
    several = known.where((F.col("deliveries") > 1) & (_view_of("who") != _view_of("last_who")))
    found = shaped(
        several,
        "P4",
        member=_member_of("who"),
        other_member=_member_of("last_who"),
        other=_view_of("last_who"),
        times=_view_of("who"),
        **message,
    )
    if first is None:
        return found
    other = first.where("view <> view_id").join(
        several.select("world", "message"), ["world", "message"], "left_anti"
    )
    return found.unionByName(
        shaped(
            other,
            "P4 own",
            member=F.col("member"),
            other=F.col("view"),
            times=F.col("view_id"),
            **message,
        )
    )


def outside(rows: DataFrame) -> DataFrame:
    """Return deliveries by members that had left, or of messages that are in their state
    already."""
    message = {"world": F.col("world"), "message": F.col("message"), "position": F.col("position")}
    left = shaped(rows.where("doubtful AND outside"), "left", member=F.col("member"), **message)
    held = rows.where("doubtful AND NOT outside AND position <= cut")
    return left.unionByName(
        shaped(held, "in state", member=F.col("member"), other=F.col("cut"), **message)
    )


def places(known: DataFrame, first: DataFrame) -> DataFrame:
    """Find messages with several positions, and positions with several messages."""
    moved = known.where("deliveries > 0 AND position <> last_position")
    found = shaped(
        moved,
        "moved",
        world=F.col("world"),
        message=F.col("message"),
        position=F.col("position"),
        other=F.col("last_position"),
    )
    taken = first.groupBy("world", "position").agg(
        F.min("message").alias("message"), F.max("message").alias("last_message")
    )
    shared = taken.where("message <> last_message")
    return found.unionByName(
        shaped(
            shared,
            "shared",
            world=F.col("world"),
            message=F.concat_ws(" and ", "message", "last_message"),
            position=F.col("position"),
        )
    )
