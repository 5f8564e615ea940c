"""Single packs: delivered once, in one view, from inside, by their senders too; and safe ones only
when all have them."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from antiphon.spark.audit.channels.rows import AGREED, PACK, SAFE, WORLD

SHAPE = {
    "rule": "string",
    "run": "string",
    "cluster": "string",
    "life": "string",
    "sender": "string",
    "first": "long",
    "other": "string",  # a life, a view or a pack, whatever the rule compares with
}


def shaped(rows: DataFrame, rule: str, **columns: Column) -> DataFrame:
    """Return findings of a rule with all columns of `SHAPE`; those that are not there are null."""
    given = {"rule": F.lit(rule), **columns}
    values = [
        given.get(name, F.col(name) if name in rows.columns else F.lit(None)) for name in SHAPE
    ]
    return rows.select(
        *(
            value.cast(kind).alias(name)
            for value, (name, kind) in zip(values, SHAPE.items(), strict=True)
        )
    )


def once(rows: DataFrame) -> DataFrame:
    """Delivered twice; or not sent, or otherwise than it is delivered."""
    twice = rows.groupBy(*PACK, "life").count().where("count > 1")
    unlike = rows.where("sent_level <> level OR sent_count <> count")
    elsewhere = rows.where("NOT for_all AND NOT array_contains(sent_to, life)")
    unsent = rows.where("is_known AND sent_seq IS NULL")
    return (
        shaped(twice, "twice")
        .unionByName(shaped(unlike, "unlike"))
        .unionByName(shaped(elsewhere, "for others"))
        .unionByName(shaped(unsent, "unsent"))
    )


def inside(rows: DataFrame) -> DataFrame:
    """Delivered in another view than its own, or from outside of the view."""
    other = rows.where("view <> stay_view")
    outside = rows.where("view = stay_view AND NOT array_contains(members, sender)")
    return shaped(other, "other view", other=F.col("view")).unionByName(
        shaped(outside, "outside", other=F.col("stay_view"))
    )


def ordered(rows: DataFrame, sent: DataFrame, stays: DataFrame) -> DataFrame:
    """Return the packs that may have a place in the total order, which may be given anew to who was
    cut off: agreed ones, what was sent behind others that had not come back, and what the leader of
    a primary view sent or had not got back."""
    back = rows.where("life = sender").groupBy(*PACK).agg(F.min("seq").alias("back_seq"))
    mine = sent.where("sent_to IS NULL").join(back, list(PACK), "left")
    mine = mine.withColumn("back_seq", F.coalesce("back_seq", F.lit(1 << 62)))
    before = Window.partitionBy(*WORLD, "sender").orderBy("sent_seq")
    waits_for = F.max("back_seq").over(before.rowsBetween(Window.unboundedPreceding, -1))
    mine = mine.withColumn("behind", F.coalesce(waits_for > F.col("sent_seq"), F.lit(False)))
    leading = stays.where("leads AND primary").select(
        *WORLD, F.col("life").alias("sender"), "first_seq", "last_seq"
    )
    led = (
        mine.join(F.broadcast(leading), [*WORLD, "sender"])
        .where("first_seq < back_seq AND last_seq > sent_seq")
        .select(*PACK)
    )
    some = sent.where(f"sent_level >= {AGREED}").select(*PACK)
    behind = mine.where("behind").select(*PACK)
    return some.unionByName(behind).unionByName(led).distinct()


def one_view(rows: DataFrame, placed: DataFrame) -> DataFrame:
    """Delivered in two views. What has a place in the order counts in primary views only, and in
    those of each founding by itself."""
    again = placed.withColumn("may_come_again", F.lit(True))
    counted = rows.join(again, list(PACK), "left").where("primary OR may_come_again IS NULL")
    chained = counted.withColumn("chain", F.expr("if(may_come_again, founding, '')"))
    found = chained.groupBy(*PACK, "chain").agg(
        F.min("stay_view").alias("other"),
        F.max("stay_view").alias("last"),
        F.min("life").alias("life"),
    )
    return shaped(found.where("other <> last"), "one view")


def own(rows: DataFrame, sent: DataFrame, stays: DataFrame) -> DataFrame:
    """Sent to all, and not delivered to who sent it and goes on; and nobody has delivered it in a
    primary view of which the sender missed the end."""
    lasting = stays.where("NOT ended").select(*WORLD, F.col("life").alias("sender")).distinct()
    has = rows.where("life = sender").select(*PACK).distinct()
    lost = (
        sent.where("sent_to IS NULL")
        .join(F.broadcast(lasting), [*WORLD, "sender"])
        .join(has, list(PACK), "left_anti")
    )
    kept = stays.where("keeps_own").select(
        *WORLD, F.col("life").alias("sender"), "stay_view", F.lit(True).alias("is_kept")
    )
    elsewhere = (
        rows.where("primary")
        .select(*PACK, "stay_view")
        .join(F.broadcast(kept), [*WORLD, "sender", "stay_view"], "left")
        .where("is_kept IS NULL")
    )
    return shaped(lost.join(elsewhere, list(PACK), "left_anti"), "own")


def safe(rows: DataFrame, receipts: DataFrame, stays: DataFrame) -> DataFrame:
    """Delivered as safe, before its view was closed, and a member of the view never held it."""
    safely = rows.where(f"level >= {SAFE} AND NOT closing AND for_all")
    asked = safely.groupBy(*PACK, "view").agg(
        F.min("life").alias("life"), F.first("members").alias("members")
    )
    asked = asked.withColumn("other", F.explode("members"))
    known = stays.select(*WORLD, F.col("life").alias("other")).distinct()
    holds = receipts.unionByName(rows.select(*PACK, "view", "life")).distinct()
    holds = holds.withColumnRenamed("life", "other")
    lacking = asked.join(F.broadcast(known), [*WORLD, "other"]).join(
        holds, [*PACK, "view", "other"], "left_anti"
    )
    return shaped(lacking, "safe")
