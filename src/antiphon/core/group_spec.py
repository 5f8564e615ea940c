"""The specification of groups, as a program: thesis 4.2, to be held beside the page.

It judges traces (`formats/trace.py`): what each process sent, delivered and installed, in its own
order, and who crashed. It believes no server. Each property has a function of its name; a broken
one is told in a sentence.

Words. A *process* is a member: its name in the group. Non-durable members that come back are new
processes (process and incarnation); durable ones are the same process through all incarnations. A
process is *correct* if it never crashes, *good* if after some time it is always up (4.2.1); for
durable members "correct" reads "good". A message is *broadcast* once its sender has the
acknowledgement (`sent`), and *partially broadcast* before that (`send` alone).

What a process takes over as state (`state`, with the position of the cut) counts as delivered up to
there. A delivery is marked with the view of the message (`view_id`); the process's own view is the
last one it installed (`view`).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from antiphon.core.conflicts import ConflictRelation
from antiphon.formats.trace import TraceEvent


class Violation(NamedTuple):
    """A broken promise, in words."""

    rule: str  # "P1" ... "P5", "views", "suspicion"
    text: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.text}"


class Delivery(NamedTuple):
    message: str
    position: int
    view: int  # of the message
    installed: int  # the last view that the process had installed
    order: int  # its place among all events of the process
    redelivered: bool
    tag: str | None
    key: str | None


class View(NamedTuple):
    id: int
    members: tuple[str, ...]
    position: int
    order: int


class Process:
    """One member of one group, through its whole execution."""

    def __init__(self, name: str, key: str) -> None:
        self.name = name  # in the group
        self.key = key  # who it is: with its incarnation, if it is not durable
        self.durable = False
        self.views: list[View] = []
        self.deliveries: list[Delivery] = []
        self.state_cut = -1  # everything up to here is in the state that it was given
        self.crashes: list[int] = []  # orders
        self.left = False  # it left, or was removed, as it knows itself
        self.up = True  # at the end

    @property
    def correct(self) -> bool:
        """Never crashed; if durable: good, that is up in the end."""
        return self.up if self.durable else not self.crashes

    def delivered(self) -> set[str]:
        return {d.message for d in self.deliveries}


class Group:
    """Everything that the traces say of one group."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.processes: dict[str, Process] = {}
        self.send: set[str] = set()
        self.sent: set[str] = set()
        self.relations: list[tuple[int, ConflictRelation]] = []  # from that position on

    def relation(self, position: int) -> ConflictRelation:
        at = bisect_right(self.relations, position, key=lambda r: r[0]) - 1
        return self.relations[at][1] if at >= 0 else ConflictRelation.ATOMIC

    def last_view(self) -> int:
        return max((p.views[-1].id for p in self.processes.values() if p.views), default=0)


def check(events: Iterable[TraceEvent], *, complete: bool = True) -> list[Violation]:
    """All violations. `complete`: the run has come to rest, and what must happen eventually has
    had its time."""
    found: list[Violation] = []
    for group in read(events).values():
        for rule in (views, integrity, same_view_delivery, generic_order, suspicion):
            found += rule(group)
        if complete:
            found += validity(group)
            found += agreement(group)
    return found


# -- Reading the traces ----------------------------------------------------------------------------


def read(events: Iterable[TraceEvent]) -> dict[str, Group]:
    groups: dict[str, Group] = {}
    by_process: dict[tuple[str, str], list[TraceEvent]] = defaultdict(list)
    for event in events:
        if event.group:
            groups.setdefault(event.group, Group(event.group))
        by_process[event.run, event.process].append(event)
    for mine in by_process.values():
        mine.sort(key=lambda e: (e.incarnation, e.seq))
        _read_process(groups, mine)
    for group in groups.values():
        group.relations.sort(key=lambda r: r[0])
    return groups


def _read_process(groups: dict[str, Group], events: list[TraceEvent]) -> None:
    """What one program did, life after life, in all its groups."""
    members: dict[str, Process] = {}  # by group, in this life
    for order, event in enumerate(events):
        if event.kind in ("crash", "recover"):
            # A crash is the program's, in all of its groups; what it recovers as, its joins tell.
            for process in members.values():
                if not process.left:
                    process.up = False
                    process.crashes.append(order)
            members = {}
            continue
        if not event.group:
            continue
        group = groups[event.group]
        if event.kind == "join":
            members[event.group] = _joined(group, event)
        _read_event(group, members.get(event.group), event, order)


def _joined(group: Group, event: TraceEvent) -> Process:
    name = event.sender or event.process
    key = name if event.durable else f"{name}/{event.process}.{event.incarnation}.{event.seq}"
    process = group.processes.setdefault(key, Process(name, key))
    process.durable = event.durable
    process.up = True
    process.left = False
    return process


def _read_event(group: Group, process: Process | None, event: TraceEvent, order: int) -> None:
    if event.kind in ("group", "conflict"):
        relation = ConflictRelation.from_json(event.relation)
        if (event.position, relation) not in group.relations:
            group.relations.append((event.position, relation))
    elif event.kind == "send":
        group.send.add(event.message)
    elif event.kind == "sent":
        group.send.add(event.message)
        if event.persistent:
            group.sent.add(event.message)
    elif process is None:
        return
    elif event.kind == "view":
        process.views.append(View(event.view_id, event.members, event.position, order))
    elif event.kind == "deliver":
        installed = process.views[-1].id if process.views else 0
        process.deliveries.append(
            Delivery(
                event.message,
                event.position,
                event.view_id,
                installed,
                order,
                event.redelivered,
                event.tag,
                event.key,
            )
        )
    elif event.kind == "state":
        process.state_cut = max(process.state_cut, event.position)
    elif event.kind in ("leave", "remove"):
        process.left = True


# -- Views -----------------------------------------------------------------------------------------


def views(group: Group) -> Iterator[Violation]:
    """Views of a group are totally ordered (4.2.1, primary partition): a number stands for the
    same members at the same place everywhere; who installs one installs the next one next."""
    known: dict[int, tuple[tuple[str, ...], int, str]] = {}
    for process in group.processes.values():
        last = 0
        for view in process.views:
            first = known.setdefault(view.id, (view.members, view.position, process.key))
            if first[0] != view.members:
                yield Violation(
                    "views",
                    f"view {view.id} of {group.name} is {first[0]} at {first[2]} and "
                    f"{view.members} at {process.key}",
                )
            if first[1] != view.position:
                yield Violation(
                    "views",
                    f"view {view.id} of {group.name} stands after message {first[1]} at {first[2]} "
                    f"and after {view.position} at {process.key}",
                )
            if last and view.id not in (last, last + 1):
                yield Violation("views", f"{process.key} installed view {view.id} after {last}")
            if not last and process.name not in view.members:
                yield Violation(
                    "views", f"{process.key} is not in its own first view {view.id}: {view.members}"
                )
            last = max(last, view.id)


def suspicion(group: Group) -> Iterator[Violation]:
    """A suspicion excludes nobody by itself (6.5.2): a durable member that neither left nor was
    removed is in every view from its first one on."""
    for process in group.processes.values():
        if not process.durable or process.left or not process.views:
            continue
        first = process.views[0].id
        for other in group.processes.values():
            for view in other.views:
                if view.id > first and process.name not in view.members:
                    yield Violation(
                        "suspicion",
                        f"{process.name} is durable and was never removed, but view {view.id} at "
                        f"{other.key} is {view.members}",
                    )
                    return


# -- P1 to P5 --------------------------------------------------------------------------------------


def validity(group: Group) -> Iterator[Violation]:
    """(P1) If a process broadcasts message m to the group, then some correct process in it
    eventually delivers m, or no process in it is correct."""
    correct = [p for p in group.processes.values() if p.correct and p.views and not p.left]
    if not correct:
        return
    everywhere = set().union(*(p.delivered() for p in group.processes.values()))
    cut = max(p.state_cut for p in correct)
    for message in sorted(group.sent - everywhere):
        # What nobody delivered has no position; whoever was given a state may have it in there,
        # but then its provider delivered it.
        yield Violation(
            "P1", f"{message} was broadcast to {group.name}, and nobody delivered it (cut {cut})"
        )


def agreement(group: Group) -> Iterator[Violation]:
    """(P2) If a process delivers message m in view v, then all processes that are correct in v
    eventually deliver m."""
    first: dict[str, tuple[Delivery, Process]] = {}
    for process in group.processes.values():
        for delivery in process.deliveries:
            first.setdefault(delivery.message, (delivery, process))
    for process in group.processes.values():
        have = process.delivered()
        for message, (delivery, by) in first.items():
            if message in have or delivery.position <= process.state_cut:
                continue
            if _correct_in(group, process, delivery.view):
                yield Violation(
                    "P2",
                    f"{by.key} delivered {message} in view {delivery.view}, and {process.key}, "
                    "which is correct in it, did not",
                )


def _correct_in(group: Group, process: Process, view: int) -> bool:
    """(i) p installs v, (ii) p does not crash while its view is v, (iii) if v is not the last view
    of some process in v, then p is in the view installed after it (footnote 7)."""
    mine = next((v for v in process.views if v.id == view), None)
    if mine is None:
        return False
    if process.durable:
        return process.correct and not (process.left and view >= process.views[-1].id)
    following = next((v for v in process.views if v.id == view + 1), None)
    end = following.order if following is not None else 1 << 62
    if any(mine.order < crash < end for crash in process.crashes):
        return False
    if following is None:
        return process.correct and not process.left and view == group.last_view()
    return process.name in following.members


def integrity(group: Group) -> Iterator[Violation]:
    """(P3) For any message m, every process delivers m at most once, and only if m was previously
    broadcast. What may be a duplicate after a crash is marked as redelivered (footnote 9)."""
    for process in group.processes.values():
        seen: set[str] = set()
        for delivery in process.deliveries:
            if delivery.message in seen and not delivery.redelivered:
                yield Violation("P3", f"{process.key} delivered {delivery.message} twice")
            if delivery.message not in group.send:
                yield Violation(
                    "P3", f"{process.key} delivered {delivery.message}, which nobody broadcast"
                )
            seen.add(delivery.message)


def same_view_delivery(group: Group) -> Iterator[Violation]:
    """(P4) If two processes p and q deliver m, in view i for p and in view j for q, then i = j.
    The view of a process is the last one that it installed before it delivers m."""
    where: dict[str, tuple[int, str]] = {}
    for process in group.processes.values():
        for delivery in process.deliveries:
            if delivery.redelivered:
                continue  # it was delivered in its view, and is repeated in a later one
            view, by = where.setdefault(delivery.message, (delivery.installed, process.key))
            if view != delivery.installed:
                yield Violation(
                    "P4",
                    f"{by} delivered {delivery.message} in view {view}, {process.key} in "
                    f"{delivery.installed}",
                )
            if delivery.view != delivery.installed:
                yield Violation(
                    "P4",
                    f"{process.key} delivered {delivery.message} of view {delivery.view} in its "
                    f"view {delivery.installed}",
                )


def generic_order(group: Group) -> Iterator[Violation]:
    """(P5) If some process delivers m in view v before it delivers m', and the two conflict, then
    every process that is in view v delivers m' only after it has delivered m.

    One order is known, that of the positions; so it is enough that nobody delivers a message while
    one before it, that conflicts with it and was delivered by somebody, is missing."""
    known: dict[int, Delivery] = {}
    for process in group.processes.values():
        for delivery in process.deliveries:
            same = known.setdefault(delivery.position, delivery)
            if same.message != delivery.message:
                yield Violation(
                    "P5",
                    f"{same.message} and {delivery.message} are both at {delivery.position} of "
                    f"{group.name}",
                )
    positions = sorted(known)
    for process in group.processes.values():
        yield from _in_order(group, process, known, positions)


def _in_order(
    group: Group, process: Process, known: dict[int, Delivery], positions: list[int]
) -> Iterator[Violation]:
    if not process.deliveries or not process.views:
        return
    start = max(process.views[0].position, process.state_cut)
    reached = bisect_right(positions, start)  # all before were looked at
    missing: list[int] = []
    for delivery in process.deliveries:
        if delivery.redelivered:
            continue
        upto = bisect_left(positions, delivery.position)
        if upto >= reached:
            missing += positions[reached:upto]
            reached = upto + 1
        elif delivery.position in missing:
            missing.remove(delivery.position)
        relation = group.relation(delivery.position)
        for position in missing:
            if position > delivery.position:
                break
            other = known[position]
            if relation.conflict(delivery.tag, delivery.key, other.tag, other.key):
                yield Violation(
                    "P5",
                    f"{process.key} delivered {delivery.message} before {other.message}, which "
                    f"comes before it at others, and the two conflict",
                )
                return
