"""Programs that connect to `peer:NAME`, for `antiphon bench start`: how long they take to find each
other.

A program is an interpreter that has imported `antiphon`, and no more; the time is that of the call
of `connect`, which imports the rest when it is called for the first time. `peer_found_ms` is of the
first program, `peer_join_ms` of those that come one after the other, `peer_meet_ms` of programs
that all call it at the same moment. `again_` marks the same of programs that have been there
before, and have imported everything.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import ExitStack

from antiphon.errors import IllegalStateError
from antiphon.lab.bench.servers import Serverless

PROGRAMS = 3
PATIENCE_S = 10.0

PROGRAM = """
import sys, time
import antiphon
print("here", flush=True)
while sys.stdin.readline():
    began = time.perf_counter()
    with antiphon.connect(sys.argv[1]):
        print(time.perf_counter() - began, flush=True)
        sys.stdin.readline()
    print("gone", flush=True)
"""

Figures = dict[str, list[float]]


class Program:
    """One of them; it ends with the `stack`."""

    def __init__(self, stack: ExitStack, url: str) -> None:
        environment = {n: v for n, v in os.environ.items() if n != "PYTHONDONTWRITEBYTECODE"}
        self._process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, url],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        stack.enter_context(self._process)
        stack.callback(self._process.kill)
        self.hear()

    def go(self) -> None:
        """Have it connect, or close its connection."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def hear(self) -> str:
        assert self._process.stdout is not None
        if not (line := self._process.stdout.readline()):
            raise IllegalStateError("a program that connects has ended")
        return line

    def connected(self) -> float:
        """Return how many ms the call took."""
        return float(self.hear()) * 1000


def measure() -> Figures:
    """Return the times of one round. Raise `IllegalStateError` if there are two clusters."""
    found: Figures = {}
    with ExitStack() as stack:
        one_by_one, at_once = Cluster(stack), Cluster(stack)
        for again in ("", "again_"):
            first, *others = one_by_one.join()
            found[f"{again}peer_found_ms"] = [first]
            found[f"{again}peer_join_ms"] = others
            found[f"{again}peer_meet_ms"] = at_once.meet()
    return found


class Cluster:
    """Programs that are in no cluster yet."""

    def __init__(self, stack: ExitStack) -> None:
        self._place = Serverless(stack)
        self._programs = [Program(stack, self._place.url) for _ in range(PROGRAMS)]

    def join(self) -> list[float]:
        """Have them connect one after the other, and leave; return their times."""
        times = []
        for program in self._programs:
            program.go()
            times.append(program.connected())
        self._leave()
        return times

    def meet(self) -> list[float]:
        """Have them connect all at once, and leave; return their times."""
        for program in self._programs:
            program.go()
        times = [program.connected() for program in self._programs]
        self._leave()
        return times

    def _leave(self) -> None:
        """Wait until all of them know that they are in one cluster, and have them leave it."""
        until = time.monotonic() + PATIENCE_S
        while (views := self._views()) != [PROGRAMS] * PROGRAMS:
            if time.monotonic() > until:
                raise IllegalStateError(f"{PROGRAMS} programs are not in one cluster, but {views}")
        for program in self._programs:
            program.go()
        for program in self._programs:
            program.hear()

    def _views(self) -> list[int]:
        """Return for each program how many members its view has; 0 if it is not primary."""
        found = self._place.statuses()
        return [len(status.membership.members) if status.leader else 0 for status in found]
