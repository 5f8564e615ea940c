"""The third judge of groups: who is a member when, and nothing else, by comparing all pairs.

Promise: each finding quotes two rows of the trace, or one row and the absence of another, that
cannot both be true of one group (thesis 4.2.1 and 4.2.2). A run that keeps to the thesis has no
findings.

Need: all rows of all programs that joined a group (`formats/trace.py`). For a name with which no
program joined, only its place in views is judged.

Limits: messages are judged only for properties of views: P2 (correct in a view, footnote 7) and P4
(the view of a process, footnote 8). Orders, duplicates and P1 are left to the other two judges,
`checkers/groups.py` and `spark/audit`, which share one model of members. This one shares no code
and no model with them: it knows *stays*, compares views in pairs, and is quadratic in their number.

A *stay* has the rows of one program from a join on, until it crashed, joined again, or the trace
ends. Stays never change: they are not merged while rows are read. A *membership* is the stays of
one member: one for a member that is not durable; for a durable one as many as follow each other
without a view between them that lacks its name, since it "remains a member of the group, even while
being down" (4.2.2).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import combinations, pairwise
from typing import NamedTuple

from antiphon.formats.trace import TraceEvent


class Finding(NamedTuple):
    """A rule that the trace breaks ("views", "P2" or "P4"), and how."""

    rule: str
    text: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.text}"


class Stay(NamedTuple):
    """The rows of one group at one program, from a join up to the next join, crash or the end."""

    rows: tuple[TraceEvent, ...]  # the first one is the join
    crashed: bool  # a crash follows

    @property
    def program(self) -> tuple[str, str]:
        return self.rows[0].run, self.rows[0].process

    @property
    def name(self) -> str:
        return self.rows[0].sender or self.rows[0].process

    @property
    def durable(self) -> bool:
        return self.rows[0].durable

    def views(self) -> list[TraceEvent]:
        """Return the views in the order of installation, without those handed out again."""
        return [row for row in self.rows if row.kind == "view" and not row.redelivered]

    def inside(self) -> tuple[TraceEvent, ...]:
        """Return the rows up to the one in which this program left or learnt of its removal."""
        for count, row in enumerate(self.rows, 1):
            if row.kind == "leave" or _excludes(row, self.name):
                return self.rows[:count]
        return self.rows

    @property
    def end(self) -> str:
        """How it ended: "leave", "view" (one without it), "crash", or "" if it did not."""
        last = self.inside()[-1]
        if last.kind == "leave" or _excludes(last, self.name):
            return last.kind
        return "crash" if self.crashed else ""


def _excludes(row: TraceEvent, name: str) -> bool:
    return row.kind == "view" and name not in row.members


class Membership(NamedTuple):
    """One member, with its stays."""

    stays: tuple[Stay, ...]

    @property
    def name(self) -> str:
        return self.stays[0].name

    @property
    def durable(self) -> bool:
        return self.stays[0].durable

    def views(self) -> list[TraceEvent]:
        return [view for stay in self.stays for view in stay.views()]

    def lasts(self) -> bool:
        """Return whether it is up at the end, a member as far as it knows, and ever got a view with
        it."""
        return not self.stays[-1].end and bool(self.views())

    def ends(self) -> set[str]:
        """Return how its stays ended, from the last one on that installed a view."""
        last = max((n for n, stay in enumerate(self.stays) if stay.views()), default=0)
        return {stay.end for stay in self.stays[last:]}

    def lacks(self, messages: Iterable[TraceEvent]) -> list[TraceEvent]:
        """Return those that it did not deliver, and that no state contains that it took over."""
        rows = [row for stay in self.stays for row in stay.rows]
        had = {row.message for row in rows if row.kind == "deliver"}
        contained = max((row.position for row in rows if row.kind == "state"), default=-1)
        return [row for row in messages if row.message not in had and row.position > contained]


class Known(NamedTuple):
    """The facts of one group in a trace."""

    name: str
    rows: list[TraceEvent]  # of all programs, even those that never joined
    memberships: list[Membership]
    views: dict[int, TraceEvent]  # by number, as one member installed it

    def has_in_view(self, name: str, number: int) -> bool | None:
        """Return whether a view has this name; None if no program in the trace installed the
        view."""
        return name in self.views[number].members if number in self.views else None


def check(events: Iterable[TraceEvent], *, complete: bool = True) -> list[Finding]:
    """Return all findings. `complete`: the run has come to rest, and all that must happen
    eventually has happened."""
    by_group: dict[tuple[str, str], list[TraceEvent]] = defaultdict(list)
    crashes: list[TraceEvent] = []
    for event in events:
        if event.kind in ("crash", "recover"):
            crashes.append(event)
        elif event.group:
            by_group[event.run, event.group].append(event)
    found: list[Finding] = []
    for (_, name), rows in by_group.items():
        group = read(name, rows, crashes)
        found += [*one_sequence(group), *one_after_the_other(group), *inside(group)]
        found += [*reasons(group), *same_view(group)]
        if complete:
            found += [*last_view(group), *agreement(group)]
    return found


# -- Stays and memberships -------------------------------------------------------------------------


def read(name: str, rows: list[TraceEvent], crashes: list[TraceEvent]) -> Known:
    views: dict[int, TraceEvent] = {}
    for row in rows:
        if row.kind == "view":
            views.setdefault(row.view_id, row)
    group = Known(name, rows, [], views)
    for stay in _stays(rows, crashes):
        before = [m for m in group.memberships if _may_continue(m, stay)]
        if before and not _was_out(group, before[-1], stay):
            at = group.memberships.index(before[-1])
            group.memberships[at] = Membership((*before[-1].stays, stay))
        else:
            group.memberships.append(Membership((stay,)))
    return group


def _stays(rows: list[TraceEvent], crashes: list[TraceEvent]) -> Iterator[Stay]:
    by_program: dict[tuple[str, str], list[TraceEvent]] = defaultdict(list)
    for row in [*rows, *crashes]:
        by_program[row.run, row.process].append(row)
    for own in by_program.values():
        own.sort(key=lambda row: (row.incarnation, row.seq))
        joins = [n for n, row in enumerate(own) if row.kind == "join"]
        for first, end in pairwise([*joins, len(own)]):
            yield _stay(own[first:end], own[end] if end < len(own) else None)


def _stay(rows: list[TraceEvent], following: TraceEvent | None) -> Stay:
    """Return the stay that begins with the first of these rows and ends with them, if no crash
    ended it before. `following`: the program's next join."""
    for count, row in enumerate(rows):
        if row.kind in ("crash", "recover") or row.incarnation != rows[0].incarnation:
            return Stay(tuple(rows[:count]), crashed=True)
    crashed = following is not None and following.incarnation != rows[0].incarnation
    return Stay(tuple(rows), crashed)


def _may_continue(membership: Membership, stay: Stay) -> bool:
    same = membership.stays[0].program == stay.program and membership.name == stay.name
    return same and membership.durable and stay.durable


def _was_out(group: Known, membership: Membership, stay: Stay) -> bool:
    """Return whether the name may have been out of the group between these two; a view that no
    program installed may have been without it."""
    if not membership.views() or not stay.views():
        return False
    last, first = max(v.view_id for v in membership.views()), stay.views()[0].view_id
    return any(not group.has_in_view(stay.name, number) for number in range(last, first))


# -- Views -----------------------------------------------------------------------------------------


def one_sequence(group: Known) -> Iterator[Finding]:
    """Successive views are totally ordered (4.2.1): a number means the same members after the same
    message everywhere, and a higher number no earlier place."""
    installed = [row for row in group.rows if row.kind == "view"]
    for one, two in combinations(installed, 2):
        if one.view_id == two.view_id:
            if (one.members, one.position) != (two.members, two.position):
                yield _views(group, f"view {one.view_id} is {_shown(one)} and {_shown(two)}")
        elif (one.view_id - two.view_id) * (one.position - two.position) < 0:
            yield _views(group, f"the views are not in order: {_shown(one)}, {_shown(two)}")


def one_after_the_other(group: Known) -> Iterator[Finding]:
    """A process installs one view after the other and skips none. A durable one that was away
    begins anywhere up to the view after the last one that it had."""
    for membership in group.memberships:
        highest = 0
        for stay in membership.stays:
            views = stay.views()
            if highest and views and views[0].view_id > highest + 1:
                yield _views(group, f"{stay.name} had {highest}, and then {_shown(views[0])}")
            for one, two in pairwise(views):
                if two.view_id != one.view_id + 1:
                    yield _views(group, f"{stay.name} had {_shown(one)}, and then {_shown(two)}")
            highest = max([highest, *(view.view_id for view in views)])


def inside(group: Known) -> Iterator[Finding]:
    """A member is in the first view that it installs; one that has left, or installed a view
    without itself, installs and delivers nothing more."""
    for membership in group.memberships:
        first = next(iter(membership.views()), None)
        if first is not None and membership.name not in first.members:
            yield _views(group, f"{membership.name} came with {_shown(first)}")
        for stay in membership.stays:
            for row in stay.rows[len(stay.inside()) :]:
                if row.kind in ("view", "deliver"):
                    yield _views(group, f"{stay.name} is out, and had {row.kind} {_shown(row)}")


def last_view(group: Known) -> Iterator[Finding]:
    """In the end each member that lasts has the last view."""
    for membership in group.memberships:
        lasting = max((view.view_id for view in membership.views()), default=0)
        for number in group.views:
            if membership.lasts() and number > lasting:
                yield _views(group, f"{membership.name} stays in {lasting}, before {number}")
                break


def reasons(group: Known) -> Iterator[Finding]:
    """A suspicion alone excludes no member (6.5.2). The first view without a member comes because a
    member asked for its removal, or it left; if it is not durable, also because it crashed, or was
    suspected, in a group that removes suspects."""
    asked = {name for row in group.rows if row.kind == "remove" for name in row.members}
    suspected = {name for row in group.rows if row.kind == "suspect" for name in row.members}
    for membership in group.memberships:
        without, name = _first_without(group, membership), membership.name
        if without is None or name in asked or "leave" in membership.ends():
            continue
        if not membership.durable and (name in suspected or "crash" in membership.ends()):
            continue
        yield _views(group, f"{name} had no reason to be missing in {_shown(without)}")


def _share(one: Membership, other: Membership) -> bool:
    return one.name == other.name and one is not other


def _first_without(group: Known, membership: Membership) -> TraceEvent | None:
    """Return the view that ended this membership; None if the trace has no such view, a view
    before it is unknown, or another member had the name by then."""
    if not membership.views():
        return None
    first = membership.views()[0].view_id
    others = {
        m.views()[0].view_id for m in group.memberships if m.views() and _share(m, membership)
    }
    for number in range(first, max(group.views) + 1):
        if number not in group.views or number in others:
            return None
        if membership.name not in group.views[number].members:
            return group.views[number] if number > first else None
    return None


# -- Messages and views ----------------------------------------------------------------------------


class _Delivered(NamedTuple):
    name: str
    marked: int  # the view of the message, as it is marked
    view: int  # of the member


def same_view(group: Known) -> Iterator[Finding]:
    """(P4) If two processes deliver m, in view i and in view j, then i = j. The view of a process
    is the last one that it installed (footnote 8). Of a message that a process delivers again, the
    first delivery is judged."""
    by_message: dict[str, list[_Delivered]] = defaultdict(list)
    for membership in group.memberships:
        had: set[str] = set()
        earlier: list[TraceEvent] = []
        for stay in membership.stays:
            for row, view in _with_views(stay, earlier):
                if row.message not in had:
                    had.add(row.message)
                    by_message[row.message].append(_Delivered(membership.name, row.view_id, view))
            earlier += stay.views()
    for message, delivered in by_message.items():
        for one, two in combinations(delivered, 2):
            if one.view != two.view:
                text = f"to {one.name} in view {one.view}, to {two.name} in {two.view}"
                yield Finding("P4", f"{group.name}: {message} came {text}")
        for name, marked, view in delivered:
            if marked != view:
                text = f"{message} of view {marked} came to {name} in view {view}"
                yield Finding("P4", f"{group.name}: {text}")


def _with_views(stay: Stay, earlier: list[TraceEvent]) -> Iterator[tuple[TraceEvent, int]]:
    """Yield each delivery with the view of the process at that time. A process that is back from a
    crash, and has got no view yet, is in the one of `earlier` that it had at this place of the
    order."""
    own = 0
    for row in stay.inside():
        if row.kind == "view" and not row.redelivered:
            own = row.view_id
        elif row.kind == "deliver":
            before = (v.view_id for v in earlier if v.position < row.position)
            yield row, own or max(before, default=0)


def agreement(group: Known) -> Iterator[Finding]:
    """(P2) If a process delivers m in view v, all processes that are correct in v deliver m."""
    delivered: dict[str, TraceEvent] = {}
    for membership in group.memberships:
        for stay in membership.stays:
            for row in stay.inside():
                if row.kind == "deliver":
                    delivered.setdefault(row.message, row)
    views = {row.view_id for row in delivered.values()}
    for membership in group.memberships:
        correct = {view for view in views if _is_correct_in(group, membership, view)}
        for row in membership.lacks(delivered.values()):
            if row.view_id in correct:
                text = f"{row.message} came to {row.process} in view {row.view_id}"
                yield Finding("P2", f"{group.name}: {text}, and not to {membership.name}")


def _is_correct_in(group: Known, membership: Membership, view: int) -> bool:
    """Footnote 7: (i) p installs v, (ii) p does not crash while its view is v, (iii) if v is not
    the last view of some process in v, then p is in the view that is installed after it. For a
    durable process crashes do not count if it is up again: in the end, or to install that view."""
    name = membership.name
    installs = {v.view_id: name in v.members for v in membership.views()}
    if not installs.get(view, False):
        return False
    if membership.durable:
        return view + 1 in installs or membership.lasts()
    if view + 1 in installs:
        return installs[view + 1]
    return membership.lasts() and group.has_in_view(name, view + 1) is not False


# -- Words -----------------------------------------------------------------------------------------


def _views(group: Known, text: str) -> Finding:
    return Finding("views", f"{group.name}: {text}")


def _shown(row: TraceEvent) -> str:
    if row.kind == "deliver":
        return f"{row.message} at {row.position}"
    return f"{row.view_id} {row.members} at {row.position}"
