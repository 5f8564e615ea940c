"""One seed of channels, from beginning to verdict."""

from __future__ import annotations

import msgspec

from antiphon.sim.peers.faults import strike
from antiphon.sim.peers.plan import Plan, draw_plan
from antiphon.sim.peers.process import Process
from antiphon.sim.peers.stacks import DETECTORS
from antiphon.sim.peers.world import World
from antiphon.sim.seeds import stream
from antiphon.sim.story import Event
from antiphon.sim.violations import ViolationError, violation_of

LIVE_MS = 40_000
"""Within this time after the last fault, those who are connected are in one view."""
REST_MS = 3_000
"""After this time their messages are delivered, and their view stays."""
STEP_MS = 100
SUSPICION_MS = 500
"""A process that is gone is taken to be gone this long after the detector's ceiling."""
CHANGES_MAX = 3
"""The most views that are shown after the last connection has come or gone."""


class Result(msgspec.Struct):
    """The outcome of one run; `violation` is empty if all promises were kept. `changes`: the views
    that anybody was shown, by kind."""

    seed: int
    events: int
    deliveries: int
    showings: int
    changes: dict[str, int]
    faults: dict[str, int]
    trace_hash: int
    violation: str = ""


def run_seed(seed: int) -> Result:
    return run_plan(draw_plan(seed))


def run_plan(plan: Plan, story: list[Event] | None = None) -> Result:
    return run_world(World(plan, story))


def run_world(world: World) -> Result:
    violation = violation_of(world, lambda: _run(world))
    judge = world.judge
    return Result(
        world.plan.seed,
        world.events,
        judge.deliveries,
        judge.showings,
        dict(sorted(judge.changes.items())),
        dict(sorted(world.faults.items())),
        world.network.digest,
        violation,
    )


def _run(world: World) -> None:
    begin(world)
    core = calm_down(world)
    if core:
        _come_together(world, core)
        _read_the_newest(core)
    complete = bool(core) and not any(_waits_for_primary(world, one) for one in core)
    world.judge.judge(complete)


def begin(world: World) -> None:
    """Carry out the plan."""
    plan = world.plan
    for name, at_ms in plan.starts_ms.items():
        world.at(at_ms * 1000, world.start, name)
    for fault in plan.faults:
        world.at(fault.at_ms * 1000, strike, world, fault)
    world.run_until(plan.duration_ms * 1000)


def calm_down(world: World) -> list[Process]:
    """End all faults; return those who are to come together: connected with each other, and with
    nobody else."""
    world.calm = True
    network, random = world.network, stream(world.plan.seed, "core")
    network.trap = None
    network.slow_us.clear()
    names = [name for name in world.plan.names if random.random() < 0.8]
    for process in world.living():
        process.input(process.behind, False)
        process.wake(random.random() < 0.5)
    for one, other in list(network.dark):
        while network.dark[one, other]:
            network.darken(one, other, False)
    network.apart.clear()
    for name in names:
        if random.random() < 0.5:
            world.start(name)
    core = [one for one in world.living() if one.name in names and not one.leaving]
    for process in world.living():
        if process not in core:
            world.crash(process, silent=False)
    world.note("", f"from here on {' '.join(map(str, core))} are well")
    return core


def _come_together(world: World, core: list[Process]) -> None:
    """Let time pass until they are in one view, and stay there, with all sent messages delivered.

    Changes need a cause: a connection that comes or goes, or somebody who seems to be gone, which
    takes some time. Where layers below lose and overtake what processes say of themselves, there
    are causes at any time."""
    until_us = world.now_us + LIVE_MS * 1000
    ceiling_ms = DETECTORS[world.plan.layers.detector][2]
    world.touched_us = world.now_us + (ceiling_ms + SUSPICION_MS) * 1000
    known = set(world.judge.views)
    while world.now_us < until_us:
        world.run_until(world.now_us + STEP_MS * 1000)
        at_rest_us = max(world.judge.shown_us, world.touched_us) + REST_MS * 1000
        if world.now_us > at_rest_us and _are_together(world, core):
            return
        if world.touched_us > world.now_us - STEP_MS * 1000:
            known = set(world.judge.views)
        more = world.judge.views.keys() - known
        if len(more) > CHANGES_MAX and not world.plan.layers.noise:
            raise ViolationError(f"liveness: {len(more)} changes without a cause")
    views = "; ".join(f"{one}: {one.formed}" for one in core)
    raise ViolationError(f"liveness: {' '.join(map(str, core))} have no view of them: {views}")


def _are_together(world: World, core: list[Process]) -> bool:
    view = core[0].formed
    if set(view.members) != {one.me for one in core}:
        return False
    return all(one.formed == view and one.is_settled for one in core)


def _read_the_newest(core: list[Process]) -> None:
    """Check that all of them know what the others wrote last on the whiteboard."""
    for one in core:
        for other in core:
            if other is not one and other.written != one.numbers.get(other.me, 0):
                raise ViolationError(
                    f"whiteboard: {one} knows {one.numbers.get(other.me)} of {other}, which has "
                    f"written {other.written}"
                )


def _waits_for_primary(world: World, process: Process) -> bool:
    return world.plan.hides and not process.formed.primary
