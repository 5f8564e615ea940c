"""Compares the states of two replicas, as far as they are visible from outside.

Promise: every reported difference is one. States that only look different (the order of a dict or a
set, objects that cannot be compared, bytes of a snapshot) are not reported.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

SHOWN_MAX = 60
"""Most characters of a value in a sentence."""


def difference(one: Any, other: Any) -> str:
    """Return where the two differ, in a few words; empty: nowhere."""
    return next(_differences(one, other, "", set()), "")


def restored_difference(make: Callable[[], Any], one: bytes, other: bytes) -> str:
    """Return how two snapshots differ. Their bytes may differ although the states are the same, so
    services restored from them are compared."""
    if one == other:
        return ""
    services = [make(), make()]
    for service, state in zip(services, (one, other), strict=True):
        service.restore(state)
    return difference(*services)


def _differences(one: Any, other: Any, at: str, seen: set[tuple[int, int]]) -> Iterator[str]:
    if one is other or (id(one), id(other)) in seen:
        return
    seen.add((id(one), id(other)))
    if type(one) is not type(other):
        if not _equal(one, other):
            yield _told(one, other, at)
    elif isinstance(one, dict):
        yield from _of_dicts(one, other, at, seen)
    elif isinstance(one, list | tuple | deque):
        if len(one) != len(other):
            yield _told(one, other, at)
        for number, (mine, its) in enumerate(zip(one, other, strict=False)):
            yield from _differences(mine, its, f"{at}[{number}]", seen)
    elif (fields := _fields(one)) or _fields(other):
        yield from _of_fields(one, other, fields | _fields(other), at, seen)
    elif isinstance(one, set | frozenset):
        if one != other and (len(one) != len(other) or _comparable(one)):
            yield _told(one, other, at)
    elif _comparable([one]) and not _equal(one, other):
        yield _told(one, other, at)


def _of_dicts(
    one: dict[Any, Any], other: dict[Any, Any], at: str, seen: set[tuple[int, int]]
) -> Iterator[str]:
    if one.keys() != other.keys():
        if len(one) != len(other) or _comparable(one):
            yield _told(one, other, at)
        return
    for key, value in one.items():
        yield from _differences(value, other[key], f"{at}[{key!r}]", seen)


def _of_fields(
    one: Any, other: Any, names: set[str], at: str, seen: set[tuple[int, int]]
) -> Iterator[str]:
    absent = object()
    for name in sorted(names):
        mine, its = getattr(one, name, absent), getattr(other, name, absent)
        if (mine is absent) != (its is absent):
            yield f"{at}.{name} is there in one of them alone".removeprefix(".")
        yield from _differences(mine, its, f"{at}.{name}", seen)


def _fields(one: Any) -> set[str]:
    """Return the names of an object's fields."""
    if isinstance(one, type) or callable(one):
        return set()
    slots = [getattr(kind, "__slots__", ()) for kind in type(one).__mro__]
    named = {name for some in slots for name in ([some] if isinstance(some, str) else some)}
    return (named | set(getattr(one, "__dict__", ()))) - {"__dict__", "__weakref__"}


def _comparable(some: Any) -> bool:
    """Return whether equality of such objects can be decided."""
    return all(getattr(type(each), "__eq__", None) is not _BY_IDENTITY for each in some)


_BY_IDENTITY: Any = object.__eq__


def _equal(one: Any, other: Any) -> bool:
    try:
        return bool(one == other) or (one != one and other != other)
    except Exception:  # objects whose comparison fails are not judged
        return True


def _told(one: Any, other: Any, at: str) -> str:
    return f"{at.removeprefix('.') or 'it'} is {_shown(one)} and {_shown(other)}"


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= SHOWN_MAX else text[: SHOWN_MAX - 3] + "..."
