"""Processes with whole stacks that find each other by themselves, and connections that a test
breaks."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from random import Random
from typing import Any

from antiphon.model.peer_views import Level, MemberId, PeerView
from antiphon.peers.layers.layer import Dial, Layer
from antiphon.peers.membership.member import Left
from antiphon.peers.stack.running import Delivered, Running, Shown, Transmit
from antiphon.peers.stack.stack import Stack

DELAY_MS = 1
AnyCall = Callable[[], None]


class Process:
    """One life of a process: its running stack, and what its program was told."""

    def __init__(self, mesh: Mesh, name: str, life: int, stack: Stack) -> None:
        self.mesh = mesh
        self.name = name
        self.me = MemberId(name, life)
        self.alive = True
        self.links: dict[MemberId, int] = {}  # with the number of the connection
        self.told: list[Any] = []
        self.running = Running(
            stack, self.me, lambda layer: Random(f"{mesh.seed} {name} {life} {layer}"), mesh.now_ms
        )

    @property
    def view(self) -> PeerView:
        return self.running.view

    def layer(self, name: str) -> Layer:
        """Return the layer of this name."""
        return next(layer for layer in self.running.layers if layer.name == name)

    def history(self) -> list[str]:
        """Return the bodies and, as `[a b]` or, if primary, `[a b]*`, the views of its program."""
        lines = []
        for event in self.told:
            if isinstance(event, Delivered):
                lines.append(bytes(event.body).decode())
            elif isinstance(event, Shown):
                names = " ".join(member.name for member in event.view.members)
                lines.append(f"[{names}]{'*' if event.view.primary else ''}")
            else:
                lines.append(repr(event))
        return lines


class Mesh:
    """Processes, connections and time.

    Frames take a millisecond, or longer on links that a test names in `delays_ms`; `dropped` says
    which are lost. All processes know the addresses of all others, which are their names, and dial
    them once. `part` breaks connections, `heal` lets them open again.
    """

    def __init__(self, *layers: Layer, seed: int = 0) -> None:
        self.stack = Stack(*layers)
        self.seed = seed
        self.now_ms = 0
        self.processes: dict[str, Process] = {}
        self.parted: set[frozenset[str]] = set()
        self.dropped: Callable[[str, str, bytes], bool] = lambda source, target, data: False
        self.delays_ms: dict[tuple[str, str], int] = {}
        self._lives: dict[str, int] = {}
        self._events: list[tuple[int, int, AnyCall]] = []
        self._count = 0

    # -- What a test does ----------------------------------------------------------------------

    def start(self, *names: str) -> None:
        """Start processes, or start them again, and connect them with all others."""
        for name in names:
            self._lives[name] = self._lives.get(name, 0) + 1
            process = Process(self, name, self._lives[name], self.stack)
            self.processes[name] = process
            self._collect(process)
            for other in self.living():
                if other is not process:
                    self.connect(process, other)

    def connect(self, one: Process, other: Process) -> None:
        """Open a connection, if nothing is in the way."""
        if frozenset((one.name, other.name)) in self.parted or other.me in one.links:
            return
        self._count += 1
        for source, target in ((one, other), (other, one)):
            source.links[target.me] = self._count
        for source, target in ((one, other), (other, one)):
            self.act(source, lambda s=source, t=target: s.running.linked(t.me, t.name, self.now_ms))

    def send(self, name: str, text: str, level: Level = Level.AGREED) -> None:
        """Have a program send to all."""
        process = self.processes[name]
        self.act(process, lambda: process.running.send(text.encode(), self.now_ms, None, level))

    def kill(self, name: str) -> None:
        """End a process; its connections close without a goodbye."""
        self._end(self.processes[name], goodbye=False)

    def end(self, name: str) -> None:
        """End a process, with a goodbye."""
        self._end(self.processes[name], goodbye=True)

    def _end(self, process: Process, goodbye: bool) -> None:
        process.alive = False
        for other in self.living():
            if process.me in other.links:
                self._unlink(other, process.me, goodbye)

    def part(self, *groups: Iterable[str]) -> None:
        """Break all connections between these groups of processes."""
        sets = [set(group) for group in groups]
        for one in self.living():
            for other in self.living():
                homes = [next(i for i, g in enumerate(sets) if p.name in g) for p in (one, other)]
                if homes[0] != homes[1]:
                    self.cut(one.name, other.name)

    def cut(self, one: str, other: str) -> None:
        """Break a connection, and let no other one open."""
        self.parted.add(frozenset((one, other)))
        for source, target in ((one, other), (other, one)):
            process, me = self.processes[source], self.processes[target].me
            if me in process.links:
                self._unlink(process, me, goodbye=False)

    def heal(self) -> None:
        """Connect all that live."""
        self.parted.clear()
        living = self.living()
        for at, one in enumerate(living):
            for other in living[at + 1 :]:
                self.connect(one, other)

    def leave(self, name: str) -> None:
        """Have a program leave."""
        process = self.processes[name]
        self.act(process, lambda: process.running.leave(self.now_ms))

    def run(self, for_ms: int) -> None:
        """Let time pass, with all that is due."""
        self.until(lambda: False, for_ms)

    def until(self, done: Callable[[], bool], within_ms: int = 20_000) -> bool:
        """Let time pass until this is true; say whether it became true in time."""
        end_ms = self.now_ms + within_ms
        while not done():
            due = [p.running.next_deadline_ms() for p in self.living()]
            ticks = [max(at, self.now_ms) for at in due if at is not None]
            next_ms = min([*ticks, *(at for at, _, _ in self._events[:1])], default=end_ms + 1)
            if next_ms > end_ms:
                self.now_ms = end_ms
                return False
            self.now_ms = max(self.now_ms, next_ms)
            if self._events and self._events[0][0] <= self.now_ms:
                heapq.heappop(self._events)[2]()
                continue
            for process in self.living():
                at = process.running.next_deadline_ms()
                if at is not None and at <= self.now_ms:
                    self.act(process, lambda p=process: p.running.tick(self.now_ms))
        return True

    # -- What a test looks at ------------------------------------------------------------------

    def living(self) -> list[Process]:
        return [process for process in self.processes.values() if process.alive]

    def together(self, *names: str, primary: bool = True) -> Callable[[], bool]:
        """Say whether exactly these are in one view, none of them frozen."""

        def are_together() -> bool:
            processes = [self.processes[name] for name in names]
            views = {process.view for process in processes}
            view = processes[0].view
            return (
                len(views) == 1
                and {member.name for member in view.members} == set(names)
                and view.primary == primary
                and not any(process.running.frozen for process in processes)
            )

        return are_together

    def histories(self) -> dict[str, str]:
        return {name: " ".join(process.history()) for name, process in self.processes.items()}

    # -- Inside --------------------------------------------------------------------------------

    def act(self, process: Process, call: AnyCall) -> None:
        """Give a process an input, and carry out what it answers."""
        if process.alive:
            call()
            self._collect(process)

    def _collect(self, process: Process) -> None:
        for output in process.running.take():
            if isinstance(output, Transmit):
                for target in output.to:
                    self._send(process, target, output.data)
            elif isinstance(output, Dial):
                other = self.processes.get(output.address)
                if other and other.alive and other is not process:
                    self._later(DELAY_MS, lambda o=other: self.connect(process, o))
            else:
                process.told.append(output)
                if isinstance(output, Left):
                    self._later(0, lambda: self._end(process, goodbye=True))

    def _send(self, source: Process, target: MemberId, data: bytes) -> None:
        line = source.links.get(target)
        if line is None or self.dropped(source.name, target.name, data):
            return

        def arrive() -> None:
            process = self.processes[target.name]
            if process.me == target and process.links.get(source.me) == line:
                self.act(process, lambda: process.running.received(source.me, data, self.now_ms))

        self._later(self.delays_ms.get((source.name, target.name), DELAY_MS), arrive)

    def _unlink(self, process: Process, other: MemberId, goodbye: bool) -> None:
        del process.links[other]
        self.act(process, lambda: process.running.unlinked(other, goodbye, self.now_ms))

    def _later(self, delay_ms: int, call: AnyCall) -> None:
        self._count += 1
        heapq.heappush(self._events, (self.now_ms + delay_ms, self._count, call))


def founded(stack: Stack, *names: str) -> Mesh:
    """Return processes in one primary view, that the first one has founded; what their programs
    were told before is forgotten."""
    mesh = Mesh(*stack.layers)
    mesh.start(*names)
    first = mesh.processes[names[0]]
    mesh.act(first, lambda: first.running.found(mesh.now_ms))
    assert mesh.until(mesh.together(*names))
    for process in mesh.processes.values():
        process.told.clear()
    return mesh
