"""The filters of a query that the source carries out itself.

Promise: a filter is applied exactly, or left to Spark. Filters on topics, positions and stamps (the
log's clock, which never goes back) leave out whole parts of the log. `timestamp` is the sender's
clock, which may go back: it is compared message by message, where the messages are read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from antiphon.spark.source.reading_options import stamp_after, stamp_at

POSITION_MAX = (1 << 63) - 1


class Wanted(NamedTuple):
    """The part of the log that filters leave."""

    first: int = 1
    last: int = POSITION_MAX
    stamp_from: int | None = None  # ms, both included
    stamp_to: int | None = None
    topics: frozenset[str] | None = None  # None: all
    timestamps: tuple[tuple[str, datetime], ...] = ()  # comparisons by name, all of which hold


def take(filters: Iterable[Filter]) -> tuple[Wanted, list[Filter]]:
    """Return the part of the log that the filters ask for together, and the filters that Spark has
    to apply itself."""
    wanted, rest = Wanted(), []
    for each in filters:
        taken = _take(wanted, each)
        if taken is None:
            rest.append(each)
        else:
            wanted = taken
    return wanted, rest


def _take(wanted: Wanted, one: Filter) -> Wanted | None:
    """Return the part of the log with this filter, too; None: the source cannot apply it."""
    take_it = _TAKEN.get(getattr(one, "attribute", ()))
    if take_it is None:
        return None
    # None of these columns is ever null.
    return wanted if isinstance(one, IsNotNull) else take_it(wanted, one)


def _topic(wanted: Wanted, one: Filter) -> Wanted | None:
    if not isinstance(one, EqualTo | In):
        return None
    names = frozenset(one.value if isinstance(one, In) else [one.value])
    if not all(isinstance(name, str) for name in names):
        return None
    return wanted._replace(topics=names if wanted.topics is None else names & wanted.topics)


def _position(wanted: Wanted, one: Filter) -> Wanted | None:
    if not isinstance(one, _COMPARISONS) or not isinstance(one.value, int):
        return None
    low, high, value = wanted.first, wanted.last, one.value
    if isinstance(one, EqualTo | GreaterThanOrEqual):
        low = max(low, value)
    if isinstance(one, EqualTo | LessThanOrEqual):
        high = min(high, value)
    if isinstance(one, GreaterThan):
        low = max(low, value + 1)
    if isinstance(one, LessThan):
        high = min(high, value - 1)
    return wanted._replace(first=low, last=high)


def _stamp(wanted: Wanted, one: Filter) -> Wanted | None:
    value = _time(one)
    if value is None:
        return None
    low, high = wanted.stamp_from, wanted.stamp_to
    if isinstance(one, EqualTo | GreaterThanOrEqual):
        low = max(low or 0, stamp_at(value))
    if isinstance(one, GreaterThan):
        low = max(low or 0, stamp_after(value))
    if isinstance(one, EqualTo | LessThanOrEqual):
        high = _smaller(high, stamp_after(value) - 1)
    if isinstance(one, LessThan):
        high = _smaller(high, stamp_at(value) - 1)
    return wanted._replace(stamp_from=low, stamp_to=high)


def _timestamp(wanted: Wanted, one: Filter) -> Wanted | None:
    value = _time(one)
    if value is None:
        return None
    return wanted._replace(timestamps=(*wanted.timestamps, (type(one).__name__, value)))


def _time(one: Filter) -> datetime | None:
    """Return the time that a filter compares with; None if it compares with none."""
    value = one.value if isinstance(one, _COMPARISONS) else None
    return value if isinstance(value, datetime) and value.tzinfo is not None else None


def _smaller(one: int | None, other: int) -> int:
    return other if one is None else min(one, other)


_COMPARISONS = (EqualTo, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual)
_TAKEN: dict[tuple[str, ...], Callable[[Wanted, Filter], Wanted | None]] = {
    ("topic",): _topic,
    ("position",): _position,
    ("stamp",): _stamp,
    ("timestamp",): _timestamp,
}
_COMPUTE: dict[str, Callable[[Any, Any], Any]] = {
    "EqualTo": pc.equal,
    "GreaterThan": pc.greater,
    "GreaterThanOrEqual": pc.greater_equal,
    "LessThan": pc.less,
    "LessThanOrEqual": pc.less_equal,
}


def columns_for(wanted: Wanted, columns: list[str]) -> list[str]:
    """Return the columns to read: the query's, and those that filters compare."""
    needed = ["timestamp"] if wanted.timestamps and "timestamp" not in columns else []
    return [*columns, *needed]


def compared(
    batches: Iterable[pa.RecordBatch], wanted: Wanted, columns: list[str]
) -> Iterator[pa.RecordBatch]:
    """Yield the rows that pass all comparisons, with the columns of the query."""
    for batch in batches:
        for name, value in wanted.timestamps:
            time = pa.scalar(value, batch.schema.field("timestamp").type)
            batch = batch.filter(_COMPUTE[name](batch.column("timestamp"), time))
        yield batch.select(columns)
