"""The rows of one segment's index, in memory: some fifty bytes a pack.

Rows ascend by position. The file has the same rows (`formats/journal.py`) plus checkpoints. Beside
them, for each destination, which rows are its own: who reads one of many topics does not look at
the others.
"""

from __future__ import annotations

import heapq
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from antiphon.formats.destination import is_pattern, matcher
from antiphon.formats.journal import Row, encode_row


class SegmentIndex:
    def __init__(self) -> None:
        self._positions = array("Q")
        self._counts = array("I")
        self._indexes = array("Q")
        self._offsets = array("Q")
        self._stamps = array("Q")
        self._views = array("Q")
        self._destinations = array("I")
        self._names: list[str] = []  # destinations in this segment
        self._numbers: dict[str, int] = {}
        self._rows_of: list[array[int]] = []  # by destination: places of its rows
        self._sources: dict[int, int] = {}  # place -> entry, of packs that were stored earlier
        self.file_size = 0
        self.unwritten: list[bytes] = []
        self.complete_to = 0  # the newest checkpoint

    def __len__(self) -> int:
        return len(self._positions)

    @property
    def last_position(self) -> int:
        return self._positions[-1] + self._counts[-1] - 1 if self._positions else 0

    def add(self, row: Row) -> None:
        """A row that is new: in memory now, in the file with the next write."""
        self.load(row)
        self.unwritten.append(encode_row(row))

    def park(self, row: Row) -> None:
        """A row without messages, for the file alone."""
        self.unwritten.append(encode_row(row))

    def load(self, row: Row) -> None:
        """A row that the file has."""
        number = self._numbers.setdefault(row.destination, len(self._names))
        if number == len(self._names):
            self._names.append(row.destination)
            self._rows_of.append(array("I"))
        self._rows_of[number].append(len(self._positions))
        if row.source:
            self._sources[len(self._positions)] = row.source
        self._positions.append(row.position)
        self._counts.append(row.count)
        self._indexes.append(row.index)
        self._offsets.append(row.offset)
        self._stamps.append(row.stamp)
        self._views.append(row.view)
        self._destinations.append(number)

    def row(self, at: int) -> Row:
        return Row(
            self._indexes[at],
            self._positions[at],
            self._counts[at],
            self._offsets[at],
            self._stamps[at],
            self._views[at],
            self._names[self._destinations[at]],
            self._sources.get(at, 0),
        )

    def late_rows(self) -> Iterator[Row]:
        """Those whose packs are in earlier entries."""
        return map(self.row, self._sources)

    @property
    def first_position(self) -> int:
        """0: there are no rows."""
        return self._positions[0] if self._positions else 0

    @property
    def destinations(self) -> list[str]:
        return self._names

    def since(self, stamp: int) -> int | None:
        """The first position that was accepted at this time or later: stamps ascend, too."""
        at = bisect_left(self._stamps, stamp)
        return self._positions[at] if at < len(self) else None

    def find(self, position: int) -> Row | None:
        """The row of the pack that holds this position."""
        at = bisect_right(self._positions, position) - 1
        if at < 0 or position >= self._positions[at] + self._counts[at]:
            return None
        return self.row(at)

    def rows_from(self, position: int) -> Iterator[Row]:
        start = max(0, bisect_right(self._positions, position) - 1)
        for at in range(start, len(self)):
            if self._positions[at] + self._counts[at] > position:
                yield self.row(at)

    def rows_for(self, pattern: str, position: int) -> Iterator[Row]:
        """Rows of the destinations that match, from this position on."""
        start = bisect_right(self._positions, position) - 1
        if start < 0 or self._positions[start] + self._counts[start] <= position:
            start += 1
        # Each destination's places ascend, so merged they do too.
        return map(self.row, heapq.merge(*(_from(p, start) for p in self._matching(pattern))))

    def _matching(self, pattern: str) -> Iterator[array[int]]:
        if not is_pattern(pattern.partition(":")[2]):
            if (number := self._numbers.get(pattern)) is not None:
                yield self._rows_of[number]
            return
        matches = matcher(pattern)
        for name, number in self._numbers.items():
            if matches(name):
                yield self._rows_of[number]

    def touches(self, first: int, last: int) -> bool:
        """Whether a pack of this segment holds one of these positions."""
        if not self._positions or self.last_position < first:
            return False
        at = bisect_left(self._positions, first)
        if at > 0 and self._positions[at - 1] + self._counts[at - 1] > first:
            return True
        return at < len(self) and self._positions[at] <= last


def _from(places: array[int], start: int) -> Iterator[int]:
    for at in range(bisect_left(places, start), len(places)):
        yield places[at]
