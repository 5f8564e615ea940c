"""Events of a kind, the absence of such an event, and functions that a user wrote."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from antiphon.spark.patterns.events import (
    Event,
    Field,
    Found,
    Match,
    Pattern,
    Value,
    moment,
    together,
)


@dataclass(frozen=True)
class Kind:
    """Decides which events are of one kind: those whose fields have all these values."""

    values: tuple[tuple[str, str | float | bool], ...]

    @property
    def fields(self) -> tuple[Field, ...]:
        return tuple(Field(name, is_required=False) for name, _ in self.values)

    def has(self, event: Event) -> bool:
        return all(_equal(event[name], wanted) for name, wanted in self.values)


def _equal(value: Value, wanted: str | float | bool) -> bool:
    """Compare a field, which is a text, with the value that the text may mean."""
    if isinstance(wanted, str):
        return value == wanted
    if isinstance(wanted, bool):
        return value == str(wanted).lower()
    try:
        return float(value or "") == wanted
    except ValueError:
        return False


class Awaited(NamedTuple):
    """An event after which another one is awaited."""

    time: int
    position: int


@dataclass(frozen=True)
class Absence(Pattern[list[Awaited]]):
    """Finds that no event of a kind came within a time after another event.

    Its state is the events after which it waits, oldest first; an event of the awaited kind clears
    it. It needs time to pass (`on_time`): a match comes only when the wait is over.
    """

    of: Kind
    after: Kind
    within: int
    key: str | None

    name = "absence"
    state_type = list[Awaited]

    @property
    def fields(self) -> tuple[Field, ...]:
        return together((*self.of.fields, *self.after.fields))

    def on_event(
        self, state: list[Awaited] | None, event: Event
    ) -> tuple[list[Awaited] | None, list[Match]]:
        waiting = [] if self.of.has(event) else state or []
        if self.after.has(event):
            waiting.append(Awaited(event.time, event.position))
        return waiting or None, []

    def due(self, state: list[Awaited]) -> int:
        return state[0].time + self.within

    def on_time(self, state: list[Awaited], now: int) -> tuple[list[Awaited] | None, list[Match]]:
        over = [one for one in state if one.time + self.within <= now]
        matches = [Match(one.time + self.within, _told(one)) for one in over]
        return state[len(over) :] or None, matches


def _told(one: Awaited) -> Found:
    return {"after": {"time": moment(one.time), "position": one.position}}


class Kept(msgspec.Struct, array_like=True):
    """The state that a user's function returned last, and when."""

    value: Any
    time: int


Step = Callable[[Any, Event], tuple[Any, Iterable[Found]]]


@dataclass(frozen=True)
class Stateful(Pattern[Kept]):
    """Has a user's function find matches, and keeps its state until the key was silent too long.

    The function must depend on its arguments alone, for Spark may repeat a batch.
    """

    function: Step
    wanted: tuple[Field, ...]
    forget_after: int
    key: str | None

    state_type = Kept

    @property
    def name(self) -> str:
        return self.function.__name__

    @property
    def fields(self) -> tuple[Field, ...]:
        return self.wanted

    def on_event(self, state: Kept | None, event: Event) -> tuple[Kept | None, list[Match]]:
        value, found = self.function(None if state is None else state.value, event)
        matches = [Match(event.time, one) for one in found]
        return (None if value is None else Kept(value, event.time)), matches

    def due(self, state: Kept) -> int:
        return state.time + self.forget_after

    def on_time(self, state: Kept, now: int) -> tuple[Kept | None, list[Match]]:
        return (None if self.due(state) <= now else state), []
