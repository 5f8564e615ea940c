"""A simulated world of servers inside processes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from antiphon.model.peer_views import Level
from antiphon.peers.layers.state import State
from antiphon.peers.stack.stack import Stack
from antiphon.sim.peer_log.oracle import Oracle
from antiphon.sim.peer_log.process import LogProcess
from antiphon.sim.peers import simplifications as peers
from antiphon.sim.peers.plan import Plan, draw_plan
from antiphon.sim.peers.stacks import READY_MADE, Layers
from antiphon.sim.peers.world import World
from antiphon.sim.seeds import stream
from antiphon.sim.story import Event

NEEDED = {"hides", "layers", "levels"}
"""Of a plan: without these there are no promises."""


def draw_log_plan(seed: int) -> Plan:
    """Return the plan of a seed: one for channels, with the stack that a log needs. The first
    process founds the cluster; there is one chain of primary views."""
    plan, random = draw_plan(seed), stream(seed, "log plan")
    layers = Layers(
        READY_MADE["total uniform"],
        fragment=random.choice((60, 1 << 20, 1 << 20)),
        window=plan.layers.window or 4 << 20,
        detector=plan.layers.detector,
    )
    return msgspec.structs.replace(
        plan,
        founders=(),
        record=True,
        hides=True,
        layers=layers,
        levels=(Level.AGREED,),
        some=0.0,
        sends_ms=random.choice((20, 50, 200)),
    )


def simplifications(plan: Plan) -> Iterator[dict[str, Any]]:
    """Yield fields of a plan with simpler values; what a log needs stays as it is."""
    return (simpler for simpler in peers.simplifications(plan) if not simpler.keys() & NEEDED)


class LogWorld(World):
    """All processes of a plan, each with a log."""

    def __init__(self, plan: Plan, story: list[Event] | None = None) -> None:
        super().__init__(plan, story)
        self.stack = Stack(*self.stack.layers, State(counts=True))
        self.oracle = self.judge = Oracle()  # type: ignore[assignment]

    def make_process(self, name: str, life: int) -> LogProcess:
        return LogProcess(self, name, life)
