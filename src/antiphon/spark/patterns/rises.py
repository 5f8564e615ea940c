"""Numbers that rise, and rise and fall, within a time.

Matches of a key do not overlap: after one the search begins again, with the event that completed it
as the first one. So a price that keeps falling after an alert raises no second one.

A low is remembered until a later event is as low, for that one lasts longer. So the lows that
are left rise from the first to the last, and the first is the lowest of all within the time.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from antiphon.spark.patterns.events import Event, Field, Match, Pattern, moment


class Point(NamedTuple):
    """The number in an event."""

    time: int
    position: int
    value: float

    def told(self) -> dict[str, Any]:
        return {"value": self.value, "time": moment(self.time), "position": self.position}


def _point(event: Event, value: str) -> Point:
    return Point(event.time, event.position, event.number(value))


def _add_low(lows: list[Point], new: Point) -> None:
    while lows and lows[-1].value >= new.value:
        lows.pop()
    lows.append(new)


def _forget(lows: list[Point], before: int) -> None:
    kept = 0
    while kept < len(lows) and lows[kept].time < before:
        kept += 1
    del lows[:kept]


@dataclass(frozen=True)
class RisesBy(Pattern[list[Point]]):
    """Finds a number that rises by a part of itself within a time.

    Its state is the lows that a later event can still be measured against; the first is the oldest
    and the lowest. An event is compared with that one alone, however many there are.
    """

    rise: float
    value: str
    within: int
    key: str | None

    name = "rises_by"
    state_type = list[Point]

    @property
    def fields(self) -> tuple[Field, ...]:
        return (Field(self.value, is_number=True),)

    def on_event(self, state: list[Point] | None, event: Event) -> tuple[list[Point], list[Match]]:
        new, lows = _point(event, self.value), state or []
        _forget(lows, event.time - self.within)
        if lows and lows[0].value * (1 + self.rise) <= new.value:
            return [new], [Match(event.time, {"low": lows[0].told(), "high": new.told()})]
        _add_low(lows, new)
        return lows, []

    def due(self, state: list[Point]) -> int:
        return state[-1].time + self.within

    def on_time(self, state: list[Point], now: int) -> tuple[list[Point] | None, list[Match]]:
        return (None if self.due(state) <= now else state), []


class Peak(NamedTuple):
    """An event that is high enough above an earlier one: the latest such, for it lasts longest."""

    low: Point
    high: Point


class Climb(msgspec.Struct, array_like=True):
    """The state of `RiseAndFall`: peaks in the order of their lows, each lower than the one before.
    So the first is the highest of all within the time, and the next one is when it is too old."""

    lows: list[Point]
    peaks: list[Peak]


@dataclass(frozen=True)
class RiseAndFall(Pattern[Climb]):
    """Finds a number that rises by a part of itself and then falls, within a time.

    Of all rises that an event ends by being low enough, it returns the one with the highest peak,
    and of equal ones the latest.
    """

    value: str
    rise: float
    fall: float
    within: int
    key: str | None

    name = "rise_and_fall"
    state_type = Climb

    @property
    def fields(self) -> tuple[Field, ...]:
        return (Field(self.value, is_number=True),)

    def on_event(self, state: Climb | None, event: Event) -> tuple[Climb, list[Match]]:
        new, climb = _point(event, self.value), state or Climb([], [])
        begin = event.time - self.within
        climb.peaks = [peak for peak in climb.peaks if peak.low.time >= begin]
        if climb.peaks and new.value <= climb.peaks[0].high.value * (1 - self.fall):
            low, high = climb.peaks[0]
            found = {"low": low.told(), "high": high.told(), "last": new.told()}
            return Climb([new], []), [Match(event.time, found)]
        _forget(climb.lows, begin)
        low_enough = bisect_right(
            climb.lows, new.value, key=lambda low: low.value * (1 + self.rise)
        )
        if low_enough:
            _add_peak(climb.peaks, Peak(climb.lows[low_enough - 1], new))
        _add_low(climb.lows, new)
        return climb, []

    def due(self, state: Climb) -> int:
        return state.lows[-1].time + self.within

    def on_time(self, state: Climb, now: int) -> tuple[Climb | None, list[Match]]:
        return (None if self.due(state) <= now else state), []


def _add_peak(peaks: list[Peak], new: Peak) -> None:
    """Among peaks with the same low or earlier ones, only those that are higher stay."""
    end = bisect_right(peaks, new.low[:2], key=lambda peak: peak.low[:2])
    lasts_longer = end < len(peaks) and peaks[end].high.value >= new.high.value
    is_higher = end and peaks[end - 1].low == new.low and peaks[end - 1].high.value > new.high.value
    if lasts_longer or is_higher:
        return
    begin = end
    while begin and peaks[begin - 1].high.value <= new.high.value:
        begin -= 1
    peaks[begin:end] = [new]
