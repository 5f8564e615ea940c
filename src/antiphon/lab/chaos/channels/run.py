"""Carry out a plan of faults on channels, undo all of them, wait until all processes are in one
view and have everything, and judge."""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from antiphon.checkers import channel_traces
from antiphon.formats.channel_trace import ChannelEvent, ChannelReading
from antiphon.io.transport import Address, format_address
from antiphon.lab.chaos.channels.faults import FaultInjector, lives, newest_primary, notes
from antiphon.lab.chaos.channels.links import Network
from antiphon.lab.chaos.channels.plan import draw_plan
from antiphon.lab.chaos.channels.program import CALM, Note, Spec, digested
from antiphon.lab.chaos.command import (
    Report,
    carry_out,
    show_faults,
    show_violations,
    strike,
)
from antiphon.lab.chaos.processes import Programs
from antiphon.model.peer_views import is_quorum
from antiphon.server.local_cluster import HOST, free_port
from antiphon.terminal.lines import say

CLUSTER = "chaos"
PROGRAM = "antiphon.lab.chaos.channels.program"
START_S = 120.0
HEAL_S = 30.0
"""Once everything is repaired, all processes are in one view within this time."""
REST_S = 60.0
SENDS_PER_S = 100.0
"""Of all processes together."""
SHOWN_MAX = 20


def run(args: argparse.Namespace) -> int:
    """Carry out `antiphon chaos --peers`, and return its exit code: 1 if there are violations."""

    def chaos(seed: int, folder: Path) -> Report:
        return ChannelChaos(seed, args.seconds, args.peers, folder).run()

    return carry_out(args, chaos, _print)


def _print(report: Report) -> None:
    show_faults(report)
    say(
        f"{report['peers']} processes, {report['lives']} lives: {report['sent']} messages were "
        f"sent, {report['delivered']} delivered, {report['views']} views shown. The first view of "
        f"all took {report['first_view_s']} s, the last one {report['last_view_s']} s after all "
        "was repaired"
    )
    show_violations(report, SHOWN_MAX, "all promises were kept")


class ChannelChaos:
    """One run: processes, faults, and the judgement."""

    def __init__(self, seed: int, seconds: float, peers: int, folder: Path) -> None:
        self._seed = seed
        self._seconds = seconds
        self._folder = folder
        self._names = tuple(f"p{number:02}" for number in range(1, peers + 1))
        self._began = time.monotonic()
        self._complaints: list[str] = []
        self._first_view_s = self._last_view_s = -1.0

    def run(self) -> dict[str, Any]:
        """Carry out the run, and return its report."""
        targets = {name: (HOST, free_port()) for name in self._names}
        with Network(targets) as self._network, self._started(targets) as self._programs:
            injector = FaultInjector(self._programs, self._network, self._folder, self._say)
            self._begin()
            strike(draw_plan(self._seed, self._seconds), self._seconds, injector.inject)
            injector.repair()
            self._finish()
        events = read_traces(self._folder)
        self._complaints += judged(events, complete=False)
        return self._report(events, injector.injected)

    def _report(self, events: list[ChannelEvent], faults: Counter[str]) -> dict[str, Any]:
        messages = Counter[str]()
        for event in events:
            messages[event.kind] += event.count
        return {
            "seed": self._seed,
            "seconds": round(time.monotonic() - self._began, 1),
            "peers": len(self._names),
            "lives": len({event.life for event in events}),
            "faults": dict(sorted(faults.items())),
            "sent": messages["send"],
            "delivered": messages["deliver"],
            "views": sum(event.kind == "view" for event in events),
            "first_view_s": self._first_view_s,
            "last_view_s": self._last_view_s,
            "violations": sorted(set(self._complaints)),
        }

    def _started(self, targets: dict[str, Address]) -> Programs[Spec]:
        gates = ",".join(format_address(gate) for gate in self._network.gates.values())
        specs = [
            Spec(
                name,
                self._names,
                f"peer://{gates}/{CLUSTER}",
                format_address(targets[name]),
                str(self._folder),
                str(self._seed),
                SENDS_PER_S / len(self._names),
            )
            for name in self._names
        ]
        return Programs(specs, self._folder, PROGRAM)

    def _say(self, what: str) -> None:
        say(f"{time.monotonic() - self._began:5.1f} s  {what}", flush=True)

    # -- The course of a run ---------------------------------------------------------------------

    def _begin(self) -> None:
        began = time.monotonic()
        calm = self._folder / CALM  # so that nothing but views is under way at first
        calm.touch()
        for name in self._names:
            self._programs.start(name)
        self._wait(self._all_are_in_one_view, START_S, "all processes are in their first view")
        self._first_view_s = round(time.monotonic() - began, 2)
        calm.unlink()
        self._say(f"{len(self._names)} processes are in one view")

    def _finish(self) -> None:
        self._say("everything is repaired")
        began = time.monotonic()
        self._wait(self._all_are_in_one_view, HEAL_S, "all processes are in one view")
        self._last_view_s = round(time.monotonic() - began, 2)
        self._say("all processes are in one view")
        (self._folder / CALM).touch()
        self._wait(self._all_is_calm, REST_S, "all processes have come to rest")
        self._look_at_primary()
        events = read_traces(self._folder)
        self._complaints += judged(events, complete=True)
        self._complaints += judge_programs(events, self._notes().values())
        self._say("what came to rest is judged")
        self._complaints += self._programs.end(*self._names)

    def _notes(self) -> dict[str, Note]:
        return notes(self._folder, self._programs)

    def _all_are_in_one_view(self) -> bool:
        told = self._notes()
        views = {note.view.id for note in told.values()}
        return (
            len(told) == len(self._names)
            and len(views) == 1
            and {*next(iter(told.values())).view.members} == lives(told)
        )

    def _all_is_calm(self) -> bool:
        """Return whether nothing has happened for some time, and all is delivered."""
        before = self._notes()
        time.sleep(1.0)
        told = self._notes()
        return (
            before == told
            and all(note.calm for note in told.values())
            and self._all_are_in_one_view()
            and not judged(read_traces(self._folder), complete=True)
        )

    def _look_at_primary(self) -> None:
        """There is a primary view, unless the last one's quorum was killed."""
        told = self._notes()
        if newest_primary(told) is not None:
            return
        shown = [e for e in read_traces(self._folder) if e.kind == "view" and e.primary]
        if not shown:
            self._complaints.append("there was never a primary view")
            return
        last = max(map(channel_traces.view_shown, shown), key=lambda view: view.id)
        if is_quorum(last, lives(told)):
            self._complaints.append(f"no view is primary, though a quorum of {last} is there")

    def _wait(self, condition: Callable[[], bool], seconds: float, what: str) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                self._complaints.append(f"waited {seconds:g} s without success: {what}")
                return
            time.sleep(0.05)


def read_traces(folder: Path) -> list[ChannelEvent]:
    """Return the events of all processes, of each up to a torn tail."""
    return [
        event
        for path in sorted(folder.glob("*.channel"))
        for event in ChannelReading(path.read_bytes())
    ]


def judged(events: Iterable[ChannelEvent], complete: bool) -> list[str]:
    """Return what the judge of channels finds."""
    return [str(finding) for _, finding in channel_traces.check(events, complete)]


def judge_programs(events: list[ChannelEvent], told: Iterable[Note]) -> list[str]:
    """Return for which processes the program was not handed what its trace says."""
    found = []
    for note in told:
        received, digest = 0, ""
        for event in events:
            if event.kind == "deliver" and event.life == note.life:
                incarnation = event.sender.partition(".")[0]
                for number in range(event.first, event.first + event.count):
                    received += 1
                    digest = digested(digest, event.view, f"{incarnation}.{number}")
        if (received, digest) != (note.received, note.digest):
            name = note.life.partition(".")[2]
            found.append(f"the program of {name} got {note.received} messages of {received}")
    return found
