"""The elements of event patterns: events, matches, and the methods of every pattern.

A pattern is a value. It finds matches in the events of one key, by functions from its state and an
event, or the passing of time, to the next state and matches. It gets the events in the order of
their times, those of the same time by their positions in the log. It has no clock. Its state is
stored between events, so it is made of plain values.

Times are whole milliseconds since 1970.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

State = TypeVar("State")

Value = str | float | None
Found = Mapping[str, Any]
"""A match, as values of JSON."""

_UNITS = {
    "millisecond": 1,
    "second": 1000,
    "minute": 60_000,
    "hour": 3_600_000,
    "day": 86_400_000,
}


class Field(NamedTuple):
    """A part of a message that a pattern reads."""

    name: str
    is_number: bool = False  # a finite one above zero; otherwise a text
    is_required: bool = True  # a message without it is not an event for this pattern


class Event(msgspec.Struct, array_like=True, frozen=True):
    """A message, as patterns see it."""

    time: int
    position: int  # in the log
    fields: dict[str, Value]

    def __getitem__(self, name: str) -> Value:
        return self.fields[name]

    def number(self, name: str) -> float:
        value = self.fields[name]
        assert isinstance(value, float), f"{name} is {value!r}: events without it are left out"
        return value


class Match(NamedTuple):
    """A match, at the time of the event, or the end of the wait, that completed it."""

    time: int
    found: Found


class Pattern(ABC, Generic[State]):
    """The base of all patterns. A state of `None` takes no space: the key is forgotten."""

    key: str | None  # the field by which events belong together; None: all do

    @property
    @abstractmethod
    def name(self) -> str: ...

    @property
    @abstractmethod
    def fields(self) -> tuple[Field, ...]:
        """The fields of a message that it reads, in addition to the key."""

    @property
    @abstractmethod
    def state_type(self) -> Any:
        """The type as which its state is read back."""

    @abstractmethod
    def on_event(self, state: State | None, event: Event) -> tuple[State | None, list[Match]]:
        """Take an event; return the next state, and matches. `on_time` was called for all deadlines
        before it."""

    @abstractmethod
    def due(self, state: State) -> int:
        """Return the time when this state changes, or is not worth keeping, even without an
        event."""

    @abstractmethod
    def on_time(self, state: State, now: int) -> tuple[State | None, list[Match]]:
        """Let time pass: all events up to `now` were taken. Return the next state, and matches in
        the order of their times."""


def described(part: Any) -> str:
    """Return a text for a pattern with all its values: two patterns that differ have different
    texts, except for the code inside of a user's function."""
    if is_dataclass(part):
        told = [f"{field.name}={described(getattr(part, field.name))}" for field in fields(part)]
        return f"{type(part).__name__}({', '.join(told)})"
    if isinstance(part, tuple):
        return f"({', '.join(described(each) for each in part)})"
    if callable(part):
        return str(getattr(part, "__qualname__", type(part).__qualname__))
    if isinstance(part, Pattern):
        return f"{type(part).__qualname__}({part.name}, key={part.key!r}, {described(part.fields)})"
    # Otherwise the text would have its address, which differs in each process.
    return type(part).__qualname__ if _says_its_address(part) else repr(part)


def _says_its_address(part: Any) -> bool:
    by_address: Any = object.__repr__
    return type(part).__repr__ is by_address


def milliseconds(what: str, text: str) -> int:
    """Return a time like `10 minutes` in ms."""
    parts = re.fullmatch(r"(\d+) ([a-z]+?)s?", text) if isinstance(text, str) else None
    if parts is None or parts[2] not in _UNITS:
        units = ", ".join(f"{unit}s" for unit in _UNITS)
        raise ValueError(f"{what} is like '10 minutes' (or {units}), not {text!r}")
    return int(parts[1]) * _UNITS[parts[2]]


def positive_milliseconds(what: str, text: str) -> int:
    """Return `milliseconds`. Raise `ValueError` if it is 0."""
    if not (found := milliseconds(what, text)):
        raise ValueError(f"{what} is longer than nothing")
    return found


def moment(time: int) -> str:
    """Return a time as text."""
    at = datetime.fromtimestamp(time // 1000, UTC).replace(microsecond=time % 1000 * 1000)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def together(fields: Iterable[Field]) -> tuple[Field, ...]:
    """Return each field once, required if any of them is."""
    every: dict[str, Field] = {}
    for field in fields:
        known = every.get(field.name, field)
        if known.is_number != field.is_number:
            raise ValueError(f"{field.name!r} cannot be a number here and a text there")
        every[field.name] = field if field.is_required else known
    return tuple(every.values())
