"""Breaks real processes of a channel, and the ways between them. Each fault can be undone."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable
from itertools import permutations
from pathlib import Path

import msgspec

from antiphon.formats.channel_trace import life_of
from antiphon.lab.chaos.channels.links import Network, Pair
from antiphon.lab.chaos.channels.program import Note, Spec, note_file
from antiphon.lab.chaos.plan import Fault, Undo
from antiphon.lab.chaos.processes import Programs
from antiphon.model.peer_views import MemberId, PeerView, is_quorum

DELAY_S = 0.15


def nothing() -> None:
    """Undo a fault that is over at once."""


def notes(folder: Path, programs: Programs[Spec]) -> dict[str, Note]:
    """Return what the processes that run say of themselves, by name."""
    found = {}
    for name in programs.specs:
        file = note_file(folder, name)
        if programs.running(name) and file.exists():
            found[name] = msgspec.json.decode(file.read_bytes(), type=Note)
    return found


def newest_primary(told: dict[str, Note]) -> PeerView | None:
    """Return the newest primary view that anybody has."""
    views = [note.view for note in told.values() if note.view.primary]
    return max(views, key=lambda view: view.id, default=None)


class FaultInjector:
    """Injects faults into processes and ways, and undoes them."""

    def __init__(
        self, programs: Programs[Spec], network: Network, folder: Path, say: Callable[[str], None]
    ) -> None:
        self.injected: Counter[str] = Counter()
        self._programs = programs
        self._network = network
        self._folder = folder
        self._say = say
        self._names = sorted(programs.specs)
        self._down: set[str] = set()
        self.kinds: dict[str, Callable[[Fault], Undo | None]] = {
            "kill": lambda fault: self._end(fault, "kill -9", self._programs.kill),
            "leave": lambda fault: self._end(fault, "leave:", self._have_left),
            "pause": self._pause,
            "isolate": self._isolate,
            "deaf": self._deafen,
            "mute": self._mute,
            "split": self._split,
            "stall": self._stall_way,
            "delay": self._delay,
            "cut": self._cut,
            "reset": lambda fault: self._reset(fault, 0.0),
            "late": lambda fault: self._reset(fault, fault.for_s),
        }

    def inject(self, fault: Fault) -> Undo | None:
        """Inject a fault; return the function that ends it, or None if it was not possible now."""
        undo = self.kinds[fault.kind](fault)
        if undo is not None:
            self.injected[fault.kind] += 1
        return undo

    def repair(self) -> None:
        """Undo all faults."""
        self._network.mend_all()
        for name in self._names:
            self._programs.signal(name, signal.SIGCONT)
            self._start(name)

    # -- Processes -------------------------------------------------------------------------------

    def _victim(self, fault: Fault) -> str:
        view = newest_primary(notes(self._folder, self._programs)) if fault.leader else None
        return view.leader.name if view else self._names[int(fault.choice * len(self._names))]

    def _end(self, fault: Fault, how: str, end: Callable[[str], None]) -> Undo | None:
        name = self._victim(fault)
        if not self._programs.running(name) or not self._may_end(name):
            return None
        self._say(f"{how} {name} for {fault.for_s:.1f} s")
        end(name)
        note_file(self._folder, name).unlink(missing_ok=True)
        return lambda: self._start(name)

    def _may_end(self, name: str) -> bool:
        """Return whether the primary view can go on without this process: nothing is on disks, so
        a quorum that dies never comes back."""
        told = notes(self._folder, self._programs)
        view = newest_primary(told)
        rest = [life_of(note.life) for other, note in told.items() if other != name]
        return view is not None and is_quorum(view, rest)

    def _have_left(self, name: str) -> None:
        self._programs.signal(name, signal.SIGCONT)
        self._programs.end(name)

    def _start(self, name: str) -> None:
        if not self._programs.running(name):
            note_file(self._folder, name).unlink(missing_ok=True)
            self._programs.start(name)

    def _pause(self, fault: Fault) -> Undo | None:
        name = self._victim(fault)
        if not self._programs.running(name):
            return None
        self._programs.signal(name, signal.SIGSTOP)
        self._say(f"pause {name} for {fault.for_s:.1f} s")
        return lambda: self._programs.signal(name, signal.SIGCONT)

    # -- Ways ------------------------------------------------------------------------------------

    def _pairs(self) -> list[Pair]:
        return [Pair(one, other) for one, other in permutations(self._names, 2)]

    def _isolate(self, fault: Fault) -> Undo:
        name = self._victim(fault)
        pairs = [pair for pair in self._pairs() if name in pair]
        return self._stall(pairs, f"between {name} and the others", fault)

    def _deafen(self, fault: Fault) -> Undo:
        name = self._victim(fault)
        return self._stall([p for p in self._pairs() if p.target == name], f"to {name}", fault)

    def _mute(self, fault: Fault) -> Undo:
        name = self._victim(fault)
        return self._stall([p for p in self._pairs() if p.source == name], f"from {name}", fault)

    def _split(self, fault: Fault) -> Undo:
        size = 1 + int(fault.choice * (len(self._names) - 1))
        part = {self._names[(size * 7 + i) % len(self._names)] for i in range(size)}
        pairs = [pair for pair in self._pairs() if (pair.source in part) != (pair.target in part)]
        return self._stall(pairs, f"between {' '.join(sorted(part))} and the others", fault)

    def _stall_way(self, fault: Fault) -> Undo:
        pair = self._way(fault)
        return self._stall([pair], f"from {pair.source} to {pair.target}", fault)

    def _way(self, fault: Fault) -> Pair:
        pairs = self._pairs()
        return pairs[int(fault.choice * len(pairs))]

    def _stall(self, pairs: list[Pair], where: str, fault: Fault) -> Undo:
        self._network.stall(pairs)
        self._say(f"nothing gets through {where} for {fault.for_s:.1f} s")
        return lambda: self._network.mend(pairs)

    def _delay(self, fault: Fault) -> Undo:
        name = self._victim(fault)
        pairs = [pair for pair in self._pairs() if pair.source == name]
        self._network.delay(pairs, DELAY_S)
        self._say(f"everything from {name} is slow for {fault.for_s:.1f} s")
        return lambda: self._network.mend(pairs)

    def _cut(self, fault: Fault) -> Undo:
        pair = self._way(fault)
        self._network.cut(*pair)
        self._say(f"no connection between {' and '.join(pair)} for {fault.for_s:.1f} s")
        return lambda: self._network.mend([pair])

    def _reset(self, fault: Fault, late_s: float) -> Undo:
        pair = self._way(fault)
        self._network.reset(*pair, late_s)
        late = f", which one side sees {late_s:.1f} s late" if late_s else ""
        self._say(f"the connection between {' and '.join(pair)} is reset{late}")
        return nothing


def lives(told: dict[str, Note]) -> set[MemberId]:
    """Return the lives of these processes."""
    return {life_of(note.life) for note in told.values()}
