"""The rows of one segment's index, in memory: some fifty bytes a pack.

Rows ascend by position. The file has the same rows (`formats/journal.py`) plus checkpoints. Beside
them, for each destination, which rows are its own: a reader of one of many topics does not look at
the others.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Container, Iterator

from antiphon.formats.journal import Manifest, Row, encode_row
from antiphon.formats.protocol import LogSlice
from antiphon.model.destinations import is_pattern, matcher

NEVER = 1 << 64
FOUND_MAX = 1 << 20
"""Rows remembered for patterns with wildcards, of one segment: 4 bytes each."""


class Found:
    """The rows of all destinations that match a pattern. A reader goes on where it has been: every
    row is looked at once, and not again whenever some are read."""

    def __init__(self, pattern: str) -> None:
        self._matches = matcher(pattern)
        self._wanted = bytearray()  # by destination
        self._looked = 0  # rows that were looked at
        self.places = array("I")

    def look(self, names: list[str], destinations: array[int]) -> array[int]:
        """`destinations`: of all rows, as numbers of these names. Either only gets longer."""
        wanted = self._wanted
        if len(wanted) < len(names):
            wanted.extend(map(self._matches, names[len(wanted) :]))
        first, self._looked = self._looked, len(destinations)
        self.places.extend(at for at in range(first, self._looked) if wanted[destinations[at]])
        return self.places


class SegmentIndex:
    """The rows of one segment's accepted packs, in columns. Promise: rows ascend by position and by
    stamp, and are found without reading the segment. Rows that are not in the file yet are
    `unwritten`."""

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
        self._found: dict[str, Found] = {}  # by pattern; a cache
        self._sources: dict[int, int] = {}  # place -> entry, of packs that were stored earlier
        self._oldest_source = NEVER
        self._whole_from = 0  # no position is left out between this one and the last
        self._looked_at: Manifest | None = None  # when it was found out
        self._lost_to = 0  # that packs are missing up to this position
        self.file_size = 0
        self.unwritten: list[bytes] = []
        self.complete_to = 0  # the newest checkpoint

    def __len__(self) -> int:
        return len(self._positions)

    @property
    def last_position(self) -> int:
        """The last position of its last row."""
        return self._positions[-1] + self._counts[-1] - 1 if self._positions else 0

    def whole_from(self, manifest: Manifest, parked: Container[int]) -> int:
        """Return the first position from which on no row and no pack is missing, up to the last.
        The index has rows. `parked`: the entries before the log's base that are still there."""
        if self._looked_at is not manifest:  # the files change with the manifest only
            self._looked_at, self._lost_to = manifest, 0
            if self._oldest_source <= manifest.base_index:
                self._lost_to = self._end_of_lost(manifest.base_index, parked)
        return max(self._whole_from, self._lost_to + 1)

    def _end_of_lost(self, base: int, parked: Container[int]) -> int:
        lost = (at for at, s in self._sources.items() if s <= base and s not in parked)
        at = max(lost, default=None)
        return self._positions[at] + self._counts[at] - 1 if at is not None else 0

    def add(self, row: Row) -> None:
        """Add a new row: to memory now, to the file with the next write."""
        self.load(row)
        self.unwritten.append(encode_row(row))

    def park(self, row: Row) -> None:
        """Add a row without messages, for the file alone."""
        self.unwritten.append(encode_row(row))

    def load(self, row: Row) -> None:
        """Add a row that the file has."""
        number = self._numbers.setdefault(row.destination, len(self._names))
        if number == len(self._names):
            self._names.append(row.destination)
            self._rows_of.append(array("I"))
        self._rows_of[number].append(len(self._positions))
        if row.source:
            self._sources[len(self._positions)] = row.source
            self._oldest_source = min(self._oldest_source, row.source)
        if row.position != self.last_position + 1 or not self._positions:
            self._whole_from = row.position
        self._positions.append(row.position)
        self._counts.append(row.count)
        self._indexes.append(row.index)
        self._offsets.append(row.offset)
        self._stamps.append(row.stamp)
        self._views.append(row.view)
        self._destinations.append(number)

    def row(self, at: int) -> Row:
        """Return the row at this place."""
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
        """Yield the rows whose packs are in earlier entries."""
        return map(self.row, self._sources)

    @property
    def first_position(self) -> int:
        """The position of its first row; 0: it has none."""
        return self._positions[0] if self._positions else 0

    @property
    def destinations(self) -> list[str]:
        """Return the destinations of its rows."""
        return self._names

    def since(self, stamp: int) -> int | None:
        """Return the first position that was accepted at this time or later: stamps ascend, too."""
        at = bisect_left(self._stamps, stamp)
        return self._positions[at] if at < len(self) else None

    def find(self, position: int) -> Row | None:
        """Return the row of the pack that holds this position, or None."""
        at = bisect_right(self._positions, position) - 1
        if at < 0 or position >= self._positions[at] + self._counts[at]:
            return None
        return self.row(at)

    def rows_from(self, position: int) -> Iterator[Row]:
        """Yield the rows from this position on."""
        start = max(0, bisect_right(self._positions, position) - 1)
        for at in range(start, len(self)):
            if self._positions[at] + self._counts[at] > position:
                yield self.row(at)

    def rows_for(self, pattern: str, position: int) -> Iterator[Row]:
        """Yield the rows of the destinations that match, from this position on."""
        return map(self.row, _from(self._places_of(pattern), self._place(position)))

    def _places_of(self, pattern: str) -> array[int]:
        if not is_pattern(pattern.partition(":")[2]):
            number = self._numbers.get(pattern)
            return self._rows_of[number] if number is not None else array("I")
        if pattern not in self._found:
            if sum(len(found.places) for found in self._found.values()) > FOUND_MAX:
                self._found.clear()
            self._found[pattern] = Found(pattern)
        return self._found[pattern].look(self._names, self._destinations)

    def _place(self, position: int) -> int:
        """Return the place of the first row with messages at or after this position."""
        at = bisect_right(self._positions, position) - 1
        if at < 0 or self._positions[at] + self._counts[at] <= position:
            at += 1
        return at

    def slices(
        self, matches: Callable[[str], bool], first: int, last: int, most: int, rows: int
    ) -> tuple[list[LogSlice], int]:
        """Where messages are from `first` to `last` whose destinations match, in slices of about
        `most`; looks at that many rows, and returns the position after them, too."""
        start = self._place(first)
        stop = min(start + rows, bisect_right(self._positions, last))
        found: list[LogSlice] = []
        for number in sorted(set(self._destinations[start:stop])):
            if matches(self._names[number]):
                places = self._rows_of[number]
                own = places[bisect_left(places, start) : bisect_left(places, stop)]
                found += self._sliced(own, first, last, most)
        done = self._positions[stop - 1] + self._counts[stop - 1] if stop > start else first
        return found, max(done, first)

    def _sliced(self, places: array[int], first: int, last: int, most: int) -> Iterator[LogSlice]:
        """Yield slices of the rows at these places, which are of one destination, cut to two
        positions."""
        name = self._names[self._destinations[places[0]]]
        begin = end = messages = 0
        for at in places:
            low = max(self._positions[at], first)
            high = min(self._positions[at] + self._counts[at] - 1, last)
            if messages and messages + high - low + 1 > most:
                yield LogSlice(name, begin, end, messages)
                messages = 0
            if not messages:
                begin = low
            end = high
            messages += high - low + 1
        yield LogSlice(name, begin, end, messages)

    def touches(self, first: int, last: int) -> bool:
        """Return whether a pack of this segment holds one of these positions."""
        if not self._positions or self.last_position < first:
            return False
        at = bisect_left(self._positions, first)
        if at > 0 and self._positions[at - 1] + self._counts[at - 1] > first:
            return True
        return at < len(self) and self._positions[at] <= last


def _from(places: array[int], start: int) -> Iterator[int]:
    for at in range(bisect_left(places, start), len(places)):
        yield places[at]
