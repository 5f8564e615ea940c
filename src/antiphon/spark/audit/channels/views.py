"""The views that processes of a channel were shown, and their audit, which needs no message.

Views are few, so this is done on the driver, in tables of plain Python. A life begins in a view of
itself alone, round 0, which no row reports.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Any, NamedTuple

from antiphon.spark.audit.channels.findings import Finding, World, life_name, view_name

COLUMNS = (
    *("run", "cluster", "life", "seq", "view", "members", "leader", "primary", "seats"),
    *("together", "merged", "past", "founding", "origin"),
)


class Life(NamedTuple):
    """One life of a process: how many rows it has, and whether it is over."""

    world: World
    name: str
    last_seq: int
    ended: bool


class Shown(NamedTuple):
    """A view as one process was told of it."""

    members: frozenset[str]
    order: tuple[str, ...]
    leader: str
    primary: bool
    seats: tuple[str, ...]
    together: frozenset[str] = frozenset()
    merged: frozenset[str] = frozenset()
    past: tuple[str, ...] = ()
    founding: str = ""
    origin: str = ""

    @property
    def meaning(self) -> tuple[Any, ...]:
        """The part of the view that has to be the same for all."""
        return self.order, self.leader, self.primary, self.seats


class Stay(NamedTuple):
    """The time of one life in one view: rows after `first_seq` and before `last_seq`. `onward`: the
    view that follows, or nothing; `missed`: it was not there when this view ended."""

    life: Life
    view: str
    shown: Shown
    first_seq: int
    last_seq: int
    onward: str = ""
    onward_primary: bool = False
    missed: bool = False


def stays(lives: Iterable[Life], rows: Iterable[Mapping[str, Any]]) -> list[Stay]:
    """Return the stays of all lives, those of one life in their order."""
    told: dict[tuple[World, str], list[tuple[int, str, Shown]]] = defaultdict(list)
    for row in rows:
        shown = Shown(
            frozenset(row["members"]),
            tuple(row["members"]),
            row["leader"],
            row["primary"],
            tuple(row["seats"]),
            frozenset(row["together"]),
            frozenset(row["merged"]),
            tuple(row["past"]),
            row["founding"],
            row["origin"],
        )
        world = World(row["run"], row["cluster"])
        told[world, row["life"]].append((row["seq"], row["view"], shown))
    found = []
    for life in lives:
        alone = Shown(frozenset({life.name}), (life.name,), life.name, False, ())
        own = [(0, f"0.{life.name}", alone), *sorted(told[life.world, life.name])]
        end = (life.last_seq + 1, "", alone)
        for (first, view, shown), (last, onward, following) in pairwise([*own, end]):
            missed = bool(onward) and following.origin not in ("", view)
            primary = bool(onward) and following.primary
            found.append(Stay(life, view, shown, first, last, onward, primary, missed))
    return found


def by_view(stays: Iterable[Stay]) -> dict[tuple[World, str], list[Stay]]:
    """Return who had each view."""
    found: dict[tuple[World, str], list[Stay]] = defaultdict(list)
    for stay in stays:
        found[stay.life.world, stay.view].append(stay)
    return found


# -- The rules -------------------------------------------------------------------------------------


def judge(all_stays: list[Stay]) -> Iterator[Finding]:
    """Yield what is wrong with the views alone."""
    views = by_view(all_stays)
    before = _origins(all_stays)
    for stay in all_stays:
        yield from _of_itself(stay)
    for (world, view), those in views.items():
        yield from _differing(world, view, those)
        came = [s for s in those if (s.life.world, s.life.name, s.first_seq) in before]
        earlier = {s.life.name: before[s.life.world, s.life.name, s.first_seq] for s in came}
        yield from _companions(world, view, came, earlier)
        yield from _sources(world, view, came, earlier)
    yield from _chains(views, all_stays)


def _origins(all_stays: list[Stay]) -> dict[tuple[World, str, int], Stay]:
    """Return for each stay but the first of a life the one before it."""
    return {
        (later.life.world, later.life.name, later.first_seq): earlier
        for earlier, later in pairwise(all_stays)
        if earlier.life == later.life
    }


def _of_itself(stay: Stay) -> Iterator[Finding]:
    world, who = stay.life.world, life_name(stay.life.name)
    if stay.life.name not in stay.shown.members:
        yield Finding("inside", world, f"{who} is not in its view {view_name(stay.view)}")
    if stay.shown.leader not in stay.shown.members:
        leader = life_name(stay.shown.leader)
        yield Finding("inside", world, f"view {view_name(stay.view)} is led by {leader} outside it")
    if stay.onward and _rank(stay.onward) <= _rank(stay.view):
        text = f"{who} is shown {view_name(stay.onward)} after {view_name(stay.view)}"
        yield Finding("rising", world, text)


def _rank(view: str) -> tuple[int, str, int]:
    """Views are ordered by round, then by their coordinators: name, then number."""
    round_, number, name = view.split(".", 2)
    return int(round_), name, int(number, 16)


def _differing(world: World, view: str, those: list[Stay]) -> Iterator[Finding]:
    meanings = {stay.shown.meaning for stay in those}
    if len(meanings) > 1:
        text = f"view {view_name(view)} means {len(meanings)} things to {len(those)} processes"
        yield Finding("one meaning", world, text)


def _companions(
    world: World, view: str, came: list[Stay], earlier: dict[str, Stay]
) -> Iterator[Finding]:
    """Find processes that name others as coming along than exactly those that come from the same
    view, as far as they tell, and are in both views."""
    origins = {stay.life.name: stay.shown.origin or earlier[stay.life.name].view for stay in came}
    for stay in came:
        me, mine, before = stay.life.name, stay.shown.together, earlier[stay.life.name]
        expected = {other for other, origin in origins.items() if origin == origins[me]}
        wrong = (mine & origins.keys()) ^ expected
        possible = {me} if before.missed else before.shown.members
        outside = mine - possible - wrong | (mine - stay.shown.members)
        if wrong or outside or me not in mine:
            whom = life_name(min(wrong | outside | ({me} - mine)))
            text = f"{life_name(me)} is told wrongly whether {whom} comes with it to "
            yield Finding("together", world, text + view_name(view))
    unlike: dict[str, frozenset[str]] = {}
    for stay in came:
        named = unlike.setdefault(origins[stay.life.name], stay.shown.together)
        if named != stay.shown.together:
            text = f"{life_name(stay.life.name)} comes to {view_name(view)} with others than those "
            yield Finding("together", world, text + "who come from the same view")


def _sources(
    world: World, view: str, came: list[Stay], earlier: dict[str, Stay]
) -> Iterator[Finding]:
    told = {stay.shown.merged for stay in came if stay.shown.merged}
    if len(told) > 1:
        yield Finding("merges", world, f"who comes to {view_name(view)} is told of unlike merges")
    for stay in came:
        origin = stay.shown.origin or earlier[stay.life.name].view
        if stay.shown.merged and origin not in stay.shown.merged:
            text = f"{life_name(stay.life.name)} comes to {view_name(view)} from "
            text += f"{view_name(origin)}, which is not merged there"
            yield Finding("merges", world, text)


def _chains(views: dict[tuple[World, str], list[Stay]], all_stays: list[Stay]) -> Iterator[Finding]:
    """The ancestors of each primary view are the older primary ones of its founding."""
    parents: dict[tuple[World, str], set[str]] = defaultdict(set)
    for stay in all_stays:
        world = stay.life.world
        parents[world, stay.view] |= stay.shown.merged | set(stay.shown.past)
        if stay.onward:
            parents[world, stay.onward].add(stay.view)
    chains: dict[tuple[World, str], list[str]] = defaultdict(list)
    for (world, view), those in views.items():
        if those[0].shown.primary:
            chains[world, those[0].shown.founding].append(view)
    for (world, _), chain in chains.items():
        known: dict[str, set[str]] = {}
        for earlier, later in pairwise(sorted(chain, key=_rank)):
            pasts = [stay.shown.past for stay in views[world, later] if stay.shown.past]
            if any(_rank(earlier) < _rank(past[0]) for past in pasts):
                continue
            if earlier not in _ancestors(world, later, parents, known):
                text = f"{view_name(later)} is primary, and not after {view_name(earlier)}"
                yield Finding("one chain", world, text)


def _ancestors(
    world: World,
    view: str,
    parents: dict[tuple[World, str], set[str]],
    known: dict[str, set[str]],
) -> set[str]:
    """Return all views from which this one comes, in a loop: chains may be long."""
    todo, found = [view], set[str]()
    while todo:
        for parent in parents.get((world, todo.pop()), ()):
            if parent in found:
                continue
            found.add(parent)
            if parent in known:
                found |= known[parent]
            else:
                todo.append(parent)
    known[view] = found
    return found
