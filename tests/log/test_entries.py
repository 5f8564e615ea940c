"""`EntryLog` against the plainest log there is: a list of entries."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from antiphon.formats.entry import Entry, Kind
from antiphon.log.entries import EntryLog


class LogMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.base = (0, 0)
        self.entries: list[Entry] = []
        self.first_cached = 1
        self.log = EntryLog(0, 0, (), 0)

    # -- The list's answers --------------------------------------------------------------------

    @property
    def last(self) -> int:
        return self.base[0] + len(self.entries)

    def epoch_at(self, index: int) -> int | None:
        if index == self.base[0]:
            return self.base[1]
        known = {entry.index: entry.epoch for entry in self.entries}
        return known.get(index)

    def cached(self) -> list[Entry]:
        return [e for e in self.entries if e.index >= self.first_cached]

    # -- What is done to both ------------------------------------------------------------------

    @initialize(base=st.integers(0, 3), epochs=st.lists(st.integers(0, 2), max_size=6))
    def recover(self, base: int, epochs: list[int]) -> None:
        """A log read back from a journal knows epochs, and has nothing in memory."""
        self.base = (base, 1 if base else 0)
        epoch = self.base[1]
        for index, more in enumerate(epochs, start=base + 1):
            epoch += more
            self.entries.append(Entry(index, epoch, 0, Kind.PACK, bytes(index % 4)))
        self.first_cached = self.last + 1
        before = [self.base[1] if base else -1, *(e.epoch for e in self.entries)]
        # A run may begin with the epoch of the base, or go on with it: both are told as a run.
        runs = [
            (e.index, e.epoch)
            for at, e in enumerate(self.entries)
            if at == 0 or e.epoch != before[at]
        ]
        self.log = EntryLog(*self.base, runs, self.last)

    @rule(sizes=st.lists(st.integers(0, 5), max_size=4), more=st.integers(0, 2))
    def append(self, sizes: list[int], more: int) -> None:
        epoch = max(1, self.epoch_at(self.last) or 0) + more
        new = [
            Entry(self.last + 1 + at, epoch, 0, Kind.PACK, bytes(size))
            for at, size in enumerate(sizes)
        ]
        self.log.append(new)
        self.entries += new

    @rule(back=st.integers(0, 6))
    def truncate(self, back: int) -> None:
        first = max(self.base[0], self.last - back) + 1
        self.log.truncate(first)
        self.entries = [e for e in self.entries if e.index < first]
        self.first_cached = min(self.first_cached, first)

    @rule(back=st.integers(-1, 6), keep_bytes=st.integers(0, 12))
    def forget(self, back: int, keep_bytes: int) -> None:
        upto = self.last - back
        self.log.forget_cached(upto, keep_bytes)
        while sum(len(e.payload) for e in self.cached()) > keep_bytes and (
            self.first_cached <= min(upto, self.last)
        ):
            self.first_cached += 1

    @rule(back=st.integers(0, 8))
    def compact(self, back: int) -> None:
        index = self.last - back
        epoch = self.epoch_at(index)
        if epoch is None:
            index, epoch = self.base
        self.log.compact(index)
        self.base = (index, epoch)
        self.entries = [e for e in self.entries if e.index > index]
        self.first_cached = max(self.first_cached, index + 1)

    @rule(ahead=st.integers(0, 3))
    def install(self, ahead: int) -> None:
        self.base = (self.last + ahead, (self.epoch_at(self.last) or 0) + 1)
        self.log = EntryLog(*self.base, (), self.base[0])
        self.entries = []
        self.first_cached = self.last + 1

    # -- They agree ----------------------------------------------------------------------------

    @rule(back=st.integers(0, 8), max_bytes=st.integers(1, 12))
    def read_cached(self, back: int, max_bytes: int) -> None:
        first = max(1, self.last + 1 - back)
        if first < self.first_cached:
            assert self.log.cached(first, max_bytes) is None
            return
        expected: list[Entry] = []
        for entry in self.entries:
            # An entry without payload costs a byte, so that there is an end to them as well.
            cost = sum(len(e.payload) + 1 for e in expected)
            if entry.index >= first and (not expected or cost < max_bytes):
                expected.append(entry)
        assert self.log.cached(first, max_bytes) == tuple(expected)

    @rule(index=st.integers(0, 30), epoch=st.integers(0, 12))
    def where_logs_may_agree(self, index: int, epoch: int) -> None:
        candidates = [
            i
            for i in range(self.base[0], min(index, self.last) + 1)
            if (self.epoch_at(i) or 0) <= epoch
        ]
        assert self.log.last_not_after(index, epoch) == max(candidates, default=self.base[0])

    @invariant()
    def same_log(self) -> None:
        log = self.log
        assert (log.base_index, log.base_epoch) == self.base
        assert (log.last, log.last_epoch) == (self.last, self.epoch_at(self.last))
        assert [log.epoch_at(i) for i in range(self.last + 3)] == [
            self.epoch_at(i) for i in range(self.last + 3)
        ]
        assert log.first_cached == self.first_cached
        assert log.cached_bytes == sum(len(e.payload) for e in self.cached())


TestLog = LogMachine.TestCase
TestLog.settings = settings(max_examples=150, stateful_step_count=30, derandomize=True)
