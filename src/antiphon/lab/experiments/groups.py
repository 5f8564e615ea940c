"""`antiphon experiment groups`: the thesis' measurements (6.4) on this machine.

A producer that is not a member publishes at full speed to a group; members, spread equally over the
servers, only receive. Measured over group sizes, for 3 and 5 servers: early latency and average
throughput (figures 6.7 and 6.8 with replicated contexts, 6.9 and 6.10 with others); beside them
late latency. As there, servers with replicated contexts have no stable storage and the others do.

The thesis' producer waits for the answer to each message, as JMS has it (`send`); ours is also
measured without waiting (`send_async`).

`experiment architectures` measures the same, of further architectures (`architectures.py`).
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from itertools import product, starmap
from pathlib import Path
from typing import NamedTuple

from pyspark.sql import SparkSession

from antiphon.lab.bench.servers import Place, Serverless, Servers
from antiphon.lab.experiments import published_values, raw_events
from antiphon.lab.experiments.evaluation import Row, with_losses
from antiphon.lab.experiments.load_sources import Source
from antiphon.lab.experiments.output import Output
from antiphon.lab.experiments.processes import ClientProcesses, Done, Run
from antiphon.reports.charts import Line
from antiphon.spark import session
from antiphon.spark.traces import latency
from antiphon.terminal.lines import say, say_json
from antiphon.terminal.screen import Progress

WHAT = "antiphon experiment groups"
SIZES = (1, 2, 3, 5, 10, 15, 20, 25, 30)
QUICK_SIZES = (1, 3)
STORAGE = {"replicated": "memory", "local": "durable"}
TEXT = Source((100,))
"""The thesis says "a single string of text" and no more."""

WARM_S = 0.3


class Architecture(NamedTuple):
    """Who keeps the messages: servers, or the processes of the members and the producer."""

    servers: int  # 0: each process is its own (`peer:`)
    contexts: str = ""

    def __str__(self) -> str:
        return f"{self.servers} servers, {self.contexts}" if self.servers else "peers"

    def start(self, stack: ExitStack) -> Place:
        if not self.servers:
            return Serverless(stack)
        return Servers(stack, self.servers, STORAGE[self.contexts], self.contexts)


class Plan(NamedTuple):
    """The measured combinations, and how long each takes."""

    architectures: Sequence[Architecture] = tuple(starmap(Architecture, product((3, 5), STORAGE)))
    sizes: Sequence[int] = SIZES
    seconds: float = 2.0


Tell = Callable[[list[Row], Plan, Output], None]
"""Writes the report."""


def run(args: argparse.Namespace) -> int:
    return conduct(args, WHAT, "Groups: the thesis' figures 6.7 to 6.10", Plan(), tell)


def conduct(args: argparse.Namespace, what: str, title: str, plan: Plan, tell: Tell) -> int:
    """Measure, evaluate and report; return 1 if a message is missing at a member."""
    if args.quick:
        plan = plan._replace(sizes=QUICK_SIZES, seconds=0.5)
    session.check(what)
    output = Output(args.out, title)
    facts = measure(plan, output.raw)
    with session.start(what, args.master, latency.SETTINGS) as spark:
        rows = evaluate(spark, facts, output.raw)
    tell(rows, plan, output)
    path = output.finish(rows)
    if args.json:
        say_json({"report": str(path), "results": rows})
    else:
        say(f"report: {path}")
    return int(any(row["lost"] for row in rows))


# -- Measuring -------------------------------------------------------------------------------------


def measure(plan: Plan, folder: Path) -> dict[str, Row]:
    """Return the facts of each run; its events are in the folder."""
    facts: dict[str, Row] = {}
    with Progress() as progress:
        bar = progress.add_task("starting", total=len(plan.architectures) * len(plan.sizes))
        for one in plan.architectures:
            with ExitStack() as stack:
                clients = ClientProcesses(stack, one.start(stack))
                for size in plan.sizes:
                    progress.update(bar, description=f"{one}, {size} members")
                    clients.grow(size)
                    name = f"{one.contexts or one}-{one.servers}-{size}"
                    for done in _work(clients, name, plan.seconds):
                        raw_events.write(done, folder)
                        where = {"architecture": str(one), **one._asdict(), "members": size}
                        facts[done.run.name] = {**where, **_known(done)}
                    progress.advance(bar)
    return facts


def _work(clients: ClientProcesses, name: str, seconds: float) -> Iterator[Done]:
    with clients.publisher() as work:
        work(Run("warm", TEXT, WARM_S))
        yield work(Run(f"{name}-send", TEXT, seconds, blocking=True))
        yield work(Run(f"{name}-send_async", TEXT, seconds))


def _known(done: Done) -> Row:
    return {
        "call": "send" if done.run.blocking else "send_async",
        "sent": len(done.sent.times),
        "cpu_s": round(done.cpu_s, 3),
    }


def evaluate(spark: SparkSession, facts: dict[str, Row], folder: Path) -> list[Row]:
    found = latency.rows(latency.by_run(latency.messages(session.parquet(spark, folder))))
    by_name = {row["run"]: row for row in found}
    rows = [with_losses({**fact, **by_name[name]}) for name, fact in facts.items()]
    return [{**row, "cpu_us": row["cpu_s"] / max(1, row["deliveries"]) * 1e6} for row in rows]


# -- Telling ---------------------------------------------------------------------------------------


def tell(rows: list[Row], plan: Plan, output: Output) -> None:
    output.setting(setting(plan))
    output.report.text(
        f"Published: {published_values.THESIS}; {published_values.THESIS_SETTING}. Of its curves "
        "we have "
        "what the text says of them, and no values; the table at the end has that beside ours."
    )
    for contexts, first, second in (("replicated", "6.7", "6.8"), ("local", "6.9", "6.10")):
        measured = [one for one in plan.architectures if one.contexts == contexts]
        if measured:
            _figures(rows, measured, output, (first, second))
    output.report.heading("Beside what is published")
    output.report.table(("", "published", "here"), list(beside_published(rows, plan)))
    tell_all(rows, output)


def setting(plan: Plan) -> str:
    """Return how it was measured, as a sentence."""
    return (
        "A producer publishes messages of 100 bytes at full speed to a group whose members are "
        f"spread over the servers, for {plan.seconds:g} s each: once with `send`, which waits for "
        "the answer to each message as JMS has it, and once with `send_async`."
    )


def tell_all(rows: list[Row], output: Output) -> None:
    output.report.heading("All values")
    output.report.table(_HEADER, [_values(row) for row in rows])


_HEADER = (
    "architecture",
    "members",
    "call",
    "messages/s",
    "early p50 ms",
    "early p99 ms",
    "late p50 ms",
    "late p99 ms",
    "CPU µs a delivery",
    "lost",
)


def _values(row: Row) -> list[str | int | float | None]:
    names = ("architecture", "members", "call", "messages_per_s")
    latencies = ("early_p50_ms", "early_p99_ms", "late_p50_ms", "late_p99_ms")
    return [*(row[name] for name in (*names, *latencies, "cpu_us", "lost"))]


def _figures(
    rows: list[Row], measured: list[Architecture], output: Output, numbers: tuple[str, str]
) -> None:
    early, rate = numbers
    contexts = measured[0].contexts
    output.report.heading(f"Figures {early} and {rate}: {contexts} contexts")
    for call in ("send", "send_async"):
        latencies = [
            Line(f"{one.servers} servers, {kind}", curve(rows, one, call, column), late)
            for one in measured
            for kind, column, late in (
                ("early", "early_p50_ms", False),
                ("late", "late_p50_ms", True),
            )
        ]
        title = f"{early} Latency with {call}, {contexts}"
        output.chart(title, "members", "ms (p50)", latencies)
        rates = [
            Line(f"{one.servers} servers", curve(rows, one, call, "messages_per_s"))
            for one in measured
        ]
        output.chart(f"{rate} Throughput with {call}, {contexts}", "members", "messages/s", rates)


def curve(
    rows: list[Row], architecture: Architecture, call: str, column: str
) -> list[tuple[float, float]]:
    """Return the values of a column over the number of members."""
    found = [r for r in rows if (r["architecture"], r["call"]) == (str(architecture), call)]
    return sorted((row["members"], row[column]) for row in found)


def beside_published(rows: list[Row], plan: Plan) -> Iterator[tuple[str, str, str]]:
    yield (
        "early latency, replicated contexts as a part of the others'",
        "about 0.8 (CCB); better too with JORAM",
        _ratio(rows, "early_p50_ms", "replicated", "local"),
    )
    yield (
        "throughput, replicated contexts as a part of the others'",
        "about 1.17 (CCB); less than 1 with JORAM",
        _ratio(rows, "messages_per_s", "replicated", "local"),
    )
    yield (
        "early latency without stable storage, CCB as a part of JORAM's",
        "better by about 55 % (3 servers) and 50 % (5)",
        "one implementation",
    )
    yield (
        "throughput with stable storage, JORAM over CCB",
        "about 65 % more (3 servers), 80 % more (5)",
        "one implementation",
    )
    yield (
        f"{max(plan.sizes)} members with stable storage: throughput of 5 servers over 3",
        "more than 1 (JORAM): fewer members a server, less logging",
        _more_servers(rows, plan),
    )


def _ratio(rows: list[Row], column: str, ours: str, others: str) -> str:
    """Return the median ratio for the same servers, members and call, with `send` as in the
    thesis."""
    by = {
        (r["contexts"], r["servers"], r["members"]): r[column] for r in rows if r["call"] == "send"
    }
    ratios = sorted(
        value / by[others, *where]
        for (contexts, *where), value in by.items()
        if contexts == ours and (others, *where) in by
    )
    return f"{ratios[len(ratios) // 2]:.2f}" if ratios else "not measured"


def _more_servers(rows: list[Row], plan: Plan) -> str:
    by = {
        r["servers"]: r["messages_per_s"]
        for r in rows
        if (r["contexts"], r["members"], r["call"]) == ("local", max(plan.sizes), "send")
    }
    return f"{by[5] / by[3]:.2f}" if {3, 5} <= set(by) else "not measured"
