"""A seed's plan for real processes: the faults, and when each begins and ends.

The plan is the same for the same arguments. The run is not: operating systems have no seed.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import NamedTuple

KINDS = {
    # kind -> how often, and the longest it lasts, in seconds
    "server-kill": (5, 3.0),
    "server-pause": (3, 3.0),
    "server-isolate": (3, 3.0),
    "link-stall": (3, 3.0),
    "link-cut": (2, 1.0),
    "link-delay": (2, 3.0),
    "client-stall": (2, 3.0),
    "client-cut": (3, 1.0),
    "program-kill": (5, 1.5),
    "program-pause": (2, 3.0),
    "disk-full": (3, 3.0),
    "disk-lost": (1, 1.5),
    "power-cut": (1, 1.0),  # all servers at once
}
BETWEEN_SERVERS = ("server-isolate", "link-stall", "link-cut", "link-delay")
ON_DISK = ("disk-full", "disk-lost", "power-cut")
LOSES_CONTEXTS = ("disk-lost",)
"""These lose acknowledgements that only a server with local contexts knows: no promise holds
then."""

PAUSE_S = (0.3, 1.8)
"""Between two faults; most last longer than that, so that several are there at a time."""

LEADER = 0.4
"""How often a fault strikes the server that leads at that moment."""


class Fault(NamedTuple):
    """One fault of a plan; its victim is drawn when it strikes."""

    at_s: float
    kind: str
    choice: float  # 0 to 1: which server, link or program
    leader: bool  # not that one: the leader
    for_s: float


Undo = Callable[[], None]
"""Ends a fault."""


def draw_plan(
    seed: int, seconds: float, servers: int, storage: str, contexts: str = "replicated"
) -> list[Fault]:
    chance = Random(f"chaos/{seed}")
    left_out = (BETWEEN_SERVERS if servers == 1 else ()) + (ON_DISK if storage == "memory" else ())
    left_out += LOSES_CONTEXTS if contexts == "local" else ()
    kinds = [kind for kind in KINDS if kind not in left_out]
    weights = [KINDS[kind][0] for kind in kinds]
    faults = []
    at_s = chance.uniform(*PAUSE_S)
    while at_s < seconds:
        kind = chance.choices(kinds, weights)[0]
        longest_s = min(KINDS[kind][1], max(seconds - at_s, 0.5))
        faults.append(
            Fault(
                at_s,
                kind,
                chance.random(),
                chance.random() < LEADER,
                chance.uniform(0.1 * longest_s, longest_s),
            )
        )
        at_s += chance.uniform(*PAUSE_S)
    return faults
