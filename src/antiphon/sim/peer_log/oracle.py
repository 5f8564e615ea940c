"""The oracle of simulated logs over channels: the rules that hold at every step.

It knows what all processes have taken, also those that are dead.
"""

from __future__ import annotations

from typing import NamedTuple

from crc32c import crc32c

from antiphon.formats.entry import Entry
from antiphon.log.effects import Applied
from antiphon.model.peer_views import MemberId
from antiphon.sim.violations import ViolationError

FAST = 1.05
"""The log's time goes at most this much faster than time does: 2 % are right..."""
AHEAD_MS = 100
"""... beside what its steps, of a millisecond each, and the delays of messages add up to."""


class Taken(NamedTuple):
    """An entry as the first process that took it has it."""

    epoch: int
    stamp: int
    kind: int
    checksum: int


class Oracle:
    """Judges what each process takes against what all of them have taken before. Raise
    `ViolationError` at the step that breaks a promise."""

    def __init__(self) -> None:
        self.entries: list[Taken] = []
        self.applied = self.taken_over = self.reads = self.relays = 0
        self.leavers: set[MemberId] = set()
        self._digests: dict[int, int] = {}
        self._indexes: dict[MemberId, int] = {}
        self._began: tuple[int, int] | None = None  # when the first stamp was taken, and that

    def started(self, process: object) -> None:
        """A process has nothing before it has taken something over."""

    def ended(self, me: MemberId, crashed: bool) -> None:
        """What it has taken counts on."""

    def took(self, me: MemberId, effect: Applied, now_ms: int) -> None:
        """A process has taken these entries."""
        for entry in effect.entries:
            self._take(me, entry, now_ms)
        self._compare(me, self._indexes[me], effect.digest)

    def _take(self, me: MemberId, entry: Entry, now_ms: int) -> None:
        if entry.index != self._indexes.get(me, 0) + 1:
            raise ViolationError(f"order: {me} takes {entry.index} after {self._indexes.get(me)}")
        self._indexes[me] = entry.index
        taken = Taken(entry.epoch, entry.stamp, entry.kind, crc32c(entry.payload))
        if entry.index <= len(self.entries):
            if self.entries[entry.index - 1] != taken:
                known = self.entries[entry.index - 1]
                raise ViolationError(
                    f"one log: entry {entry.index} is {known}, and {taken} at {me}"
                )
            return
        if entry.index != len(self.entries) + 1:
            raise ViolationError(f"no gap: {me} takes {entry.index} after {len(self.entries)}")
        before = self.entries[-1] if self.entries else Taken(0, 0, 0, 0)
        if taken.stamp < before.stamp or taken.epoch < before.epoch:
            raise ViolationError(f"time: {taken} follows {before}")
        self._look_at_time(taken.stamp, now_ms)
        self.entries.append(taken)
        self.applied += 1

    def _look_at_time(self, stamp: int, now_ms: int) -> None:
        if not stamp:
            return
        began_ms, first = self._began = self._began or (now_ms, stamp)
        if stamp - first > (now_ms - began_ms) * FAST + AHEAD_MS:
            raise ViolationError(f"time: {stamp - first} ms have passed in {now_ms - began_ms} ms")

    def restored(self, me: MemberId, index: int, digest: int) -> None:
        """A process has taken a state over."""
        if index < self._indexes.get(me, 0):
            raise ViolationError(f"back: {me} goes back from {self._indexes[me]} to {index}")
        self._indexes[me] = index
        self.taken_over += 1
        if index:
            self._compare(me, index, digest)

    def _compare(self, me: MemberId, index: int, digest: int) -> None:
        known = self._digests.setdefault(index, digest)
        if known != digest:
            raise ViolationError(f"one state: {digest:x} at {me} behind {index}, and {known:x}")

    def read(self, me: MemberId, index: int, asked_at: int) -> None:
        """A process reads what is committed."""
        self.reads += 1
        if index < asked_at:
            raise ViolationError(f"stale read: {me} reads {index}, asked when {asked_at} was taken")
