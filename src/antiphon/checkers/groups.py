"""The specification of groups, as a program: thesis 4.2. Read it beside that section.

It judges traces (`formats/trace.py`): the messages that each process sent and delivered, the views
that it installed, in its own order, and crashes. It uses no data of servers. Each property has a
function of its name; a finding is a sentence.

Words. A *process* is a member: its name in the group. Non-durable members that come back are new
processes; durable ones are the same process through all their lives, until they leave or are
removed. A process is *correct* if it never crashes, *good* if after some time it is always up
(4.2.1); for durable members "correct" reads "good". A process that loses its session for good has
crashed, even if its program runs. A message is *broadcast* once its sender has the acknowledgement
(`sent`), and *partially broadcast* before that (`send` alone).

The messages in a state that a process takes over (`state`, with the position of the cut) count as
delivered. A delivery is marked with the view of the message (`view_id`); the process's own view is
the last one it installed (`view`). After a crash a durable member may get views and messages again:
such views are repeated from an earlier one on, such messages are marked as redelivered, and only a
message's first delivery counts for order and view. A delivery of a process that is not a member any
more is reported as that alone.

A message that a process owes by P2 and lacks is reported as that, and not again as an order that it
breaks with every later message.

`join` has the member's name as `sender`. `leave`: this process closed its membership, or others
ended it. `remove` has in `members` the members that this process asked to remove.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

from antiphon.formats.trace import TraceEvent
from antiphon.model.conflicts import ConflictRelation


class Violation(NamedTuple):
    """A broken promise, in words."""

    rule: str  # "P1" ... "P5", "views", "suspicion"
    text: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.text}"


class Delivery(NamedTuple):
    """A message that a process delivered, with its view."""

    message: str
    position: int
    view: int  # of the message
    installed: int  # the last view that the process had installed
    redelivered: bool
    tag: str | None
    key: str | None


class View(NamedTuple):
    """A view that a process installed, with its place."""

    id: int
    members: tuple[str, ...]
    position: int
    order: int  # its place among all events of the process
    life: int  # in which of the process's lives it was installed
    at: float


class Process:
    """One member of one group, through its whole execution."""

    def __init__(self, name: str, key: str, durable: bool) -> None:
        self.name = name  # in the group
        self.key = key  # its identity: with its incarnation, if it is not durable
        self.durable = durable
        self.views: list[View] = []
        self.deliveries: list[Delivery] = []
        self.late: list[str] = []  # messages that it delivered after its membership
        self.state_cut = -1  # all messages up to here are in the state that it took over
        self.crashes: list[int] = []  # orders
        self.lives = 1
        self.left = False  # it left, or was removed, as far as it knows
        self.had_left = False  # before this life, or before one in which it got no view
        self.excluded = False  # it came back after a view without it, and had not left
        self.up = True  # at the end

    @property
    def correct(self) -> bool:
        """Whether it never crashed; of a durable one, whether it is good, that is up in the end."""
        return self.up if self.durable else not self.crashes

    @property
    def stays(self) -> bool:
        """Whether it is correct, and a member to the end, as far as it knows."""
        return self.correct and not self.left and bool(self.views)

    @property
    def last_view(self) -> int:
        return max((view.id for view in self.views), default=0)

    def view_at(self, position: int) -> int:
        """Return its view when it delivers this message: the last one that it installed. In a new
        life, in which it has got none yet, the last one that it had before this message."""
        if not self.views or self.views[-1].life == self.lives:
            return self.views[-1].id if self.views else 0
        return max((v.id for v in self.views if v.position < position), default=0)

    def delivered(self) -> set[str]:
        return {d.message for d in self.deliveries}

    def first_deliveries(self) -> list[Delivery]:
        """Return its deliveries, without repetitions after a crash or at the program's request."""
        first: dict[str, Delivery] = {}
        for delivery in self.deliveries:
            first.setdefault(delivery.message, delivery)
        return list(first.values())


class Group:
    """All events of one group in the traces."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.processes: list[Process] = []
        self.send: dict[str, float] = {}  # message -> the time
        self.sent: set[str] = set()
        self.relations: list[tuple[int, ConflictRelation]] = []  # for messages after that position
        self.told_relations: dict[int, tuple[float, ConflictRelation]] = {}  # by position
        self.members: dict[int, set[str]] = {}  # of each view that a process installed
        self.removed: set[str] = set()  # names that a process asked to remove
        self.suspected: set[str] = set()  # names, ever
        self.renewed: set[str] = set()  # names that several members had, one after the other

    def conflict(self, one: Delivery, two: Delivery) -> bool:
        """Return whether two messages conflict. A change of the relation lies between messages as a
        view does, at the same place for all processes."""
        at = bisect_left(self.relations, one.position, key=lambda r: r[0])
        if at != bisect_left(self.relations, two.position, key=lambda r: r[0]):
            return True
        relation = self.relations[at - 1][1] if at else ConflictRelation.ATOMIC
        return relation.conflict(one.tag, one.key, two.tag, two.key)


def check(events: Iterable[TraceEvent], *, complete: bool = True) -> list[Violation]:
    """Return all violations. `complete`: the run has come to rest, and all that must happen
    eventually has had its time."""
    found: list[Violation] = []
    for group in read(events).values():
        for rule in (views, suspicion, integrity, same_view_delivery):
            found += rule(group)
        owed = {(p.key, d.message) for p, d, _ in _lacking(group)} if complete else set()
        found += generic_order(group, owed)
        if complete:
            for rule in (last_view, validity, agreement):
                found += rule(group)
    return found


# -- Reading the traces ----------------------------------------------------------------------------


def read(events: Iterable[TraceEvent]) -> dict[str, Group]:
    groups: dict[str, Group] = {}
    by_process: dict[tuple[str, str], list[TraceEvent]] = defaultdict(list)
    for event in events:
        if event.group:
            group = groups.setdefault(event.group, Group(event.group))
            _read_of_all(group, event)
        by_process[event.run, event.process].append(event)
    for mine in by_process.values():
        mine.sort(key=lambda e: (e.incarnation, e.seq))
        _Reader(groups).read(mine)
    for group in groups.values():
        for position, (_, relation) in sorted(group.told_relations.items(), key=lambda t: t[0]):
            if not group.relations or group.relations[-1][1] != relation:
                group.relations.append((position, relation))
    return groups


def _read_of_all(group: Group, event: TraceEvent) -> None:
    """Read an event that concerns the group as a whole, whichever member reports it."""
    if event.kind in ("group", "conflict"):
        # Of several at one position the last one holds; a slow process reports it later.
        known = group.told_relations.get(event.position)
        if known is None or known[0] <= event.at:
            relation = ConflictRelation.from_json(event.relation)
            group.told_relations[event.position] = (event.at, relation)
    elif event.kind in ("send", "sent"):
        group.send.setdefault(event.message, event.at)
        if event.kind == "sent" and event.persistent:
            group.sent.add(event.message)
    elif event.kind == "view":
        group.members.setdefault(event.view_id, set(event.members))
    elif event.kind == "remove":
        group.removed.update(event.members)
    elif event.kind == "suspect":
        group.suspected.update(event.members)


class _Reader:
    """Reads the history of one program, life after life, in all its groups."""

    def __init__(self, groups: dict[str, Group]) -> None:
        self._groups = groups
        self._members: dict[str, Process] = {}  # by group, in this life
        self._durable: dict[tuple[str, str], Process] = {}  # by group and name, in all lives
        self._cuts: dict[str, int] = {}  # by group: of the member's state before this life's

    def read(self, events: list[TraceEvent]) -> None:
        incarnation = events[0].incarnation
        for order, event in enumerate(events):
            if event.kind in ("crash", "recover") or event.incarnation != incarnation:
                self._crash(order)
                incarnation = event.incarnation
            if event.group and event.kind not in ("crash", "recover"):
                if event.kind == "join":
                    self._join(self._groups[event.group], event)
                elif (process := self._members.get(event.group)) is not None:
                    self._event(self._groups[event.group], process, event, order)

    def _crash(self, order: int) -> None:
        """Read a crash, which is the program's, in all of its groups."""
        for process in self._members.values():
            if not process.left:
                process.up = False
                process.crashes.append(order)
        self._members = {}

    def _join(self, group: Group, event: TraceEvent) -> None:
        self._cuts.pop(group.name, None)
        name = event.sender or event.process
        known = self._durable.get((group.name, name))
        if event.durable and known is not None:
            was_told = bool(known.views) and known.views[-1].life == known.lives
            known.had_left = known.left or (known.had_left and not was_told)
            known.up, known.left = True, False
            known.lives += 1
            self._members[group.name] = known
            return
        key = name if event.durable else f"{name}/{event.process}.{event.incarnation}.{event.seq}"
        self._new(group, name, key, event.durable)

    def _new(self, group: Group, name: str, key: str, durable: bool) -> Process:
        if any(other.name == name for other in group.processes):
            group.renewed.add(name)
        process = Process(name, key, durable)
        group.processes.append(process)
        self._members[group.name] = process
        if durable:
            self._durable[group.name, name] = process
        return process

    def _event(self, group: Group, process: Process, event: TraceEvent, order: int) -> None:
        if event.kind == "view" and event.redelivered:
            pass  # a repetition in the same life, as after a rollback
        elif event.kind == "view":
            if _is_another(group, process, event.view_id):
                process.excluded = not process.had_left
                process.left = True
                old = process
                process = self._new(group, old.name, f"{old.key}'", old.durable)
                if group.name in self._cuts:  # the state came before the first view of its member
                    process.state_cut = old.state_cut
                    old.state_cut = self._cuts.pop(group.name)
            process.views.append(
                View(event.view_id, event.members, event.position, order, process.lives, event.at)
            )
            if process.name not in event.members:
                process.left = True
        elif event.kind == "deliver" and process.left:
            process.late.append(event.message)
        elif event.kind == "deliver":
            process.deliveries.append(
                Delivery(
                    event.message,
                    event.position,
                    event.view_id,
                    process.view_at(event.position),
                    event.redelivered,
                    event.tag,
                    event.key,
                )
            )
        elif event.kind == "state":
            self._cuts.setdefault(group.name, process.state_cut)
            process.state_cut = max(process.state_cut, event.position)
        elif event.kind == "leave":
            process.left = True


def _is_another(group: Group, process: Process, view: int) -> bool:
    """Return whether a durable member that installs this view first in a life is a new one under
    the old name: then the old one left, or was removed, with a view between."""
    if not process.views or process.views[-1].life == process.lives or view <= process.last_view:
        return False
    between = range(process.last_view, view)
    return any(process.name not in group.members.get(id, ()) for id in between)


# -- Views -----------------------------------------------------------------------------------------


def views(group: Group) -> Iterator[Violation]:
    """Views of a group are totally ordered (4.2.1, primary partition): a number means the same
    members at the same place everywhere; a process that installs one installs the next one next."""
    known: dict[int, tuple[View, Process]] = {}
    for process in group.processes:
        for view in process.views:
            first, by = known.setdefault(view.id, (view, process))
            if first.members != view.members:
                yield Violation(
                    "views",
                    f"view {view.id} of {group.name} is {first.members} at {by.key} and "
                    f"{view.members} at {process.key}",
                )
            if first.position != view.position:
                yield Violation(
                    "views",
                    f"view {view.id} of {group.name} stands after message {first.position} at "
                    f"{by.key} and after {view.position} at {process.key}",
                )
        yield from _one_after_the_other(process)
        for message in process.late:
            yield Violation(
                "views", f"{process.key} delivered {message} when it was not a member any more"
            )


def _one_after_the_other(process: Process) -> Iterator[Violation]:
    last = highest = life = 0
    for view in process.views:
        if not last and process.name not in view.members:
            yield Violation(
                "views", f"{process.key} is not in its own first view {view.id}: {view.members}"
            )
        # A new life may begin with views that the last one had not acknowledged.
        follows = view.id == last + 1 if view.life == life else view.id <= highest + 1
        if last and not follows:
            yield Violation("views", f"{process.key} installed view {view.id} after {last}")
        last, life, highest = view.id, view.life, max(highest, view.id)


def last_view(group: Group) -> Iterator[Violation]:
    """In the end every member that stays knows the last view."""
    last = max((p.last_view for p in group.processes), default=0)
    for process in group.processes:
        if process.stays and process.last_view < last:
            yield Violation(
                "views",
                f"the last view of {group.name} is {last}, and {process.key} stays in "
                f"{process.last_view}",
            )


def suspicion(group: Group) -> Iterator[Violation]:
    """A suspicion excludes nobody by itself (6.5.2): a durable member that neither left nor was
    removed is in every view from its first one on; a non-durable one also goes if it crashed, or
    was suspected (and its group removes suspects)."""
    for process in group.processes:
        if not process.views or process.name in group.removed:
            continue
        if not process.durable and (process.crashes or process.name in group.suspected):
            continue
        without = [id for id, members in group.members.items() if process.name not in members]
        without = [id for id in without if id > process.views[0].id]
        knows = process.excluded or process.name not in process.views[-1].members
        stays = not process.left and process.name not in group.renewed
        if without and (knows or stays):
            kind = "durable" if process.durable else "never suspected"
            yield Violation(
                "suspicion",
                f"{process.name} is {kind} and nobody removed it, but view {min(without)} is "
                "without it",
            )


# -- P1 to P5 --------------------------------------------------------------------------------------


def validity(group: Group) -> Iterator[Violation]:
    """(P1) If a process broadcasts message m to the group, then some correct process in it
    eventually delivers m, or no process in it is correct."""
    positions = {d.message: d.position for p in group.processes for d in p.deliveries}
    have = [(p.delivered(), p.state_cut) for p in group.processes if p.correct]
    for message in sorted(group.sent):
        sent_at = group.send[message]
        # Processes that joined later need not have it, and those that left may have done so before.
        there = [p for p in group.processes if p.stays and p.views[0].at <= sent_at]
        position = positions.get(message, 1 << 62)
        if there and not any(message in had or position <= cut for had, cut in have):
            yield Violation(
                "P1",
                f"{message} was broadcast to {group.name}, and no correct process delivered it, "
                f"though {there[0].key} is correct",
            )


def agreement(group: Group) -> Iterator[Violation]:
    """(P2) If a process delivers message m in view v, then all processes that are correct in v
    eventually deliver m."""
    for process, delivery, by in _lacking(group):
        yield Violation(
            "P2",
            f"{by.key} delivered {delivery.message} in view {delivery.view}, and {process.key}, "
            "which is correct in it, did not",
        )


def _lacking(group: Group) -> Iterator[tuple[Process, Delivery, Process]]:
    """Yield each process that lacks a delivery, the delivery, and a process that has it."""
    first: dict[str, tuple[Delivery, Process]] = {}
    for process in group.processes:
        for delivery in process.deliveries:
            first.setdefault(delivery.message, (delivery, process))
    for process in group.processes:
        have = process.delivered()
        correct = {id: _correct_in(group, process, id) for id in group.members}
        for message, (delivery, by) in first.items():
            if message in have or delivery.position <= process.state_cut:
                continue
            if correct.get(delivery.view, False):
                yield process, delivery, by


def _correct_in(group: Group, process: Process, view: int) -> bool:
    """(i) p installs v, (ii) p does not crash while its view is v, (iii) if v is not the last view
    of some process in v, then p is in the view that such a process installs after it (footnote 7).
    """
    mine = next((v for v in process.views if v.id == view), None)
    if mine is None or process.name not in mine.members:
        return False
    following = next((v for v in process.views if v.id == view + 1), None)
    if process.durable:
        # Good instead of correct: after all crashes, it is back and catches up.
        return following is not None or process.stays
    if following is not None:
        crashed = any(mine.order < crash < following.order for crash in process.crashes)
        return not crashed and process.name in following.members
    return process.stays and process.name in group.members.get(view + 1, {process.name})


def integrity(group: Group) -> Iterator[Violation]:
    """(P3) For any message m, every process delivers m at most once, and only if m was previously
    broadcast. A possible duplicate is marked as redelivered (footnote 9)."""
    for process in group.processes:
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
    The view of a process is the last one that it installed before it delivers m (footnote 8)."""
    where: dict[str, tuple[int, str]] = {}
    for process in group.processes:
        for delivery in process.first_deliveries():
            view, by = where.setdefault(delivery.message, (delivery.installed, process.key))
            if view != delivery.installed:
                yield Violation(
                    "P4",
                    f"{by} delivered {delivery.message} in view {view}, {process.key} in "
                    f"{delivery.installed}",
                )
            elif delivery.view != delivery.installed:
                yield Violation(
                    "P4",
                    f"{process.key} delivered {delivery.message} of view {delivery.view} in its "
                    f"view {delivery.installed}",
                )


def generic_order(group: Group, owed: Collection[tuple[str, str]] = ()) -> Iterator[Violation]:
    """(P5) If some process delivers m in view v before it delivers m', and the two conflict, then
    every process that is in view v delivers m' only after it has delivered m.

    One order is known, that of the positions; so it is enough that no process delivers a message
    while it lacks an earlier one that conflicts with it and that another process delivered. `owed`:
    missing messages, by key of the process and message, that are reported elsewhere (P2)."""
    known: dict[int, Delivery] = {}
    for process in group.processes:
        for delivery in process.deliveries:
            same = known.setdefault(delivery.position, delivery)
            if same.message != delivery.message:
                yield Violation(
                    "P5",
                    f"{same.message} and {delivery.message} are both at {delivery.position} of "
                    f"{group.name}",
                )
    for process in group.processes:
        due = {p: d for p, d in known.items() if (process.key, d.message) not in owed}
        yield from _in_order(group, process, due, sorted(due))


def _in_order(
    group: Group, process: Process, known: dict[int, Delivery], positions: list[int]
) -> Iterator[Violation]:
    if not process.views:
        return
    start = max(process.views[0].position, process.state_cut)
    reached = bisect_right(positions, start)  # all before were checked
    missing: list[int] = []
    for delivery in process.first_deliveries():
        upto = bisect_left(positions, delivery.position)
        if upto >= reached:
            missing += positions[reached:upto]
            reached = upto + 1
        elif delivery.position in missing:
            missing.remove(delivery.position)
        for position in missing:
            if position > delivery.position:
                break
            if group.conflict(known[position], delivery):
                yield Violation(
                    "P5",
                    f"{process.key} delivered {delivery.message} before "
                    f"{known[position].message}, which comes before it at others, and the two "
                    "conflict",
                )
                return
