"""Histories of calls, as clients of a service saw them, and the values in them."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass
from math import inf
from typing import Any, NamedTuple

PARTS_MAX = 100
"""The parts of a value that are looked at for a hint: the last ones, which are the new ones of a
list."""


@dataclass(frozen=True, slots=True)
class Operation:
    """A call as its client saw it. The clock is one that all clients share."""

    client: str
    command: Any
    result: Any
    called: float
    returned: float | None
    """`None`: never answered. Whether it happened is unknown, and `result` says nothing."""


class Raised(NamedTuple):
    """The result of a command that raised."""

    type_name: str
    text: str

    def __repr__(self) -> str:
        return f"{self.type_name}({self.text!r})"


def neighbours(history: Sequence[Operation]) -> Iterator[tuple[int, int]]:
    """Operations and the last one before them that the same client got an answer to. A client that
    got none in time may go on."""
    last: dict[str, int] = {}
    for place, operation in sorted(enumerate(history), key=lambda item: begin_of(item[1])):
        if operation.client in last:
            yield last[operation.client], place
        if operation.returned is not None:
            last[operation.client] = place


def end_of(operation: Operation) -> float:
    return inf if operation.returned is None else operation.returned


def begin_of(operation: Operation) -> tuple[float, bool, float]:
    """Sorts the operations of a client: it may give up a call and make another at the same time."""
    return operation.called, operation.returned is not None, end_of(operation)


def frozen(value: Any) -> Hashable:
    """Hashable, and the same for values that are the same, as far as their `repr` tells if they are
    of an unusual kind."""
    try:
        hash(value)
    except TypeError:
        return type(value), _frozen_content(value)
    return value  # type: ignore[no-any-return]


def _frozen_content(value: Any) -> Hashable:
    if isinstance(value, OrderedDict):
        return tuple((key, frozen(item)) for key, item in value.items())
    if isinstance(value, dict):
        return frozenset((key, frozen(item)) for key, item in value.items())
    if isinstance(value, list | tuple | deque):
        return tuple(map(frozen, value))
    if isinstance(value, set):
        return frozenset(value)
    if isinstance(value, bytearray):
        return bytes(value)
    if is_dataclass(value):
        return tuple(frozen(getattr(value, field.name)) for field in fields(value))
    return repr(value)


def values_in(value: Any) -> Iterator[Hashable]:
    """Yield the values that this value is made of, as far as that is easily seen."""
    if isinstance(value, list | tuple | set | frozenset | deque):
        parts = list(value)
    elif isinstance(value, dict):
        parts = list(value.values())
    else:
        parts = [getattr(value, name, None) for name in getattr(value, "__match_args__", ())]
    for part in parts[-PARTS_MAX:]:
        yield from values_in(part)
    if not parts:
        yield frozen(value)
