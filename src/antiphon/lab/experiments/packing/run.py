"""`antiphon experiment packing`: JBora's measurements of message packing (its section 5), here.

JBora's sources send continuously with fixed sizes, with 1000 and 3000 bytes in turn, and in bursts
(`measure.py`). Spark evaluates throughput, early latency and processor time: JBora's tables 1 to 3
and figures 3, 5 and 6, redrawn (`lab/experiments/packing/report.py`). A figure is the median of the
rounds, and a ratio that of the ratios within each round.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from pyspark.sql import SparkSession

from antiphon.lab.experiments import raw_events
from antiphon.lab.experiments.evaluation import Row, with_losses
from antiphon.lab.experiments.output import Output
from antiphon.lab.experiments.packing import measure as packing_runs
from antiphon.lab.experiments.packing.measure import EVERY_S
from antiphon.lab.experiments.packing.plan import QUICK, Plan
from antiphon.lab.experiments.packing.report import Over, medians, tell
from antiphon.lab.experiments.processes import Done, Look
from antiphon.spark import session
from antiphon.spark.traces import latency
from antiphon.terminal.lines import say, say_json

WHAT = "antiphon experiment packing"


def run(args: argparse.Namespace) -> int:
    plan = QUICK if args.quick else Plan()
    session.check(WHAT)
    output = Output(args.out, "Packing: JBora's tables 1 to 3, and figures 3, 5 and 6")
    notes = measure(plan, output.raw)
    with session.start(WHAT, args.master, latency.SETTINGS) as spark:
        rows, over = evaluate(spark, notes, output.raw)
    tell(rows, over, plan, output)
    path = output.finish(rows)
    if args.json:
        say_json({"report": str(path), "results": rows})
    else:
        say(f"report: {path}")
    return int(any(row["lost"] for row in rows))


class Notes:
    """The facts of each run; its events are in the folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.facts: dict[str, Row] = {}
        self.looks: dict[str, list[Look]] = {}  # by source: how packs grew with hill climbing

    def take(self, source: str, policy: str, done: Done) -> None:
        raw_events.write(done, self._folder)
        self.facts[done.run.name] = packing_runs.facts(source, policy, done)
        if done.looks:
            self.looks[source] = done.looks


def measure(plan: Plan, folder: Path) -> Notes:
    notes = Notes(folder)
    packing_runs.measure(plan, notes.take)
    return notes


def evaluate(spark: SparkSession, notes: Notes, folder: Path) -> tuple[list[Row], dict[str, Over]]:
    """Return the figures of each run, and the course of hill climbing, by source."""
    messages = latency.messages(session.parquet(spark, folder)).cache()
    found = {row["run"]: row for row in latency.rows(latency.by_run(messages))}
    over = {source: Over(looks, []) for source, looks in notes.looks.items()}
    climbing = messages.filter(messages["run"].endswith("-climbing"))
    for row in latency.rows(latency.over_time(climbing, EVERY_S)):
        over[row["run"].removesuffix("-climbing")].rates.append(row)
    messages.unpersist()
    rows = [with_losses({**fact, **found[name]}) for name, fact in notes.facts.items()]
    return medians(rows), over
