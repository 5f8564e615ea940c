"""The property *prefix delivery* of JBora (section 3.5 of its text), checked on what processes were
given."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any, NamedTuple


class Stay(NamedTuple):
    """What a process was given in one view, and the view that came next."""

    view: str
    primary: bool
    bodies: tuple[str, ...]
    next: str = ""
    next_primary: bool = False


class Finding(NamedTuple):
    """`parted`: pairs of processes that went on from a primary view to different ones; `shorter`:
    those of which one was given less; `violations`: sentences."""

    parted: int
    shorter: int
    violations: list[str]


def stays(events: Iterable[Mapping[str, Any]]) -> list[Stay]:
    """Return the stays of a process that has said this (`jbora_program.py`); the last one, which is
    not over, is left out."""
    found: list[Stay] = []
    bodies: list[str]
    view, primary, bodies = "", False, []
    for event in events:
        if "view" in event:
            if view:
                after = str(event["id"]), bool(event["primary"])
                found.append(Stay(view, primary, tuple(bodies), *after))
            view, primary, bodies = str(event["id"]), bool(event["primary"]), []
        elif "got" in event:
            bodies.append(str(event["got"]))
    return found


def check(histories: Mapping[str, Sequence[Stay]]) -> Finding:
    parted = shorter = 0
    violations = []
    for (p, of_p), (q, of_q) in combinations(sorted(histories.items()), 2):
        for one, other in _shared(of_p, of_q):
            if one.next != other.next:
                parted += 1
                shorter += one.bodies != other.bodies
            if not _fits(one, other):
                violations.append(
                    f"{p} and {q} in {one.view}: then {one.next} and {other.next}, "
                    f"{len(one.bodies)} and {len(other.bodies)} messages"
                )
    return Finding(parted, shorter, violations)


def _shared(of_p: Sequence[Stay], of_q: Sequence[Stay]) -> Iterator[tuple[Stay, Stay]]:
    """Yield what both were given in the primary views that both were in."""
    theirs = {stay.view: stay for stay in of_q}
    for stay in of_p:
        if stay.primary and stay.view in theirs:
            yield stay, theirs[stay.view]


def _fits(one: Stay, other: Stay) -> bool:
    if one.next == other.next:
        return one.bodies == other.bodies
    if one.next_primary and other.next_primary:
        return _begins(one, other) or _begins(other, one)
    if one.next_primary:
        return _begins(one, other)
    return not other.next_primary or _begins(other, one)


def _begins(longer: Stay, shorter: Stay) -> bool:
    return longer.bodies[: len(shorter.bodies)] == shorter.bodies
