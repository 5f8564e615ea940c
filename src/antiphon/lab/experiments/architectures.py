"""`antiphon experiment architectures`: the thesis' architectures (5.2 to 5.4), side by side.

What `experiment groups` measures (`groups.py`), of 3 and 5 servers with replicated contexts (5.2.2)
and with local ones (5.2.1), and of processes that are their own servers (5.4): the members, and the
producer. The thesis compares the architectures in words; figures it has of servers alone.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from antiphon.lab.experiments import groups
from antiphon.lab.experiments.evaluation import Row
from antiphon.lab.experiments.groups import Architecture, Plan, curve
from antiphon.lab.experiments.output import Output
from antiphon.reports.charts import Line

WHAT = "antiphon experiment architectures"
PEERS = Architecture(0)
BASE = Architecture(3, "replicated")
"""The architecture that the report compares the others with."""

PLAN = Plan((PEERS, *Plan().architectures))
"""Peers first: thirty of them need the most of a machine, and a busy one may not have it."""

CALLS = ("send", "send_async")
MEASURES = (
    ("early latency", "early_p50_ms", "ms (p50)"),
    ("throughput", "messages_per_s", "messages/s"),
    ("processor time of a delivery", "cpu_us", "µs, of all processes"),
)

WORDS = (
    (
        "send returns when the message is",
        "in the memory of most servers",
        "on the disks of most servers",
        "in the memory of most processes",
    ),
    (
        "a client whose server is lost",
        "goes to another server",
        "waits for this server",
        "is lost with it: they are one process",
    ),
    ("contexts of clients are kept by", "all servers", "the client's server", "all processes"),
    ("processes beside the clients", "the servers", "the servers", "none"),
    (
        "whether a subscription is durable is up to",
        "each subscriber",
        "each subscriber",
        "each subscriber (in the thesis, the whole group)",
    ),
)
"""The thesis' table 5.1 and its section 5.4, as far as they apply here."""


def run(args: argparse.Namespace) -> int:
    title = "Architectures: servers and peers (the thesis' 5.2 to 5.4)"
    return groups.conduct(args, WHAT, title, PLAN, tell)


def tell(rows: list[Row], plan: Plan, output: Output) -> None:
    output.setting(
        f"{groups.setting(plan)} As peers the members and the producer are their own servers, and "
        "there are no others."
    )
    output.report.table(("", "replicated contexts", "local contexts", "peers"), WORDS)
    for call in CALLS:
        output.report.heading(f"With {call}")
        for what, column, unit in MEASURES:
            lines = [
                Line(str(one), curve(rows, one, call, column), one.contexts == "local")
                for one in plan.architectures
            ]
            output.chart(f"{what.capitalize()} with {call}", "members", unit, lines)
    output.report.heading(f"Peers as a part of {BASE}")
    header = ("members", *(f"{what}, {call}" for call in CALLS for what, _, _ in MEASURES))
    output.report.table(header, list(beside_servers(rows, plan)))
    groups.tell_all(rows, output)


def beside_servers(rows: list[Row], plan: Plan) -> Iterator[tuple[float, ...]]:
    """Yield for each size the figures of peers, divided by those of servers."""
    columns = [(call, column) for call in CALLS for _, column, _ in MEASURES]
    ours = [dict(curve(rows, PEERS, *where)) for where in columns]
    theirs = [dict(curve(rows, BASE, *where)) for where in columns]
    for size in plan.sizes:
        pairs = zip(ours, theirs, strict=True)
        yield size, *(peers[size] / servers[size] for peers, servers in pairs)
