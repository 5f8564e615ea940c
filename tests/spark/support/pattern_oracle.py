"""Patterns written naively: each looks at the whole history, again and again.

Written from the definitions in the documentation, and knowing nothing of how they are looked for.
A history is a list of `(time, position, fields)`, in any order. What is found is a list of times
and of the positions of the events that it consists of.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Any, NamedTuple

Happened = tuple[int, int, dict[str, Any]]


class Told(NamedTuple):
    time: int
    positions: tuple[int, ...]


def in_order(history: Sequence[Happened]) -> list[Happened]:
    return sorted(history, key=lambda one: one[:2])


def _without_overlap(
    history: Sequence[Happened], ended_by: Callable[[list[Happened]], tuple[int, ...] | None]
) -> list[Told]:
    """`ended_by` says what the last event of a piece of history completes; the next piece begins
    with the event that ended the last one."""
    told, piece = [], []
    for event in in_order(history):
        piece.append(event)
        if (positions := ended_by(piece)) is not None:
            told.append(Told(event[0], positions))
            piece = [event]
    return told


def rises_by(history: Sequence[Happened], rise: float, value: str, within: int) -> list[Told]:
    def ended_by(piece: list[Happened]) -> tuple[int, ...] | None:
        *earlier, (end, last, fields) = piece
        lows = [
            (-low[value], (time, position))
            for time, position, low in earlier
            if end - time <= within and low[value] * (1 + rise) <= fields[value]
        ]
        return (max(lows)[1][1], last) if lows else None

    return _without_overlap(history, ended_by)


def rise_and_fall(
    history: Sequence[Happened], value: str, rise: float, fall: float, within: int
) -> list[Told]:
    def ended_by(piece: list[Happened]) -> tuple[int, ...] | None:
        *earlier, (end, last, fields) = piece
        rises = [
            (high[value], (low_time, low_position), (high_time, high_position))
            for (low_time, low_position, low), (high_time, high_position, high) in combinations(
                earlier, 2
            )
            if end - low_time <= within
            and low[value] * (1 + rise) <= high[value]
            and fields[value] <= high[value] * (1 - fall)
        ]
        if not rises:
            return None
        _, low, high = max(rises)
        return (low[1], high[1], last)

    return _without_overlap(history, ended_by)


def absence(
    history: Sequence[Happened],
    of: Callable[[dict[str, Any]], bool],
    after: Callable[[dict[str, Any]], bool],
    within: int,
    until: int,
) -> list[Told]:
    """As far as it is known when all events up to `until` have been seen."""
    told = []
    for time, position, fields in history:
        came = any(
            of(other[2]) and (time, position) < other[:2] and other[0] <= time + within
            for other in history
        )
        if after(fields) and not came and time + within <= until:
            told.append(Told(time + within, (position,)))
    return sorted(told)


def at_least(
    count: int, found_in: dict[str, list[Told]], within: int, *, by_time: bool
) -> list[tuple[int, frozenset[str]]]:
    """Of what was found in each place: when there were enough places, and which. `by_time`: it was
    found by the passing of time, and not by an event."""
    every = sorted(
        (told.time, place if by_time else told.positions[-1], place)
        for place, some in found_in.items()
        for told in some
    )
    told = []
    for number, (time, _, place) in enumerate(every):
        before = {other[2] for other in every[:number] if time - other[0] <= within}
        if len(before) < count <= len(before | {place}):
            told.append((time, frozenset(before | {place})))
    return told
