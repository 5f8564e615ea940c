"""Calls of a passively replicated service: properties 1 to 7, whatever befalls the primary."""

from collections import Counter

import pytest

from antiphon.sim.seeds import stream
from antiphon.sim.services.group_world import Op, Plan
from antiphon.sim.services.invocation_world import InvocationWorld, Strike
from antiphon.sim.services.simulate import draw_faults

TRIPS = 5


def plan(seed: int, trips: int = TRIPS, faults: bool = True) -> Plan:
    draw = stream(seed, "trips")
    times = sorted(draw.uniform(0, 3) for _ in range(trips))
    ops = tuple(Op(at, draw.randrange(2), f"trip {i}") for i, at in enumerate(times))
    struck = draw_faults(stream(seed, "faults"), 2, 3) if faults else ()
    return Plan(seed, 3, 2, ops, struck, ("the last trip",))


def run(seed: int, trips: int = TRIPS, strike: Strike | None = None) -> InvocationWorld:
    world = InvocationWorld(plan(seed, trips, faults=strike is None), strike)
    try:
        world.run()
    except Exception as error:
        story = "\n".join(f"{line.at:.3f} {line.who:12} {line.what}" for line in world.story)
        raise AssertionError(f"seed {seed}, {strike}: {error}\n{story}") from error
    return world


def test_no_orphan_stays_whatever_happens() -> None:
    for seed in range(150):
        run(seed)


@pytest.mark.parametrize("kind", ["crash", "pause"])
def test_the_primary_may_fail_between_any_two_steps(kind: str) -> None:
    """A crash, and a pause that is long enough to be taken for one."""
    for seed in range(3):
        steps = InvocationWorld(plan(seed, 2, faults=False))
        steps.run()
        for step in range(1, steps.steps + 1):
            run(seed, 2, Strike(step, kind, 1.5))


def test_everything_that_can_happen_does() -> None:
    told: Counter[str] = Counter()
    worlds = [run(seed) for seed in range(40)]
    worlds += [run(1, 2, Strike(step, "pause", 1.5)) for step in range(1, 40)]
    for world in worlds:
        told["committed"] += len(world.flights.committed)
        told["aborted"] += len(world.flights.aborted)
        told["compensated"] += len(world.hotel.compensated)
        for view, said in world.log():
            told["void update"] += said[0] == "update" and said[1] != view
            told["late undo"] += said[0] == "undo" and said[2] != view
        called = {line.what.removeprefix("gets ") for line in world.story}
        undone = world.flights.aborted | world.hotel.compensated
        told["undone though never called"] += len(undone - called)
        told["undone after it was called"] += len(undone & called)
    for what in (
        "committed",
        "aborted",
        "compensated",
        "void update",
        "late undo",
        "undone though never called",
        "undone after it was called",
    ):
        assert told[what] > 0, (what, told)


def test_a_call_that_comes_after_it_was_undone_is_refused() -> None:
    """A primary that stands still right before it calls, and goes on when it was undone."""
    refused = 0
    for step in range(1, 60):
        world = run(1, 2, Strike(step, "pause", 1.5))
        story = [line.what for line in world.story]
        for id in world.flights.aborted:
            told, got = f"is told: undo {id}", f"gets {id}"
            refused += told in story and got in story and story.index(told) < story.index(got)
    assert refused > 0
