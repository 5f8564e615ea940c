"""Reading a journal: entries by index for servers that lag, packs by position for readers.

Promises: a pack that was accepted lately is read from memory; the packs in memory are bounded
(`CACHE_BYTES`); damage raises `JournalDamagedError`, and is never returned as a pack.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Callable
from itertools import islice

from antiphon.formats import journal as f
from antiphon.formats.entry import Entry
from antiphon.formats.protocol import LogSlice
from antiphon.journal.disk import Disk
from antiphon.journal.segments import OFFSET_BITS, OFFSET_MASK, Segment, Segments

CACHE_BYTES = 32 << 20
"""Packs that were accepted or read last stay in memory, up to this many bytes; the very last one
stays even if it is larger."""


class Reading(Segments):
    """Segments that can be read by index and by position, with the newest packs in memory."""

    def __init__(self, disk: Disk, manifest: f.Manifest, segment_bytes: int) -> None:
        super().__init__(disk, manifest, segment_bytes)
        self._cache: OrderedDict[int, bytes] = OrderedDict()
        self._cache_bytes = 0

    def entries(self, first: int, max_bytes: int) -> tuple[Entry, ...]:
        """Return entries from `first` on, at least one if it is there, up to `max_bytes`. One that
        has no room behind others is not read: it may be large, and perhaps it need not be."""
        found: list[Entry] = []
        room = max_bytes
        for index in range(max(first, self.manifest.base_index + 1), self.last + 1):
            if room <= 0 or (index != first and not found):
                break
            where = self._where[index - self.manifest.base_index - 1]
            most = room if found else sys.maxsize
            entry = self._entry_within(where >> OFFSET_BITS, where & OFFSET_MASK, most)
            if entry is None:
                break
            found.append(entry)
            room -= len(entry.payload) + 1
        return tuple(found)

    def pack(self, position: int) -> tuple[f.Row, bytes] | None:
        """Return the pack that holds this position; None: it was not accepted, or is gone."""
        for segment in reversed(self.segments):
            row = segment.index.find(position)
            if row is not None:
                return (row, self._payload(segment, row)) if self._has_pack(row) else None
        return None

    def rows(self, first: int, most: int) -> list[f.Row]:
        """Return rows of the index from position `first` on."""
        found: list[f.Row] = []
        for segment in self.segments:
            if segment.index.last_position >= first and len(found) < most:
                rows = filter(self._has_pack, segment.index.rows_from(first))
                found += islice(rows, most - len(found))
        return found

    def rows_for(self, pattern: str, first: int, most: int) -> list[f.Row]:
        """Return rows from position `first` on whose destinations match the pattern
        (`model/destinations.py`)."""
        found: list[f.Row] = []
        for segment in self.segments:
            if segment.index.last_position >= first and len(found) < most:
                rows = filter(self._has_pack, segment.index.rows_for(pattern, first))
                found += islice(rows, most - len(found))
        return found

    def whole_from(self, upto: int) -> int:
        """Return the first position from which on every pack is here, up to `upto`, the one that
        was accepted last."""
        whole = upto + 1
        for segment in reversed(self.segments):
            index = segment.index
            if not len(index):
                continue
            if index.last_position < whole - 1:
                break  # others were between this segment and the next
            whole = index.whole_from(self.manifest, self.parked)
            if whole > index.first_position:
                break
        return whole

    def position_at(self, stamp: int) -> int | None:
        """Return the first position here that was accepted at this stamp or later, or None."""
        found = (segment.index.since(stamp) for segment in self.segments)
        return next((position for position in found if position is not None), None)

    def slices(
        self, matches: Callable[[str], bool], first: int, last: int, most: int, rows: int
    ) -> tuple[list[LogSlice], int]:
        """Return where messages are whose destinations match (`SegmentIndex.slices`), and where to
        continue. It looks at `rows` rows of one segment at most."""
        for segment in self.segments:
            if len(segment.index) and segment.index.last_position >= first:
                found, following = segment.index.slices(matches, first, last, most, rows)
                if following > first:
                    return found, following
        return [], last + 1

    def payload(self, row: f.Row) -> bytes:
        """Return the pack of a row to a reader that reads much, and once: it is not remembered."""
        if (payload := self._cache.get(row.position)) is not None:
            return payload
        holders = (s for s in reversed(self.segments) if len(s.index))
        segment = next(s for s in holders if s.index.first_position <= row.position)
        return self._entry_of(segment, row).payload

    def remember(self, position: int, payload: bytes) -> None:
        """Keep a pack in memory that was just accepted, and will probably be read soon."""
        if position not in self._cache:
            self._cache[position] = payload
            self._cache_bytes += len(payload)
            self._bound_cache()

    def forget_packs(self) -> None:
        """Keep no pack in memory: the next readers read from the disk."""
        self._cache.clear()
        self._cache_bytes = 0

    def fresh(self, position: int) -> bytes | None:
        """Return the pack that begins at this position, if it is remembered."""
        return self._cache.get(position)

    def _payload(self, segment: Segment, row: f.Row) -> bytes:
        payload = self._cache.get(row.position)
        if payload is None:
            payload = self._entry_of(segment, row).payload
            self._cache_bytes += len(payload)
        self._cache[row.position] = payload
        self._cache.move_to_end(row.position)
        self._bound_cache()
        return payload

    def _bound_cache(self) -> None:
        while self._cache_bytes > CACHE_BYTES and len(self._cache) > 1:
            self._cache_bytes -= len(self._cache.popitem(last=False)[1])
