"""Lanes: the messages of a queue that no consumer has, one lane a priority.

Promises: a lane returns its messages in the order of their positions, including those that came
back; plain messages, which come in order, cost one span a pack, however many there are.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import msgspec

from antiphon.broker.machine.ranges import Span, Spans
from antiphon.formats.columns import PRIORITY


class Special(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Headers by which a message does not simply wait for its turn."""

    priority: int = PRIORITY
    expires: int = 0  # a stamp; 0: never
    group: str = ""
    closes: bool = False  # it is the last of its group


PLAIN = Special()


class Lane:
    """The messages of one priority that no consumer has."""

    def __init__(self) -> None:
        self.fresh: deque[Span] = deque()  # plain ones, as they came
        self.sorted = Spans()  # special ones, and all that came back
        self.count = 0

    def append(self, first: int, last: int) -> None:
        """Add plain messages, which come after all others."""
        self.fresh.append((first, last, 0))
        self.count += last - first + 1

    def add(self, first: int, last: int, deliveries: int) -> None:
        """Add special messages, or messages that came back."""
        self.sorted.add(first, last, deliveries)
        self.count += last - first + 1

    @property
    def first(self) -> int:
        """Return the position that is next. Only if there is one."""
        if not self.fresh:
            return self.sorted.first
        fresh = self.fresh[0][0]
        return min(fresh, self.sorted.first) if self.sorted else fresh

    def take(self, most: int) -> Span:
        """Remove and return the next messages. Only if there are some."""
        if self.fresh and self.first == self.fresh[0][0]:
            first, last, deliveries = self.fresh.popleft()
            upto = min(last, first + most - 1)
            if upto < last:
                self.fresh.appendleft((upto + 1, last, deliveries))
            taken = (first, upto, deliveries)
        else:
            found = self.sorted.take_first(most)
            assert found is not None
            taken = found
        self.count -= taken[1] - taken[0] + 1
        return taken

    def remove(self, first: int, last: int) -> list[Span]:
        """Remove and return the messages in this range, whatever their turn."""
        while self.fresh and self.fresh[0][0] <= last:
            self.sorted.add(*self.fresh.popleft())
        return self.remove_special(first, last)

    def remove_special(self, first: int, last: int) -> list[Span]:
        """Remove and return the special messages in this range."""
        taken = self.sorted.take(first, last)
        self.count -= sum(high - low + 1 for low, high, _ in taken)
        return taken

    def spans(self) -> Iterator[Span]:
        """Return all messages, in no order."""
        yield from self.sorted
        yield from self.fresh

    def after(self, position: int) -> Iterator[Span]:
        """Return the messages beyond a position, in no order, without looking at those before
        it."""
        if self.sorted.last > position:
            yield from self.sorted.between(position + 1, self.sorted.last)
        for first, last, deliveries in reversed(self.fresh):
            if last <= position:
                return
            yield max(first, position + 1), last, deliveries
