"""Pieces of a plan of channels that a shrinker takes out of it: processes, layers, messages..."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from antiphon.model.peer_views import Level
from antiphon.sim.peers.plan import Fault, Plan
from antiphon.sim.peers.stacks import Layers

SHORT_MS = (0, 20, 300, 3_000)


def simplifications(plan: Plan) -> Iterator[dict[str, Any]]:
    """Yield fields of a plan with simpler values, the most important ones first."""
    last_ms = max((fault.at_ms for fault in plan.faults), default=0)
    yield {"duration_ms": last_ms + 1_000}
    yield {"duration_ms": plan.duration_ms // 2}
    for name in plan.names[1:]:
        yield _without(plan, name)
    yield {"late": 0.0}
    yield {"straggle": 0.0}
    yield {"some": 0.0}
    yield {"padding": 0}
    yield {"hides": False}
    yield {"lead": "oldest"}
    yield {"sends_ms": 0}
    yield {"sends_ms": plan.sends_ms * 4}
    yield {"levels": (Level.AGREED,)}
    yield {"delay_us": (200, 300)}
    yield {"redial_ms": 30}
    yield from ({"layers": layers} for layers in _simpler(plan.layers))
    for at, fault in enumerate(plan.faults):
        for for_ms in SHORT_MS:
            if for_ms < fault.for_ms:
                shorter = msgspec.structs.replace(fault, for_ms=for_ms)
                yield {"faults": (*plan.faults[:at], shorter, *plan.faults[at + 1 :])}


def _simpler(layers: Layers) -> Iterator[Layers]:
    yield msgspec.structs.replace(layers, noise=())
    yield msgspec.structs.replace(layers, whiteboard=False)
    yield msgspec.structs.replace(layers, detour=False)
    yield msgspec.structs.replace(layers, fragment=0)
    yield msgspec.structs.replace(layers, window=0)
    yield msgspec.structs.replace(layers, detector="quick")
    for at in range(len(layers.above)):
        yield msgspec.structs.replace(layers, above=layers.above[:at] + layers.above[at + 1 :])


def _without(plan: Plan, name: str) -> dict[str, Any]:
    return {
        "names": tuple(one for one in plan.names if one != name),
        "founders": tuple(one for one in plan.founders if one != name),
        "starts_ms": {one: at for one, at in plan.starts_ms.items() if one != name},
        "faults": tuple(_without_name(fault, name) for fault in plan.faults),
    }


def _without_name(fault: Fault, name: str) -> Fault:
    return msgspec.structs.replace(fault, who=tuple(one for one in fault.who if one != name))
