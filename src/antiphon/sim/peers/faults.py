"""The kinds of faults in a simulated world of channels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import combinations
from random import Random

from antiphon.sim.peers.network import Trap
from antiphon.sim.peers.plan import LEADER, Fault
from antiphon.sim.peers.process import Process
from antiphon.sim.peers.world import World

STEPS = (
    # At each step of a change: who sends the header, if the coordinator does, or who gets it
    ("Ask", True),
    ("Told", False),
    ("Behind", True),
    ("Decided", True),
    ("Fetch", False),
    ("Frames", True),
    ("Installed", False),
    ("Show", True),
    ("Refused", False),
)


def strike(world: World, fault: Fault) -> None:
    """Have a fault happen, if it can."""
    if world.calm:
        return
    names = _resolved(world, fault)
    if not names:
        return
    world.faults[fault.kind] += 1
    world.note("", f"{fault.kind} {' '.join(names)}, {fault.for_ms} ms" if names else fault.kind)
    _KINDS[fault.kind](world, fault, names, Random(fault.detail))


def _resolved(world: World, fault: Fault) -> list[str]:
    """Return the names that are meant, each once."""
    names = []
    for name in fault.who:
        if name == LEADER:
            living = world.living()
            leaders = [one.running.view.leader.name for one in living if len(one.links)]
            name = leaders[0] if leaders else ""
        if name and name not in names:
            names.append(name)
    return names


def _later(world: World, for_ms: int, call: Callable[..., None], *arguments: object) -> None:
    world.at(world.now_us + for_ms * 1000, call, *arguments)


def _first_living(world: World, names: Sequence[str]) -> Process | None:
    for name in names:
        if world.alive(name):
            return world.processes[name]
    return None


# -- Processes -------------------------------------------------------------------------------------


def _start(world: World, fault: Fault, names: Sequence[str], random: Random) -> None:
    for name in names:
        if not world.alive(name):
            world.start(name)
            return


def _crash(world: World, fault: Fault, names: Sequence[str], random: Random) -> None:
    if process := _first_living(world, names):
        world.crash(process, silent=fault.kind == "silent crash")


def _restart(world: World, fault: Fault, names: Sequence[str], random: Random) -> None:
    if process := _first_living(world, names):
        world.crash(process, silent=random.random() < 0.2)
        _later(world, fault.for_ms, world.restart, process.name)


def _pause(world: World, fault: Fault, names: Sequence[str], random: Random) -> None:
    process = _first_living(world, names)
    if process and not process.paused:
        process.pause()
        _later(world, fault.for_ms, process.wake, random.random() < 0.5)


def _leave(world: World, fault: Fault, names: Sequence[str], random: Random) -> None:
    process = _first_living(world, names)
    if process and not process.leaving:
        process.input(process.leave)


def _leave_in_join(world: World, fault: Fault, names: Sequence[str], random: Random) -> None:
    for name in names:
        if not world.alive(name):
            world.start(name)
            process = world.processes[name]
            _later(world, random.choice((0, 2, 60, 100, 150)), process.input, process.leave)
            return


def _slow_reader(world: World, fault: Fault, names: Sequence[str], random: Random) -> None:
    if process := _first_living(world, names):
        process.input(process.behind, True)
        _later(world, fault.for_ms, process.input, process.behind, False)


def _trap(world: World, fault: Fault, names: Sequence[str], random: Random) -> None:
    header, by_coordinator = random.choice(STEPS)
    victims = random.choice(("sender" if by_coordinator else "receiver", "sender", "all", "all"))
    restart_ms = random.choice((None, 0, 5, 500))
    until_us = world.now_us + 3_000_000
    tag = bytes([0xA0 + len(header)]) + header.encode()
    apart_ms = random.choice((0, 300, 2_000))
    world.network.trap = Trap(tag, random.randrange(5), victims, restart_ms, until_us, apart_ms)


# -- Connections -----------------------------------------------------------------------------------


def _part(world: World, fault: Fault, names: Sequence[str], random: Random) -> None:
    """Two groups, or three. Fewer names than there are: these against all others."""
    at = len(names)
    if at >= len(world.plan.names):
        at = random.randint(1, max(1, at - 1))
    groups = [names[:at], [name for name in world.plan.names if name not in names[:at]]]
    if fault.kind == "part in three" and len(groups[1]) > 1:
        groups[1:] = [groups[1][:1], groups[1][1:]]
    pairs = [
        (one, other)
        for first, second in combinations(groups, 2)
        for one in first
        for other in second
    ]
    _separate(world, pairs, fault.for_ms, random)


def _cut(world: World, fault: Fault, names: Sequence[str], random: Random) -> None:
    if len(names) > 1:
        _separate(world, [(names[0], names[1])], fault.for_ms, random)


def _separate(world: World, pairs: Sequence[tuple[str, str]], for_ms: int, random: Random) -> None:
    """Break connections, or let nothing pass."""
    separate = world.network.keep_apart if random.random() < 0.6 else partial(_dark_both, world)
    for pair in pairs:
        separate(*pair, True)
    _later(world, for_ms, _unite, world, pairs, separate)


def _dark_both(world: World, one: str, other: str, is_dark: bool) -> None:
    world.network.darken(one, other, is_dark)
    world.network.darken(other, one, is_dark)


def _unite(
    world: World, pairs: Sequence[tuple[str, str]], separate: Callable[[str, str, bool], None]
) -> None:
    if not world.calm:
        for pair in pairs:
            separate(*pair, False)


def _one_way(world: World, fault: Fault, names: Sequence[str], random: Random) -> None:
    if len(names) > 1:
        pairs = [(names[0], names[1])]
        if random.random() < 0.3:  # deaf, or mute
            pairs = [(names[0], other) for other in names[1:]]
        if random.random() < 0.5:
            pairs = [(other, one) for one, other in pairs]
        for pair in pairs:
            world.network.darken(*pair, True)
        _later(world, fault.for_ms, _unite, world, pairs, world.network.darken)


def _break(world: World, fault: Fault, names: Sequence[str], random: Random) -> None:
    process = _first_living(world, names)
    if process and process.links:
        for link in random.sample(
            list(process.links.values()), random.randint(1, len(process.links))
        ):
            world.network.break_(link)


def _flap(world: World, fault: Fault, names: Sequence[str], random: Random) -> None:
    if len(names) > 1:
        one, other = names[:2]
        for time in range(random.randint(2, 8)):
            _later(world, time * random.choice((20, 150, 700)), _break_pair, world, one, other)


def _break_pair(world: World, one: str, other: str) -> None:
    link = world.network.link(one, other)
    if link is not None and not world.calm:
        world.network.break_(link)


def _slow(world: World, fault: Fault, names: Sequence[str], random: Random) -> None:
    more_us = random.choice((20_000, 200_000, 900_000))
    world.network.slow_us[names[0]] += more_us
    _later(world, fault.for_ms, _hurry, world, names[0], more_us)


def _hurry(world: World, name: str, more_us: int) -> None:
    if not world.calm:
        world.network.slow_us[name] -= more_us


_KINDS: dict[str, Callable[[World, Fault, Sequence[str], Random], None]] = {
    "start": _start,
    "crash": _crash,
    "silent crash": _crash,
    "restart": _restart,
    "pause": _pause,
    "leave": _leave,
    "leave in join": _leave_in_join,
    "part": _part,
    "part in three": _part,
    "cut": _cut,
    "one-way": _one_way,
    "flap": _flap,
    "break": _break,
    "trap": _trap,
    "slow": _slow,
    "slow reader": _slow_reader,
}
