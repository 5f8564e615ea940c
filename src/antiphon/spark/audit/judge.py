"""`antiphon audit`: whether groups kept their promises, from traces of any size.

It is the second judge, beside `checkers/groups.py`: written from the same specification (thesis
4.2, docs/groups.md), in another way. Time is proportional to the rows of the trace:

1. Who was a member when (`members.py`): few rows, on the driver. Views are judged there.
2. One scan finds the parts on which all members agree (`fingerprints.py`).
3. Doubtful parts, and one member's deliveries of the others, are judged message by message
   (`messages.py`, `order.py`).

Each group of each run is a world of its own. A topic without views is not a group, and not judged.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from functools import reduce
from typing import NamedTuple

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession

from antiphon.spark.audit import (
    fingerprints,
    members,
    order,
    views,
)
from antiphon.spark.audit import (
    messages as audit_messages,
)
from antiphon.spark.audit import (
    rows as audit_rows,
)
from antiphon.spark.audit.findings import PROPERTIES, Finding
from antiphon.spark.audit.fingerprints import RANGE, Agreement
from antiphon.spark.audit.members import Cast
from antiphon.spark.audit.order import TOLD_MAX
from antiphon.spark.audit.sentences import FindingWriter, Found


class Verdict(NamedTuple):
    """The result of an audit: the rows that it read, how many things it checked for each property,
    and its findings."""

    rows: int
    seconds: float
    checked: dict[str, int]
    violations: dict[str, int]
    findings: list[Finding]


def judge(spark: SparkSession, trace: DataFrame, range_size: int = RANGE) -> Verdict:
    """Judge a trace with the columns of `spark/traces/table.py: SCHEMA`."""
    began = time.monotonic()
    lives, rows = audit_rows.lives(trace)
    cast = members.read(audit_rows.told(trace), lives)
    findings = [f for world in cast.worlds for f in views.judge(world)]
    findings += [f for world in cast.worlds for f in views.judge_cuts(world)]
    known = audit_rows.stretches(spark, cast)
    prints = fingerprints.take(audit_rows.deliveries(trace, known), range_size)
    agreement = fingerprints.compare(cast, prints)
    search = _Search(spark, trace, cast, agreement, range_size)
    try:
        found, counts = search.run()
    finally:
        search.forget()
    findings += FindingWriter(cast, prints).tell(found)
    return Verdict(
        rows,
        time.monotonic() - began,
        _checked(cast, agreement, counts),
        dict(Counter(finding.property for finding in findings)),
        findings,
    )


def _checked(cast: Cast, agreement: Agreement, counts: dict[str, int]) -> dict[str, int]:
    """Return how many things were checked for each property: messages, deliveries, views or
    states."""
    delivered: Counter[str] = Counter()
    for one in agreement.prints:
        delivered["all"] += one.deliveries
        if cast.members[one.member].durable:
            delivered["durable"] += one.deliveries
        if cast.worlds[one.world].is_total:
            delivered["total"] += one.deliveries
    checked = dict.fromkeys(PROPERTIES, delivered["all"])
    checked["total"], checked["durable"] = delivered["total"], delivered["durable"]
    checked["views"] = sum(len(member.views) for member in cast.members)
    checked["state"] = sum(len(member.cuts) for member in cast.members)
    return {**checked, **counts}


class _Search:
    """The part of the audit that judges messages."""

    def __init__(
        self,
        spark: SparkSession,
        trace: DataFrame,
        cast: Cast,
        agreement: Agreement,
        range_size: int,
    ) -> None:
        self._spark = spark
        self._cast = cast
        self._agreement = agreement
        self._range_size = range_size
        known = audit_rows.stretches(spark, cast, agreement)
        found = audit_rows.deliveries(trace, known)
        rows = audit_rows.sift(spark, found, agreement, range_size)
        self._sends = audit_rows.sends(trace, spark, cast)
        self._kept: list[DataFrame] = []
        self._rows = self._keep(rows)
        self._first = None
        if agreement.doubtful:
            self._first = self._keep(audit_messages.firsts(self._rows))
        first = self._first if self._first is not None else _nothing(self._rows)
        self._messages = self._keep(audit_messages.messages(self._rows, first, self._sends))

    def _keep(self, frame: DataFrame) -> DataFrame:
        kept = frame.persist(StorageLevel.MEMORY_AND_DISK)
        self._kept.append(kept)
        return kept

    def forget(self) -> None:
        for frame in self._kept:
            frame.unpersist()

    def run(self) -> tuple[list[Found], dict[str, int]]:
        checked = self._messages.selectExpr(
            "coalesce(sum(acknowledged), 0) AS P1",
            "count_if(placed = 1 AND total = 1) AS fifo",
            "count_if(clocked = 1 AND total = 1) AS causal",
        ).collect()[0]
        found = reduce(DataFrame.unionByName, self._searches(bool(checked["causal"])))
        rows = found.limit(TOLD_MAX).toArrow().to_pydict()
        told = [Found._make(values) for values in zip(*rows.values(), strict=True)]
        return told, checked.asDict()

    def _searches(self, has_clocks: bool) -> Iterator[DataFrame]:
        messages, first, cast, spark = self._messages, self._first, self._cast, self._spark
        yield audit_messages.validity(spark, cast, messages)
        yield audit_messages.integrity(messages, first)
        yield audit_messages.same_view(messages, first)
        gaps = in_order = None
        if first is not None:
            yield audit_messages.agreement(spark, cast, first)
            yield audit_messages.outside(self._rows)
            yield audit_messages.places(messages, first)
            gaps = audit_messages.gaps(spark, cast, first, self._agreement.prints)
            # The messages of a state come later, if the state was not acknowledged.
            in_order = first.where("position > earlier_cut")
        yield order.generic(spark, cast, order.deliveries(self._rows, in_order, gaps))
        yield order.fifo(messages, in_order, self._range_size)
        if has_clocks:
            yield order.causal(messages, self._sends)


def _nothing(rows: DataFrame) -> DataFrame:
    return audit_messages.firsts(rows.where("false"))
