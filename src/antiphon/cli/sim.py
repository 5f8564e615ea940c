"""`antiphon sim`: many seeds over all cores, or one seed again, with its story."""

from __future__ import annotations

import argparse
import multiprocessing
import secrets
import shutil
import sys
import time
from collections import Counter
from collections.abc import Iterable
from functools import partial
from pathlib import Path

import msgspec

from antiphon.sim.cluster.messaging_world import MessagingWorld
from antiphon.sim.cluster.observer import TraceWriter
from antiphon.sim.plan import draw_plan
from antiphon.sim.run import Result, make_world, run_plan, run_seed, run_world
from antiphon.sim.shrink import Shrinker
from antiphon.sim.story import Event, table
from antiphon.terminal.lines import complain, say, say_json
from antiphon.terminal.screen import Progress

TWICE_EVERY = 25
"""Each seed of this number runs twice, and must do the same both times."""


def run(args: argparse.Namespace) -> int:
    seeds: Iterable[int]
    if args.seed is not None:
        first, seeds, count = args.seed, [args.seed], 1
    else:
        first = args.first_seed if args.first_seed is not None else secrets.randbelow(1 << 40)
        seeds, count = range(first, first + args.seeds), args.seeds
        say(f"seeds {first} to {first + count - 1}", error=True)
    started = time.monotonic()
    results = _run_all(seeds, count, args.processes, args.trace)
    summary = _summary(results, first, time.monotonic() - started)
    for result in results:
        if result.violation:
            complain(f"seed {result.seed}: {result.violation}")
            say(f"  replay: antiphon sim --seed {result.seed}", error=True)
    failing = next((r for r in results if r.violation), None)
    if failing is not None and args.shrink:
        _tell(failing)
    if args.json:
        say_json(summary)
    else:
        _print(summary)
    return 1 if failing is not None else 0


def check_seed(seed: int, trace: str | None = None) -> Result:
    """Run a seed, now and then twice: a simulator that does not repeat itself proves nothing."""
    if trace:
        return _traced(seed, Path(trace))
    result = run_seed(seed)
    if seed % TWICE_EVERY == 0 and not result.violation:
        again = run_seed(seed).trace_hash
        if again != result.trace_hash:
            result.violation = "not deterministic: a second run took another course"
    return result


def _traced(seed: int, directory: Path) -> Result:
    world = make_world(draw_plan(seed))
    writer = world.observer = TraceWriter(directory, str(seed))
    result = run_world(world)
    if isinstance(world, MessagingWorld):
        writer.members(world.traces)
    writer.write()
    return result


def _run_all(seeds: Iterable[int], count: int, processes: int, trace: str | None) -> list[Result]:
    check = partial(check_seed, trace=trace)
    bar = Progress(counted=True, transient=False, disable=not sys.stderr.isatty())
    with bar as progress:
        task = progress.add_task("simulating", total=count)
        results = []
        for result in _map(check, seeds, count, processes):
            results.append(result)
            progress.advance(task)
    return sorted(results, key=lambda r: r.seed)


def _map(
    check: partial[Result], seeds: Iterable[int], count: int, processes: int
) -> Iterable[Result]:
    if count == 1 or processes == 1:
        yield from map(check, seeds)
        return
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        yield from pool.imap_unordered(check, seeds, chunksize=4)


def _summary(results: list[Result], first: int, seconds: float) -> dict[str, object]:
    faults: Counter[str] = Counter()
    for result in results:
        faults.update(result.faults)
    events = sum(r.events for r in results)
    return {
        "seeds": len(results),
        "first_seed": first,
        "events": events,
        "events_per_s": round(events / seconds),
        "deliveries": sum(r.deliveries for r in results),
        "faults": dict(sorted(faults.items())),
        "violations": [
            {
                "seed": r.seed,
                "violation": r.violation,
                "replay": f"antiphon sim --seed {r.seed}",
            }
            for r in results
            if r.violation
        ],
        "seconds": round(seconds, 3),
    }


def _print(summary: dict[str, object]) -> None:
    for key, value in summary.items():
        if key == "faults" and isinstance(value, dict):
            say("faults        " + ", ".join(f"{k} {n}" for k, n in value.items()))
        elif key == "violations" and isinstance(value, list):
            say(f"violations    {len(value)}")
        else:
            say(f"{key:13} {value}")


def _tell(failing: Result) -> None:
    """Shrink a failure and print the rest as a story."""
    say(f"shrinking seed {failing.seed} ...", error=True)
    plan = Shrinker(draw_plan(failing.seed), failing.violation).run()
    story: list[Event] = []
    result = run_plan(plan, story)
    servers = [n for n in plan.rates if any(server == n for _, server, _ in story)]
    say("", error=True)
    say(f"faults that are needed: {len(plan.faults)}", error=True)
    for fault in plan.faults:
        say("  " + msgspec.json.encode(fault).decode(), error=True)
    width = shutil.get_terminal_size((160, 40)).columns
    for line in table(story, servers, width).splitlines():
        say(line, error=True)
    complain(f"=> {result.violation}")
    say("", error=True)
