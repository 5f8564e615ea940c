"""Deadlines of the state machine, in the log's time.

Promise: the next deadline is found in few steps, however many there are. A deadline that was moved
or is gone stays in the heap until its time; its owner says whether it still holds.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import NamedTuple

# The kinds of deadlines.
SESSION, SERVING, PRODUCER, GROUP, EXPIRY, DELAYED, STAGED, HELD = range(8)


class GroupKey(NamedTuple):
    """The subject of a group's deadline: one of its members, or, without a name, the group."""

    destination: str
    member: str = ""


Key = int | str | GroupKey
Deadline = tuple[int, int, Key]  # the stamp, the kind, and which one of its kind


class Deadlines:
    """A heap of deadlines, some of which may hold no longer."""

    def __init__(self) -> None:
        self._heap: list[Deadline] = []

    def __iter__(self) -> Iterator[Deadline]:
        return iter(self._heap)

    @property
    def first(self) -> Deadline | None:
        """The earliest one; None: there is none."""
        return self._heap[0] if self._heap else None

    def add(self, stamp: int, kind: int, key: Key) -> None:
        """Add a deadline at this stamp."""
        heapq.heappush(self._heap, (stamp, kind, key))

    def pop(self) -> Deadline:
        """Remove and return the earliest one. Only if there is one."""
        return heapq.heappop(self._heap)
