"""Sorted ranges of positions, each with how often its messages were delivered.

A range costs the same whether it holds one message or a million, which is why the state machine
knows ranges and never messages.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator

Span = tuple[int, int, int]  # first, last, deliveries
Range = tuple[int, int]


class Spans:
    """Disjoint, ascending. Neighbours that are alike are one: cutting leaves no crumbs."""

    def __init__(self, spans: Iterable[Span] = ()) -> None:
        self._spans: list[Span] = list(spans)
        self.count = sum(last - first + 1 for first, last, _ in self._spans)  # of messages

    def __iter__(self) -> Iterator[Span]:
        return iter(self._spans)

    def __len__(self) -> int:
        return len(self._spans)

    @property
    def last(self) -> int:
        """The last position in here; 0: there is none."""
        return self._spans[-1][1] if self._spans else 0

    def add(self, first: int, last: int, deliveries: int) -> None:
        """A range that is not in here yet."""
        spans = self._spans
        self.count += last - first + 1
        if spans and spans[-1][1] + 1 == first and spans[-1][2] == deliveries:
            spans[-1] = (spans[-1][0], last, deliveries)
        elif not spans or spans[-1][1] < first:
            spans.append((first, last, deliveries))
        else:
            self._put(first, last, deliveries)

    def _put(self, first: int, last: int, deliveries: int) -> None:
        """In between, joined with its neighbours if they are alike."""
        spans = self._spans
        begin = end = bisect_right(spans, first, key=lambda span: span[0])
        if begin > 0 and spans[begin - 1][1:] == (first - 1, deliveries):
            begin -= 1
            first = spans[begin][0]
        if end < len(spans) and (spans[end][0], spans[end][2]) == (last + 1, deliveries):
            last = spans[end][1]
            end += 1
        spans[begin:end] = [(first, last, deliveries)]

    def take(self, first: int, last: int) -> list[Span]:
        """Remove whatever lies in this range, and return it."""
        spans = self._spans
        begin = self._at(first)
        end = begin
        taken: list[Span] = []
        rest: list[Span] = []
        while end < len(spans) and spans[end][0] <= last:
            one, two, deliveries = spans[end]
            taken.append((max(one, first), min(two, last), deliveries))
            if one < first:
                rest.append((one, first - 1, deliveries))
            if two > last:
                rest.append((last + 1, two, deliveries))
            end += 1
        if taken:
            spans[begin:end] = rest
            self.count -= sum(two - one + 1 for one, two, _ in taken)
        return taken

    def take_first(self, most: int) -> Span | None:
        """Remove and return a range from the lower end, of `most` messages at most."""
        if not self._spans:
            return None
        first, last, _ = self._spans[0]
        return self.take(first, min(last, first + most - 1))[0]

    def clear(self) -> list[Span]:
        spans, self._spans, self.count = self._spans, [], 0
        return spans

    def deliveries(self, position: int) -> int:
        """Of the range that holds this position; 0: none does."""
        at = self._at(position)
        if at < len(self._spans) and self._spans[at][0] <= position:
            return self._spans[at][2]
        return 0

    def between(self, first: int, last: int) -> list[Span]:
        """The parts that lie in this range."""
        found = []
        for at in range(self._at(first), len(self._spans)):
            one, two, deliveries = self._spans[at]
            if one > last:
                break
            found.append((max(one, first), min(two, last), deliveries))
        return found

    def _at(self, position: int) -> int:
        """The first range that ends at or after this position."""
        at = bisect_right(self._spans, position, key=lambda span: span[0])
        return at - 1 if at > 0 and self._spans[at - 1][1] >= position else at


SPANS_MAX = 1024


def coarse(ranges: Iterable[Range]) -> tuple[Range, ...]:
    """The same positions and perhaps some between them, in at most `SPANS_MAX` ranges: enough for
    deciding which segments are still needed."""
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
