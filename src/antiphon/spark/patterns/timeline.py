"""Events of one key put in order: a pattern gets them by time, in whatever order they arrived.

Promise: matches depend on the events alone. An event is held back until the *watermark* has reached
its time: the watermark is the time up to which all events have come, and an event that comes later
than that never reaches a timeline. So neither the batches in which the events came nor their order
within the allowed lateness makes any difference.
"""

from __future__ import annotations

from typing import Any, Generic, cast

import msgspec

from antiphon.spark.patterns.events import Event, Match, Pattern, State


class Memory(msgspec.Struct, Generic[State], array_like=True):
    """The stored data of one key."""

    state: State | None = None
    held_back: list[Event] = []
    wakes_at: int | None = None  # the timer that is set


class Timeline:
    """Applies a pattern to the events of one key in the order of their times.

    Events are held back until the watermark has passed them; between them the pattern's own waits
    end at their time. It needs a `Memory` of the key for each call, and keeps nothing itself.
    """

    def __init__(self, pattern: Pattern[Any]) -> None:
        self._pattern = pattern
        self._decoder = msgspec.msgpack.Decoder(cast(Any, Memory)[pattern.state_type])

    def read(self, stored: bytes | None) -> Memory[Any]:
        found: Memory[Any] = self._decoder.decode(stored) if stored else Memory()
        return found

    def stored(self, memory: Memory[Any]) -> bytes:
        return msgspec.msgpack.encode(memory)

    def due(self, memory: Memory[Any]) -> int | None:
        """Return the watermark that this key waits for; None: it has no state left."""
        times = [event.time for event in memory.held_back]
        if memory.state is not None:
            times.append(self._pattern.due(memory.state))
        return min(times, default=None)

    def advance(self, memory: Memory[Any], watermark: int) -> list[Match]:
        """Return the matches up to this time."""
        ready = [event for event in memory.held_back if event.time <= watermark]
        memory.held_back = [event for event in memory.held_back if event.time > watermark]
        matches: list[Match] = []
        for event in sorted(ready, key=lambda event: (event.time, event.position)):
            matches += self._pass_time(memory, event.time - 1)
            memory.state, found = self._pattern.on_event(memory.state, event)
            matches += found
        return matches + self._pass_time(memory, watermark)

    def _pass_time(self, memory: Memory[Any], now: int) -> list[Match]:
        if memory.state is None or self._pattern.due(memory.state) > now:
            return []
        memory.state, matches = self._pattern.on_time(memory.state, now)
        return matches
