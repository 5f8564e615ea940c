"""A simulated world of channels: time, processes that start and end, and faults."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable
from typing import Any

from antiphon.sim.peers.judge import Judge
from antiphon.sim.peers.network import Network
from antiphon.sim.peers.plan import Plan, stack_of_plan
from antiphon.sim.peers.process import Process
from antiphon.sim.peers.stacks import promises
from antiphon.sim.story import Event
from antiphon.sim.violations import ViolationError

AT_REST_EVENTS = 60_000
"""A world with this many events in a second of its time does not come to rest."""


class World:
    """All processes of a plan. `processes`: the newest life of each name; `touched_us`: when a
    process last learned that a connection has come or gone; `calm`: the faults are over."""

    def __init__(self, plan: Plan, story: list[Event] | None = None) -> None:
        self.plan = plan
        self.stack = stack_of_plan(plan)
        self.now_us = 0
        self.events = 0
        self.faults: Counter[str] = Counter()
        self.judge = Judge(promises(plan.layers, plan.levels), lambda: self.now_us)
        self.processes: dict[str, Process] = {}
        self.network = Network(self)
        self.calm = False
        self.touched_us = 0
        self._lives: Counter[str] = Counter()
        self._is_recorded = False
        self._queue: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._count = 0
        self._story = story

    @property
    def now_ms(self) -> int:
        return self.now_us // 1000

    # -- Time ----------------------------------------------------------------------------------

    def at(self, at_us: int, call: Callable[..., None], *arguments: Any) -> None:
        """Have something called at a time."""
        self._count += 1
        heapq.heappush(self._queue, (at_us, self._count, call, arguments))

    def run_until(self, until_us: int, done: Callable[[], bool] | None = None) -> bool:
        """Let time pass; stop when it is done, if that is given, and say whether it is."""
        queue = self._queue
        second, events = self.now_us // 1_000_000, 0
        while queue and queue[0][0] <= until_us:
            at_us, _, call, arguments = heapq.heappop(queue)
            self.now_us = max(at_us, self.now_us)
            self.events += 1
            events += 1
            if self.now_us // 1_000_000 != second:
                second, events = self.now_us // 1_000_000, 0
            elif events > AT_REST_EVENTS:
                raise ViolationError(f"more than {AT_REST_EVENTS} events in a second")
            call(*arguments)
            if done is not None and done():
                return True
        self.now_us = max(until_us, self.now_us)
        return done is not None and done()

    # -- Processes -----------------------------------------------------------------------------

    def start(self, name: str) -> None:
        """Start a process, unless it is alive."""
        before = self.processes.get(name)
        if before is not None and before.alive:
            return
        self._lives[name] += 1
        process = self.processes[name] = self.make_process(name, self._lives[name])
        self.judge.started(process)
        self.note(process, f"starts, life {process.me.incarnation}")
        if self.plan.record and not self._is_recorded:
            self._is_recorded = True
            process.input(process.found)
        process.carry_out()
        for other in self.plan.names:
            if other != name:
                self.network.dial(process, other, again=True)
        self.at(self.now_us + 1_000, process.send_now_and_then)

    def make_process(self, name: str, life: int) -> Process:
        return Process(self, name, life)

    def restart(self, name: str) -> None:
        """Start a process as a part of a fault."""
        if not self.calm:
            self.start(name)

    def crash(self, process: Process, silent: bool) -> None:
        """End a process. `silent`: no connection tells the others."""
        if not process.alive:
            return
        self.note(process, "crashes, silently" if silent else "crashes")
        process.alive = False
        self.judge.ended(process.me, crashed=True)
        if silent:
            self.at(self.now_us + 15_000_000, self.network.end, process, False)
        else:
            self.network.end(process, goodbye=False)

    def leaves(self, process: Process) -> None:
        """A process has left: it says goodbye, and ends."""
        self.note(process, "has left")
        process.alive = False
        self.judge.ended(process.me, crashed=False)
        self.network.end(process, goodbye=True)

    def living(self) -> list[Process]:
        """Return the processes that are alive, by name."""
        return [self.processes[name] for name in sorted(self.processes) if self.alive(name)]

    def alive(self, name: str) -> bool:
        process = self.processes.get(name)
        return process is not None and process.alive

    def touched(self, process: Process) -> None:
        """A process has learned that a connection has come or gone."""
        self.touched_us = max(self.now_us, self.touched_us)

    # -- For people ----------------------------------------------------------------------------

    def note(self, process: Process | str, text: str) -> None:
        """Add to the story, if one is told."""
        if self._story is not None:
            self._story.append((self.now_us, str(process), text))
