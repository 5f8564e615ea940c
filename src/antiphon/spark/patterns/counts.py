"""Patterns of patterns: matches of one pattern in several places within a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, cast

import msgspec

from antiphon.spark.patterns.events import Event, Field, Match, Pattern, State, together


class Seen(NamedTuple):
    """The last match in a place."""

    time: int
    found: dict[str, Any]


class Places(msgspec.Struct, Generic[State], array_like=True):
    """The state of `AtLeast`: the inner pattern's state of each place, and the last matches."""

    inner: dict[str, State]  # by place: the inner pattern's state
    seen: dict[str, Seen]


@dataclass(frozen=True)
class AtLeast(Pattern[Places[Any]]):
    """Finds a pattern in several places within a time.

    It matches when the last place comes in, and again only after there were fewer. Its state grows
    with the places that had events within the time.
    """

    count: int
    of: str
    where: Pattern[Any]
    within: int
    key: str | None

    name = "at_least"

    @property
    def fields(self) -> tuple[Field, ...]:
        return together((Field(self.of), *self.where.fields))

    @property
    def state_type(self) -> Any:
        return cast(Any, Places)[self.where.state_type]

    def on_event(
        self, state: Places[Any] | None, event: Event
    ) -> tuple[Places[Any] | None, list[Match]]:
        state = state or Places({}, {})
        place = str(event[self.of])
        inner, matches = self.where.on_event(state.inner.get(place), event)
        _put(state.inner, place, inner)
        found = [one for match in matches for one in self._add(state, place, match)]
        return _kept(state), found

    def due(self, state: Places[Any]) -> int:
        ends = [seen.time + self.within for seen in state.seen.values()]
        return min(ends + [self.where.due(inner) for inner in state.inner.values()])

    def on_time(self, state: Places[Any], now: int) -> tuple[Places[Any] | None, list[Match]]:
        matches = []
        for place, match in sorted(self._passed(state, now), key=lambda one: (one[1].time, one[0])):
            matches += self._add(state, place, match)
        old = [place for place, seen in state.seen.items() if seen.time + self.within <= now]
        for place in old:
            del state.seen[place]
        return _kept(state), matches

    def _passed(self, state: Places[Any], now: int) -> Iterator[tuple[str, Match]]:
        """Let time pass at all places; yield the resulting matches."""
        for place, inner in list(state.inner.items()):
            if self.where.due(inner) <= now:
                left, matches = self.where.on_time(inner, now)
                _put(state.inner, place, left)
                yield from ((place, match) for match in matches)

    def _add(self, state: Places[Any], place: str, match: Match) -> list[Match]:
        begin = match.time - self.within
        seen = {name: one for name, one in state.seen.items() if one.time >= begin}
        were_enough = len(seen) >= self.count
        seen[place] = Seen(match.time, dict(match.found))
        state.seen = seen
        if were_enough or len(seen) < self.count:
            return []
        return [Match(match.time, {self.of: {name: one.found for name, one in seen.items()}})]


def _put(inner: dict[str, Any], place: str, state: Any) -> None:
    if state is None:
        inner.pop(place, None)
    else:
        inner[place] = state


def _kept(state: Places[Any]) -> Places[Any] | None:
    return state if state.inner or state.seen else None
