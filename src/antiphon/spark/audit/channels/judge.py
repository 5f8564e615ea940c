"""`antiphon audit` of traces of channels, of any size: the second judge of channels, beside
`checkers/peer_views.py` and `checkers/orders.py`.

1. Views are few: they are judged on the driver (`views.py`).
2. What processes delivered in whole views is summed up by stay, and compared (`ends.py`).
3. Single packs (`messages.py`), and the orders of senders and of causes (`causes.py`), are joins
   and windows over all packs.

A pack is what is delivered: all messages in it were sent at once, and have one place in each order.
Every property of a stack with all layers is checked: a trace of a stack that promises less breaks
those that it does not promise.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from functools import reduce
from typing import Any, NamedTuple

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession

from antiphon.spark.audit.channels import causes, ends, messages, views
from antiphon.spark.audit.channels import rows as channel_rows
from antiphon.spark.audit.channels.findings import PROPERTIES, Finding, World, life_name, view_name
from antiphon.spark.audit.channels.rows import PACK

TOLD_MAX = 10_000
"""More findings about packs than that are not told."""


class Verdict(NamedTuple):
    """The result of an audit: what it read, on how many views or deliveries it checked each
    property, and what it found."""

    rows: int
    seconds: float
    checked: dict[str, int]
    violations: dict[str, int]
    findings: list[Finding]


def judge(spark: SparkSession, trace: DataFrame, complete: bool = False) -> Verdict:
    """`trace` has the columns of `CHANNELS` (`spark/traces/table.py`). `complete`: all had come to
    rest when the traces ended."""
    began = time.monotonic()
    lives, count = channel_rows.lives(trace)
    all_stays = views.stays(lives, channel_rows.shown(trace))
    findings = list(views.judge(all_stays))
    stays = channel_rows.table_of(spark, all_stays)
    sent = channel_rows.sends(trace)
    rows = channel_rows.deliveries(trace, stays, sent, lives, spark)
    kept = [rows.persist(StorageLevel.MEMORY_AND_DISK)]
    kept.append(causes.firsts(rows).persist(StorageLevel.MEMORY_AND_DISK))
    kept.append(causes.known(kept[1]).persist(StorageLevel.MEMORY_AND_DISK))
    try:
        told = ends.sums(rows)
        parted = ends.partings(rows)
        findings += ends.Ends(all_stays, told, parted, complete).judge()
        searches = [
            *_of_packs(trace, rows, sent, stays, complete),
            causes.fifo(kept[1], kept[2], stays),
            causes.causal(kept[1], kept[2], causes.causes(kept[1], sent)),
        ]
        findings += _told(reduce(DataFrame.unionByName, searches))
    finally:
        for frame in kept:
            frame.unpersist()
    delivered = sum(one.packs for one in told.values())
    checked = {name: len(all_stays) if name in OF_VIEWS else delivered for name in PROPERTIES}
    broken = Counter(finding.property for finding in findings)
    return Verdict(count, time.monotonic() - began, checked, dict(broken), findings)


OF_VIEWS = PROPERTIES[: PROPERTIES.index("virtual synchrony")]


def _of_packs(
    trace: DataFrame, rows: DataFrame, sent: DataFrame, stays: DataFrame, complete: bool
) -> Iterator[DataFrame]:
    yield messages.once(rows)
    yield messages.inside(rows)
    yield messages.one_view(rows, messages.ordered(rows, sent, stays))
    if complete:
        yield messages.own(rows, sent, stays)
    receipts = trace.where("kind = 'receive'").select(*PACK, "view", "life")
    yield messages.safe(rows, receipts, stays)


def _told(found: DataFrame) -> Iterator[Finding]:
    for row in found.limit(TOLD_MAX).toArrow().to_pylist():
        property_, text = _SENTENCES[row["rule"]]
        words = {
            "who": life_name(row["life"] or row["sender"] or ""),
            "pack": f"{life_name(row['sender'])}:{row['first']}",
            "other": _other(row),
        }
        yield Finding(property_, World(row["run"], row["cluster"]), text.format(**words))


def _other(row: dict[str, Any]) -> str:
    """Return what a rule compares with, as people read it."""
    other: str = row["other"] or ""
    if row["rule"] == "safe":
        return life_name(other)
    if row["rule"] == "causal":
        sender, _, first = other.rpartition(" ")
        return f"{life_name(sender)}:{first}"
    return view_name(other) if other else ""


_SENTENCES = {
    "twice": ("once", "{who} delivers {pack} twice"),
    "unlike": ("once", "{who} delivers {pack} otherwise than it was sent"),
    "for others": ("once", "{who} delivers {pack}, which was sent to others"),
    "unsent": ("once", "{who} delivers {pack}, which was never sent"),
    "other view": ("inside", "{who} delivers {pack} of {other} in another view"),
    "outside": ("inside", "{who} delivers {pack} in {other}, from outside"),
    "one view": ("one view", "{pack} is delivered in {other} and in another view"),
    "own": ("own", "{who} sent {pack} and has not got it"),
    "safe": ("safe", "{who} delivers {pack}, and {other} never has it"),
    "fifo": ("fifo", "{who} delivers {pack} before an earlier one of the same sender"),
    "fifo late": ("fifo", "{who} delivers {pack} after a later one of the same sender"),
    "causal": ("causal", "{who} delivers {pack} before its cause {other}"),
}
