"""`antiphon experiment packing`: JBora's measurements of message packing (its section 5), here.

Three servers without stable storage, three members, and one publisher that connects with each of
the packing policies in turn (`api/conversation_policies.py`) and sends from JBora's sources:
continuously with fixed sizes, with 1000 and 3000 bytes in turn, and in bursts. Measured are
throughput, early latency and processor time: JBora's tables 1 to 3 and figures 3, 5 and 6, redrawn.

`cpu_percent` is that of the publisher and the server it is connected to, as a part of one core:
what JBora calls a replica is a program and the daemon beside it. `cpu_us` is the processor time of
all processes for one message.
"""

from __future__ import annotations

import argparse
import json
import tempfile
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
from antiphon.experiments.packing_report import Over, tell
from antiphon.spark import latency, session

WARM_S = 0.2
EVERY_S = 0.25
"""A point of a curve over time."""


def run(args: argparse.Namespace) -> int:
    plan = QUICK if args.quick else Plan()
    output = Output(args.out, "Packing: JBora's tables 1 to 3, and figures 3, 5 and 6")
    facts, looks = measure(plan, output.raw)
    with session.start("antiphon experiment packing", args.master, latency.SETTINGS) as spark:
        rows, rates = evaluate(spark, facts, output.raw)
    tell(rows, {name: Over(looks[name], rates[name]) for name in looks}, plan, output)
    path = output.finish(rows)
    print(json.dumps({"report": str(path), "results": rows}) if args.json else f"report: {path}")
    return int(any(row["lost"] for row in rows))


# -- Measuring -------------------------------------------------------------------------------------


def measure(plan: Plan, folder: Path) -> tuple[dict[str, Row], dict[str, list[Look]]]:
    """What is known of each run besides its events, which are in the folder; and of those with hill
    climbing how packs grew."""
    facts: dict[str, Row] = {}
    looks: dict[str, list[Look]] = {}
    with (
        tempfile.TemporaryDirectory("-antiphon-experiment") as data,
        Progress(console=Console(stderr=True), transient=True) as progress,
        ExitStack() as stack,
    ):
        bar = progress.add_task("starting", total=len(plan.runs))
        crew = Crew(stack, Path(data, "servers"), SERVERS, "memory", "replicated")
        crew.grow(MEMBERS)
        for source, policy, seconds in plan.runs:
            progress.update(bar, description=f"{source} {policy}")
            done = _work(crew, source, policy, seconds)
            raw.write(done, folder)
            facts[done.run.name] = {"source": source, "policy": policy, **figures(done)}
            if done.looks:
                looks[done.run.name] = done.looks
            progress.advance(bar)
    return facts, looks


def _work(crew: Crew, source: str, policy: str, seconds: float) -> Done:
    climbing = policy.startswith("hill-climbing")
    with crew.publisher(policy) as work:
        if not climbing:  # which begins with its first message
            work(Run("warm", SOURCES[source], WARM_S))
        return work(Run(f"{source}-{policy}", SOURCES[source], seconds, watched=climbing))


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


def evaluate(
    spark: SparkSession, facts: dict[str, Row], folder: Path
) -> tuple[list[Row], dict[str, list[Row]]]:
    """The figures of each run, and how they were over time."""
    messages = latency.messages(spark.read.parquet(str(folder))).cache()
    found = {row["run"]: row for row in latency.rows(latency.by_run(messages))}
    rates: dict[str, list[Row]] = {name: [] for name in facts}
    for row in latency.rows(latency.over_time(messages, EVERY_S)):
        rates[row["run"]].append(row)
    messages.unpersist()
    return [with_losses({**fact, **found[name]}) for name, fact in facts.items()], rates
