"""The plan of a seed: the processes of a channel, their stack, and what happens to them.

Swarm testing, as for servers (`sim/plan.py`): a seed first decides which kinds of fault exist at
all in its world. The plan is a plain value: a shrinker takes pieces out of it and runs it again.
"""

from __future__ import annotations

from random import Random

import msgspec

from antiphon.model.peer_views import Level
from antiphon.peers.membership.candidates import Lead
from antiphon.peers.stack.stack import Stack
from antiphon.sim.peers.stacks import Layers, draw_layers, stack_of
from antiphon.sim.seeds import stream

NAMES = "abcdefg"

WHITEBOARDS = 0.15
"""How many of the stacks have a whiteboard."""

LEADER = "*"
"""A fault's target: whoever leads, or coordinates a change, when it strikes."""


class Fault(msgspec.Struct, frozen=True):
    """Something that happens. `who`: names of processes, or `LEADER`; `for_ms`: how long it lasts,
    or how long until the restart; `detail`: the seed of further choices."""

    at_ms: int
    kind: str
    who: tuple[str, ...]
    for_ms: int
    detail: int


class Plan(msgspec.Struct, frozen=True):
    """A whole run as a value. `founders`: of a group with a list; `record`: the first process that
    starts holds the founding record; `starts_ms`: when each one starts for the first time;
    `sends_ms`: how long a program waits between two sends, on average (0: it sends nothing);
    `some`: how often it sends to some only; `late`: how often a copy of a frame comes late."""

    seed: int
    names: tuple[str, ...]
    founders: tuple[str, ...]
    record: bool
    lead: Lead
    hides: bool
    layers: Layers
    starts_ms: dict[str, int]
    delay_us: tuple[int, int]
    straggle: float  # how often a frame takes twenty times as long
    redial_ms: int
    sends_ms: int
    levels: tuple[int, ...]
    some: float
    padding: int
    late: float
    duration_ms: int
    faults: tuple[Fault, ...]


KINDS = {
    # kind: how often relative to others
    "start": 3,
    "crash": 4,
    "silent crash": 2,
    "restart": 5,
    "pause": 3,
    "leave": 3,
    "leave in join": 2,
    "part": 5,
    "part in three": 2,
    "cut": 3,
    "one-way": 3,
    "flap": 2,
    "break": 3,
    "trap": 6,
    "slow": 2,
    "slow reader": 1,
}


def stack_of_plan(plan: Plan) -> Stack:
    """Return the stack that all processes of a plan have."""
    return stack_of(plan.layers, plan.founders, plan.lead, plan.hides)


ENDS = ("crash", "silent crash", "leave", "leave in join", "trap")
"""The kinds of fault after which there may be a process less."""

GAPS_MS = (60, 150, 400, 1_500)
"""The time between two faults, on average."""
SPELLS_MS = ((0, 20, 300), (100, 1_000), (300, 3_000, 6_000), (0, 500, 10_000))
"""How long they last."""
BUSY_GAPS_MS = (80, 150, 250)
BUSY_SPELLS_MS = ((0, 20, 100), (20, 100, 200), (100, 200, 400), (10, 200, 1_000))
"""The same, in worlds where views follow each other as fast as they can."""


def draw_plan(seed: int) -> Plan:
    """Return the plan of a seed. It means the same as long as the source is the same."""
    random = stream(seed, "plan")
    names = tuple(NAMES[: random.choices((2, 3, 4, 5, 6, 7), (2, 8, 4, 3, 1, 1))[0]])
    founding = random.choices(("list", "record", "never"), (6, 3, 1))[0]
    whiteboard = stream(seed, "whiteboard").random() < WHITEBOARDS
    layers = msgspec.structs.replace(draw_layers(random), whiteboard=whiteboard)
    is_busy = random.random() < 0.7
    duration_ms = random.choice((10_000, 20_000, 40_000) if is_busy else (3_000, 10_000, 20_000))
    if is_busy:
        names = names[:5]
        layers = msgspec.structs.replace(layers, detector="quick")
    listed = names[: random.choice((1, 2, 3, 3, len(names)))]
    split = founding == "list" and len(listed) >= 3 and random.random() < 0.1
    staggered = random.choice((0, 0, 300, 3_000))
    return Plan(
        seed,
        names,
        listed if founding == "list" else (),
        founding == "record",
        random.choice(("hears", "hears", "oldest", "highest")),
        founding != "never" and random.random() < (0.1 if is_busy else 0.2),
        layers,
        {name: random.randint(0, staggered) for name in names if random.random() < 0.9},
        random.choice(((50, 300), (200, 2_000), (100, 20_000))),
        random.choice((0.0, 0.0, 0.02)),
        random.choice((30, 300)),
        random.choice((0, 30, 200, 400) if is_busy else (0, 30, 100, 400)),
        _draw_levels(random),
        random.choice((0.0, 0.0, 0.2)),
        random.choice((0, 0, 200)),
        random.choice((0.0, 0.0, 0.0, 0.01)),
        duration_ms,
        _split_brain(random, listed)
        if split
        else _draw_faults(random, names, duration_ms, is_busy),
    )


def _draw_levels(random: Random) -> tuple[int, ...]:
    if random.random() < 0.4:
        return (Level.AGREED,)
    return tuple(random.sample(tuple(map(int, Level)), random.randint(1, len(Level))))


def _draw_faults(
    random: Random, names: tuple[str, ...], duration_ms: int, is_busy: bool
) -> tuple[Fault, ...]:
    kinds = [kind for kind in KINDS if random.random() < 0.5] or ["restart"]
    weights = [KINDS[kind] for kind in kinds]
    gap_ms = random.choice(BUSY_GAPS_MS if is_busy else GAPS_MS)
    spells = random.choice(BUSY_SPELLS_MS if is_busy else SPELLS_MS)
    faults = []
    at_ms = random.randint(0, gap_ms)
    while at_ms < duration_ms:
        kind = random.choices(kinds, weights)[0]
        for_ms = random.choice(spells)
        if kind == "pause":
            for_ms = random.choice((100, 700) if is_busy else (100, 700, 3_000, 8_000, 60_000))
        who = _targets(random, names)
        faults.append(Fault(at_ms, kind, who, for_ms, random.getrandbits(30)))
        if is_busy and kind in ENDS:  # somebody comes for who goes
            back_ms = at_ms + random.choice((1, gap_ms, 3 * gap_ms))
            faults.append(Fault(back_ms, "start", who, 0, random.getrandbits(30)))
        at_ms += 1 + int(random.expovariate(1 / gap_ms))
    return tuple(sorted(faults, key=lambda fault: fault.at_ms))


def _targets(random: Random, names: tuple[str, ...]) -> tuple[str, ...]:
    """Return all names by chance, those that a fault strikes first; sometimes the leader before."""
    shuffled = tuple(random.sample(names, len(names)))
    return (LEADER, *shuffled) if random.random() < 0.3 else shuffled


def _split_brain(random: Random, founders: tuple[str, ...]) -> tuple[Fault, ...]:
    """Return faults after which those who founded a group are fresh, but for the first one, who
    stays primary by half with its first member, and is cut off: the fresh ones must not found it
    anew."""
    first, *others = founders
    faults = []
    at_ms = 1_500
    for name in reversed(others):
        faults.append(Fault(at_ms, "crash", (name,), 0, random.getrandbits(30)))
        at_ms += random.choice((5, 400, 3_000))
    faults.append(Fault(at_ms, "part", (first,), 4_000, 0))
    for name in others:
        at_ms += random.choice((1, 50, 500))
        faults.append(Fault(at_ms, "start", (name,), 0, random.getrandbits(30)))
    return tuple(faults)
