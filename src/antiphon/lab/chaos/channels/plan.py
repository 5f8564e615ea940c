"""A seed's plan of faults for channels: what happens, and when it begins and ends.

The plan is the same for the same arguments. The run is not: operating systems have no seed.
"""

from __future__ import annotations

from random import Random

from antiphon.lab.chaos.plan import PAUSE_S, Fault

KINDS = {
    # kind -> how often, the shortest and the longest it lasts, in seconds
    "kill": (4, 0.1, 3.0),
    "leave": (2, 0.1, 2.0),
    "pause": (4, 0.1, 20.0),
    "isolate": (2, 0.3, 6.0),  # one process, both ways
    "deaf": (2, 0.3, 6.0),  # one process hears nothing, and is heard
    "mute": (2, 0.3, 6.0),  # the other way round
    "split": (2, 0.3, 6.0),  # into two parts
    "stall": (3, 0.3, 6.0),  # from one process to another, one way
    "delay": (2, 0.3, 6.0),
    "cut": (2, 0.1, 3.0),  # between two processes
    "reset": (2, 0.0, 0.0),
    "late": (3, 0.1, 2.0),
}

LEADER = 0.4
"""How often a fault strikes the process that leads at that moment."""


def draw_plan(seed: int, seconds: float) -> list[Fault]:
    """Return the faults of a run, in their order. Short ones are as frequent as long ones."""
    chance = Random(f"channels/{seed}")
    kinds, weights = list(KINDS), [often for often, _, _ in KINDS.values()]
    faults = []
    at_s = chance.uniform(*PAUSE_S)
    while at_s < seconds:
        kind = chance.choices(kinds, weights)[0]
        _, shortest_s, longest_s = KINDS[kind]
        ratio = longest_s / shortest_s if shortest_s else 1.0
        for_s = shortest_s * ratio ** chance.random()
        strikes_leader = chance.random() < LEADER
        faults.append(Fault(at_s, kind, chance.random(), strikes_leader, for_s))
        at_s += chance.uniform(*PAUSE_S)
    return faults
