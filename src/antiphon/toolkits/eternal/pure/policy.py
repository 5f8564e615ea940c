"""Which location gets a new member of an object group.

Promise: a location has at most one member of a group, so that its failure takes at most one; and
among those that may have it, it goes to where starts have failed least, then to where the fewest
members of all groups are, then to the first in the criteria's list, or by name.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

ACTIVE, PASSIVE = "active", "passive"

ATTEMPTS = 3
"""A location where a member of a group has failed to start this often gets no more of it."""


class Criteria(NamedTuple):
    """How an object group is replicated.

    `style`: `ACTIVE`, every member carries out each request, so the object must be deterministic;
    or `PASSIVE`, the oldest does, and the others take over the state. `initial`: members of a new
    group. `minimum`: members to which the manager restores it afterwards. `locations`: where they
    may be, the preferred ones first; empty: anywhere. `arguments`: for the program that is the
    member, numbers and texts.
    """

    style: str = ACTIVE
    initial: int = 3
    minimum: int = 2
    locations: tuple[str, ...] = ()
    arguments: tuple[Any, ...] = ()


def checked(criteria: Criteria) -> Criteria:
    """Return criteria that can be met. Raise `ValueError` if they cannot."""
    if criteria.style not in (ACTIVE, PASSIVE):
        raise ValueError(f"style={criteria.style!r}: {ACTIVE!r} and {PASSIVE!r} are known")
    if not 1 <= criteria.minimum <= criteria.initial:
        raise ValueError(
            f"minimum={criteria.minimum}, initial={criteria.initial}: "
            "at least one member, and not more at the least than at the beginning"
        )
    if criteria.locations and len(set(criteria.locations)) < criteria.initial:
        raise ValueError(
            f"{criteria.initial} members need as many locations, not {len(criteria.locations)}"
        )
    if not all(isinstance(value, str | int | float | None) for value in criteria.arguments):
        raise ValueError(f"arguments={criteria.arguments!r}: numbers, texts and None can be given")
    return criteria


def choose(
    criteria: Criteria,
    offering: Collection[str],
    taken: Collection[str],
    loads: Mapping[str, int],
    failures: Mapping[str, int],
) -> str | None:
    """Return the location for one more member, or None if there is none for it.

    `offering`: the locations that can start it. `taken`: those that have a member of the group.
    `loads`: the members of all groups at each location. `failures`: how often a member of this
    group has failed to start at each, or was removed from it.
    """
    allowed = criteria.locations or tuple(sorted(offering))
    free = [
        location
        for location in allowed
        if location in offering and location not in taken and failures.get(location, 0) < ATTEMPTS
    ]
    return min(
        free,
        key=lambda location: (failures.get(location, 0), loads.get(location, 0)),
        default=None,
    )
