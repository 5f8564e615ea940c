"""`antiphon bench start`: how long imports, servers and recoveries take.

`import_ms`: `import antiphon` in a fresh process, with byte code. `embedded_ms`: in the same
process, from `connect("embedded:")` until a first message was sent and received. `peer_...`: the
calls of `connect("peer:NAME")` (`peer_joins.py`). `cluster_ms`: from
the start of three durable servers until one of them has accepted a first message, processes and
founding included. `recovery_ms`: from the start of a durable server, whose journal has the size
that was asked for and which was killed (SIGKILL), until it has answered a first request;
`recovery_peak_mb` is the most memory that it had by then. Its journal is in the system's cache:
reading it from a cold disk comes on top.

Each is taken `--rounds` times: the median, the least and the most.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import antiphon
from antiphon.lab.bench import peer_joins
from antiphon.lab.bench.connections import peak_bytes
from antiphon.server.admin_client import AdminClient
from antiphon.server.local_cluster import LocalCluster
from antiphon.terminal.lines import say_json
from antiphon.terminal.screen import Screen, Table, track

TOPIC = "bench"
SIZE = 1000
SERVERS = 3
RECOVERY_S = 600.0

PROBE = """
import time
began = time.perf_counter()
import antiphon
imported = time.perf_counter()
with antiphon.connect("embedded:") as ctx:
    topic = ctx.create_topic("bench")
    consumer = ctx.create_consumer(topic)
    ctx.create_producer().send(topic, "hello")
    assert consumer.receive(timeout=60) is not None
    received = time.perf_counter()
print(imported - began, received - imported)
"""
"""A program of its own: this one has imported everything."""


class Recovery(NamedTuple):
    """The time and the memory of one recovery."""

    seconds: float
    peak_bytes: int


def run(args: argparse.Namespace) -> int:
    rounds = range(args.rounds)
    probe()  # leaves the byte code behind
    probes = [probe() for _ in track(rounds, "programs start")]
    joins = [peer_joins.measure() for _ in track(rounds, "programs find each other")]
    clusters = [start_cluster() for _ in track(rounds, "clusters start")]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory("-antiphon-bench")))
        cluster = stack.enter_context(LocalCluster(1, folder))
        cluster.start()
        fill(cluster.url, args.journal_mb * 1_000_000 // SIZE)
        recoveries = [recover(cluster) for _ in track(rounds, "servers recover")]
        journal_bytes = sum(file.stat().st_size for file in cluster.servers[1].data.iterdir())
    report = {
        "rounds": args.rounds,
        "import_ms": spread(1000 * imported for imported, _ in probes),
        "embedded_ms": spread(1000 * embedded for _, embedded in probes),
        **{name: spread(chain(*(one[name] for one in joins))) for name in joins[0]},
        "cluster_ms": spread(1000 * seconds for seconds in clusters),
        "journal_mb": round(journal_bytes / 1e6),
        "recovery_ms": spread(1000 * one.seconds for one in recoveries),
        "recovery_peak_mb": spread(one.peak_bytes / 1e6 for one in recoveries),
    }
    say_json(report) if args.json else _show(report)
    return 0


def probe() -> tuple[float, float]:
    """Return the seconds of importing, and of the first message through an embedded server."""
    environment = {n: v for n, v in os.environ.items() if n != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run(
        [sys.executable, "-c", PROBE], env=environment, stdout=subprocess.PIPE, check=True
    )
    imported, embedded = map(float, done.stdout.split())
    return imported, embedded


def start_cluster() -> float:
    with (
        tempfile.TemporaryDirectory("-antiphon-bench") as folder,
        LocalCluster(SERVERS, Path(folder)) as cluster,
    ):
        began = time.perf_counter()
        cluster.start()
        with antiphon.connect(cluster.url) as ctx:
            ctx.create_producer().send(ctx.create_topic(TOPIC), b"")
            return time.perf_counter() - began


def fill(url: str, messages: int) -> None:
    with antiphon.connect(url, client_id="bench") as ctx:
        topic = ctx.create_topic(TOPIC)
        ctx.create_durable_consumer(topic, "keep").close()  # so that all of them are kept
        producer, body = ctx.create_producer(), bytes(SIZE)
        for _ in track(range(messages), "filling the journal"):
            last = producer.send_async(topic, body)
        last.result()  # answers come in order: with this one, all have


def recover(cluster: LocalCluster) -> Recovery:
    """Measure the recovery of one server."""
    server = cluster.servers[1]
    server.kill()
    began = time.perf_counter()
    cluster.start(wait=False)
    server.wait_ready(RECOVERY_S)
    AdminClient(server.url).barrier()
    seconds = time.perf_counter() - began
    assert server.process is not None
    return Recovery(seconds, peak_bytes(server.process.pid))


def spread(values: Iterable[float]) -> dict[str, float]:
    ordered = sorted(values)
    figures = {"median": median(ordered), "least": ordered[0], "most": ordered[-1]}
    return {name: round(value, 1) for name, value in figures.items()}


def _show(report: dict[str, Any]) -> None:
    table = Table("", "median", "least", "most", title="start")
    for name, value in report.items():
        cells = value.values() if isinstance(value, dict) else (value,)
        table.add_row(name, *(f"{cell:,}" for cell in cells))
    Screen().print(table)
