"""How the messages of queues and shared subscriptions are divided, judged at each assignment.

Nothing that has expired is assigned; while an exclusive consumer is open, nobody else gets
anything; the messages of a `JMSXGroupID` are otherwise for one consumer as long as it is there, or
until a message says that it is the last of its group.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

from antiphon.broker import events as ev
from antiphon.formats.destination import DEAD_LETTERS
from antiphon.sim.checks import ViolationError
from antiphon.sim.special import Traits

Reader = tuple[int, int]  # session and consumer


class Division:
    def __init__(
        self, traits: Callable[[int], Traits], has_let_go: Callable[[Reader], bool]
    ) -> None:
        """`has_let_go`: whether a consumer is gone, or was told to be."""
        self._traits = traits
        self._has_let_go = has_let_go
        self._names: dict[Reader, str] = {}  # what each consumer gets a part of
        self._exclusive: dict[str, set[Reader]] = defaultdict(set)  # that asked to be
        self._entitled: dict[str, set[Reader]] = defaultdict(set)  # and know that they are open
        self._owners: dict[tuple[str, str], Reader] = {}  # by name and group
        self._closed: dict[str, int] = {}  # group -> its first message that was to be the last

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
            self._closed.setdefault(traits.group, position)

    def assigned(self, event: ev.Assigned, stamp: int) -> None:
        reader = (event.session, event.consumer)
        name = self._names[reader]
        if name == DEAD_LETTERS:
            return  # nothing about these is special any more
        self._may_get_something(name, reader)
        for position in range(event.first, event.last + 1):
            traits = self._traits(position)
            if 0 < traits.expires <= stamp:
                raise ViolationError(
                    f"{name} assigned {position} at {stamp}, which expired at {traits.expires}"
                )
            if traits.group:
                free = self._is_free(traits.group, position, event.deliveries)
                free = free or reader in self._exclusive[name]
                self._has_its_group(name, reader, position, traits.group, free)

    def _may_get_something(self, name: str, reader: Reader) -> None:
        rivals = [r for r in self._entitled[name] if not self._has_let_go(r)]
        if rivals and reader not in self._exclusive[name]:
            raise ViolationError(f"{name} is {rivals}'s alone, and {reader} gets something")

    def _is_free(self, group: str, position: int, deliveries: int) -> bool:
        """A message may have ended it, before this one or while this one was elsewhere."""
        last = self._closed.get(group)
        return last is not None and (last < position or deliveries > 1)

    def _has_its_group(
        self, name: str, reader: Reader, position: int, group: str, free: bool
    ) -> None:
        owner = self._owners.setdefault((name, group), reader)
        if owner != reader and not free and not self._has_let_go(owner):
            raise ViolationError(
                f"{name} assigned {position} of group {group!r} to {reader}, and not to {owner}, "
                "whose group it is"
            )
        self._owners[name, group] = reader
