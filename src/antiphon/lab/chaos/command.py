"""The frame of a chaos run, of servers or of channels: its seed and folder, the course of its
faults, its report, its exit code."""

from __future__ import annotations

import argparse
import heapq
import secrets
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable
from itertools import count
from pathlib import Path
from typing import Any

from antiphon.errors import IllegalStateError
from antiphon.lab.chaos.plan import Fault, Undo
from antiphon.terminal.lines import say, say_json
from antiphon.terminal.screen import Screen, Table

Report = dict[str, Any]


def carry_out(
    args: argparse.Namespace, run: Callable[[int, Path], Report], show: Callable[[Report], None]
) -> int:
    """Run with a seed and an empty folder, show the report, and return the exit code: 1 if there
    are violations, which keep the folder. Raise `IllegalStateError` if the folder is not empty."""
    seed = args.seed if args.seed is not None else secrets.randbelow(1 << 32)
    folder = Path(args.trace or tempfile.mkdtemp("-antiphon-chaos"))
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise IllegalStateError(f"{folder} is not empty: this run and an older one would mix there")
    try:
        report = run(seed, folder)
    except BaseException:
        say(f"logs and traces are in {folder}")
        raise
    if report["violations"]:
        report["folder"] = str(folder)
    elif not args.trace:
        shutil.rmtree(folder)
    if args.json:
        say_json(report)
    else:
        show(report)
    return 1 if report["violations"] else 0


def strike(plan: Iterable[Fault], seconds: float, inject: Callable[[Fault], Undo | None]) -> None:
    """Begin each fault at its time, and end it at its own, until `seconds` have passed. Faults that
    last longer are left to the caller."""
    order = count()
    start_s = time.monotonic()
    due: list[tuple[float, int, Fault | Undo]] = [
        (fault.at_s, next(order), fault) for fault in plan
    ]
    heapq.heapify(due)
    while due and due[0][0] < seconds:
        at_s, _, what = heapq.heappop(due)
        time.sleep(max(0.0, start_s + at_s - time.monotonic()))
        if not isinstance(what, Fault):
            what()
        elif (undo := inject(what)) is not None:
            end_s = time.monotonic() - start_s + what.for_s
            heapq.heappush(due, (end_s, next(order), undo))
    time.sleep(max(0.0, start_s + seconds - time.monotonic()))


def show_faults(report: Report) -> None:
    """Print how often which fault was injected."""
    table = Table("injected", "times", title=f"seed {report['seed']}")
    for kind, times in report["faults"].items():
        table.add_row(kind, str(times))
    Screen().print(table)


def show_violations(report: Report, most: int, none: str) -> None:
    """Print the first violations and their number; `none` if there are none."""
    for violation in report["violations"][:most]:
        say(f"VIOLATION: {violation}")
    if report["violations"]:
        say(f"{len(report['violations'])} violations; logs and traces are in {report['folder']}")
    else:
        say(none)
