"""The elements of event patterns: events, matches, and what every pattern can do.

A pattern is a value. It says what to look for in the events of one key, and how: by functions of
what it remembers and of what happens, which is an event, or that time has passed. It is given the
events in the order of their times, those of the same time by their positions in the log. It sees no
clock. What it remembers is stored between events, so it is made of plain values.

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
"""A match, as values that JSON has."""

_UNITS = {
    "millisecond": 1,
    "second": 1000,
    "minute": 60_000,
    "hour": 3_600_000,
    "day": 86_400_000,
}


class Field(NamedTuple):
    """A part of a message that a pattern looks at."""

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
    """A pattern was found, at the time of the event, or the end of the wait, that completed it."""

    time: int
    found: Found


class Pattern(ABC, Generic[State]):
    """To remember nothing is `None`: a key of which a pattern remembers nothing takes no space."""

    key: str | None  # the field that says whose an event is; None: all events belong together

    @property
    @abstractmethod
    def name(self) -> str: ...

    @property
    @abstractmethod
    def fields(self) -> tuple[Field, ...]:
        """The fields of a message that it looks at, in addition to the key."""

    @property
    @abstractmethod
    def state_type(self) -> Any:
        """As which its memory is read back."""

    @abstractmethod
    def on_event(self, state: State | None, event: Event) -> tuple[State | None, list[Match]]:
        """`on_time` was called for everything that was due before this event."""

    @abstractmethod
    def due(self, state: State) -> int:
        """When this memory changes, or is not worth keeping, even if nothing happens."""

    @abstractmethod
    def on_time(self, state: State, now: int) -> tuple[State | None, list[Match]]:
        """All events up to `now` have been seen; matches come in the order of their times."""


def described(part: Any) -> str:
    """A pattern, with all that it looks for: two that differ in anything are described otherwise,
    but for what is inside of a user's function."""
    if is_dataclass(part):
        told = [f"{field.name}={described(getattr(part, field.name))}" for field in fields(part)]
        return f"{type(part).__name__}({', '.join(told)})"
    if isinstance(part, tuple):
        return f"({', '.join(described(each) for each in part)})"
    if callable(part):
        return str(getattr(part, "__qualname__", type(part).__qualname__))
    if isinstance(part, Pattern):
        return f"{type(part).__qualname__}({part.name}, key={part.key!r}, {described(part.fields)})"
    # Otherwise it would say its address, which is another one in each process.
    return type(part).__qualname__ if _says_its_address(part) else repr(part)


def _says_its_address(part: Any) -> bool:
    by_address: Any = object.__repr__
    return type(part).__repr__ is by_address


def milliseconds(what: str, text: str) -> int:
    """`10 minutes`, as a number."""
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
    """A time as people read it."""
    at = datetime.fromtimestamp(time // 1000, UTC).replace(microsecond=time % 1000 * 1000)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def together(fields: Iterable[Field]) -> tuple[Field, ...]:
    """Each once, as required as any of them."""
    every: dict[str, Field] = {}
    for field in fields:
        known = every.get(field.name, field)
        if known.is_number != field.is_number:
            raise ValueError(f"{field.name!r} cannot be a number here and a text there")
        every[field.name] = field if field.is_required else known
    return tuple(every.values())
