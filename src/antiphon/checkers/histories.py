"""Histories of calls, as clients of a service saw them, and the values in them."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass
from math import inf
from typing import Any, NamedTuple

PARTS_MAX = 100
"""Most parts of a value that are read for a hint: the last ones, which are the new ones of a
list."""


@dataclass(frozen=True, slots=True)
class Operation:
    """A call as its client saw it: its command and result, and the times of call and return, by a
    clock that all clients share. `returned` is None if it has no answer."""

    client: str
    command: Any
    result: Any
    called: float
    returned: float | None
    """`None`: the call has no answer. Then it may or may not have happened, and `result` is
    void."""


class Raised(NamedTuple):
    """The result of a command that raised."""

    type_name: str
    text: str

    def __repr__(self) -> str:
        return f"{self.type_name}({self.text!r})"


def neighbours(history: Sequence[Operation]) -> Iterator[tuple[int, int]]:
    """Yield each operation with the last earlier one of the same client that has an answer. A
    client without an answer in time may go on."""
    last: dict[str, int] = {}
    for place, operation in sorted(enumerate(history), key=lambda item: begin_of(item[1])):
        if operation.client in last:
            yield last[operation.client], place
        if operation.returned is not None:
            last[operation.client] = place


def end_of(operation: Operation) -> float:
    return inf if operation.returned is None else operation.returned


def begin_of(operation: Operation) -> tuple[float, bool, float]:
    """Return a key to sort the operations of a client, which may give up a call and make another at
    the same time."""
    return operation.called, operation.returned is not None, end_of(operation)


def frozen(value: Any) -> Hashable:
    """Return a hashable value, the same for equal values; those of unusual kinds are equal if their
    `repr` is."""
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
    """Yield the parts of a value, as far as they are easily found."""
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
