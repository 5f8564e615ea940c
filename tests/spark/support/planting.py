"""Violations planted into clean traces, each a pure function of the trace.

A *plant* changes a few rows and says which properties are broken by it, and so must be reported,
and no others. Where a plant could be put at many places, the first is taken at which the in-memory
judge reports just that; so a plant that it cannot see in any place fails the test that wants it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from itertools import islice, pairwise
from typing import NamedTuple

from msgspec.structs import replace

from antiphon.checkers import groups as group_spec
from antiphon.formats.trace import TraceEvent

Trace = list[TraceEvent]
TRIES = 400

# What the in-memory judge knows, and how the audit calls it.
NAMES = {"suspicion": "views"}
KNOWN = {"P1", "P2", "P3", "P4", "P5", "views"}
OF_MEMBERS = {"P2", "P4", "views"}  # what the judge of memberships knows


class Plant(NamedTuple):
    name: str
    broken: frozenset[str]
    changes: Callable[[Trace], Iterator[Trace]]  # at one place after the other


def verdict(trace: Trace) -> set[str]:
    """By the in-memory judge."""
    return {NAMES.get(v.rule, v.rule) for v in group_spec.check(trace)}


def planted(plant: Plant, trace: Trace, tries: int = TRIES) -> Trace | None:
    """The trace with it; None if there is no place for it among the first."""
    wanted = plant.broken & KNOWN
    for changed in islice(plant.changes(trace), tries):
        if verdict(changed) == wanted:
            return changed
    return None


def as_run(trace: Trace, run: str) -> Trace:
    return [replace(event, run=run) for event in trace]


# -- Places ----------------------------------------------------------------------------------------


def _deliveries(trace: Trace, *, durable: bool | None = None) -> Iterator[int]:
    """Of messages that this process delivers once, and others too."""
    times: Counter[tuple[str, str, str]] = Counter()
    deliverers: dict[tuple[str, str], set[str]] = defaultdict(set)
    for event in trace:
        if event.kind == "deliver":
            times[event.group, event.message, event.process] += 1
            deliverers[event.group, event.message].add(event.process)
    lasting = {e.process for e in trace if e.kind == "join" and e.durable}
    for index, event in enumerate(trace):
        if event.kind == "deliver" and times[event.group, event.message, event.process] == 1:
            fits = durable is None or durable == (event.process in lasting)
            if fits and len(deliverers[event.group, event.message]) > 1:
                yield index


def _total(trace: Trace) -> set[str]:
    """Groups whose relation says that everything conflicts, and always did."""
    groups = {event.group for event in trace if event.kind == "view"}
    told = {
        e.group for e in trace if e.kind in ("group", "conflict") and '"tags": []' not in e.relation
    }
    return groups - told


def _rows(trace: Trace, kind: str) -> Iterator[int]:
    return (index for index, event in enumerate(trace) if event.kind == kind)


def _without(trace: Trace, *indexes: int) -> Trace:
    return [event for index, event in enumerate(trace) if index not in indexes]


def _changed(trace: Trace, index: int, **columns: object) -> Trace:
    changed = replace(trace[index], **columns)
    return [*trace[:index], changed, *trace[index + 1 :]]


def _swapped(trace: Trace, one: int, two: int) -> Trace:
    """What the two rows tell changes places; who tells it, and when, does not."""
    first, second = trace[one], trace[two]
    kept = ("process", "incarnation", "seq", "didx", "at")
    changed = list(trace)
    changed[one] = replace(second, **{name: getattr(first, name) for name in kept})
    changed[two] = replace(first, **{name: getattr(second, name) for name in kept})
    return changed


def _neighbours(trace: Trace) -> Iterator[tuple[int, int]]:
    """Two deliveries in a row at one process, in one view, both of which others deliver, too."""
    by_life: dict[tuple[str, str, int], list[int]] = {}
    for index in _deliveries(trace):
        event = trace[index]
        by_life.setdefault((event.group, event.process, event.incarnation), []).append(index)
    for indexes in by_life.values():
        indexes.sort(key=lambda i: trace[i].seq)
        for one, two in pairwise(indexes):
            if trace[one].view_id == trace[two].view_id:
                yield one, two


# -- Messages --------------------------------------------------------------------------------------


def _lose_one(trace: Trace) -> Iterator[Trace]:
    return (_without(trace, index) for index in _deliveries(trace, durable=False))


def _lose_one_at_a_durable_member(trace: Trace) -> Iterator[Trace]:
    """Which was away, and got it when it was back."""
    crashes = {e.process: e.incarnation for e in trace if e.kind == "crash"}
    for index in _deliveries(trace, durable=True):
        event = trace[index]
        if event.incarnation > crashes.get(event.process, event.incarnation):
            yield _without(trace, index)


def _lose_everywhere(trace: Trace) -> Iterator[Trace]:
    for sent in _rows(trace, "sent"):
        message = trace[sent].message
        yield [e for e in trace if e.kind != "deliver" or e.message != message]


def _repeat(trace: Trace, *, marked: bool) -> Iterator[Trace]:
    for index in _deliveries(trace):
        event = trace[index]
        following = [e.seq for e in trace if e.process == event.process and e.seq > event.seq]
        if following and min(following) > event.seq + 1:
            again = replace(event, seq=event.seq + 1, didx=event.didx + 1, redelivered=marked)
            yield [*trace, again]


def _send_nothing(trace: Trace) -> Iterator[Trace]:
    for index in _deliveries(trace):
        message = trace[index].message
        yield [e for e in trace if e.kind not in ("send", "sent") or e.message != message]


def _deliver_a_made_up_one(trace: Trace) -> Iterator[Trace]:
    """All get it, at a place where there is none."""
    total_groups = _total(trace)
    places = {e.position for e in trace}
    for index in _deliveries(trace):
        position = trace[index].position
        if position + 1 in places or trace[index].group not in total_groups:
            continue
        mine = [e for e in trace if e.kind == "deliver" and e.position == position]
        yield trace + [
            replace(e, message="made up", position=position + 1, seq=e.seq + 1, sender="")
            for e in mine
        ]


def _partially_broadcast(trace: Trace) -> Iterator[Trace]:
    """Its sender never got an answer, and nobody got the message: that is no violation."""
    for sent in _rows(trace, "sent"):
        message = trace[sent].message
        yield [e for e in trace if e.kind == "send" or e.message != message]


# -- Orders ----------------------------------------------------------------------------------------


def _swap(trace: Trace, *, total: bool, same_sender: bool | None = None) -> Iterator[Trace]:
    total_groups = _total(trace)
    for one, two in _neighbours(trace):
        first, second = trace[one], trace[two]
        same = first.sender == second.sender and first.sender_seq >= 0
        if (first.group in total_groups) == total and same_sender in (None, same):
            yield _swapped(trace, one, two)


def _swap_everywhere(trace: Trace) -> Iterator[Trace]:
    """Two messages of one sender change places in the one order."""
    for one, two in _neighbours(trace):
        first, second = trace[one], trace[two]
        if first.sender == second.sender and first.sender_seq >= 0:
            yield [_in_place_of(event, first, second) for event in trace]


def _in_place_of(event: TraceEvent, one: TraceEvent, two: TraceEvent) -> TraceEvent:
    for old, new in ((one, two), (two, one)):
        if event.kind == "deliver" and event.message == old.message:
            told = ("message", "sender", "sender_seq", "tag", "key")
            return replace(event, **{name: getattr(new, name) for name in told})
    return event


def _look_ahead(trace: Trace) -> Iterator[Trace]:
    """A message depends on one that comes after it."""
    delivered = sorted((e for e in trace if e.kind == "deliver"), key=lambda e: e.position)
    for index in _rows(trace, "send"):
        event = trace[index]
        own = [e.position for e in delivered if e.message == event.message]
        later = [e for e in delivered if own and e.position > own[0] and e.group == event.group]
        if later and later[0].sender_seq >= 0 and later[0].sender != event.sender:
            clock = {**event.clock, later[0].sender: later[0].sender_seq}
            yield _changed(trace, index, clock=clock)


def _move(trace: Trace) -> Iterator[Trace]:
    """One message is somewhere else for one process."""
    total_groups = _total(trace)
    places = {event.position for event in trace}
    for index in _deliveries(trace):
        if trace[index].position + 1 not in places and trace[index].group in total_groups:
            yield _changed(trace, index, position=trace[index].position + 1)


def _share_a_place(trace: Trace) -> Iterator[Trace]:
    """Two messages have one position, for one process."""
    total_groups = _total(trace)
    for one, two in _neighbours(trace):
        if trace[one].group in total_groups:
            yield _changed(trace, two, position=trace[one].position)


def leave_out_before_a_crash(trace: Trace) -> Iterator[Trace]:
    """Who crashes owes nothing, but it may not deliver what comes after what it left out."""
    total_groups = _total(trace)
    crashed = {e.process for e in trace if e.kind == "crash"}
    for index in _deliveries(trace, durable=False):
        if trace[index].process in crashed and trace[index].group in total_groups:
            yield _without(trace, index)


# -- Views -----------------------------------------------------------------------------------------


def _wrong_view(trace: Trace) -> Iterator[Trace]:
    for index in _deliveries(trace):
        yield _changed(trace, index, view_id=trace[index].view_id + 1)


def _late_view(trace: Trace) -> Iterator[Trace]:
    """A process installs a view after the first message that is delivered in it."""
    deliveries = list(_deliveries(trace))
    for view in _rows(trace, "view"):
        event = trace[view]
        after = [
            i
            for i in deliveries
            if trace[i].process == event.process
            and trace[i].incarnation == event.incarnation
            and trace[i].group == event.group
            and trace[i].view_id == event.view_id
            and trace[i].seq > event.seq
        ]
        if after and event.view_id > 1:
            first = min(after, key=lambda i: trace[i].seq)
            changed = _changed(trace, view, seq=trace[first].seq)
            yield _changed(changed, first, seq=event.seq)


def _skip_a_view(trace: Trace) -> Iterator[Trace]:
    return (_without(trace, index) for index in _rows(trace, "view"))


def _other_members(trace: Trace) -> Iterator[Trace]:
    for index in _rows(trace, "view"):
        yield _changed(trace, index, members=(*trace[index].members, "nobody"))


def _other_place(trace: Trace) -> Iterator[Trace]:
    for index in _rows(trace, "view"):
        yield _changed(trace, index, position=trace[index].position - 1)


def _not_in_its_own_view(trace: Trace) -> Iterator[Trace]:
    for index in _rows(trace, "view"):
        event = trace[index]
        names = [e.sender for e in trace if e.kind == "join" and e.process == event.process]
        others = tuple(m for m in event.members if m not in names)
        if len(others) < len(event.members):
            yield _changed(trace, index, members=others)


def _excluded(trace: Trace) -> Iterator[Trace]:
    """The last view is without somebody who stays and knows nothing of it."""
    last = max((e.view_id for e in trace if e.kind == "view"), default=0)
    names = sorted({m for e in trace if e.kind == "view" and e.view_id == last for m in e.members})
    for name in names:
        yield [
            replace(e, members=tuple(m for m in e.members if m != name))
            if e.kind == "view" and e.view_id == last
            else e
            for e in trace
        ]


def _after_leaving(trace: Trace) -> Iterator[Trace]:
    for index in _rows(trace, "leave"):
        event = trace[index]
        got = {e.message for e in trace if e.kind == "deliver" and e.process == event.process}
        for other in _deliveries(trace):
            message = trace[other]
            if message.group == event.group and message.message not in got:
                told = {name: getattr(event, name) for name in ("process", "incarnation", "at")}
                yield [*trace, replace(message, **told, seq=event.seq + 1)]


# -- States ----------------------------------------------------------------------------------------


def _late_cut(trace: Trace) -> Iterator[Trace]:
    """The state is said to hold a message that comes after it all the same."""
    for index in _rows(trace, "state"):
        event = trace[index]
        got = [
            e.position
            for e in trace
            if e.kind == "deliver"
            and e.process == event.process
            and e.group == event.group
            and e.incarnation == event.incarnation
            and e.seq > event.seq
        ]
        if got:
            yield _changed(trace, index, position=min(got))


def _early_cut(trace: Trace) -> Iterator[Trace]:
    """The state is said to end before messages that are in it, and come no more."""
    for index in _rows(trace, "state"):
        event = trace[index]
        held = [
            e.position
            for e in trace
            if e.kind == "deliver" and e.group == event.group and e.position <= event.position
        ]
        if held:
            yield _changed(trace, index, position=max(held) - 1)


def _cut_before_the_view(trace: Trace) -> Iterator[Trace]:
    for index in _rows(trace, "state"):
        event = trace[index]
        views = [
            e.position
            for e in trace
            if e.kind == "view"
            and e.process == event.process
            and e.group == event.group
            and e.incarnation == event.incarnation
        ]
        if views:
            yield _changed(trace, index, position=min(views) - 1)


PLANTS = [
    Plant(name, frozenset(broken.split()), changes)
    for name, broken, changes in (
        ("lost at one member", "P2", _lose_one),
        ("lost at a durable member", "P2 durable", _lose_one_at_a_durable_member),
        ("lost everywhere", "P1", _lose_everywhere),
        ("partially broadcast", "", _partially_broadcast),
        ("twice", "P3", lambda t: _repeat(t, marked=False)),
        ("twice, and marked", "", lambda t: _repeat(t, marked=True)),
        ("sent by nobody", "P3", _send_nothing),
        ("made up, for all", "P3", _deliver_a_made_up_one),
        ("two in the wrong order", "P5 total", lambda t: _swap(t, total=True, same_sender=False)),
        ("two of one sender", "P5 total fifo", lambda t: _swap(t, total=True, same_sender=True)),
        ("two that conflict", "P5", lambda t: _swap(t, total=False)),
        ("two that do not conflict", "", lambda t: _swap(t, total=False)),
        ("a sender's order, for all", "fifo", _swap_everywhere),
        ("an effect before its cause", "causal", _look_ahead),
        ("two places for one message", "P5 total", _move),
        ("two messages for one place", "P5 total", _share_a_place),
        ("left out before a crash", "P5 total", leave_out_before_a_crash),
        ("wrong view", "P4", _wrong_view),
        ("late view", "P4", _late_view),
        ("skipped view", "views", _skip_a_view),
        ("other members", "views", _other_members),
        ("other place of a view", "views", _other_place),
        ("not in its own view", "views", _not_in_its_own_view),
        ("excluded", "views", _excluded),
        ("delivered after leaving", "views", _after_leaving),
        ("late cut", "state", _late_cut),
        ("early cut", "P2 state", _early_cut),
        ("cut before the view", "P2 state", _cut_before_the_view),
    )
]
