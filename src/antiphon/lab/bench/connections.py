"""`antiphon bench connections`: measures the cost of idle clients to a server, over real sockets.

A server of its own, and processes (`idle_clients.py`) that attach thousands of sessions to it and
keep them. Then, with all of them connected: the server's memory, its processor time, and how long
one more client waits for an answer. Fails (exit code 1) if a client was lost.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from statistics import quantiles
from typing import Any

import antiphon
from antiphon.errors import IllegalStateError, ResourceAllocationError
from antiphon.io.transport import format_address
from antiphon.lab.bench import idle_clients
from antiphon.server.local_cluster import LocalCluster, LocalServer
from antiphon.terminal.lines import say_json
from antiphon.terminal.screen import Screen, Table

CLIENTS_A_PROCESS = 2500
ATTACH_S = 300.0
TOPIC = "bench"
SPARE_FILES = 100


class Crowd:
    """Idle clients in processes of their own; leaving the `with` block ends them."""

    def __init__(self, server: LocalServer, clients: int) -> None:
        self._address = format_address(server.address)
        self._wanted = [
            min(CLIENTS_A_PROCESS, clients - at) for at in range(0, clients, CLIENTS_A_PROCESS)
        ]
        self._processes: list[subprocess.Popen[str]] = []
        self._attached: list[threading.Event] = []
        self._readers: list[threading.Thread] = []
        self.lost: list[str] = []

    def __enter__(self) -> Crowd:
        for count in self._wanted:
            process = subprocess.Popen(
                [sys.executable, "-m", idle_clients.__name__, self._address, str(count)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            attached = threading.Event()
            reader = threading.Thread(target=self._listen, args=(process, attached), daemon=True)
            reader.start()
            self._processes.append(process)
            self._attached.append(attached)
            self._readers.append(reader)
        return self

    def _listen(self, process: subprocess.Popen[str], attached: threading.Event) -> None:
        assert process.stdout is not None
        with process.stdout as lines:
            for line in lines:
                if line.startswith("attached "):
                    attached.set()
                else:
                    self.lost.append(line.strip())

    def wait(self, timeout: float = ATTACH_S) -> None:
        deadline = time.monotonic() + timeout
        for process, attached in zip(self._processes, self._attached, strict=True):
            while not attached.wait(0.1):
                if process.poll() is not None or time.monotonic() > deadline:
                    raise IllegalStateError(f"not all idle clients could attach; {self.lost[:3]}")

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.kill()
            process.wait()
            assert process.stdin is not None
            process.stdin.close()
        for reader in self._readers:
            reader.join()


def run(args: argparse.Namespace) -> int:
    _check_limit(args.clients)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory("-antiphon-bench")))
        cluster = stack.enter_context(LocalCluster(1, folder, args.storage))
        cluster.start()
        report = measure(cluster.servers[1], args.clients, args.seconds)
    say_json(report) if args.json else _show(report)
    return 1 if report["lost"] else 0


def _check_limit(clients: int) -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most != resource.RLIM_INFINITY and clients + SPARE_FILES > most:
        raise ResourceAllocationError(
            f"{clients} connections need more open files than the {most} that a process may have "
            "here; raise the hard limit (ulimit -Hn), or ask for fewer"
        )


def measure(server: LocalServer, clients: int, seconds: float) -> dict[str, Any]:
    assert server.process is not None
    pid = server.process.pid
    _latencies_ms(server, 0.2)  # so that modules loaded late are not counted as a client's memory
    before = resident_bytes(pid)
    began = time.monotonic()
    with Crowd(server, clients) as crowd:
        crowd.wait()
        attached_s = time.monotonic() - began
        cpu_before, idle_from = cpu_s(pid), time.monotonic()
        latencies = _latencies_ms(server, seconds)
        busy = (cpu_s(pid) - cpu_before) / (time.monotonic() - idle_from)
        grown = resident_bytes(pid) - before
        lost = list(crowd.lost)
    cuts = quantiles(latencies, n=100)
    return {
        "clients": clients,
        "lost": lost,
        "attach_s": round(attached_s, 2),
        "bytes_a_connection": round(grown / clients),
        "server_mb": round((before + grown) / 1e6, 1),
        "server_cpu": round(busy, 3),
        "latency_ms": {"p50": round(cuts[49], 3), "p99": round(cuts[98], 3)},
    }


def _latencies_ms(server: LocalServer, seconds: float) -> list[float]:
    """Measure latencies of messages that one more client publishes one at a time; at least two."""
    found: list[float] = []
    end = time.monotonic() + seconds
    with antiphon.connect(server.url) as ctx:
        producer, topic = ctx.create_producer(), ctx.create_topic(TOPIC)
        producer.send(topic, b"")
        while time.monotonic() < end or len(found) < 2:
            began = time.perf_counter()
            producer.send(topic, bytes(100))
            found.append((time.perf_counter() - began) * 1000)
            time.sleep(0.005)  # one more client, not a load
    return found


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()


def peak_bytes(pid: int) -> int:
    """Return the most memory of a process that was resident at once, so far."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM:")).split()[1]) << 10


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")  # user and system


def _show(report: dict[str, Any]) -> None:
    table = Table(title="idle connections", show_header=False)
    for name, value in report.items():
        table.add_row(name, str(value))
    Screen().print(table)
