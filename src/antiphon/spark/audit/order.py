"""P5 and the orders that it implies: total, FIFO and causal (thesis 4.2.3).

One order is known, that of the positions. So a member keeps P5 if it delivers no message after one
that conflicts with it and has a later position: it is enough to compare with the highest position
so far among the conflicting messages. For that each message leaves its position in a *stream* of
its class, and is compared with the streams of the classes that it conflicts with. Where all
messages conflict there is one stream. A message that overtook others is found once, however many
they are.
"""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812

from antiphon.spark.audit.members import Cast, Epoch
from antiphon.spark.audit.messages import shaped
from antiphon.spark.audit.rows import small

NEVER = 1 << 62
TOLD_MAX = 100_000
"""Most findings of a kind that are reported."""
_ORDERED = ("world", "member", "lane", "life", "seq", "position", "message", "tag", "key", "total")
_BEFORE = (Window.unboundedPreceding, -1)
# All messages conflict, and all rows have the same place for the message.
_IN_ONE_ORDER = "total = 1 AND position = last_position"


def deliveries(rows: DataFrame, first: DataFrame | None, gaps: DataFrame | None) -> DataFrame:
    """Return deliveries in lanes: those of parts that are not doubtful are in order, except within
    one range; a message that a member left out comes never."""
    agreed = rows.where("NOT doubtful").withColumn("lane", F.col("range")).select(*_ORDERED)
    if first is None or gaps is None:
        return agreed
    never = F.lit(NEVER)
    left_out = gaps.withColumns({"life": never, "seq": never, "lane": F.lit(-1)})
    return (agreed.unionByName(first.withColumn("lane", F.lit(-1)).select(*_ORDERED))).unionByName(
        left_out.select(*_ORDERED)
    )


def generic(spark: SparkSession, cast: Cast, rows: DataFrame) -> DataFrame:
    """(P5) Find messages that overtook others that conflict with them. `rows` come from
    `deliveries`."""
    epochs = [
        (world.number, *_epoch_row(number, epoch))
        for world in cast.worlds
        if not world.is_total
        for number, epoch in enumerate(world.epochs())
    ]
    if not epochs:
        return _late(rows.withColumn("limit", F.col("position") - 1))
    table = small(spark, epochs, _EPOCH)
    fits = (
        (F.col("world") == F.col("epoch_world"))
        & (F.col("position") > F.col("after"))
        & (F.col("position") <= F.col("upto"))
    )
    told = rows.join(F.broadcast(table), fits, "left")
    one_order = F.coalesce("one_order", F.lit(True))
    limit = F.when(one_order, F.col("position") - 1).otherwise(F.col("upto"))
    across = _late(told.withColumn("limit", limit))
    return across.unionByName(_late_in_streams(told.where(~one_order & ~F.col("nothing"))))


_EPOCH = {
    "epoch_world": pa.int32(),
    "epoch": pa.int32(),
    "after": pa.int64(),
    "upto": pa.int64(),
    "one_order": pa.bool_(),
    "nothing": pa.bool_(),
    "keyed": pa.bool_(),
    "asked": pa.map_(pa.string(), pa.list_(pa.string())),
}


def _epoch_row(number: int, epoch: Epoch) -> tuple[object, ...]:
    relation = epoch.relation
    asked = [
        (tag, [other for other in relation.tags if relation.conflict(tag, None, other, None)])
        for tag in relation.tags
    ]
    nothing, keyed = relation.nothing, relation.keyed
    return number, epoch.after, epoch.upto, epoch.is_total, nothing, keyed, asked


def _late(rows: DataFrame) -> DataFrame:
    """Return the messages that come after one behind their limit."""
    window = Window.partitionBy("member", "lane").orderBy("life", "seq").rowsBetween(*_BEFORE)
    late = rows.withColumn("top", F.max("position").over(window)).where("top > limit")
    return _overtakers(late)


def _overtakers(late: DataFrame) -> DataFrame:
    found = late.groupBy("world", "member", "top").agg(
        F.count("*").alias("times"),
        F.min(F.struct("position", "message", "seq", "total")).alias("one"),
    )
    return shaped(
        found,
        "P5",
        world=F.col("world"),
        member=F.col("member"),
        never=F.col("one.seq") == NEVER,
        message=F.col("one.message"),
        position=F.col("one.position"),
        other=F.col("top"),
        times=F.col("times"),
    )


def _late_in_streams(rows: DataFrame) -> DataFrame:
    """Return late messages by streams: a tag's stream is `=tag`, that of messages without one `-`,
    that of all messages `*`; the same for keys."""
    known = F.col("tag").isNotNull() & F.map_contains_key("asked", F.coalesce("tag", F.lit("")))
    own_tag = F.when(known, F.concat(F.lit("="), "tag")).otherwise(F.lit("-"))
    conflicting = F.transform(
        F.col("asked")[F.col("tag")], lambda other: F.concat(F.lit("="), other)
    )
    none, every = F.lit("-"), F.lit("*")
    tags_left = F.array(own_tag, every)
    tags_asked = F.when(known, F.concat(conflicting, F.array(none))).otherwise(F.array(every))
    has_key = F.col("keyed") & F.col("key").isNotNull()
    own_key = F.when(has_key, F.concat(F.lit("="), "key")).otherwise(none)
    keys_left = F.when(F.col("keyed"), F.array(own_key, every)).otherwise(F.array(every))
    keys_asked = F.when(has_key, F.array(own_key, none)).otherwise(F.array(every))
    plain = ("world", "member", "lane", "life", "seq", "position", "message", "epoch", "total")
    left = _streams(rows, plain, tags_left, keys_left).withColumn("leaves", F.lit(1))
    asks = _streams(rows, plain, tags_asked, keys_asked).withColumn("leaves", F.lit(0))
    window = (
        Window.partitionBy("member", "lane", "epoch", "of_tag", "of_key")
        .orderBy("life", "seq", "leaves", "position")
        .rowsBetween(*_BEFORE)
    )
    top = F.max(F.when(F.col("leaves") == 1, F.col("position"))).over(window)
    late = left.unionByName(asks).withColumn("top", top).where("leaves = 0 AND top > position")
    return _overtakers(late.dropDuplicates(["member", "message", "top"]))


def _streams(rows: DataFrame, plain: tuple[str, ...], tags: Column, keys: Column) -> DataFrame:
    with_tags = rows.withColumn("of_tag", F.explode(tags))
    return with_tags.withColumn("of_key", F.explode(keys)).select(*plain, "of_tag", "of_key")


def fifo(known: DataFrame, first: DataFrame | None, range_size: int) -> DataFrame:
    """Find messages out of their sender's order: where there is one order, it keeps that of each
    sender, and all members follow it."""
    found = _out_of_place(known.where(f"placed = 1 AND {_IN_ONE_ORDER}"), range_size)
    found = found.groupBy("world", "sender", "top").agg(
        F.count("*").alias("times"), F.min(F.struct("position", "message")).alias("one")
    )
    everywhere = shaped(
        found,
        "fifo",
        world=F.col("world"),
        message=F.col("one.message"),
        position=F.col("one.position"),
        other=F.col("top"),
        times=F.col("times"),
    )
    return everywhere if first is None else everywhere.unionByName(_fifo_at_members(first))


def _out_of_place(placed: DataFrame, range_size: int) -> DataFrame:
    """Return messages behind a later one of their sender; the latest is `top`. Tasks divide ranges
    of positions, for one sender may have sent all messages."""
    of_sender = ("world", "sender")
    ranged = placed.withColumn("range", F.expr(f"position div {range_size}"))
    within = Window.partitionBy(*of_sender, "range").orderBy("position").rowsBetween(*_BEFORE)
    latest = F.max("sender_seq")
    ranges = ranged.groupBy(*of_sender, "range").agg(
        F.min("sender_seq").alias("earliest"), latest.alias("latest")
    )
    ranges_before = Window.partitionBy(*of_sender).orderBy("range").rowsBetween(*_BEFORE)
    ranges = ranges.withColumn("before", F.max("latest").over(ranges_before))
    crossing = ranges.where("before > earliest").select(*of_sender, "range", "before")
    told = ranged.withColumn("within", latest.over(within)).join(
        F.broadcast(crossing), [*of_sender, "range"], "left"
    )
    return told.withColumn("top", F.greatest("within", "before")).where("top > sender_seq")


def _fifo_at_members(first: DataFrame) -> DataFrame:
    window = (
        Window.partitionBy("world", "member", "sender").orderBy("life", "seq").rowsBetween(*_BEFORE)
    )
    told = first.where("total AND sender <> '' AND sender_seq >= 0")
    late = told.withColumn("top", F.max(F.struct("sender_seq", "position")).over(window))
    late = late.where("top.sender_seq > sender_seq AND top.position > position")
    found = late.groupBy("world", "member", "sender", "top").agg(
        F.count("*").alias("times"), F.min(F.struct("position", "message")).alias("one")
    )
    return shaped(
        found,
        "fifo",
        world=F.col("world"),
        member=F.col("member"),
        message=F.col("one.message"),
        position=F.col("one.position"),
        other=F.col("top.sender_seq"),
        times=F.col("times"),
    )


def causal(known: DataFrame, sends: DataFrame) -> DataFrame:
    """Find messages before their causes: where there is one order, the messages that a sender had
    got before it sent come before its own. Those that no other member delivers are lost, and
    reported as that."""
    of_message = ["world", "message"]
    placed = known.where(_IN_ONE_ORDER)
    told = sends.where("clocked").select(*of_message, "clock")
    effects = (
        told.join(placed.select(*of_message, "position", "sender"), of_message)
        .select(*of_message, "position", F.col("sender").alias("own"), F.explode("clock"))
        .select(*of_message, "position", "own", F.xxhash64("key").alias("sender"), "value")
        .where("sender <> own")  # that would be FIFO
        .withColumnRenamed("value", "sender_seq")
    )
    causes = placed.select("world", "sender", "sender_seq", F.col("position").alias("cause"))
    late = effects.join(causes, ["world", "sender", "sender_seq"]).where("cause > position")
    found = late.groupBy(*of_message).agg(
        F.min("position").alias("position"), F.max("sender_seq").alias("needs")
    )
    return shaped(
        found,
        "causal",
        world=F.col("world"),
        message=F.col("message"),
        position=F.col("position"),
        other=F.col("needs"),
    )
