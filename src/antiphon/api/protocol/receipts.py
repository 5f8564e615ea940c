"""Receipts: a record of what has arrived for one consumer, so that no message is taken twice, and a
server learns after a lost connection where to go on (`protocol.Seen`).

A topic's messages arrive in the order of their positions, so one number is enough; so do the events
of a group. Those of a queue come in any order; *held* are those that arrived and are not known to
be acknowledged. A failed message may come again before the answer to its failure: so it is not
reported to servers as held, and another delivery of it is known by its count.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable

from antiphon.formats.protocol import FAILED, AckRow, Seen

Range = tuple[int, int]


class Ranges:
    """Sorted, disjoint ranges of positions."""

    def __init__(self, ranges: Iterable[Range] = ()) -> None:
        self._ranges = list(ranges)

    def as_tuple(self) -> tuple[Range, ...]:
        return tuple(self._ranges)

    def add(self, first: int, last: int) -> None:
        """Add this range; ranges that it touches become one with it."""
        ranges = self._ranges
        begin = self._at(first - 1)
        end = begin
        while end < len(ranges) and ranges[end][0] <= last + 1:
            first, last = min(first, ranges[end][0]), max(last, ranges[end][1])
            end += 1
        ranges[begin:end] = [(first, last)]

    def remove(self, first: int, last: int) -> None:
        ranges = self._ranges
        begin = end = self._at(first)
        rest: list[Range] = []
        while end < len(ranges) and ranges[end][0] <= last:
            low, high = ranges[end]
            if low < first:
                rest.append((low, first - 1))
            if high > last:
                rest.append((last + 1, high))
            end += 1
        ranges[begin:end] = rest

    def missing(self, first: int, last: int) -> list[Range]:
        """Return the parts of this range that are not in here."""
        found: list[Range] = []
        for at in range(self._at(first), len(self._ranges)):
            low, high = self._ranges[at]
            if low > last:
                break
            if first < low:
                found.append((first, low - 1))
            first = high + 1
        if first <= last:
            found.append((first, last))
        return found

    def _at(self, position: int) -> int:
        """Return the index of the first range that ends at or after this position."""
        return bisect_left(self._ranges, position, key=lambda r: r[1])


class TopicReceipts:
    """Receipts of a consumer that gets messages, and events, in the order of their positions."""

    def __init__(self, consumer: int) -> None:
        self._consumer = consumer
        self._position = 0
        self._event = 0  # of a group: its events up to here have arrived

    def new_event(self, serial: int) -> bool:
        """Return whether this event is new, and record it."""
        is_new = serial > self._event
        self._event = max(self._event, serial)
        return is_new

    def new(self, first: int, last: int, deliveries: int) -> list[Range]:
        """Return which of these messages are new, and record them."""
        first = max(first, self._position + 1)
        self._position = max(self._position, last)
        return [(first, last)] if first <= last else []

    def failed(self, first: int, last: int, deliveries: int) -> None:
        pass  # only a queue's

    def acknowledged(self, row: AckRow) -> None:
        pass  # a message that was here once does not come again

    def seen(self) -> Seen:
        return Seen(self._consumer, self._position, (), self._event)


class QueueReceipts:
    """Receipts of a consumer that shares its messages with others, and gets its part in any
    order."""

    def __init__(self, consumer: int) -> None:
        self._consumer = consumer
        self._held = Ranges()
        self._failed: dict[int, int] = {}  # held and failed: position -> which delivery it was

    def new(self, first: int, last: int, deliveries: int) -> list[Range]:
        if self._failed and deliveries > 1:
            for position in range(first, last + 1):
                if self._failed.get(position, deliveries) < deliveries:
                    self._let_go(position)
        found = self._held.missing(first, last)
        self._held.add(first, last)
        return found

    def failed(self, first: int, last: int, deliveries: int) -> None:
        """Record that these messages failed: they may come again."""
        self._failed.update((position, deliveries) for position in range(first, last + 1))

    def acknowledged(self, row: AckRow) -> None:
        if row.kind != FAILED:
            self._held.remove(row.first, row.last)
            return
        for position in range(row.first, row.last + 1):
            if self._failed.get(position) == row.deliveries:  # it has not come again meanwhile
                self._let_go(position)

    def _let_go(self, position: int) -> None:
        del self._failed[position]
        self._held.remove(position, position)

    def seen(self) -> Seen:
        held = Ranges(self._held.as_tuple())
        for position in self._failed:
            held.remove(position, position)
        return Seen(self._consumer, 0, held.as_tuple())


Receipts = TopicReceipts | QueueReceipts
