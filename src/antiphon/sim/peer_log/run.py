"""One seed of logs over channels, from beginning to verdict."""

from __future__ import annotations

from typing import cast

import msgspec

from antiphon.sim.peer_log.process import LogProcess
from antiphon.sim.peer_log.world import LogWorld, draw_log_plan
from antiphon.sim.peers.plan import Plan
from antiphon.sim.peers.run import LIVE_MS, begin, calm_down
from antiphon.sim.story import Event
from antiphon.sim.violations import ViolationError, violation_of

STEP_MS = 250


class Result(msgspec.Struct):
    """The outcome of one run; `violation` is empty if all promises were kept."""

    seed: int
    events: int
    entries: int
    taken_over: int  # states
    reads: int
    relays: int
    faults: dict[str, int]
    trace_hash: int
    violation: str = ""


def run_seed(seed: int) -> Result:
    return run_plan(draw_log_plan(seed))


def run_plan(plan: Plan, story: list[Event] | None = None) -> Result:
    world = LogWorld(plan, story)
    violation = violation_of(world, lambda: _run(world))
    oracle = world.oracle
    return Result(
        plan.seed,
        world.events,
        len(oracle.entries),
        oracle.taken_over,
        oracle.reads,
        oracle.relays,
        dict(sorted(world.faults.items())),
        world.network.digest,
        violation,
    )


def _run(world: LogWorld) -> None:
    begin(world)
    core = cast(list[LogProcess], calm_down(world))
    if core:
        _agree(world, core)


def _agree(world: LogWorld, core: list[LogProcess]) -> None:
    """Let time pass until the core has one log, with all that was proposed, and all answers; or is
    in no primary view, and waits."""
    until_us = world.now_us + LIVE_MS * 1000
    while world.now_us < until_us:
        world.run_until(world.now_us + STEP_MS * 1000)
        for process in core:
            process.input(process.program.ask_again)
        if _are_agreed(world, core):
            return
    if all(len(one.formed.members) == len(core) and not one.formed.primary for one in core):
        return
    where = "; ".join(f"{one}: {one.log.index}, {one.formed}" for one in core)
    raise ViolationError(f"liveness: the core has {where}, of {len(world.oracle.entries)}")


def _are_agreed(world: LogWorld, core: list[LogProcess]) -> bool:
    last = len(world.oracle.entries)
    return all(one.is_settled and one.log.index == last for one in core)
