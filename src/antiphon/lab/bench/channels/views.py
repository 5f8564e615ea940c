"""`antiphon bench channels views`: how soon the members of a channel get a new view.

Real processes, loopback, `TOTAL_UNIFORM`, without other load. In each round the leader or another
member, in turns, is killed (SIGKILL), and then one is paused (SIGSTOP), each followed by a process
that joins in its place. Times are those of the programs: `kill_ms` and `pause_ms` go from the
signal to the moment at which the last survivor has received the view without that member, `join_ms`
from the call of `connect` to its return, and `all_ms` to the moment at which the last member has
received the view with it. A paused process keeps its connections: only its silence shows. Each
figure is the median of the rounds, with the lowest and the highest.

The times want a quiet machine: a process that waits for a core is late, and may seem dead.
"""

from __future__ import annotations

import argparse
import os
import signal
import tempfile
import time
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from multiprocessing.connection import Connection as Pipe
from multiprocessing.process import BaseProcess
from typing import Any, NamedTuple

from antiphon.api.messages.group_messages import ViewMessage
from antiphon.errors import IllegalStateError
from antiphon.lab.bench.channels.members import CLUSTER
from antiphon.lab.bench.channels.speed import spread, text
from antiphon.lab.bench.processes import PATIENCE_S, hear, start
from antiphon.peers.stack.stacks import TOTAL_UNIFORM
from antiphon.peers.sync import Channel
from antiphon.terminal.lines import say_json
from antiphon.terminal.screen import Screen, Table, track

FAILURES = (("kill_ms", signal.SIGKILL), ("pause_ms", signal.SIGSTOP))


class Seen(NamedTuple):
    """A view that a program has received, and when (ns of the clock that all processes share)."""

    at: int
    members: tuple[str, ...]
    leader: str


class Joined(NamedTuple):
    """When `connect` was called, and when it had returned."""

    began: int
    ended: int


def attend(pipe: Pipe, name: str, folder: str) -> None:
    """Be a member: join when asked to, and tell of each view, until the pipe is closed."""
    os.environ["XDG_RUNTIME_DIR"] = folder
    with suppress(EOFError, BrokenPipeError), Channel(TOTAL_UNIFORM, name=name) as channel:
        pipe.send("here")
        pipe.recv()
        began = time.monotonic_ns()
        channel.connect(CLUSTER, timeout=PATIENCE_S)
        pipe.send(Joined(began, time.monotonic_ns()))
        for event in channel:
            if isinstance(event, ViewMessage):
                pipe.send(Seen(time.monotonic_ns(), event.view.members, channel.view.leader))


class Member:
    """One of the processes, as the process that measures sees it."""

    def __init__(self, stack: ExitStack, name: str, folder: str) -> None:
        self.name = name
        self._pipe, self._process = start(attend, name, folder)
        stack.callback(_end, self._process, self._pipe)
        hear(self._pipe, PATIENCE_S)

    def join(self) -> Joined:
        """Have it join, and return when it had."""
        self._pipe.send("join")
        joined: Joined = hear(self._pipe, PATIENCE_S)
        return joined

    def await_view(self, members: set[str]) -> Seen:
        """Return when it received the view of just these."""
        while True:
            seen: Seen = hear(self._pipe, PATIENCE_S)
            if set(seen.members) == members:
                return seen

    def signal(self, which: signal.Signals) -> int:
        """Send it a signal, and return when."""
        assert self._process.pid is not None
        at = time.monotonic_ns()
        os.kill(self._process.pid, which)
        return at

    def end(self) -> None:
        """Kill it, even if it is paused."""
        _end(self._process, self._pipe)


def _end(process: BaseProcess, pipe: Pipe) -> None:
    process.kill()
    process.join()
    pipe.close()


class Cluster:
    """The members; all end with the `stack`."""

    def __init__(self, stack: ExitStack, count: int) -> None:
        self._stack = stack
        self._folder = stack.enter_context(tempfile.TemporaryDirectory("-antiphon-bench"))
        self._number = 0
        self._members: dict[str, Member] = {}
        self._leader = ""
        for _ in range(count):
            self.grow()

    def grow(self) -> tuple[float, float]:
        """Have one more process join; return after how many ms it had, and all knew it."""
        self._number += 1
        member = Member(self._stack, f"p{self._number}", self._folder)
        self._members[member.name] = member
        joined = member.join()
        last = self._await_view()
        return (joined.ended - joined.began) / 1e6, (last - joined.began) / 1e6

    def fail(self, which: signal.Signals, leads: bool) -> float:
        """Fail one member; return after how many ms the others had a view without it."""
        if not leads and len(self._members) < 2:
            raise IllegalStateError("there is nobody but the leader")
        names = [name for name in self._members if (name == self._leader) == leads]
        victim = self._members.pop(names[-1])
        began = victim.signal(which)
        last = self._await_view()
        victim.end()
        return (last - began) / 1e6

    def _await_view(self) -> int:
        names = set(self._members)
        seen = [member.await_view(names) for member in self._members.values()]
        self._leader = seen[0].leader
        return max(one.at for one in seen)


def run(args: argparse.Namespace) -> int:
    """Measure, and tell."""
    found: dict[str, list[float]] = {}
    with ExitStack() as stack:
        cluster = Cluster(stack, args.processes)
        for number in track(range(args.rounds), "views change"):
            for name, which in FAILURES:
                leads = number % 2 == 0
                whose = "leader" if leads else "other"
                found.setdefault(f"{name} {whose}", []).append(cluster.fail(which, leads))
                for figure, ms in zip(("join_ms", "all_ms"), cluster.grow(), strict=True):
                    found.setdefault(figure, []).append(ms)
    report: dict[str, Any] = {"processes": args.processes, "rounds": args.rounds}
    report |= {name: spread(values, 1) for name, values in found.items()}
    say_json(report) if args.json else _show(report, found)
    return 0


def _show(report: dict[str, Any], names: Iterable[str]) -> None:
    table = Table("", "ms", title=f"views of {report['processes']} processes")
    for name in names:
        table.add_row(name, text(report[name]))
    Screen().print(table)
