"""The log's clock: every entry has a stamp, and stamps never go back.

A wall clock may jump, and two leaders' wall clocks differ. So a stamp is the last stamp plus the
time that passed on the leader's *monotonic* clock, slewed towards its wall clock by at most 2 %. A
new leader goes on from the last stamp it saw, counting the time since it saw it. Only where that
time could not be counted, because this process has seen no entry since it started (a cold start),
does the stamp jump to the wall clock, and then only forward.
"""

from __future__ import annotations

SLEW = 50
"""At most 1/50 of the time that passed is added or taken away."""


class StampClock:
    """The log's time at one replica.

    Promise: stamps never go back along the log, whoever leads, and follow the leader's wall clock
    where that does not go back.
    """

    def __init__(self, last_stamp: int) -> None:
        self.last = last_stamp
        self._time_us = last_stamp * 1000
        self._at_ms: int | None = None  # when `_time_us` was true; None: before this start

    def saw(self, stamp: int, now_ms: int) -> None:
        """An entry with this stamp came from a leader just now. The first one of all has 0: all
        founders write the same, whatever their clocks say, so it is not a time of day."""
        if stamp and stamp >= self.last:
            self.last = stamp
            self._time_us = stamp * 1000
            self._at_ms = now_ms

    def peek(self, now_ms: int, wall_ms: int) -> int:
        """Return the stamp that `next` would return."""
        return max(self.last, self._estimate_us(now_ms, wall_ms) // 1000)

    def next(self, now_ms: int, wall_ms: int) -> int:
        """Return the stamp of an entry that is appended now."""
        self._time_us = self._estimate_us(now_ms, wall_ms)
        self._at_ms = now_ms
        self.last = max(self.last, self._time_us // 1000)
        return self.last

    def _estimate_us(self, now_ms: int, wall_ms: int) -> int:
        if self._at_ms is None:
            return max(self._time_us, wall_ms * 1000)
        elapsed_us = max(0, now_ms - self._at_ms) * 1000
        due_us = self._time_us + elapsed_us
        slew_us = elapsed_us // SLEW
        return due_us + max(-slew_us, min(slew_us, wall_ms * 1000 - due_us))
