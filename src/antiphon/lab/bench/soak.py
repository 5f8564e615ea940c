"""`antiphon bench soak`: a long time of full load, in which no member may be suspected wrongly.

Three servers, a publisher that sends as fast as it can (`processes.py`), and three members of a
group, one at each server, for an hour by default. Under this load every process is late all the
time, and a failure detector that takes late for dead shows it here. Nothing fails in this run, so
each of these must be 0, otherwise it fails (exit code 1):

`leader_changes`; `doubts`, how often a server took its leader for dead, elected or not;
`view_changes` and `suspicions` in the group; `reconnections`, between servers and of clients;
`lost` and `doubled` messages: all are numbered, and every member looks at every number.
"""

from __future__ import annotations

import argparse
import datetime
import logging
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from ctypes import c_uint64
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import antiphon
from antiphon.cli.cluster import known_groups, look
from antiphon.errors import IllegalStateError
from antiphon.lab.bench.connections import peak_bytes
from antiphon.lab.bench.processes import PATIENCE_S, ClientProcesses, Flood, Load, context
from antiphon.server.local_cluster import LocalCluster
from antiphon.terminal.lines import say_json
from antiphon.terminal.screen import Progress, Screen, Table

GROUP = "bench"
SERVERS = 3
SIZE = 100
NUMBER_BYTES = 8
WARM_S = 1.0
SLICE_S = 10.0

NAP_S = 0.05

LOST, DOUBLED, SUSPICIONS, RECONNECTIONS = range(4)
"""Places in a process's tally: memory that it shares with the one that measures."""


# -- In the clients' processes ---------------------------------------------------------------------


class NumberedSender:
    """A publisher whose bodies are consecutive numbers."""

    def __init__(self, ctx: antiphon.Context) -> None:
        self.per_pack = 0  # the client finds out by itself
        self._numbers = count()
        self._send = partial(ctx.create_producer().send_async, ctx.create_group(GROUP))

    def send(self, body: bytes) -> antiphon.SendFuture:
        number = next(self._numbers).to_bytes(NUMBER_BYTES, "big")
        return self._send(number + body[NUMBER_BYTES:])

    def flush(self, last: antiphon.SendFuture) -> None:
        last.result()  # answers come in order: with this one, all have


@contextmanager
def open_sender(url: str, tally: Any) -> Iterator[NumberedSender]:
    with antiphon.connect(url) as ctx, _lost_connections(tally):
        yield NumberedSender(ctx)


@contextmanager
def open_member(url: str, tally: Any) -> Iterator[Iterator[bytes]]:
    with (
        antiphon.connect(url) as ctx,
        ctx.join(ctx.create_group(GROUP)) as member,
        _lost_connections(tally),
    ):
        yield checked(member, tally)


def checked(messages: Iterable[antiphon.Message], tally: Any) -> Iterator[bytes]:
    """Yield one body for each number, and count the lost and doubled ones: so these do not stop the
    run."""
    expected = 0
    for message in messages:
        if isinstance(message, antiphon.BytesMessage):
            body = message.body
            number = int.from_bytes(body[:NUMBER_BYTES], "big")
            if number < expected:
                tally[DOUBLED] += 1
                continue
            tally[LOST] += number - expected
            for _ in range(expected, number + 1):
                yield body
            expected = number + 1
        elif isinstance(message, antiphon.SuspicionMessage):
            tally[SUSPICIONS] += len(message.suspects)


@contextmanager
def _lost_connections(tally: Any) -> Iterator[None]:
    """Count the connections that the client lost or gave up, by its log."""
    counter = _Counter(tally)
    logger = logging.getLogger("antiphon.api")
    logger.setLevel(logging.INFO)
    logger.addHandler(counter)
    try:
        yield
    finally:
        logger.removeHandler(counter)


class _Counter(logging.Handler):
    def __init__(self, tally: Any) -> None:
        super().__init__()
        self._tally = tally

    def emit(self, record: logging.LogRecord) -> None:
        self._tally[RECONNECTIONS] += 1


# -- In the process that measures ------------------------------------------------------------------


class Seen(NamedTuple):
    """The state of the servers at one moment."""

    epoch: int
    view_id: int
    doubts: int
    connections: int  # between servers, that were ever made


class Soak:
    """Servers and clients; all of them end with the `stack`."""

    def __init__(self, stack: ExitStack, folder: Path, storage: str) -> None:
        self._cluster = stack.enter_context(LocalCluster(SERVERS, folder, storage))
        self._cluster.start()
        self._clients = stack.enter_context(ClientProcesses(Load(SIZE), SERVERS))
        self._tallies = [context.RawArray(c_uint64, 4) for _ in range(SERVERS + 1)]
        urls = [server.url for server in self._cluster.servers.values()]
        *of_members, of_publisher = self._tallies
        for url, tally in zip(urls, of_members, strict=True):
            self._clients.add_member(open_member, url, tally)
        self._clients.add_publisher(open_sender, urls[0], of_publisher)
        self._clients.work(Flood(WARM_S))
        self._before = self._connected()

    def flood(self, seconds: float) -> int:
        """Flood the servers, and return how many messages went to all members."""
        return self._clients.work(Flood(seconds)).messages

    def incidents(self) -> dict[str, int]:
        now, before = self._look(), self._before
        lost, doubled, suspicions, reconnections = map(sum, zip(*self._tallies, strict=True))
        return {
            "leader_changes": now.epoch - before.epoch,
            "doubts": now.doubts - before.doubts,
            "view_changes": now.view_id - before.view_id,
            "suspicions": suspicions,
            "reconnections": reconnections + now.connections - before.connections,
            "lost": lost,
            "doubled": doubled,
        }

    def _connected(self) -> Seen:
        """Wait until every server has its connections to the others: later ones are new ones."""
        deadline = time.monotonic() + PATIENCE_S
        while (seen := self._look()).connections < SERVERS * (SERVERS - 1):
            if time.monotonic() > deadline:
                raise IllegalStateError("the servers are not connected with each other")
            time.sleep(NAP_S)
        return seen

    def _look(self) -> Seen:
        found = look(self._cluster.url, PATIENCE_S)
        if len(found.answers) < SERVERS:
            raise IllegalStateError(f"{SERVERS - len(found.answers)} servers do not answer")
        (group,) = known_groups(found)
        counts = [status.counts for status in found.answers.values()]
        doubts = sum(count["log"]["doubts"] for count in counts)
        connections = sum(count["listener"]["connected"] for count in counts)
        return Seen(found.epoch, group.view_id, doubts, connections)

    def peak_bytes(self) -> int:
        """Return the memory of the server that needed most."""
        processes = [server.process for server in self._cluster.servers.values()]
        return max(peak_bytes(process.pid) for process in processes if process is not None)


def run(args: argparse.Namespace) -> int:
    seconds = args.minutes * 60
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory("-antiphon-bench")))
        soak = Soak(stack, folder, args.storage)
        progress = stack.enter_context(Progress(transient=False))
        messages = _flood(soak, seconds, progress)
        incidents = soak.incidents()
        peak_mb = round(soak.peak_bytes() / 1e6)
    report = {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "minutes": args.minutes,
        "servers": SERVERS,
        "members": SERVERS,
        "size": SIZE,
        "storage": args.storage,
        "messages": messages,
        "messages_per_s": round(messages / seconds),
        "server_peak_mb": peak_mb,
        **incidents,
    }
    say_json(report) if args.json else _show(report)
    return 1 if any(incidents.values()) else 0


def _flood(soak: Soak, seconds: float, progress: Progress) -> int:
    bar = progress.add_task("full load", total=seconds)
    messages, left = 0, seconds
    while left > 0:
        slice_s = min(SLICE_S, left)
        some = soak.flood(slice_s)
        messages, left = messages + some, left - slice_s
        progress.update(bar, advance=slice_s, description=f"{some / slice_s:,.0f} messages/s")
    return messages


def _show(report: dict[str, Any]) -> None:
    table = Table(title="full load", show_header=False)
    for name, value in report.items():
        table.add_row(name, f"{value:,}" if isinstance(value, int) else str(value))
    Screen().print(table)
