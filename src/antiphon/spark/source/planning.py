"""Plans of a query: the positions that it reads, and the task that reads each of them.

Promises: a plan is complete. A range that begins with messages that are gone, or ends behind the
last one, is an error, not a shorter answer. A limit never stops a stream: each batch gets further,
however rare its topics are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Protocol, runtime_checkable

from antiphon import LogBounds, LogSlice
from antiphon.errors import IllegalStateError, MessagesGoneError
from antiphon.model import destinations as names
from antiphon.spark.logs.log import Log
from antiphon.spark.source.filters import Wanted
from antiphon.spark.source.reading_options import (
    EARLIEST,
    LATEST,
    Place,
    ReadingOptions,
    stamp_after,
    stamp_at,
)

ALL = 1 << 62
"""More messages than there are."""


def batch_range(log: Log, options: ReadingOptions) -> tuple[int, int]:
    """Return the first and the last position of a batch, both included; of an empty one, the last
    is before the first."""
    bounds = log.bounds()
    return start(log, options.start, bounds), _end(log, options.end, bounds)


@runtime_checkable
class Gapped(Protocol):
    """A log that may lack messages between its first and its last one."""

    def missing(self, first: int, last: int) -> Sequence[LogBounds]: ...


def check_whole(log: Log | Gapped, first: int, last: int) -> None:
    """Raise `MessagesGoneError` if messages between these positions are missing."""
    gaps = log.missing(first, last) if isinstance(log, Gapped) else ()
    if gaps:
        raise MessagesGoneError(
            f"messages {gaps[0].first} to {gaps[0].last} are not there. What comes after them can "
            f"be read from startingPosition {gaps[-1].last + 1} on"
        )


def start(log: Log, place: Place, bounds: LogBounds) -> int:
    """Return the first position to read. Raise `MessagesGoneError` if it is not kept any more."""
    if place == EARLIEST:
        return bounds.first
    if place == LATEST:
        return bounds.last + 1
    if isinstance(place, datetime):
        return log.position_at(stamp_at(place))
    assert isinstance(place, int)
    check_kept(place, bounds)
    return place


def _end(log: Log, place: Place, bounds: LogBounds) -> int:
    if place == EARLIEST:
        return bounds.first - 1
    if place == LATEST:
        return bounds.last
    if isinstance(place, datetime):
        return min(bounds.last, log.position_at(stamp_after(place)) - 1)
    assert isinstance(place, int)
    if place > bounds.last:
        raise IllegalStateError(
            f"option endingPosition is {place}, and the last message is {bounds.last}"
        )
    return place


def check_kept(first: int, bounds: LogBounds) -> None:
    """Raise `MessagesGoneError` if messages from `first` on are not kept any more."""
    if first < bounds.first and first <= bounds.last:
        raise MessagesGoneError(
            f"messages {first} to {bounds.first - 1} are gone. What is kept begins with "
            f"{bounds.first}: startingPosition earliest reads from there on (a stream needs a new "
            "checkpoint for that); an archive may have the others"
        )


def narrowed(log: Log, wanted: Wanted, first: int, last: int) -> tuple[int, int]:
    """Return the part of a range that a query's filters leave."""
    first, last = max(first, wanted.first), min(last, wanted.last)
    if wanted.stamp_from is not None:
        first = max(first, log.position_at(wanted.stamp_from))
    if wanted.stamp_to is not None:
        last = min(last, log.position_at(wanted.stamp_to + 1) - 1)
    return first, last


def chosen_topics(topics: Sequence[str], wanted: Wanted) -> list[str]:
    """Return the topics, which may be patterns, that a query's filters leave."""
    if wanted.topics is None:
        return list(topics)
    patterns = [names.matcher(f"{names.TOPIC}:{topic}") for topic in topics]
    return [
        name
        for name in sorted(wanted.topics)
        if any(matches(f"{names.TOPIC}:{name}") for matches in patterns)
    ]


def tasks(
    log: Log, topics: Sequence[str], first: int, last: int, most: int
) -> list[tuple[LogSlice, ...]]:
    """Return the messages of a range, for tasks of about `most` each."""
    if first > last or not topics:
        return []
    check_whole(log, first, last)
    return list(_gathered(log.slices(topics, first, last, most), most))


def _gathered(slices: Iterable[LogSlice], most: int) -> Iterable[tuple[LogSlice, ...]]:
    """Yield slices for one task each, small ones together: a task costs more than many of them."""
    some: list[LogSlice] = []
    for each in slices:
        if some and sum(s.messages for s in some) + each.messages > most:
            yield tuple(some)
            some = []
        some.append(each)
    if some:
        yield tuple(some)


def limited(log: Log, topics: Sequence[str], first: int, last: int, most: int) -> int:
    """Return the position up to which there are at most `most` messages of the topics, `last` at
    most."""
    good, counted, step = first - 1, 0, most
    while good < last:
        bad = min(last, good + step)
        found = _count(log, topics, good + 1, bad)
        if counted + found > most:
            good = _cut(log, topics, good, bad, most - counted)
            break
        good, counted, step = bad, counted + found, 2 * step
    # `most` positions cannot have more messages, even if a log with rough counts reports more.
    return max(good, min(last, first + most - 1))


def _cut(log: Log, topics: Sequence[str], good: int, bad: int, most: int) -> int:
    """Return the last position with at most `most` messages, between `good`, which has not too
    many, and `bad`, which has."""
    while bad - good > 1:
        middle = (good + bad) // 2
        found = _count(log, topics, good + 1, middle)
        if found > most:
            bad = middle
        else:
            good, most = middle, most - found
    return good


def _count(log: Log, topics: Sequence[str], first: int, last: int) -> int:
    return sum(each.messages for each in log.slices(topics, first, last, ALL))
