"""`antiphon bench log`: what the replicated log does, through real processes on this machine.

Four measurements, one after the other, each with an equal part of the time: latency of a message
that is published alone; appends a second, a message each, many on their way; messages a second in
full packs; and the same packs through a bare relay (`relay.py`), as a yardstick.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import quantiles
from typing import Any, NamedTuple

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from antiphon.bench import relay
from antiphon.formats import pack
from antiphon.io.client import LogClient
from antiphon.io.cluster import look
from antiphon.io.local import LocalCluster

DESTINATION = "topic:bench"
PACK_MESSAGES = 512
WINDOW_PACKS = 256
PHASES = 4


class Throughput(NamedTuple):
    packs: int
    seconds: float
    server_cpu_s: float

    @property
    def packs_per_s(self) -> float:
        return self.packs / self.seconds


def run(args: argparse.Namespace) -> int:
    with (
        tempfile.TemporaryDirectory("-antiphon-bench") as folder,
        LocalCluster(args.servers, Path(folder), args.storage) as cluster,
        Progress(console=Console(stderr=True), transient=True) as progress,
    ):
        cluster.start()
        found = _measure(cluster, args.size, args.seconds / PHASES, progress)
    report = {
        "servers": args.servers,
        "storage": args.storage,
        "size": args.size,
        "seconds": args.seconds,
        **found,
    }
    print(json.dumps(report)) if args.json else _show(report)
    return 0


def _measure(
    cluster: LocalCluster, size: int, seconds: float, progress: Progress
) -> dict[str, Any]:
    body = bytes(size)
    full = bytes(size * PACK_MESSAGES)
    step = progress.add_task("latency", total=PHASES)
    latencies_ms = _latencies_ms(cluster, body, seconds)
    progress.update(step, advance=1, description="appends")
    single = _throughput(cluster, body, 1, seconds)
    progress.update(step, advance=1, description="packs")
    packed = _throughput(cluster, full, PACK_MESSAGES, seconds)
    progress.update(step, advance=1, description="bare relay")
    encoded = pack.encode(DESTINATION, PACK_MESSAGES, full, 1, 1)
    relayed = relay.bytes_a_second(len(cluster.servers), encoded, seconds) / len(encoded)
    progress.update(step, advance=1)
    cuts = quantiles(latencies_ms, n=100)
    return {
        "messages_per_s": round(packed.packs_per_s * PACK_MESSAGES),
        "mb_per_s": round(packed.packs_per_s * len(full) / 1e6, 1),
        "appends_per_s": round(single.packs_per_s),
        "latency_ms": {"p50": round(cuts[49], 3), "p99": round(cuts[98], 3)},
        "cpu_s_per_million": round(packed.server_cpu_s / (packed.packs * PACK_MESSAGES) * 1e6, 3),
        "of_bare_relay": round(packed.packs_per_s / relayed, 3),
    }


def _latencies_ms(cluster: LocalCluster, body: bytes, seconds: float) -> list[float]:
    """Of messages published one at a time; at least two, to have something to say."""
    found: list[float] = []
    end = time.monotonic() + seconds
    with LogClient(cluster.url) as client:
        client.publish(DESTINATION, body)  # connects
        while time.monotonic() < end or len(found) < 2:
            began = time.perf_counter()
            client.publish(DESTINATION, body)
            found.append((time.perf_counter() - began) * 1000)
    return found


def _throughput(cluster: LocalCluster, body: bytes, count: int, seconds: float) -> Throughput:
    """Many packs on their way, until the time is over and all are accepted."""
    cpu_before = _server_cpu_s(cluster)
    packs = 0
    with LogClient(cluster.url, window_packs=WINDOW_PACKS) as client:
        client.publish(DESTINATION, body, count)
        began = time.monotonic()
        while time.monotonic() - began < seconds:
            client.send(DESTINATION, body, count)
            packs += 1
        client.flush()
        elapsed = time.monotonic() - began
    return Throughput(packs, elapsed, _server_cpu_s(cluster) - cpu_before)


def _server_cpu_s(cluster: LocalCluster) -> float:
    return sum(status.cpu_s for status in look(cluster.url).answers.values())


_UNITS: dict[str, Callable[[Any], str]] = {
    "messages_per_s": lambda n: f"{n:,}, in packs of {PACK_MESSAGES}",
    "mb_per_s": lambda n: f"{n:,}, in packs of {PACK_MESSAGES}",
    "appends_per_s": lambda n: f"{n:,}, a message each",
    "latency_ms": lambda ms: f"p50 {ms['p50']}, p99 {ms['p99']}, a message at a time",
    "cpu_s_per_million": lambda s: f"{s}, all servers together, in packs of {PACK_MESSAGES}",
    "of_bare_relay": lambda part: f"{part:.1%}",
}


def _show(report: dict[str, Any]) -> None:
    table = Table(title="the replicated log", show_header=False)
    for name, value in report.items():
        table.add_row(name, _UNITS.get(name, str)(value))
    Console().print(table)
