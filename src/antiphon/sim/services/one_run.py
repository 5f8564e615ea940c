"""One run of a plan with a service, in this process."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import NamedTuple

from antiphon.checkers.histories import Operation
from antiphon.sim.event_loop.guard import guarded
from antiphon.sim.seeds import stream
from antiphon.sim.services.active_world import Came, World
from antiphon.sim.services.group_world import Line, MakeService, Plan
from antiphon.sim.services.passive_world import PassiveWorld
from antiphon.sim.violations import ViolationError


class Ran(NamedTuple):
    """The outcome of a run."""

    violation: str  # empty: there is none
    story: list[Line]
    history: list[Operation]
    outcomes: list[Came]  # of commands, in their order; with active replication
    state: bytes  # of the first replica in the end; with active replication


def run(
    service: MakeService, plan: Plan, modules: Sequence[ModuleType], passive: bool = False
) -> Ran:
    """Run a plan. `modules`: those of the user's code, whose errors are violations."""
    world = PassiveWorld(service, plan) if passive else World(service, plan)
    chance = stream(plan.seed, "service")
    try:
        with guarded(
            lambda: world.now, chance, deterministic=not passive, modules=modules
        ) as guard:
            world.refused = guard.refused
            world.run()
            if isinstance(world, PassiveWorld):
                return Ran("", world.story, world.history, [], b"")
            outcomes = [world.outcomes[at] for at in sorted(world.outcomes)]
            return Ran("", world.story, world.history, outcomes, world.states()[0].state)
    except ViolationError as violation:
        return Ran(str(violation), world.story, world.history, [], b"")
    finally:
        world.close()
