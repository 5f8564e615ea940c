"""One replica's copy of the log: recent entries in memory, the epoch of every index.

The journal has all entries. This copy holds those that are likely to be needed again, and knows for
every index since the base which epoch wrote it: epochs come in runs, so that is a short list.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from antiphon.formats.entry import Entry


class EntryLog:
    """The entries of one replica's log: epochs of all after the base, payloads of the newest.

    Promise: epochs never fall along the log, and it has no gap. It is in memory only: an entry that
    it forgets is in the journal, or a snapshot stands for it.
    """

    def __init__(
        self, base_index: int, base_epoch: int, runs: Sequence[tuple[int, int]], last: int
    ) -> None:
        """`runs` are (first index, epoch), for the entries after the base up to `last`."""
        self.base_index = base_index
        self.base_epoch = base_epoch
        self.last = last
        self._run_starts = [start for start, _ in runs]
        self._run_epochs = [epoch for _, epoch in runs]
        self._entries: list[Entry] = []
        self.first_cached = last + 1
        self.cached_bytes = 0

    @property
    def last_epoch(self) -> int:
        """The epoch of the last entry."""
        return self._run_epochs[-1] if self._run_epochs else self.base_epoch

    def epoch_at(self, index: int) -> int | None:
        """Return the epoch of an entry; None if it is not in the log, or no longer."""
        if index == self.base_index:
            return self.base_epoch
        if not self.base_index < index <= self.last:
            return None
        return self._run_epochs[bisect_right(self._run_starts, index) - 1]

    def append(self, entries: Sequence[Entry]) -> None:
        """Add entries, which must follow the last one."""
        for entry in entries:
            assert entry.index == self.last + 1, f"a gap: {entry.index} after {self.last}"
            assert entry.epoch >= self.last_epoch, "epochs never fall along the log"
            if entry.epoch != self.last_epoch or not self._run_starts:
                self._run_starts.append(entry.index)
                self._run_epochs.append(entry.epoch)
            self.last = entry.index
            self.cached_bytes += len(entry.payload)
        self._entries.extend(entries)

    def truncate(self, first: int) -> None:
        """Drop everything from `first` on."""
        assert first > self.base_index
        while self._run_starts and self._run_starts[-1] >= first:
            self._run_starts.pop()
            self._run_epochs.pop()
        keep = max(0, first - self.first_cached)
        self.cached_bytes -= sum(len(entry.payload) for entry in self._entries[keep:])
        del self._entries[keep:]
        self.first_cached = min(self.first_cached, first)
        self.last = first - 1

    def cached(self, first: int, max_bytes: int) -> tuple[Entry, ...] | None:
        """Return entries from `first` on, at least one, up to `max_bytes`; None: not in memory."""
        if first < self.first_cached:
            return None
        start = stop = first - self.first_cached
        size = 0
        while stop < len(self._entries) and (size == 0 or size < max_bytes):
            size += len(self._entries[stop].payload) + 1
            stop += 1
        return tuple(self._entries[start:stop])

    def last_not_after(self, index: int, epoch: int) -> int:
        """Return the greatest index up to `index` whose epoch is at most `epoch`: where two logs
        may still agree. It skips a whole foreign epoch in one step."""
        index = min(index, self.last)
        run = bisect_right(self._run_starts, index) - 1
        while run >= 0 and self._run_epochs[run] > epoch:
            index = self._run_starts[run] - 1
            run -= 1
        return max(index, self.base_index)

    def forget_cached(self, upto: int, keep_bytes: int) -> None:
        """Forget payloads of entries up to `upto` while more than `keep_bytes` are in memory."""
        drop = 0
        while (
            self.cached_bytes > keep_bytes
            and drop < len(self._entries)
            and self._entries[drop].index <= upto
        ):
            self.cached_bytes -= len(self._entries[drop].payload)
            drop += 1
        del self._entries[:drop]
        self.first_cached += drop

    def compact(self, index: int) -> None:
        """Make `index` the base: the journal no longer has the entries up to it."""
        if index <= self.base_index:
            return
        epoch = self.epoch_at(index)
        assert epoch is not None, "only what is in the log can be compacted"
        self.forget_cached(index, -1)
        run = bisect_right(self._run_starts, index) - 1
        del self._run_starts[:run], self._run_epochs[:run]
        if self._run_starts:
            if index == self.last:
                self._run_starts, self._run_epochs = [], []
            else:
                self._run_starts[0] = max(self._run_starts[0], index + 1)
                if len(self._run_starts) > 1 and self._run_starts[1] == index + 1:
                    del self._run_starts[0], self._run_epochs[0]
        self.base_index, self.base_epoch = index, epoch
