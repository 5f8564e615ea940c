"""The demo's report: the audit of its traces, and how the table did while servers and members died.

One HTML file. Times count from the first write; everything is read from the traces, except for the
kills and starts, which the demo knows. All processes ran on one machine and so on one clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  (as everybody calls it)

from antiphon.lab.demo.member import GROUP
from antiphon.reports.charts import Line, Mark, line_chart
from antiphon.reports.html import Report, machine
from antiphon.spark import session
from antiphon.spark.audit import judge
from antiphon.spark.audit.findings import PROPERTIES
from antiphon.spark.audit.judge import Verdict
from antiphon.spark.traces import latency
from antiphon.spark.traces import table as trace_table

EVERY_S = 0.5
Point = tuple[float, float]


def write(
    spark: SparkSession, traces: Path, happened: Sequence[Mark], table: Path, out: Path
) -> Verdict:
    """`happened` is on the traces' clock; `table` is where their Parquet table may be put."""
    trace_table.write(trace_table.trace_files(traces), table)
    trace = session.parquet(spark, table)
    verdict = judge.judge(spark, trace)
    report = Report("Antiphon's demo")
    _audited(report, verdict)
    _drawn(report, trace.filter(F.col("group") == f"topic:{GROUP}"), happened)
    report.text(f"{machine()}.")
    report.write(out)
    return verdict


def _audited(report: Report, verdict: Verdict) -> None:
    report.heading("The audit of all traces")
    report.text(
        f"{verdict.rows:,} events; {len(verdict.findings)} broken promises. "
        "`antiphon audit` does the same with any trace."
    )
    report.table(
        ("property", "checked", "violations"),
        [(name, verdict.checked[name], verdict.violations.get(name, 0)) for name in PROPERTIES],
    )
    for finding in verdict.findings:
        report.text(str(finding))


def _drawn(report: Report, trace: DataFrame, happened: Sequence[Mark]) -> None:
    rows = latency.rows(latency.over_time(latency.messages(trace), EVERY_S))
    if not rows:
        return
    began = rows[0]["at"]
    marks = _marks(trace, happened, began)
    report.heading("While it ran")
    report.text(
        "Requests that were delivered to the group, and how long each took from the call to its "
        f"first delivery, in stretches of {EVERY_S:g} s."
    )
    rates = with_gaps([(row["at"] - began, row["messages_per_s"]) for row in rows])
    throughput = [Line("requests/s", rates)]
    report.chart(line_chart("Throughput", "s", "requests/s", throughput, marks))
    latencies = [
        Line(name, [(row["at"] - began, row[column]) for row in rows])
        for name, column in (("p50", "early_p50_ms"), ("p99", "early_p99_ms"))
    ]
    report.chart(line_chart("Latency", "s", "ms to the first delivery", latencies, marks))
    report.table(("s", "what happened"), [(round(mark.x, 1), mark.text) for mark in marks])


def _marks(trace: DataFrame, happened: Sequence[Mark], began: float) -> list[Mark]:
    views = trace.filter("kind = 'view'").groupBy("view_id").agg(F.min("at").alias("at"))
    marks = [Mark(row["at"], f"view {row['view_id']}") for row in views.collect()]
    later = [mark for mark in (*marks, *happened) if mark.x >= began]
    return sorted(mark._replace(x=mark.x - began) for mark in later)


def with_gaps(points: Sequence[Point]) -> list[Point]:
    """Return the points with zeros where nothing was delivered."""
    known: dict[int, Any] = {round(x / EVERY_S): y for x, y in points}
    return [(n * EVERY_S, known.get(n, 0.0)) for n in range(max(known) + 1)]
