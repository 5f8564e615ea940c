"""Memberships: who was a member of which group, when. The audit finds that out before it judges
messages.

This module reads the few rows of a trace that are not about messages, and divides the rows of each
process into stretches, each with its member and view. The words are those of the specification
(thesis 4.2.1, docs/groups.md):

- A *world* is one group in one run; worlds are judged apart.
- A *member* is a process of the specification. It begins with a `join`. A durable member goes on
  through all its lives, until a view shows that the name was out of the group in between; after
  that the name is another member's. A member that is not durable has one life.
- A member is *correct* if it never crashed; a durable one if it is up in the end (*good*).
- A state that a member took over stands for all messages up to its cut. One that a durable member
  has not acknowledged when it crashes may be void: then these messages come, in a later life.

A member that is *correct in a view* (footnote 7) owes its messages: it installed it, did not crash
in it, and is in the next one, if there is one. A durable member owes them if it went on to the next
view, or is good.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from antiphon import ConflictRelation

KINDS = (
    "group",
    "conflict",
    "view",
    "suspect",
    "join",
    "leave",
    "remove",
    "state",
    "crash",
    "recover",
)
COLUMNS = (
    "run",
    "process",
    "incarnation",
    "seq",
    "kind",
    "group",
    "position",
    "view_id",
    "members",
    "sender",
    "durable",
    "redelivered",
    "relation",
    "at",
)
NOWHERE = -(1 << 62)
END = 1 << 62


class Row(NamedTuple):
    """A row that is not about a message."""

    run: str
    process: str
    incarnation: int
    seq: int
    kind: str
    group: str
    position: int
    view_id: int
    members: tuple[str, ...]
    sender: str
    durable: bool
    redelivered: bool
    relation: str
    at: float


class Life(NamedTuple):
    """A file of the trace: one incarnation of a process."""

    run: str
    process: str
    incarnation: int
    last_seq: int


class View(NamedTuple):
    """A view as one member got it."""

    id: int
    members: tuple[str, ...]
    position: int
    life: int  # of the member
    order: int  # among all rows of the process
    at: float


@dataclass(eq=False)
class Member:
    """A member over all lives of its process.

    A durable member has as many lives as its process; one that is not durable has one, and the next
    one with its name is another member.
    """

    number: int  # among all members of all worlds
    world: int
    name: str
    label: str  # for people
    durable: bool
    views: list[View] = field(default_factory=list)
    crashes: list[int] = field(default_factory=list)  # orders
    lives: int = 1
    cut: int = NOWHERE  # all up to here is in its state
    cuts: list[tuple[int, int]] = field(default_factory=list)  # (life, position)
    up: bool = True  # in the end
    gone: bool = False  # it left, or knows that it was removed
    left_before: bool = False  # at the end of the last life that got a view
    missed_itself: bool = False  # it came back after a view without it, and had not left

    @property
    def correct(self) -> bool:
        return self.up if self.durable else not self.crashes

    @property
    def stays(self) -> bool:
        """Whether it is a member to the end, as far as it knows."""
        return self.correct and not self.gone and bool(self.views)

    @property
    def last_view(self) -> int:
        return max((view.id for view in self.views), default=0)

    @property
    def start(self) -> int:
        """The position of the first message that concerns it."""
        return max(self.views[0].position, self.cut) if self.views else END

    @property
    def life_cut(self) -> int:
        """The newest cut of a state in this life."""
        return max((cut for life, cut in self.cuts if life == self.lives), default=NOWHERE)

    @property
    def earlier_cut(self) -> int:
        """The newest cut of a state in earlier lives."""
        return max((cut for life, cut in self.cuts if life < self.lives), default=NOWHERE)

    @property
    def told_in_this_life(self) -> bool:
        return bool(self.views) and self.views[-1].life == self.lives


class Stretch(NamedTuple):
    """Consecutive rows of a process about one group, with their member and view."""

    run: str
    process: str
    incarnation: int
    group: str
    world: int
    first_seq: int
    last_seq: int
    after_position: int  # only messages behind this one
    upto_position: int
    member: int
    view: int  # the last one that the member has installed
    life: int
    cut: int  # of the states of this life, and
    earlier_cut: int  # of those before
    outside: bool  # the member has left, or was removed, and knows it
    correct: bool = False
    total: bool = False  # the group has one order for all messages


class Epoch(NamedTuple):
    """A conflict relation, for the messages behind a position and up to another."""

    after: int
    upto: int
    relation: ConflictRelation

    @property
    def is_total(self) -> bool:
        """Whether all messages conflict."""
        pairs = len(self.relation.tags) * (len(self.relation.tags) + 1) // 2
        told_apart = self.relation.nothing or self.relation.keyed
        return not told_apart and len(self.relation.conflicts) == pairs


@dataclass(eq=False)
class World:
    """A group in one run: its members, views and conflict relations. Worlds are judged apart."""

    number: int
    run: str
    group: str
    members: list[Member] = field(default_factory=list)
    views: dict[int, tuple[str, ...]] = field(default_factory=dict)  # as in the first row
    relations: dict[int, ConflictRelation] = field(default_factory=dict)  # by position
    removed: set[str] = field(default_factory=set)  # names, at a member's request
    suspected: set[str] = field(default_factory=set)
    _owing: dict[int, frozenset[int]] = field(default_factory=dict)

    def epochs(self) -> list[Epoch]:
        """Return the epochs one after the other; neighbours differ."""
        changes = sorted({NOWHERE: ConflictRelation.ATOMIC, **self.relations}.items())
        kept = [c for n, c in enumerate(changes) if not n or changes[n - 1][1] != c[1]]
        ends = [position for position, _ in kept[1:]] + [END]
        return [Epoch(after, upto, r) for (after, r), upto in zip(kept, ends, strict=True)]

    @property
    def is_total(self) -> bool:
        """Whether all messages conflict, all the time: then there is one order."""
        return all(epoch.is_total for epoch in self.epochs())

    def owing(self, view: int) -> frozenset[int]:
        """Return the members that are correct in this view."""
        if view not in self._owing:
            found = frozenset(m.number for m in self.members if self._owes(m, view))
            self._owing[view] = found
        return self._owing[view]

    def _owes(self, member: Member, view: int) -> bool:
        own = next((v for v in member.views if v.id == view), None)
        if own is None or member.name not in own.members:
            return False
        following = next((v for v in member.views if v.id == view + 1), None)
        if member.durable:
            return following is not None or member.stays
        if following is None:
            return member.stays and member.name in self.views.get(view + 1, (member.name,))
        crashed = any(own.order < crash < following.order for crash in member.crashes)
        return not crashed and member.name in following.members


@dataclass
class Cast:
    """All members of a trace, by world and process."""

    worlds: list[World]
    members: list[Member]
    stretches: list[Stretch]


def read(rows: Iterable[Row], lives: Iterable[Life]) -> Cast:
    """Return the members in these rows. `lives`: all in the trace, even of processes that were
    never a member."""
    rows = list(rows)
    worlds = _worlds(rows)
    members: list[Member] = []
    stretches: list[Stretch] = []
    by_process: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in rows:
        by_process[row.run, row.process].append(row)
    lives_of: dict[tuple[str, str], list[Life]] = defaultdict(list)
    for life in lives:
        lives_of[life.run, life.process].append(life)
    for process, own in by_process.items():
        reader = _Process(worlds, members, {v.incarnation: v.last_seq for v in lives_of[process]})
        stretches += reader.read(sorted(own, key=lambda row: (row.incarnation, row.seq)))
    total = [world.is_total for world in worlds.values()]
    stretches = [
        s._replace(correct=members[s.member].correct, total=total[s.world]) for s in stretches
    ]
    return Cast(list(worlds.values()), members, stretches)


def _worlds(rows: list[Row]) -> dict[tuple[str, str], World]:
    """Return the groups, which are the destinations with views; traces have queues and plain
    topics, too."""
    worlds: dict[tuple[str, str], World] = {}
    for row in rows:
        if row.kind == "view" and (row.run, row.group) not in worlds:
            worlds[row.run, row.group] = World(len(worlds), row.run, row.group)
    for row in sorted(rows, key=lambda row: row.at):
        world = worlds.get((row.run, row.group))
        if world is None:
            continue
        if row.kind == "view":
            world.views.setdefault(row.view_id, row.members)
        elif row.kind in ("group", "conflict"):
            # Of several at one position the last one holds; a slow member reports it later.
            world.relations[row.position] = ConflictRelation.from_json(row.relation)
        elif row.kind == "remove":
            world.removed.update(row.members)
        elif row.kind == "suspect":
            world.suspected.update(row.members)
    return worlds


class _Process:
    """One process, through all its incarnations, in all its groups."""

    def __init__(
        self,
        worlds: dict[tuple[str, str], World],
        members: list[Member],
        last_seqs: dict[int, int],
    ) -> None:
        self._worlds = worlds
        self._all = members
        self._last_seqs = last_seqs
        self._order = 0
        self._now: dict[str, Member] = {}  # by group
        self._durable: dict[tuple[str, str], Member] = {}  # by group and name
        self._state_early: dict[str, int] = {}  # by group: the cut before a state of this life
        self._changes: dict[str, list[tuple[int, list[Stretch]]]] = defaultdict(list)

    def read(self, rows: list[Row]) -> Iterator[Stretch]:
        incarnations = sorted(self._last_seqs)
        at = 0
        for incarnation in incarnations:
            if incarnation != incarnations[0]:
                self._crash()
            self._changes.clear()
            while at < len(rows) and rows[at].incarnation == incarnation:
                self._order += 1
                self._row(rows[at])
                at += 1
            yield from self._close(incarnation)

    def _row(self, row: Row) -> None:
        if row.kind in ("crash", "recover"):
            groups = list(self._now)
            self._crash()
            for group in groups:
                self._change(row, group)
            return
        world = self._worlds.get((row.run, row.group))
        if world is None:
            return
        if row.kind == "join":
            self._join(world, row)
        elif row.group in self._now:
            self._member_row(world, self._now[row.group], row)

    def _crash(self) -> None:
        for member in self._now.values():
            if not member.gone:
                member.up = False
                member.crashes.append(self._order)
        self._now = {}

    def _join(self, world: World, row: Row) -> None:
        self._state_early.pop(row.group, None)
        name = row.sender or row.process
        known = self._durable.get((row.group, name)) if row.durable else None
        if known is None:
            self._begin(world, name, row.durable, f"{name}/{row.process}.{row.incarnation}")
        else:
            known.left_before = known.gone or (known.left_before and not known.told_in_this_life)
            known.up, known.gone = True, False
            known.lives += 1
            self._now[row.group] = known
        self._change(row, row.group)

    def _begin(self, world: World, name: str, durable: bool, label: str) -> Member:
        label = name if durable else label
        member = Member(len(self._all), world.number, name, label, durable)
        self._all.append(member)
        world.members.append(member)
        self._now[world.group] = member
        if durable:
            self._durable[world.group, name] = member
        return member

    def _member_row(self, world: World, member: Member, row: Row) -> None:
        if row.kind == "view" and not row.redelivered:
            member = self._view(world, member, row)
        elif row.kind == "state":
            self._state_early.setdefault(row.group, member.cut)
            member.cut = max(member.cut, row.position)
            member.cuts.append((member.lives, row.position))
        elif row.kind == "leave":
            member.gone = True
        else:
            return
        self._change(row, row.group)

    def _view(self, world: World, member: Member, row: Row) -> Member:
        if _was_out(world, member, row.view_id):
            member = self._succeed(world, member)
        view = View(row.view_id, row.members, row.position, member.lives, self._order, row.at)
        member.views.append(view)
        if member.name not in row.members:
            member.gone = True
        return member

    def _succeed(self, world: World, old: Member) -> Member:
        """Begin another member with this name; a state that came before its first view is its
        own."""
        old.missed_itself = not old.left_before
        old.gone = True
        new = self._begin(world, old.name, old.durable, old.label)
        if world.group in self._state_early:
            new.cut, old.cut = old.cut, self._state_early.pop(world.group)
            new.cuts = [(1, cut) for life, cut in old.cuts if life == old.lives]
            old.cuts = [(life, cut) for life, cut in old.cuts if life != old.lives]
        return new

    # -- Stretches -----------------------------------------------------------------------------

    def _change(self, row: Row, group: str) -> None:
        world = self._worlds[row.run, group]
        rows = (row.run, row.process, row.incarnation, group, world.number, row.seq + 1, END)
        own = [
            Stretch(*rows, after, upto, member, view, life, cut, earlier_cut, outside)
            for after, upto, member, view, life, cut, earlier_cut, outside in self._standing(group)
        ]
        self._changes[group].append((row.seq, own))

    def _standing(self, group: str) -> Iterator[tuple[int, int, int, int, int, int, int, bool]]:
        """Yield the fields of stretches from `after_position` to `outside`."""
        member = self._now.get(group)
        if member is None:
            return
        what = (member.lives, member.life_cut, member.earlier_cut, member.gone)
        if member.told_in_this_life or not member.views:
            view = member.views[-1].id if member.views else 0
            yield (NOWHERE, END, member.number, view, *what)
            return
        # In a new life without a view yet, repetitions belong to the view that it had.
        for view, after, upto in _by_position(member.views):
            yield (after, upto, member.number, view, *what)

    def _close(self, incarnation: int) -> Iterator[Stretch]:
        for changes in self._changes.values():
            ends = [seq for seq, _ in changes[1:]] + [self._last_seqs[incarnation]]
            for (_, own), end in zip(changes, ends, strict=True):
                yield from (s._replace(last_seq=end) for s in own if s.first_seq <= end)


def _was_out(world: World, member: Member, view: int) -> bool:
    """Return whether the name was out of the group since this member's last view."""
    if not member.views or member.told_in_this_life or view <= member.last_view:
        return False
    between = range(member.last_view, view)
    return any(member.name not in world.views.get(number, ()) for number in between)


def _by_position(views: list[View]) -> Iterator[tuple[int, int, int]]:
    """Yield the view of messages by position, as (view, behind this position, up to that one)."""
    places = sorted({(view.position, view.id) for view in views})
    highest = 0
    before = NOWHERE
    for position, number in places:
        if position > before:
            yield highest, before, position
        highest, before = max(highest, number), position
    yield highest, before, END


def rows_from(table: dict[str, list[Any]]) -> Iterator[Row]:
    """Yield the rows of a table whose columns are as Arrow gives them."""
    columns = [table[name] for name in COLUMNS]
    for values in zip(*columns, strict=True):
        row = Row._make(values)
        yield row._replace(members=tuple(row.members or ()))
