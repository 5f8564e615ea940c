"""`antiphon sim`: many seeds over all cores, or one seed again, with its story."""

from __future__ import annotations

import argparse
import multiprocessing
import secrets
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from antiphon.errors import ConfigurationError
from antiphon.sim.cluster.observer import TraceWriter
from antiphon.sim.cluster.simplifications import simplifications
from antiphon.sim.messaging_world import MessagingWorld
from antiphon.sim.peer_log import run as logs
from antiphon.sim.peer_log.world import draw_log_plan
from antiphon.sim.peer_log.world import simplifications as simpler_logs
from antiphon.sim.peers import run as channels
from antiphon.sim.peers import traces
from antiphon.sim.peers.plan import draw_plan as draw_channels
from antiphon.sim.peers.plan import stack_of_plan
from antiphon.sim.peers.simplifications import simplifications as simpler_channels
from antiphon.sim.peers.world import World as ChannelWorld
from antiphon.sim.plan import draw_plan
from antiphon.sim.run import Result, make_world, run_plan, run_seed, run_world
from antiphon.sim.shrink import Shrinker
from antiphon.sim.story import Event, table
from antiphon.terminal.lines import complain, say, say_json
from antiphon.terminal.screen import Progress

TWICE_EVERY = 25
"""Each seed of this number runs twice, and must do the same both times."""


class Subject(NamedTuple):
    """A subject of simulation: its function to run one seed, to summarize results, and to report a
    failing one."""

    check: Callable[..., Any]
    details: Callable[[Sequence[Any]], dict[str, object]]
    tell: Callable[[Any], None]
    replay: str


def run(args: argparse.Namespace) -> int:
    subject = {"": SERVERS, "channels": CHANNELS, "logs": LOGS}[args.peers]
    seeds: Iterable[int]
    if args.seed is not None:
        first, seeds, count = args.seed, [args.seed], 1
    else:
        first = args.first_seed if args.first_seed is not None else secrets.randbelow(1 << 40)
        seeds, count = range(first, first + args.seeds), args.seeds
        say(f"seeds {first} to {first + count - 1}", error=True)
    started = time.monotonic()
    results = _run_all(partial(subject.check, trace=args.trace), seeds, count, args.processes)
    summary = _summary(subject, results, first, time.monotonic() - started)
    for result in results:
        if result.violation:
            complain(f"seed {result.seed}: {result.violation}")
            say(f"  replay: {subject.replay} {result.seed}", error=True)
    failing = next((r for r in results if r.violation), None)
    if failing is not None and args.shrink:
        say(f"shrinking seed {failing.seed} ...", error=True)
        subject.tell(failing)
    if args.json:
        say_json(summary)
    else:
        _print(summary)
    return 1 if failing is not None else 0


# -- Servers ---------------------------------------------------------------------------------------


def check_seed(seed: int, trace: str | None = None) -> Result:
    """Run a seed, now and then twice: a simulator that does not repeat itself proves nothing."""
    if trace:
        return _traced(seed, Path(trace))
    result: Result = _repeated(run_seed, seed)
    return result


def _repeated(run_seed: Callable[[int], Any], seed: int) -> Any:
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


def _deliveries(results: Sequence[Result]) -> dict[str, object]:
    return {"deliveries": sum(r.deliveries for r in results)}


def _tell(failing: Result) -> None:
    """Shrink a failure and print the rest as a story."""
    shrinker = Shrinker(
        draw_plan(failing.seed),
        failing.violation,
        lambda plan: run_plan(plan).violation,
        simplifications,
    )
    plan = shrinker.run()
    story: list[Event] = []
    result = run_plan(plan, story)
    servers = {n: f"server {n}" for n in plan.rates if any(one == n for _, one, _ in story)}
    _tell_story(plan.faults, story, servers, result.violation)


SERVERS = Subject(check_seed, _deliveries, _tell, "antiphon sim --seed")


# -- Channels --------------------------------------------------------------------------------------


def check_channels(seed: int, trace: str | None = None) -> channels.Result:
    """Run a seed of channels, now and then twice."""
    if trace:
        world = ChannelWorld(draw_channels(seed))
        traced = channels.run_world(world)
        traces.write(world.judge, Path(trace), str(seed))
        return traced
    result: channels.Result = _repeated(channels.run_seed, seed)
    return result


def _changes(results: Sequence[channels.Result]) -> dict[str, object]:
    changes = sum((Counter(result.changes) for result in results), Counter())
    return {
        "deliveries": sum(result.deliveries for result in results),
        "views": changes.total(),
        "showings": sum(result.showings for result in results),
        "changes": dict(sorted(changes.items())),
    }


def _tell_channels(failing: channels.Result) -> None:
    shrinker = Shrinker(
        draw_channels(failing.seed),
        failing.violation,
        lambda plan: channels.run_plan(plan).violation,
        simpler_channels,
    )
    plan = shrinker.run()
    story: list[Event] = []
    result = channels.run_plan(plan, story)
    say("", error=True)
    say(f"processes {' '.join(plan.names)}; stack: {stack_of_plan(plan)}", error=True)
    _tell_story(plan.faults, story, {name: name for name in plan.names}, result.violation)


CHANNELS = Subject(check_channels, _changes, _tell_channels, "antiphon sim --peers --seed")


# -- Servers inside processes, over channels -------------------------------------------------------


def check_logs(seed: int, trace: str | None = None) -> logs.Result:
    """Run a seed of servers inside processes, now and then twice."""
    if trace:
        raise ConfigurationError("--trace: there are traces of servers and of channels only")
    result: logs.Result = _repeated(logs.run_seed, seed)
    return result


def _entries(results: Sequence[logs.Result]) -> dict[str, object]:
    return {
        "entries": sum(result.entries for result in results),
        "taken_over": sum(result.taken_over for result in results),
        "reads": sum(result.reads for result in results),
    }


def _tell_logs(failing: logs.Result) -> None:
    shrinker = Shrinker(
        draw_log_plan(failing.seed),
        failing.violation,
        lambda plan: logs.run_plan(plan).violation,
        simpler_logs,
    )
    plan = shrinker.run()
    story: list[Event] = []
    result = logs.run_plan(plan, story)
    _tell_story(plan.faults, story, {name: name for name in plan.names}, result.violation)


LOGS = Subject(check_logs, _entries, _tell_logs, "antiphon sim --peers logs --seed")


# -- All -------------------------------------------------------------------------------------------


def _run_all(
    check: Callable[[int], Any], seeds: Iterable[int], count: int, processes: int
) -> list[Any]:
    bar = Progress(counted=True, transient=False, disable=not sys.stderr.isatty())
    with bar as progress:
        task = progress.add_task("simulating", total=count)
        results = []
        for result in _map(check, seeds, count, processes):
            results.append(result)
            progress.advance(task)
    return sorted(results, key=lambda r: r.seed)


def _map(
    check: Callable[[int], Any], seeds: Iterable[int], count: int, processes: int
) -> Iterable[Any]:
    if count == 1 or processes == 1:
        yield from map(check, seeds)
        return
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        yield from pool.imap_unordered(check, seeds, chunksize=4)


def _summary(
    subject: Subject, results: Sequence[Any], first: int, seconds: float
) -> dict[str, object]:
    faults: Counter[str] = Counter()
    for result in results:
        faults.update(result.faults)
    events = sum(r.events for r in results)
    return {
        "seeds": len(results),
        "first_seed": first,
        "events": events,
        "events_per_s": round(events / seconds),
        **subject.details(results),
        "faults": dict(sorted(faults.items())),
        "violations": [
            {
                "seed": r.seed,
                "violation": r.violation,
                "replay": f"{subject.replay} {r.seed}",
            }
            for r in results
            if r.violation
        ],
        "seconds": round(seconds, 3),
    }


def _print(summary: dict[str, object]) -> None:
    for key, value in summary.items():
        if isinstance(value, dict):
            say(f"{key:13} " + ", ".join(f"{k} {n}" for k, n in value.items()))
        elif isinstance(value, list):
            say(f"{key:13} {len(value)}")
        else:
            say(f"{key:13} {value}")


def _tell_story(
    faults: Sequence[Any], story: Sequence[Event], columns: Mapping[Any, str], violation: str
) -> None:
    say("", error=True)
    say(f"faults that are needed: {len(faults)}", error=True)
    for fault in faults:
        say("  " + msgspec.json.encode(fault).decode(), error=True)
    width = shutil.get_terminal_size((160, 40)).columns
    for line in table(story, columns, width).splitlines():
        say(line, error=True)
    complain(f"=> {violation}")
    say("", error=True)
