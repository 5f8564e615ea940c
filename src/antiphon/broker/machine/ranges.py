"""Sorted ranges of positions, each with a value for all its messages: mostly, how often they were
delivered.

A range costs the same whether it holds one message or a million, which is why the state machine
knows ranges and never messages.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import Generic, TypeVar

Span = tuple[int, int, int]  # first, last, deliveries
Range = tuple[int, int]
Value = TypeVar("Value")


class Ranges(Generic[Value]):
    """Disjoint, ascending ranges with values. Neighbours with equal values are one: cutting leaves
    no crumbs."""

    def __init__(self, spans: Iterable[tuple[int, int, Value]] = ()) -> None:
        self._spans: list[tuple[int, int, Value]] = list(spans)
        self.count = sum(last - first + 1 for first, last, _ in self._spans)  # of messages

    def __iter__(self) -> Iterator[tuple[int, int, Value]]:
        return iter(self._spans)

    def __len__(self) -> int:
        return len(self._spans)

    @property
    def last(self) -> int:
        """The last position in here; 0: there is none."""
        return self._spans[-1][1] if self._spans else 0

    @property
    def first(self) -> int:
        """The first position in here; 0: there is none."""
        return self._spans[0][0] if self._spans else 0

    def add(self, first: int, last: int, value: Value) -> None:
        """Add a range that is not in here yet."""
        spans = self._spans
        self.count += last - first + 1
        if spans and spans[-1][1] + 1 == first and spans[-1][2] == value:
            spans[-1] = (spans[-1][0], last, value)
        elif not spans or spans[-1][1] < first:
            spans.append((first, last, value))
        else:
            self._put(first, last, value)

    def _put(self, first: int, last: int, value: Value) -> None:
        """Insert a range, joined with its neighbours if they have the same value."""
        spans = self._spans
        begin = end = bisect_right(spans, first, key=lambda span: span[0])
        if begin > 0 and spans[begin - 1][1:] == (first - 1, value):
            begin -= 1
            first = spans[begin][0]
        if end < len(spans) and (spans[end][0], spans[end][2]) == (last + 1, value):
            last = spans[end][1]
            end += 1
        spans[begin:end] = [(first, last, value)]

    def take(self, first: int, last: int) -> list[tuple[int, int, Value]]:
        """Remove and return the parts that lie in this range."""
        spans = self._spans
        begin = self._at(first)
        end = begin
        taken: list[tuple[int, int, Value]] = []
        rest: list[tuple[int, int, Value]] = []
        while end < len(spans) and spans[end][0] <= last:
            low, high, value = spans[end]
            taken.append((max(low, first), min(high, last), value))
            if low < first:
                rest.append((low, first - 1, value))
            if high > last:
                rest.append((last + 1, high, value))
            end += 1
        if taken:
            spans[begin:end] = rest
            self.count -= sum(high - low + 1 for low, high, _ in taken)
        return taken

    def take_first(self, most: int) -> tuple[int, int, Value] | None:
        """Remove and return a range from the lower end, of `most` messages at most."""
        if not self._spans:
            return None
        first, last, _ = self._spans[0]
        return self.take(first, min(last, first + most - 1))[0]

    def clear(self) -> list[tuple[int, int, Value]]:
        spans, self._spans, self.count = self._spans, [], 0
        return spans

    def of(self, position: int) -> Value | None:
        """Return the value of the range that holds this position; None: none does."""
        at = self._at(position)
        if at < len(self._spans) and self._spans[at][0] <= position:
            return self._spans[at][2]
        return None

    def run(self, position: int) -> tuple[Value | None, int | None]:
        """Return the value at a position, and the last position up to which it is the same. A value
        of None: no range holds the position; an end of None: there is no range beyond it."""
        at = self._at(position)
        if at == len(self._spans):
            return None, None
        first, last, value = self._spans[at]
        return (value, last) if first <= position else (None, first - 1)

    def between(self, first: int, last: int) -> list[tuple[int, int, Value]]:
        """Return the parts that lie in this range."""
        found = []
        for at in range(self._at(first), len(self._spans)):
            low, high, value = self._spans[at]
            if low > last:
                break
            found.append((max(low, first), min(high, last), value))
        return found

    def gaps(self, first: int, last: int) -> list[Range]:
        """Return the parts of this range that are not in here."""
        found = []
        for low, high, _ in self.between(first, last):
            if first < low:
                found.append((first, low - 1))
            first = high + 1
        return [*found, (first, last)] if first <= last else found

    def _at(self, position: int) -> int:
        """Return the index of the first range that ends at or after this position."""
        at = bisect_right(self._spans, position, key=lambda span: span[0])
        return at - 1 if at > 0 and self._spans[at - 1][1] >= position else at


class Spans(Ranges[int]):
    """Ranges with the count of deliveries of their messages."""

    def deliveries(self, position: int) -> int:
        """Return how often this message was delivered; 0: it is not in here."""
        return self.of(position) or 0


SPANS_MAX = 1024


def coarse(ranges: Iterable[Range]) -> tuple[Range, ...]:
    """Return the same positions, and perhaps some between them, in at most `SPANS_MAX` ranges:
    enough for deciding which segments are still needed."""
    gap = 1
    rest = sorted(ranges)
    while True:
        merged: list[Range] = []
        for first, last in rest:
            if merged and first - merged[-1][1] <= gap:
                merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
            else:
                merged.append((first, last))
        if len(merged) <= SPANS_MAX:
            return tuple(merged)
        rest, gap = merged, gap * 8
