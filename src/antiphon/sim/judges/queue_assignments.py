"""The division of the messages of queues and shared subscriptions, judged at each assignment.

No expired message is assigned; while an exclusive consumer is open, no other one gets messages;
otherwise the messages of a `JMSXGroupID` are for one consumer as long as it is there, or until a
message that is marked as the last of its group.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable

from antiphon.broker.machine import events as ev
from antiphon.model.destinations import DEAD_LETTERS
from antiphon.sim.message_traits import Traits
from antiphon.sim.violations import ViolationError

Reader = tuple[int, int]  # session and consumer


class Division:
    """Judges to which consumer each message of a queue is assigned."""

    def __init__(
        self, traits: Callable[[int], Traits], has_let_go: Callable[[Reader], bool]
    ) -> None:
        """`has_let_go`: whether a consumer is gone, or has to go."""
        self._traits = traits
        self._has_let_go = has_let_go
        self._names: dict[Reader, str] = {}  # consumer -> its queue or subscription
        self._exclusive: dict[str, set[Reader]] = defaultdict(set)  # consumers that ask for it
        self._entitled: dict[str, set[Reader]] = defaultdict(set)  # of these, the open ones
        # By name, group, and how many messages have ended the group before
        self._owners: dict[tuple[str, str, int], Reader] = {}
        self._ends: dict[str, list[int]] = defaultdict(list)  # of groups: such messages

    def opens(self, reader: Reader, name: str, exclusive: bool) -> None:
        self._names[reader] = name
        if exclusive:
            self._exclusive[name].add(reader)

    def opened(self, reader: Reader) -> None:
        name = self._names[reader]
        if reader in self._exclusive[name]:
            self._entitled[name].add(reader)

    def accepted(self, position: int, traits: Traits) -> None:
        if traits.closes:
            self._ends[traits.group].append(position)

    def assigned(self, event: ev.Assigned, stamp: int) -> None:
        reader = (event.session, event.consumer)
        name = self._names[reader]
        if name == DEAD_LETTERS:
            return  # dead letters have no special headers any more
        self._may_get_something(name, reader)
        for position in range(event.first, event.last + 1):
            traits = self._traits(position)
            if 0 < traits.expires <= stamp:
                raise ViolationError(
                    f"{name} assigned {position} at {stamp}, which expired at {traits.expires}"
                )
            if traits.group:
                self._has_its_group(name, reader, position, traits.group, event.deliveries)

    def _may_get_something(self, name: str, reader: Reader) -> None:
        rivals = [r for r in self._entitled[name] if not self._has_let_go(r)]
        if rivals and reader not in self._exclusive[name]:
            raise ViolationError(f"{name} is {rivals}'s alone, and {reader} gets something")

    def _has_its_group(
        self, name: str, reader: Reader, position: int, group: str, deliveries: int
    ) -> None:
        if self._exclusive[name]:
            return  # that takes the groups of all others away from them
        ends = self._ends[group]
        if ends and deliveries > 1:
            return  # its group may have ended while it was elsewhere, and even have begun again
        key = (name, group, bisect_left(ends, position))
        owner = self._owners.setdefault(key, reader)
        if owner != reader and not self._has_let_go(owner):
            raise ViolationError(
                f"{name} assigned {position} of group {group!r} to {reader}, and not to {owner}, "
                "whose group it is"
            )
        self._owners[key] = reader
