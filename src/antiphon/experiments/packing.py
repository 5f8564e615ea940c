"""`antiphon experiment packing`: JBora's measurements of message packing (its section 5), here.

Three servers without stable storage, three members, and a publisher for each packing policy
(`api/conversation_policies.py`), which send from JBora's sources: continuously with fixed sizes,
with 1000 and 3000 bytes in turn, and in bursts. Measured are throughput, early latency and
processor time: JBora's tables 1 to 3 and figures 3, 5 and 6, redrawn.

The policies take turns, round by round, so that whatever else happens on the machine hits all of
them; a figure is the median of the rounds, and a ratio that of the ratios within each round.

`cpu_percent` is that of the publisher and the server it is connected to, as a part of one core:
what JBora calls a replica is a program and the daemon beside it. `cpu_us` is the processor time of
all processes for one message.
"""

from __future__ import annotations

import argparse
import json
from contextlib import ExitStack
from pathlib import Path

from pyspark.sql import SparkSession
from rich.console import Console
from rich.progress import Progress

from antiphon.experiments import raw
from antiphon.experiments.crew import Crew, Done, Look, Run
from antiphon.experiments.groups import with_losses
from antiphon.experiments.output import Output, Row
from antiphon.experiments.packing_plan import MEMBERS, QUICK, SERVERS, SOURCES, Plan
from antiphon.experiments.packing_report import Over, medians, tell
from antiphon.spark import latency, session

WARM_S = 0.2
EVERY_S = 0.25
"""A point of a curve over time."""


def run(args: argparse.Namespace) -> int:
    plan = QUICK if args.quick else Plan()
    output = Output(args.out, "Packing: JBora's tables 1 to 3, and figures 3, 5 and 6")
    notes = measure(plan, output.raw)
    with session.start("antiphon experiment packing", args.master, latency.SETTINGS) as spark:
        rows, over = evaluate(spark, notes, output.raw)
    tell(rows, over, plan, output)
    path = output.finish(rows)
    print(json.dumps({"report": str(path), "results": rows}) if args.json else f"report: {path}")
    return int(any(row["lost"] for row in rows))


# -- Measuring -------------------------------------------------------------------------------------


class Notes:
    """What is known of each run besides its events, which are in the folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.facts: dict[str, Row] = {}
        self.looks: dict[str, list[Look]] = {}  # by source: how packs grew with hill climbing

    def take(self, source: str, policy: str, done: Done) -> None:
        raw.write(done, self._folder)
        self.facts[done.run.name] = {"source": source, "policy": policy, **figures(done)}
        if done.looks:
            self.looks[source] = done.looks


def measure(plan: Plan, folder: Path) -> Notes:
    notes = Notes(folder)
    with (
        Progress(console=Console(stderr=True), transient=True) as progress,
        ExitStack() as stack,
    ):
        bar = progress.add_task("starting", total=len(plan.degrees))
        crew = Crew(stack, SERVERS, "memory", "replicated")
        crew.grow(MEMBERS)
        for source in plan.degrees:
            progress.update(bar, description=source)
            _in_turns(crew, plan, source, notes)
            with crew.publisher(plan.climbing) as work:
                run = Run(f"{source}-climbing", SOURCES[source], plan.climbing_s, watched=True)
                notes.take(source, plan.climbing, work(run))
            progress.advance(bar)
    return notes


def _in_turns(crew: Crew, plan: Plan, source: str, notes: Notes) -> None:
    with ExitStack() as stack:
        policies = plan.in_turns(source)
        works = {policy: stack.enter_context(crew.publisher(policy)) for policy in policies}
        for work in works.values():
            work(Run("warm", SOURCES[source], WARM_S))
        for number in range(plan.rounds):
            for policy, work in works.items():
                run = Run(f"{source}-{policy}-{number}", SOURCES[source], plan.seconds)
                notes.take(source, policy, work(run))


def figures(done: Done) -> Row:
    messages = len(done.sent.times)
    seconds = max(d.times[-1] for d in done.delivered) - done.sent.times[0]
    return {
        "members": len(done.delivered),
        "sent": messages,
        "messages_per_pack": messages / max(1, done.packs),
        "cpu_us": done.cpu_s / messages * 1e6,
        "cpu_percent": (done.sent.cpu_s + done.leader_cpu_s) / seconds * 100,
    }


def evaluate(spark: SparkSession, notes: Notes, folder: Path) -> tuple[list[Row], dict[str, Over]]:
    """The figures of each run, and how hill climbing did over time, by source."""
    messages = latency.messages(spark.read.parquet(str(folder))).cache()
    found = {row["run"]: row for row in latency.rows(latency.by_run(messages))}
    over = {source: Over(looks, []) for source, looks in notes.looks.items()}
    climbing = messages.filter(messages["run"].endswith("-climbing"))
    for row in latency.rows(latency.over_time(climbing, EVERY_S)):
        over[row["run"].removesuffix("-climbing")].rates.append(row)
    messages.unpersist()
    rows = [with_losses({**fact, **found[name]}) for name, fact in notes.facts.items()]
    return medians(rows), over
