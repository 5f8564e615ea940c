"""The state machine of simulated clusters: packs, and alarms that make time matter."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from antiphon.formats.entry import Entry
from antiphon.log.effects import Accepted
from antiphon.log.state_machine import PackMachine

ALARM = "alarm"
ALARM_MS = 300


class AlarmMachine(PackMachine):
    """A state machine whose packs for `alarm` set an alarm, which the first entry late enough
    rings."""

    def __init__(self, retain: int | None = None) -> None:
        super().__init__(retain)
        self._due: int | None = None
        self.rung = 0

    def apply(self, entry: Entry) -> list[Accepted]:
        if self._due is not None and entry.stamp >= self._due:
            self._due = None
            self.rung += 1
        accepted = super().apply(entry)
        if self._due is None and any(a.destination == ALARM for a in accepted):
            self._due = entry.stamp + ALARM_MS
        return accepted

    def next_deadline(self) -> int | None:
        return self._due

    def snapshot(self) -> Iterator[bytes]:
        own = msgspec.msgpack.encode((self._due, self.rung))
        return self._with_own(own, super().snapshot())

    @staticmethod
    def _with_own(own: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
        yield own
        yield from rest

    def restore(self, chunks: Iterator[bytes]) -> None:
        self._due, self.rung = msgspec.msgpack.decode(next(chunks), type=tuple[int | None, int])
        super().restore(chunks)
