"""`antiphon bench failover`: how long deliveries pause when a server fails.

Three servers and a client at each of them, a process of its own: a member of one group that is sent
all messages and sends one every `PERIOD_S` itself, with a `send` that waits for its answer. In each
round one server is killed (SIGKILL) or only paused (SIGSTOP, then SIGCONT): the leader, or one that
follows it. Afterwards the server is started again, and the next round begins when all three have
the same state and every server has its client. The four kinds of faults take turns, so that other
load on the machine affects all of them.

The `gap` of a client is the longest time between two deliveries, one right after the other, of
which the later one came after the fault; its `send` is the longest call of `send` that returned
after it. `victim` is the client of the server that failed, which has to go to another one;
`elsewhere` is the slower of the two others, whose servers go on. `p50`, `p99` and `worst` are of
the rounds: with fewer than a hundred, p99 is the worst. No gap can be seen that is shorter than the
time between two messages, about `PERIOD_S` / 3.

Messages are numbered. A message that a client did not get, or got twice, is counted, and fails the
run (exit code 1).
"""

from __future__ import annotations

import argparse
import random
import signal
import struct
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, suppress
from ctypes import c_uint64
from itertools import pairwise
from math import ceil
from multiprocessing.connection import Connection as Pipe
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, NamedTuple

import antiphon
from antiphon.cli.cluster import ClusterStatus, known_groups, look
from antiphon.errors import IllegalStateError
from antiphon.lab.bench.processes import PATIENCE_S, context, hear, start
from antiphon.server.local_cluster import LocalCluster, LocalServer
from antiphon.terminal.lines import say_json
from antiphon.terminal.screen import Screen, Table, track

GROUP = "bench"
SERVERS = 3
PERIOD_S = 0.01
WARM_MESSAGES = 30
"""Messages that all clients have got before a fault begins."""

CHANCE_S = 0.1
"""The fault comes anywhere in this time, so that it does not keep step with the servers."""

PAUSE_S = 3.0
SETTLE_S = 1.0
"""Seconds that messages go on after the fault is over."""

NAP_S = 0.02
NUMBERED = struct.Struct("<IQ")  # the client that sent it, and its number there

Sent = tuple[int, int]  # by which client, and its number there
Span = tuple[int, int]  # ns of the clock that all processes share


class Fault(NamedTuple):
    """A kind of fault: of the leader or a follower, a kill or a pause."""

    leads: bool  # the server that it hits
    kills: bool

    @property
    def name(self) -> str:
        who = "leader" if self.leads else "follower"
        return f"{who} {'killed' if self.kills else 'paused'}"


FAULTS = tuple(Fault(leads, kills) for kills in (True, False) for leads in (True, False))


class Round(NamedTuple):
    """Times in ms."""

    fault: Fault
    messages: int
    lost: int
    doubled: int
    gap_victim: float
    gap_elsewhere: float
    send_victim: float
    send_elsewhere: float


TIMES = ("gap_victim", "gap_elsewhere", "send_victim", "send_elsewhere")


# -- In a client's process -------------------------------------------------------------------------


class Arrivals:
    """The messages that a client received, with their times."""

    def __init__(self, counts: Any, place: int) -> None:
        self._counts = counts
        self._place = place
        self._noted: list[tuple[Sent, int]] = []

    def note(self, message: antiphon.Message) -> None:
        if isinstance(message, antiphon.BytesMessage):  # otherwise it is about the group
            place, number = NUMBERED.unpack(message.body)
            self._noted.append(((place, number), time.monotonic_ns()))
            self._counts[self._place] += 1

    def take(self) -> list[tuple[Sent, int]]:
        taken, self._noted = self._noted, []
        return taken


def take_part(pipe: Pipe, counts: Any, place: int, url: str) -> None:
    """Do what the words on the pipe ask for. `move`: connect again, perhaps to another server.
    `publish`: send until the next word. `report`: return the arrivals since the last report."""
    arrivals, sent = Arrivals(counts, place), 0
    with suppress(EOFError), ExitStack() as stack:
        member = _join(stack, url, place, arrivals)
        pipe.send("ready")
        while True:
            match pipe.recv():
                case "move":
                    stack.close()
                    member = _join(stack, url, place, arrivals)
                    pipe.send("ready")
                case "publish":
                    calls = _publish(pipe, member, place, sent)
                    sent += len(calls)
                    pipe.send(calls)
                case "report":
                    pipe.send(arrivals.take())


def _join(stack: ExitStack, url: str, place: int, arrivals: Arrivals) -> antiphon.Member:
    ctx = stack.enter_context(antiphon.connect(url))
    member = ctx.join(ctx.create_group(GROUP), _name(place))
    member.set_message_listener(arrivals.note)
    return member


def _publish(pipe: Pipe, member: antiphon.Member, place: int, first: int) -> list[Span]:
    calls: list[Span] = []
    while not pipe.poll(PERIOD_S):
        began = time.monotonic_ns()
        member.multicast(NUMBERED.pack(place, first + len(calls)))
        calls.append((began, time.monotonic_ns()))
    pipe.recv()
    return calls


def _name(place: int) -> str:
    return f"client-{place}"


# -- In the process that measures ------------------------------------------------------------------


class Measurement:
    """Servers and clients; all of them end with the `stack`."""

    def __init__(self, stack: ExitStack, folder: Path, storage: str) -> None:
        self._cluster = stack.enter_context(LocalCluster(SERVERS, folder, storage))
        self._cluster.start()
        self._counts = context.RawArray(c_uint64, SERVERS)
        self._sent = [0] * SERVERS
        self._pipes: list[Pipe] = []
        for place in range(SERVERS):
            pipe, process = start(take_part, self._counts, place, self._cluster.url)
            stack.callback(_end, pipe, process)
            self._pipes.append(pipe)
        self._hear_all()

    def play(self, fault: Fault) -> Round:
        homes, leader = self._ready()
        others = [node for node in self._cluster.servers if node != leader]
        node = leader if fault.leads else random.choice(others)
        before = list(self._counts)
        self._tell_all("publish")
        self._wait_for_messages(before, WARM_MESSAGES)
        time.sleep(random.uniform(0, CHANCE_S))
        at = self._strike(self._cluster.servers[node], fault)
        self._tell_all("stop")
        calls: list[list[Span]] = self._hear_all()
        sent = self._expected(calls)
        with suppress(IllegalStateError):  # then they are lost, which is counted
            self._wait_for_messages(before, len(sent))
        self._tell_all("report")
        arrivals: list[list[tuple[Sent, int]]] = self._hear_all()
        if fault.kills:
            self._cluster.start(node)
        return judge(fault, homes.index(node), at, sent, calls, arrivals)

    def _strike(self, server: LocalServer, fault: Fault) -> int:
        """Strike a server; return the time."""
        at = time.monotonic_ns()
        if fault.kills:
            server.kill()
        else:
            server.signal(signal.SIGSTOP)
            time.sleep(PAUSE_S)
            server.signal(signal.SIGCONT)
        time.sleep(SETTLE_S)
        return at

    def _expected(self, calls: list[list[Span]]) -> set[Sent]:
        """Return the messages that were sent in this round."""
        expected = set()
        for place, some in enumerate(calls):
            first, self._sent[place] = self._sent[place], self._sent[place] + len(some)
            expected |= {(place, number) for number in range(first, self._sent[place])}
        return expected

    # -- Between two rounds ----------------------------------------------------------------------

    def _ready(self) -> tuple[list[int], int]:
        """Wait until all is well and each server has a client; returns the server of each client,
        and the leader."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            found = look(self._cluster.url, PATIENCE_S)
            homes = _homes(found)
            if found.leader is None or not is_whole(found) or 0 in homes:
                time.sleep(NAP_S)
            elif crowded := [n for n, home in enumerate(homes) if home in homes[:n]]:
                self._move(crowded)
            else:
                return homes, found.leader
        raise IllegalStateError(f"the servers are not in order again after {PATIENCE_S:g} s")

    def _move(self, places: list[int]) -> None:
        """Let these clients choose their servers, by chance, again."""
        for place in places:
            self._pipes[place].send("move")
        for place in places:
            hear(self._pipes[place], PATIENCE_S)

    def _wait_for_messages(self, before: list[int], messages: int) -> None:
        """Wait until every client has got `messages` more; after `PATIENCE_S`, raise
        `IllegalStateError`."""
        deadline = time.monotonic() + PATIENCE_S
        while min(now - then for now, then in zip(self._counts, before, strict=True)) < messages:
            if time.monotonic() > deadline:
                raise IllegalStateError(f"{messages} messages did not arrive in {PATIENCE_S:g} s")
            time.sleep(NAP_S)

    def _tell_all(self, word: str) -> None:
        for pipe in self._pipes:
            pipe.send(word)

    def _hear_all(self) -> list[Any]:
        return [hear(pipe, PATIENCE_S) for pipe in self._pipes]


def _end(pipe: Pipe, process: BaseProcess) -> None:
    pipe.close()
    process.kill()
    process.join()


def is_whole(found: ClusterStatus) -> bool:
    """Return whether all servers answer, are voters and have the same state."""
    if found.leading is None or found.unreachable:
        return False
    statuses = found.answers.values()
    states = {(status.applied, status.digest) for status in statuses}
    return len(states) == 1 and {s.id for s in statuses} == set(found.leading.membership.voters)


def _homes(found: ClusterStatus) -> list[int]:
    """Return the server of each client; 0: none."""
    members = {m.name: m.node for group in known_groups(found) for m in group.members}
    return [members.get(_name(place), 0) for place in range(SERVERS)]


# -- Figures ---------------------------------------------------------------------------------------


def judge(
    fault: Fault,
    victim: int,
    at: int,
    sent: set[Sent],
    calls: Sequence[Sequence[Span]],
    arrivals: Sequence[Sequence[tuple[Sent, int]]],
) -> Round:
    """Return the figures of a round. `victim`: the client whose server failed; `at`: when, in
    ns."""
    got = [Counter(which for which, _ in some) for some in arrivals]
    gaps = [longest_ms(pairwise(ns for _, ns in some), at) for some in arrivals]
    sends = [longest_ms(some, at) for some in calls]
    others = [place for place in range(len(gaps)) if place != victim]
    return Round(
        fault,
        len(sent),
        sum(len(sent - one.keys()) for one in got),
        sum(one.total() - len(sent & one.keys()) for one in got),
        gaps[victim],
        max(gaps[place] for place in others),
        sends[victim],
        max(sends[place] for place in others),
    )


def longest_ms(spans: Iterable[Span], since: int) -> float:
    """Return the longest of the spans that ended after `since`."""
    return max((ended - began for began, ended in spans if ended > since), default=0) / 1e6


def percentiles(values: Iterable[float]) -> dict[str, float]:
    """Return percentiles, each a value that was measured: none is interpolated."""
    ordered = sorted(values)
    parts = {"p50": 0.5, "p99": 0.99, "worst": 1.0}
    return {name: round(ordered[ceil(p * len(ordered)) - 1], 1) for name, p in parts.items()}


def run(args: argparse.Namespace) -> int:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory("-antiphon-bench")))
        measurement = Measurement(stack, folder, args.storage)
        turns = [fault for _ in range(args.rounds) for fault in FAULTS]
        rounds = [measurement.play(f) for f in track(turns, "servers fail")]
    report = {
        "servers": SERVERS,
        "storage": args.storage,
        "rounds": args.rounds,
        "messages": sum(one.messages for one in rounds),
        "lost": sum(one.lost for one in rounds),
        "doubled": sum(one.doubled for one in rounds),
        "faults": {
            fault.name: figures([one for one in rounds if one.fault == fault]) for fault in FAULTS
        },
    }
    say_json(report) if args.json else _show(report)
    return 1 if report["lost"] or report["doubled"] else 0


def figures(rounds: Sequence[Round]) -> dict[str, dict[str, float]]:
    return {f"{name}_ms": percentiles(getattr(one, name) for one in rounds) for name in TIMES}


def _show(report: dict[str, Any]) -> None:
    title = f"{report['rounds']} rounds, {report['storage']}: ms, p50 / p99 / worst"
    table = Table("", *TIMES, title=title)
    for name, times in report["faults"].items():
        table.add_row(name, *(" / ".join(f"{ms:.0f}" for ms in t.values()) for t in times.values()))
    screen = Screen()
    screen.print(table)
    screen.print(
        f"{report['messages']:,} messages, {report['lost']} lost, {report['doubled']} doubled",
        highlight=False,
    )
