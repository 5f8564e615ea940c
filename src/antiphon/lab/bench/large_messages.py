"""`antiphon bench large`: how long small messages wait while large ones are on their way.

Three servers, and at each of them a client, a process of its own, that sends 100 bytes every
`PERIOD_S`, with a `send` that waits for its answer. After `QUIET_S` a number of processes send one
large message each, all at once, until all are acknowledged. A round is that once, with fresh
servers. `quiet` is the longest call of a small `send` before the large ones, `waited` the longest
one that returned after their first byte left; `elections` counts epochs that began in between.

A client that was disconnected, or an election, fails the run (exit code 1): nothing had failed.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from contextlib import ExitStack, suppress
from multiprocessing.connection import Connection as Pipe
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, NamedTuple

import antiphon
from antiphon.cli.cluster import look
from antiphon.lab.bench.failover import longest_ms
from antiphon.lab.bench.processes import PATIENCE_S, hear, start
from antiphon.server.local_cluster import LocalCluster
from antiphon.terminal.lines import say_json
from antiphon.terminal.screen import Screen, Table, track

SERVERS = 3
SMALL_BYTES = 100
PERIOD_S = 0.01
QUIET_S = 1.0
"""Seconds that small messages are sent before the large ones, and after them."""

Span = tuple[int, int]  # ns of the clock that all processes share


class Round(NamedTuple):
    """The figures of one round."""

    quiet_ms: float
    waited_ms: float
    seconds: float  # until all large messages were acknowledged
    small: int  # messages sent meanwhile
    elections: int
    server_mb: int  # most memory that a server has used


def send_small(pipe: Pipe, url: str) -> None:
    """Send until the next word, then report when each call began and ended."""
    with suppress(EOFError), antiphon.connect(url) as ctx:
        producer, topic = ctx.create_producer(), ctx.create_topic("small")
        producer.send(topic, bytes(SMALL_BYTES))
        pipe.send("ready")
        pipe.recv()
        calls: list[Span] = []
        while not pipe.poll(PERIOD_S):
            began = time.monotonic_ns()
            producer.send(topic, bytes(SMALL_BYTES))
            calls.append((began, time.monotonic_ns()))
        pipe.send(calls)
        pipe.recv()


def send_large(pipe: Pipe, url: str, size: int) -> None:
    with suppress(EOFError), antiphon.connect(url) as ctx:
        producer, topic, body = ctx.create_producer(), ctx.create_topic("large"), bytes(size)
        pipe.send("ready")
        pipe.recv()
        began = time.monotonic_ns()
        producer.send(topic, body)
        pipe.send((began, time.monotonic_ns()))
        pipe.recv()


def run(args: argparse.Namespace) -> int:
    rounds = [
        play(args.storage, args.senders, args.size_mb << 20)
        for _ in track(range(args.rounds), "large messages")
    ]
    report = {
        "servers": SERVERS,
        "storage": args.storage,
        "large": args.senders,
        "large_mb": args.size_mb,
        "rounds": [one._asdict() for one in rounds],
    }
    say_json(report) if args.json else _show(report)
    return 1 if any(one.elections for one in rounds) else 0


def play(storage: str, senders: int, size: int) -> Round:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory("-antiphon-bench")))
        cluster = stack.enter_context(LocalCluster(SERVERS, folder, storage))
        cluster.start()
        small = [_begin(stack, send_small, s.url) for s in cluster.servers.values()]
        large = [_begin(stack, send_large, cluster.url, size) for _ in range(senders)]
        before = _epoch(cluster)
        _tell(small)
        time.sleep(QUIET_S)
        at = time.monotonic_ns()
        _tell(large)
        sent: list[Span] = [hear(pipe, PATIENCE_S) for pipe in large]
        time.sleep(QUIET_S)
        _tell(small)
        calls = [call for pipe in small for call in hear(pipe, PATIENCE_S)]
        over = max(ended for _, ended in sent)
        return Round(
            round(max((e - b for b, e in calls if e < at), default=0) / 1e6, 1),
            round(longest_ms(calls, at), 1),
            round((over - at) / 1e9, 2),
            sum(at < ended < over for _, ended in calls),
            _epoch(cluster) - before,
            max(_most_memory_mb(cluster)),
        )


def _begin(stack: ExitStack, target: Any, *args: Any) -> Pipe:
    pipe, process = start(target, *args)
    stack.callback(_end, pipe, process)
    hear(pipe, PATIENCE_S)
    return pipe


def _end(pipe: Pipe, process: BaseProcess) -> None:
    pipe.close()
    process.kill()
    process.join()


def _tell(pipes: list[Pipe]) -> None:
    for pipe in pipes:
        pipe.send("go on")


def _epoch(cluster: LocalCluster) -> int:
    return max(status.epoch for status in look(cluster.url, PATIENCE_S).answers.values())


def _most_memory_mb(cluster: LocalCluster) -> list[int]:
    """Return the most memory of each server so far."""
    found = []
    for server in cluster.servers.values():
        assert server.process is not None
        text = Path(f"/proc/{server.process.pid}/status").read_text()
        found.append(int(text.partition("VmHWM:")[2].split()[0]) >> 10)
    return found


def _show(report: dict[str, Any]) -> None:
    title = f"{report['large']} messages of {report['large_mb']} MiB at once, {report['storage']}"
    table = Table("", "quiet", "waited", "all large", "small", "elections", "memory", title=title)
    for number, one in enumerate(report["rounds"], 1):
        table.add_row(
            f"round {number}",
            f"{one['quiet_ms']:.0f} ms",
            f"{one['waited_ms']:.0f} ms",
            f"{one['seconds']:.1f} s",
            f"{one['small']:,}",
            str(one["elections"]),
            f"{one['server_mb']} MB",
        )
    Screen().print(table)
