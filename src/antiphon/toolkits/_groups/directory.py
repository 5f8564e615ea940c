"""Groups inside one cluster of peers, as Transis, Phoenix and Isis have them: a process may be in
several, and what it sends to several groups has one place in the order of all of them.

A process says in its note which groups it is in (`peers.Channel.set_note`), and every view of the
channel shows the notes of all. So a group changes where the channel's view changes, and in no other
place: between two views of a group its members receive the same messages, at every level, without a
protocol of its own. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, TypeAlias

import msgspec

from antiphon.model.peer_views import MemberId
from antiphon.peers import View


class Note(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a process says of itself: the groups that it is in, each with the round of the view in
    which it asked for that. `count` grows with each note."""

    groups: dict[str, int] = {}
    count: int = 0

    def joining(self, group: str, round: int) -> Note:
        return Note({group: round, **self.groups}, self.count + 1)

    def leaving(self, group: str) -> Note:
        groups = {one: at for one, at in self.groups.items() if one != group}
        return Note(groups, self.count + 1)

    def written(self) -> str:
        return msgspec.json.encode(self).decode()


class Envelope(msgspec.Struct, frozen=True, array_like=True):
    """A message to groups, as a channel carries it. `kind` is the toolkit's. `last`: it is the last
    thing that is handed out in its view."""

    targets: tuple[str, ...]
    body: bytes
    kind: str = ""
    last: bool = False


class GroupMessage(NamedTuple):
    """A message that this process receives. `targets`: all groups that it was sent to; none: it was
    sent to this process alone."""

    sender: str
    targets: tuple[str, ...]
    body: bytes
    kind: str = ""


class Echo(NamedTuple):
    """A message of this process is handed out now, to the members of its first target."""

    message: GroupMessage
    members: tuple[str, ...]


class GroupView(NamedTuple):
    """The members of a group from here on, those first that joined first.

    `joined` and `left` compare it with the view before; to a process that joins, all have joined.
    `together`: the members that come from the same view as this process, with the same messages.
    `primary`: of all views of the cluster at a time at most one is. `transitional`: see
    `peers.View`; its members are those of the view that ends who go on together.
    """

    group: str
    id: int
    members: tuple[str, ...]
    joined: tuple[str, ...]
    left: tuple[str, ...]
    together: tuple[str, ...]
    primary: bool
    transitional: bool = False


Event: TypeAlias = GroupMessage | GroupView | Echo

GRANT = "antiphon.grant"
"""The kind of messages that make a group of given members, all at once (`Grant`)."""


class Grant(msgspec.Struct, frozen=True, array_like=True):
    """A group begins with these members."""

    group: str
    members: tuple[str, ...]


class _Known(NamedTuple):
    """A group as this process knows it."""

    id: int
    members: tuple[MemberId, ...]


_NOBODY = _Known(0, ())


class Directory:
    """Who is in which group, as the views of a channel show it to one process.

    Promise: of what it is given, in the channel's order, it returns what this process receives: the
    messages to groups that it is in, and the views of all groups, each where the group changes. A
    transitional view comes before the rest of the view that ends, if this process is in the group:
    at once if somebody is missing in it, otherwise when it is known that the group changes.
    `echoes`: it also returns where this process's own messages are handed out.
    """

    def __init__(self, name: str, echoes: bool = False) -> None:
        self.notes: dict[str, Note] = {}
        self._name = name
        self._echoes = echoes
        self._granted: dict[tuple[str, MemberId], int] = {}  # with the count of the note then
        self._last: list[GroupMessage] = []
        self._known: dict[str, _Known] = {}
        self._primary = False
        self._passing: View | None = None
        self._passed: dict[str, GroupView] = {}  # of the present views, the last transitional ones
        self._held: list[Event] = []

    def members(self, group: str) -> tuple[str, ...]:
        """Return the members of a group, those first that joined first."""
        return _names(self._known.get(group, _NOBODY).members)

    def view(self, group: str) -> GroupView:
        """Return a group's present view, as somebody sees it who did not know it before."""
        known = self._known.get(group, _NOBODY)
        members = _names(known.members)
        return GroupView(group, known.id, members, members, (), (), self._primary)

    def groups(self) -> tuple[str, ...]:
        """Return the groups that have members."""
        return tuple(sorted(self._known))

    def received(self, message: GroupMessage, last: bool = False) -> list[Event]:
        """Take a message. At the end of a view it is kept until the next view is shown, in the same
        step, for that one says whose transitional view belongs before it. `last`: it is handed out
        then, as the last one of this view, and all who go on together have it."""
        if last:
            self._last.append(message)
            return []
        if self._passing is None:
            return self._handed_out(message)
        self._held += self._handed_out(message)
        return []

    def _handed_out(self, message: GroupMessage) -> list[Event]:
        events: list[Event] = []
        if self._echoes and message.sender == self._name and message.targets:
            events.append(Echo(message, self.members(message.targets[0])))
        if not message.targets or any(self._name in self.members(one) for one in message.targets):
            events.append(message)
        return events

    def shown(self, view: View, together: tuple[str, ...]) -> list[Event]:
        """Take a view of the channel."""
        if view.transitional:
            self._passing = view
            return [one for group in sorted(self._known) for one in self._pass(group) if one.left]
        self.notes = {name: read_note(text) for name, text in view.notes.items()}
        last = [event for message in self._last for event in self._closed_with(message, view)]
        self._last = []
        passing, changes, known = [], [], {}
        for group, members in self._members(view):
            old = self._known.get(group, _NOBODY)
            change = self._change(group, old, members, view, together)
            if members:
                known[group] = _Known(change.id if change else old.id, members)
            if change:
                changes.append(change)
                passing += self._pass(group)
        held, self._held = self._held, []
        self._known, self._passing, self._primary = known, None, view.primary
        self._passed = {}
        return [*passing, *held, *last, *changes]

    def _closed_with(self, message: GroupMessage, view: View) -> list[Event]:
        """Hand out one of the last messages of the view that ends with this one."""
        if message.kind != GRANT:
            return self._handed_out(message)
        grant = msgspec.msgpack.decode(message.body, type=Grant)
        for one in view.processes:
            if one.name in grant.members:
                self._granted[grant.group, one] = self._note(one).count
        return []

    def _note(self, process: MemberId) -> Note:
        return self.notes.get(process.name, Note())

    def _members(self, view: View) -> Iterable[tuple[str, tuple[MemberId, ...]]]:
        """Yield all groups with their members, and those that had members before."""
        self._granted = {
            (group, one): count
            for (group, one), count in self._granted.items()
            if one in view.processes and self._note(one).count <= count
        }
        named = {group for note in self.notes.values() for group in note.groups}
        for group in sorted({*named, *self._known, *(group for group, _ in self._granted)}):
            asked = [
                (self._note(one).groups.get(group, 0), one)
                for one in view.processes
                if group in self._note(one).groups or (group, one) in self._granted
            ]
            asked.sort(key=lambda pair: pair[0])  # those that asked in one view as they are in it
            yield group, tuple(one for _, one in asked)

    def _change(
        self,
        group: str,
        old: _Known,
        new: tuple[MemberId, ...],
        view: View,
        together: tuple[str, ...],
    ) -> GroupView | None:
        """Return the group's new view, if it has one."""
        came_along = tuple(one for one in new if one in old.members and one.name in together)
        if new == old.members == came_along and view.primary == self._primary:
            return None
        known = old.members
        if self._name in _names(new) and self._name not in _names(known):  # it joins
            known, came_along = (), tuple(one for one in new if one.name == self._name)
        return GroupView(
            group,
            view.id,
            _names(new),
            joined=_names(one for one in new if one not in known),
            left=_names(one for one in known if one not in new),
            together=_names(came_along),
            primary=view.primary,
        )

    def _pass(self, group: str) -> list[GroupView]:
        """Return the transitional view of a group that this process is in, if it is a new one."""
        ends = self._known.get(group, _NOBODY)
        members, going = _names(ends.members), set(self._passing.members if self._passing else ())
        stay = tuple(name for name in members if name in going)
        left = tuple(name for name in members if name not in going)
        view = GroupView(group, ends.id, stay, (), left, stay, False, True)
        if self._name not in stay or view == self._passed.get(group):
            return []
        if left:
            self._passed[group] = view
        return [view]


def read_note(text: str) -> Note:
    """Return a note. Another program may have written it: whatever makes no sense says nothing."""
    try:
        return msgspec.json.decode(text, type=Note)
    except msgspec.DecodeError:
        return Note()


def _names(members: Iterable[MemberId]) -> tuple[str, ...]:
    return tuple(member.name for member in members)
