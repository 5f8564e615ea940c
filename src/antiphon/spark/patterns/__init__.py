"""Event patterns over live topics, whose matches become messages.

    fallen = rise_and_fall("price", rise=0.05, fall=0.03, within="10 minutes", key="symbol")
    run(spark, url, topic="prices.>", pattern=fallen, to="topic:alerts", checkpoint=folder)

Promises: matches depend on the messages alone, not on their batches, nor, within the stated
lateness, on the order in which they came. Each match is published once, even if tasks or programs
are killed and started again in between. Keys that fall silent are forgotten.

Time is that of the messages. It passes when messages come, of any key: a match is written as soon
as the latest message is later by the lateness than the event that completed it. `fields.py` has the
names of the parts of messages. A message without a part that a pattern reads is skipped, and one
that comes too late is left out; `counts` returns how many.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import reduce
from operator import and_
from typing import Any, NamedTuple

from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.stateful_processor import (
    ExpiredTimerInfo,
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
)
from pyspark.sql.types import StructType

from antiphon.spark.patterns import fields as pattern_fields
from antiphon.spark.patterns.counts import AtLeast
from antiphon.spark.patterns.events import (
    Event,
    Field,
    Match,
    Pattern,
    described,
    milliseconds,
    moment,
    positive_milliseconds,
)
from antiphon.spark.patterns.kinds import Absence, Kind, Stateful, Step
from antiphon.spark.patterns.rises import RiseAndFall, RisesBy
from antiphon.spark.patterns.timeline import Memory, Timeline
from antiphon.spark.source import reading

LATENESS = "5 seconds"

BATCH = 100_000
"""Most messages that are read at a time where many wait: Spark keeps them until all are there."""

_OBSERVED = "antiphon.patterns"
_PARTITIONS = "spark.sql.shuffle.partitions"
_SPARKS_OWN = "200"
_FOUND = "key string, time long, text string"


# -- Patterns --------------------------------------------------------------------------------------


def rises_by(value: str, *, rise: float, within: str, key: str | None = None) -> RisesBy:
    """Return the pattern of a number that rises by a part of itself, from any event to a later one.

    `value` names the field with the number (`fields.py`); `rise=0.2` is 20 %. `within` is the time
    from the first of these events to the last, like "10 minutes". `key` names the field by which
    events belong together; without it all do. Raise `ValueError` if a value makes no sense.
    """
    _check_part("rise", rise)
    return RisesBy(rise, value, positive_milliseconds("within", within), key)


def rise_and_fall(
    value: str, *, rise: float, fall: float, within: str, key: str | None = None
) -> RiseAndFall:
    """Return the pattern of a number that rises by a part of itself, and then falls by a part of
    its peak.

    `value` names the field with the number; `rise=0.05, fall=0.03` are 5 % up, then 3 % down, both
    `within` this time. `key` is as for `rises_by`. Raise `ValueError` if a value makes no sense,
    among them a `fall` of 1 or more.
    """
    _check_part("rise", rise)
    _check_part("fall", fall)
    if fall >= 1:
        raise ValueError(f"nothing falls by {fall:.0%} and is still above zero")
    return RiseAndFall(value, rise, fall, positive_milliseconds("within", within), key)


def at_least(
    count: int, *, of: str, where: Pattern[Any], within: str, key: str | None = None
) -> AtLeast:
    """Return the pattern of another pattern, `where`, that is found in at least `count` places.

    `of` names the field with the place of an event; each place has its own events, so `where` has
    no key. `within` is the time from the first of these places to the last. It matches when the
    last place comes in, and again only after there were fewer. `key` is as for `rises_by`.
    """
    if count < 1:
        raise ValueError(f"at_least counts from 1, not {count}")
    if where.key is not None:
        raise ValueError("the pattern inside at_least has no key: each place has its own events")
    return AtLeast(count, of, where, positive_milliseconds("within", within), key)


def event(**fields: str | float | bool) -> Kind:
    """Return the kind of events whose fields have these values, for `absence`.

    Fields are texts: a number is compared with the text as a number, a bool with `true` or `false`.
    A field with a dot in its name is given as `**{"properties.kind": "x"}`.
    """
    return Kind(tuple(fields.items()))


def absence(of: Kind, *, after: Kind | None = None, within: str, key: str | None = None) -> Absence:
    """Return the pattern of an event that does not come.

    It matches when no event of kind `of` has come `within` this time after an event of kind
    `after`; without `after`, after the last event of its own kind. `key` is as for `rises_by`.
    """
    return Absence(of, after or of, positive_milliseconds("within", within), key)


def stateful(
    function: Step, *, fields: Mapping[str, type], forget_after: str, key: str | None = None
) -> Stateful:
    """Return a pattern that is a function of your own.

    `function(state, event)` returns the next state, made of plain values, and its matches, a list
    of dicts. The first state of a key is None, and so is the one after a silence of `forget_after`.
    `fields` are the parts of messages that it reads, each `str` or `float`; `event["name"]` is one
    of them. `key` is as for `rises_by`. The function must depend on its arguments alone: Spark may
    call it again with the same ones.
    """
    if odd := [name for name, kind in fields.items() if kind not in (str, float)]:
        raise ValueError(f"a field is str or float: {', '.join(odd)}")
    wanted = tuple(Field(name, is_number=kind is float) for name, kind in fields.items())
    return Stateful(function, wanted, positive_milliseconds("forget_after", forget_after), key)


def _check_part(what: str, part: float) -> None:
    if not 0 < part < float("inf"):
        raise ValueError(f"{what} is above zero, like 0.05 for 5 %, not {part!r}")


# -- Queries ---------------------------------------------------------------------------------------


def run(
    spark: SparkSession,
    url: str,
    *,
    topic: str,
    pattern: Pattern[Any],
    to: str,
    checkpoint: str,
    time: str = "timestamp",
    lateness: str = LATENESS,
    once: bool = False,
) -> StreamingQuery:
    """Start a query that finds a pattern in topics, and publishes the matches in another topic.

    It reads `topic` (one, or several with commas between them) at the servers at `url` from the
    beginning on, and publishes the messages that `find` returns in topic `to`, each match once.
    `checkpoint` is a folder: started with it again, the query resumes where it was; a checkpoint of
    another pattern or of other topics is refused. `time` and `lateness` are as for `find`. With
    `once` the query ends when it has read all present messages; otherwise `stop()` of the returned
    query ends it.
    """
    purpose = f"{described(pattern)} in {topic} by {time}"
    reader = spark.readStream.format("antiphon").schema(_looked_at(pattern, time))
    reader = reader.option("maxMessagesPerTrigger", BATCH).option("purpose", purpose)
    messages = reader.option("url", url).option("topic", topic).load()
    found = find(messages, pattern, time=time, lateness=lateness)
    writer = found.writeStream.format("antiphon").option("url", url).option("topic", to)
    writer = writer.option("checkpointLocation", checkpoint)
    if once:
        writer = writer.trigger(availableNow=True)
    with _a_partition_for_each_core(spark):
        return writer.start()


def find(
    messages: DataFrame,
    pattern: Pattern[Any],
    *,
    time: str = "timestamp",
    lateness: str = LATENESS,
) -> DataFrame:
    """Return the matches of a pattern in a stream of messages, as messages that can be written.

    Their type is the pattern's name, their key that of the events, also as a property, and the text
    is JSON; `timestamp` is when the match was complete. `time` names the field with the time of an
    event. An event that is more than `lateness` behind the latest one may come too late, and is
    then left out: `counts` has how many. Raise `ValueError` if `messages` is not a stream.
    """
    milliseconds("lateness", lateness)
    if not messages.isStreaming:
        raise ValueError("patterns are found in streams: use readStream, also for what is there")
    rows = _events(messages, pattern, time).withWatermark("time", lateness)
    # Before the filter: a message that is skipped lets time pass all the same.
    rows = rows.observe(
        _OBSERVED,
        f.count(f.lit(1)).alias("messages"),
        f.count_if(~f.col("usable")).alias("skipped"),
    )
    grouped = rows.filter("usable").drop("usable").groupBy("key")
    found = grouped.transformWithState(_Finder(pattern), _FOUND, "Append", "EventTime")
    return found.select(
        f.timestamp_millis("time").alias("timestamp"),
        f.lit(pattern.name).alias("type"),
        "key",
        _properties(pattern).alias("properties"),
        "text",
    )


class Counts(NamedTuple):
    """How many messages a query saw in the batches that Spark remembers: the last hundred."""

    messages: int
    skipped: int  # they lack the key, the time or a field that the pattern reads
    late: int  # they came after the watermark had passed them


def counts(query: StreamingQuery) -> Counts:
    """Return how many messages a query of `find` or `run` took, skipped, and got too late."""
    batches = [one for one in query.recentProgress if _OBSERVED in one.observedMetrics]
    seen = [batch.observedMetrics[_OBSERVED] for batch in batches]
    operators = [one for batch in batches for one in batch.stateOperators]
    return Counts(
        sum(row.messages for row in seen),
        sum(row.skipped for row in seen),
        sum(operator.numRowsDroppedByWatermark for operator in operators),
    )


def _looked_at(pattern: Pattern[Any], time: str) -> StructType:
    """Return the columns that the pattern needs; no others are read."""
    names = [time, *(field.name for field in pattern.fields)]
    names += [] if pattern.key is None else [pattern.key]
    wanted = {"position", *(column for name in names for column in pattern_fields.columns_of(name))}
    return StructType([field for field in reading.schema().fields if field.name in wanted])


def _events(messages: DataFrame, pattern: Pattern[Any], time: str) -> DataFrame:
    key = f.lit("") if pattern.key is None else pattern_fields.text_of(pattern.key)
    # The log's own precision: the watermark has no finer one.
    at = f.unix_millis(pattern_fields.time_of(time))
    values = [pattern_fields.column(field) for field in pattern.fields]
    required = [
        value for value, field in zip(values, pattern.fields, strict=True) if field.is_required
    ]
    return messages.select(
        key.alias("key"),
        f.timestamp_millis(at).alias("time"),
        reduce(and_, (column.isNotNull() for column in (key, at, *required))).alias("usable"),
        at.alias("at"),
        "position",
        *(value.alias(f"value{number}") for number, value in enumerate(values)),
    )


def _properties(pattern: Pattern[Any]) -> Column:
    """Return the properties of a match: the key under its own name, so that consumers can select by
    it."""
    name = (pattern.key or "").rpartition(".")[2]
    pair = [f.lit(name), f.col("key")] if name.isidentifier() else []
    return f.create_map(*pair).cast("map<string,string>")


@contextmanager
def _a_partition_for_each_core(spark: SparkSession) -> Iterator[None]:
    """Set as many partitions as there are cores, unless the user has chosen: each of Spark's own
    200 would start, and store its state, with every batch."""
    if spark.conf.get(_PARTITIONS) != _SPARKS_OWN:
        yield
        return
    spark.conf.set(_PARTITIONS, spark.sparkContext.defaultParallelism)
    try:
        yield
    finally:
        spark.conf.set(_PARTITIONS, _SPARKS_OWN)


class _Finder(StatefulProcessor):
    """Keeps a timeline for each key, with at most one timer."""

    def __init__(self, pattern: Pattern[Any]) -> None:
        self._pattern = pattern

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._stored = handle.getValueState("memory", "bytes binary")
        self._timeline = Timeline(self._pattern)
        self._names = [field.name for field in self._pattern.fields]

    def handleInputRows(  # noqa: N802
        self,
        key: Any,
        rows: Iterator[Row],
        timerValues: TimerValues,  # noqa: N803
    ) -> Iterator[Row]:
        memory = self._memory()
        for _key, _time, at, position, *values in rows:
            memory.held_back.append(
                Event(at, position, dict(zip(self._names, values, strict=True)))
            )
        self._keep(memory)
        return iter(())  # matches come with the timer

    def handleExpiredTimer(  # noqa: N802
        self,
        key: Any,
        timerValues: TimerValues,  # noqa: N803
        expiredTimerInfo: ExpiredTimerInfo,  # noqa: N803
    ) -> Iterator[Row]:
        memory = self._memory()
        memory.wakes_at = None
        matches = self._timeline.advance(memory, timerValues.getCurrentWatermarkInMs())
        self._keep(memory)
        for match in matches:
            yield Row(key=self._key(key), time=match.time, text=self._text(key, match))

    def close(self) -> None:
        pass

    def _memory(self) -> Memory[Any]:
        stored = self._stored.get()
        return self._timeline.read(stored[0] if stored else None)

    def _keep(self, memory: Memory[Any]) -> None:
        due = self._timeline.due(memory)
        if due is None:
            self._stored.clear()
            return
        if memory.wakes_at is None or due < memory.wakes_at:
            if memory.wakes_at is not None:
                self._handle.deleteTimer(memory.wakes_at)
            self._handle.registerTimer(due)
            memory.wakes_at = due
        self._stored.update((self._timeline.stored(memory),))

    def _key(self, key: tuple[str]) -> str | None:
        return None if self._pattern.key is None else key[0]

    def _text(self, key: tuple[str], match: Match) -> str:
        told = {"pattern": self._pattern.name, "key": self._key(key), "time": moment(match.time)}
        return json.dumps({**told, "found": match.found})
