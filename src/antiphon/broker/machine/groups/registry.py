"""All groups, by destination, and the last numbers of those that were forgotten."""

from __future__ import annotations

from typing import Any

from antiphon.broker.machine import events as ev
from antiphon.broker.machine.groups.group import Group, Past

PAST_MAX = 1000
"""This many forgotten groups are known by name, each with the number of its last view."""


class Groups(dict[str, Group]):
    """The groups that have members, or events that a former member has not acknowledged.

    Promise: views are never numbered twice, even if a group is forgotten and comes again.
    """

    def __init__(self, events: list[ev.Event]) -> None:
        super().__init__()
        self._events = events
        self._touched: dict[str, None] = {}  # by this entry
        self.past: dict[str, Past] = {}  # by destination, the last to be forgotten last
        self.past_floor = Past(0, 0)  # all other new groups begin above it

    def tell(self, destination: str) -> None:
        """Report that this group has an event that its members do not know."""
        self._events.append(ev.GroupChanged(destination))

    def add(self, group: Group) -> None:
        """Add a new group. Its views get other numbers than those of earlier groups with its name,
        which a removal that is still on its way may mean, or the judge of a trace may know."""
        group.go_on(self.past.pop(group.destination, self.past_floor))
        self[group.destination] = group

    def touch(self, destination: str) -> None:
        """Look at this group when the entry is done (`settle`): a member has acknowledged events,
        or left it."""
        self._touched[destination] = None

    def settle(self) -> None:
        """Forget events that all members have acknowledged, and groups that are over. Call it at
        the end of an entry, which may have the acknowledgements of many members."""
        for destination in self._touched:
            if (group := self.get(destination)) is not None:
                group.trim()
                if group.is_over:
                    self._forget(group)
        self._touched.clear()

    # -- From a snapshot -----------------------------------------------------------------------

    def restore(self, group: Group) -> None:
        """Take a group from a snapshot."""
        self[group.destination] = group
        if group.is_over:  # 0.1 did not forget groups
            self.touch(group.destination)

    def restore_past(self, rows: list[Any]) -> None:
        """Take groups that were forgotten from a snapshot."""
        self.past.update((name, Past(*past)) for name, *past in rows)

    def restore_floor(self, past: Past) -> None:
        """Take from a snapshot the numbers at which other new groups begin."""
        self.past_floor = past

    # -- Inside --------------------------------------------------------------------------------

    def _forget(self, group: Group) -> None:
        del self[group.destination]
        self.past[group.destination] = Past(group.view, group.serial)
        if len(self.past) > PAST_MAX:
            past = self.past.pop(next(iter(self.past)))
            self.past_floor = Past(*map(max, past, self.past_floor))
