"""Options, filters and plans, over a log that is a list: what is read, and by which task."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import (
    DataSourceReader,
    EqualNullSafe,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.types import LongType, StringType, StructField, StructType

import antiphon
from antiphon import LogBounds, LogSlice
from antiphon.errors import ConfigurationError, IllegalStateError, MessagesGoneError
from antiphon.model.destinations import matcher
from antiphon.spark.logs import arrow
from antiphon.spark.logs.server_log import ServerLog
from antiphon.spark.source import filters, planning, reading
from antiphon.spark.source.filters import Wanted
from antiphon.spark.source.reading_options import parse

HERE = {"url": "antiphon://h:1", "topic": "a"}
STAMP_MS = 1000
"""Between the stamps of two messages."""


class ListLog:
    """Topics by position, from 1 on; accepted a second from each other. `first`: what is before
    it is gone."""

    def __init__(self, topics: Sequence[str], first: int = 1) -> None:
        self.topics = list(topics)
        self.first = first
        self.looked_at = 0  # positions, for slices

    def bounds(self) -> LogBounds:
        return LogBounds(self.first, len(self.topics))

    def position_at(self, stamp: int) -> int:
        return min(max(self.first, -(-stamp // STAMP_MS)), len(self.topics) + 1)

    def slices(self, topics: Sequence[str], first: int, last: int, most: int) -> list[LogSlice]:
        assert self.first <= first <= last <= len(self.topics)
        self.looked_at += last - first + 1
        matches = [matcher(f"topic:{topic}") for topic in topics]
        found: list[LogSlice] = []
        for name in sorted(set(self.topics)):
            if any(match(f"topic:{name}") for match in matches):
                own = [p for p in range(first, last + 1) if self.topics[p - 1] == name]
                parts = (own[i : i + most] for i in range(0, len(own), most))
                found += [LogSlice(name, part[0], part[-1], len(part)) for part in parts]
        return found

    def read(self, piece: LogSlice, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        own = [p for p in range(piece.first, piece.last + 1) if self.topics[p - 1] == piece.topic]
        values = {
            "position": own,
            "timestamp": [p * 1_000_000 for p in own],  # in us
        }
        arrays = [pa.array(values[name], arrow.SCHEMA.field(name).type) for name in names]
        yield pa.RecordBatch.from_arrays(arrays, schema=arrow.schema(names))


def at(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


# -- Options ---------------------------------------------------------------------------------------


def test_options_may_be_written_in_any_case() -> None:
    given = {"URL": "antiphon://h:1", "Topic": " a.*, b ,a.*", "startingposition": "7"}
    found = parse(given, stream=False)
    assert (found.url, found.topics, found.start, found.end) == (
        "antiphon://h:1",
        ("a.*", "b"),
        7,
        "latest",
    )


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("a,b", ("a", "b")),
        (r"a\,b", ("a,b",)),
        (r"a\,b , c\\,d,", ("a,b", "c\\", "d")),
        (r"a\b", (r"a\b",)),
        (r"a\\b", (r"a\b",)),
        (r"\,", (",",)),
        ("topic:a,topic:queue:q", ("a", "queue:q")),
        ("other:q", ("other:q",)),
        ('["a"', ('["a"',)),
    ],
)
def test_any_topic_can_be_named(text: str, names: tuple[str, ...]) -> None:
    assert parse(HERE | {"topic": text}, stream=False).topics == names


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"topic": "a"}, "where to read: option url, or journal .* or archive"),
        (HERE | {"journal": "/j"}, "where to read"),
        ({"url": "antiphon://h:1"}, "option topic is missing"),
        (HERE | {"topic": "a b"}, "option topic: 'a b' is not a name"),
        (HERE | {"topic": " , "}, "option topic is missing"),
        (HERE | {"position": "1"}, r"option 'position' is not known.*; there are: url, journal"),
        (HERE | {"startPosition": "1"}, r"\(did you mean startingPosition\?\)"),
        (HERE | {"path": "/x"}, "option 'path' is not known: no path is read"),
        (HERE | {"topic": "queue:q"}, "'queue:q' cannot be read, since only topics are tables"),
        (HERE | {"topic": "a,temp-queue:1.1"}, "'temp-queue:1.1' cannot be read"),
        (HERE | {"topic": "topic:"}, "option topic: '' is not a name"),
        (HERE | {"archive": ""}, "option archive is empty"),
        (HERE | {"purpose": "x"}, "option purpose is for readStream"),
        (HERE | {"startingPosition": "0"}, "option startingPosition is earliest, latest"),
        (HERE | {"startingPosition": "-1"}, "option startingPosition"),
        (HERE | {"startingPosition": "Earliest"}, "option startingPosition"),
        (HERE | {"endingPosition": "2026-11-15"}, "option endingPosition .* with its zone"),
        (HERE | {"endingPosition": "2026-11-15T10:00:00"}, "with its zone"),
        (HERE | {"messagesPerTask": "0"}, "option messagesPerTask is a number of messages"),
        (HERE | {"messagesPerTask": "1e6"}, "option messagesPerTask"),
        (HERE | {"pushFilters": "yes"}, "option pushFilters is true or false"),
        (HERE | {"maxMessagesPerTrigger": "5"}, "option maxMessagesPerTrigger is for readStream"),
    ],
)
def test_a_wrong_option_is_named(given: dict[str, str], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        parse(given, stream=False)


def test_a_stream_has_no_end() -> None:
    with pytest.raises(ValueError, match="endingPosition is for read"):
        parse(HERE | {"endingPosition": "5"}, stream=True)
    assert parse(HERE | {"maxMessagesPerTrigger": "5"}, stream=True).messages_per_trigger == 5


def test_an_archive_may_stand_alone_or_before_what_is_newer() -> None:
    for more in ({}, {"url": "antiphon://h:1"}, {"journal": "/j"}):
        assert parse({"topic": "a", "archive": "/a", **more}, stream=False).archive == "/a"


def test_a_server_inside_a_process_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"inside one process.* with the option journal"):
        ServerLog("embedded:///tmp/x")


# -- Ranges ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        ("earliest", "latest", (3, 10)),
        ("latest", "latest", (11, 10)),
        ("earliest", "earliest", (3, 2)),
        ("3", "10", (3, 10)),
        ("5", "5", (5, 5)),
        ("11", "10", (11, 10)),
        ("1970-01-01T00:00:05Z", "1970-01-01T00:00:07Z", (5, 7)),
        ("1970-01-01T00:00:04.500Z", "1970-01-01T00:00:07.999Z", (5, 7)),
        ("1970-01-01T01:00:05+01:00", "2100-01-01T00:00:00Z", (5, 10)),
        ("1970-01-01T00:00:00Z", "1970-01-01T00:00:00Z", (3, 2)),
        ("2100-01-01T00:00:00Z", "latest", (11, 10)),
    ],
)
def test_a_batch_is_a_range_with_both_ends(start: str, end: str, expected: tuple[int, int]) -> None:
    options = parse(HERE | {"startingPosition": start, "endingPosition": end}, stream=False)
    assert planning.batch_range(ListLog("a" * 10, first=3), options) == expected


def test_what_is_gone_is_an_error() -> None:
    options = parse(HERE | {"startingPosition": "2"}, stream=False)
    with pytest.raises(MessagesGoneError, match=r"messages 2 to 6 are gone.* earliest"):
        planning.batch_range(ListLog("a" * 10, first=7), options)


def test_an_end_behind_the_last_message_is_an_error() -> None:
    options = parse(HERE | {"endingPosition": "11"}, stream=False)
    with pytest.raises(IllegalStateError, match="endingPosition is 11, and the last message is 10"):
        planning.batch_range(ListLog("a" * 10), options)


def test_a_log_with_a_gap_is_not_read_over_it() -> None:
    class Gapped(ListLog):
        def missing(self, first: int, last: int) -> list[LogBounds]:
            return [LogBounds(4, 5)] if first <= 5 and last >= 4 else []

    log = Gapped("a" * 10)
    with pytest.raises(MessagesGoneError, match=r"messages 4 to 5 .* startingPosition 6"):
        planning.tasks(log, ["a"], 3, 10, 5)
    assert planning.tasks(log, ["a"], 6, 10, 5) == [(LogSlice("a", 6, 10, 5),)]


# -- Tasks -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(20))
def test_every_message_is_read_by_one_task(seed: int) -> None:
    random = Random(seed)
    log = ListLog(random.choices(("a", "b.c", "b.d", "other"), k=50))
    most = random.choice((1, 5, 100))
    found = planning.tasks(log, ["a", "b.*"], 5, 45, most)
    read = [
        p
        for task in found
        for piece in task
        for p in range(piece.first, piece.last + 1)
        if log.topics[p - 1] == piece.topic
    ]
    assert sorted(read) == [p for p in range(5, 46) if log.topics[p - 1] != "other"]
    assert all(sum(piece.messages for piece in task) <= most for task in found)


def test_small_topics_share_a_task() -> None:
    log = ListLog([f"t{n}" for n in range(100)])
    assert len(planning.tasks(log, ["*"], 1, 100, 40)) == 3


def test_where_there_is_nothing_there_is_no_task() -> None:
    assert planning.tasks(ListLog("aaa"), ["a"], 4, 3, 10) == []
    assert planning.tasks(ListLog("aaa"), [], 1, 3, 10) == []


# -- Filters ---------------------------------------------------------------------------------------

POSITION, TOPIC, STAMP, TIME = ("position",), ("topic",), ("stamp",), ("timestamp",)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([EqualTo(POSITION, 7)], Wanted(7, 7)),
        ([GreaterThan(POSITION, 7), LessThan(POSITION, 9)], Wanted(8, 8)),
        ([GreaterThanOrEqual(POSITION, 7), LessThanOrEqual(POSITION, 9)], Wanted(7, 9)),
        ([GreaterThan(POSITION, -5)], Wanted(1)),
        ([EqualTo(TOPIC, "a")], Wanted(topics=frozenset("a"))),
        ([In(TOPIC, ("a", "b")), In(TOPIC, ("b", "c"))], Wanted(topics=frozenset("b"))),
        ([GreaterThan(STAMP, at(2))], Wanted(stamp_from=2001)),
        ([GreaterThanOrEqual(STAMP, at(2))], Wanted(stamp_from=2000)),
        ([GreaterThanOrEqual(STAMP, at(2.0005))], Wanted(stamp_from=2001)),
        ([LessThan(STAMP, at(2))], Wanted(stamp_to=1999)),
        ([LessThan(STAMP, at(2.0005))], Wanted(stamp_to=2000)),
        ([LessThanOrEqual(STAMP, at(2))], Wanted(stamp_to=2000)),
        ([EqualTo(STAMP, at(2))], Wanted(stamp_from=2000, stamp_to=2000)),
        ([GreaterThan(TIME, at(2))], Wanted(timestamps=(("GreaterThan", at(2)),))),
        ([IsNotNull(POSITION), IsNotNull(TOPIC), IsNotNull(STAMP), IsNotNull(TIME)], Wanted()),
    ],
)
def test_filters_are_taken(given: list[Any], expected: Wanted) -> None:
    assert filters.take(given) == (expected, [])


@pytest.mark.parametrize(
    "given",
    [
        EqualTo(("text",), "x"),
        IsNotNull(("text",)),
        IsNull(POSITION),
        Not(EqualTo(POSITION, 3)),
        In(POSITION, (3, 4)),
        EqualNullSafe(TOPIC, "a"),
        EqualTo(TOPIC, None),
        In(TOPIC, ("a", None)),
        StringStartsWith(TOPIC, "a"),
        GreaterThan(TOPIC, "a"),
        EqualTo(POSITION, 3.5),
        GreaterThan(STAMP, datetime(2026, 1, 1)),
        GreaterThan(TIME, "now"),
        EqualTo(("properties", "position"), 3),
    ],
)
def test_what_cannot_be_taken_exactly_is_given_back(given: Any) -> None:
    assert filters.take([given]) == (Wanted(), [given])


def batch_reader(monkeypatch: pytest.MonkeyPatch, log: ListLog, **options: str) -> Any:
    monkeypatch.setattr(reading, "log_of", lambda _: log)
    given = {**HERE, "pushFilters": "true", **options}
    return reading.batch_reader(given, schema_of("position"))


def schema_of(*names: str) -> StructType:
    return StructType([field for field in reading.schema().fields if field.name in names])


def read_all(reader: Any, partitions: list[Any]) -> list[int]:
    reader = pickle.loads(pickle.dumps(reader))  # as Spark does
    batches = [batch for each in partitions for batch in reader.read(each)]
    assert all(batch.schema.names == ["position"] for batch in batches)
    return sorted(p for batch in batches for p in batch.column("position").to_pylist())


COMPARISONS = {
    EqualTo: "__eq__",
    GreaterThan: "__gt__",
    GreaterThanOrEqual: "__ge__",
    LessThan: "__lt__",
    LessThanOrEqual: "__le__",
}


@pytest.mark.parametrize("seed", range(40))
def test_a_filtered_query_reads_what_the_filters_leave(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    random = Random(seed)
    log = ListLog(random.choices(("a", "b", "c"), k=30))
    given: list[Any] = []
    left = [p for p in range(1, 31) if log.topics[p - 1] != "c"]
    for _ in range(random.randint(1, 3)):
        kind, compare = random.choice(list(COMPARISONS.items()))
        column = random.choice((POSITION, STAMP, TIME))
        value = random.randint(0, 32)
        half = random.choice((0, 0.0004, 0.5)) if column != POSITION else 0
        given.append(kind(column, value if column == POSITION else at(value + half)))
        left = [p for p in left if getattr(float(p), compare)(value + half)]
    if random.random() < 0.5:
        given.append(EqualTo(TOPIC, "b"))
        left = [p for p in left if log.topics[p - 1] == "b"]
    reader = batch_reader(monkeypatch, log, topic="a,b", messagesPerTask="4")
    assert reader.pushFilters(given) == []
    assert read_all(reader, reader.partitions()) == left


def test_filters_are_left_to_spark_unless_it_is_said_that_a_frame_is_used_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reader = batch_reader(monkeypatch, ListLog("a"), pushFilters="false")
    assert reader.pushFilters.__func__ is DataSourceReader.pushFilters


def test_filters_leave_out_what_need_not_be_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    log = ListLog("a" * 1000)
    reader = batch_reader(monkeypatch, log)
    reader.pushFilters([GreaterThan(POSITION, 900), LessThanOrEqual(STAMP, at(950))])
    assert read_all(reader, reader.partitions()) == list(range(901, 951))
    assert log.looked_at == 50
    reader.pushFilters([EqualTo(TOPIC, "b")])
    assert reader.partitions() == []
    assert log.looked_at == 50


def test_a_task_that_finds_less_than_was_planned_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    url = "embedded:less-than-planned"
    with antiphon.connect(url) as ctx:
        for _ in range(10):
            ctx.create_producer().send(ctx.create_topic("a"), "x")
        log = ServerLog("antiphon://h:1")
        monkeypatch.setattr(log, "_url", url)
        (piece,) = log.slices(["a"], 1, 10, 100)
        assert sum(batch.num_rows for batch in log.read(piece, ["position"])) == 10
        with pytest.raises(MessagesGoneError, match=r"had 11 messages from 1 to 10 .* has 10 now"):
            list(log.read(piece._replace(messages=11), ["position"]))


# -- Columns ---------------------------------------------------------------------------------------


def test_columns_are_chosen_by_a_schema() -> None:
    assert reading.chosen_columns(schema_of("text", "position")) == ["position", "text"]
    assert reading.chosen_columns(reading.schema()) == arrow.SCHEMA.names


@pytest.mark.parametrize(
    ("field", "complaint"),
    [
        (StructField("size", LongType()), "no column 'size', only: position, topic"),
        (StructField("position", StringType()), "'position' is of type bigint, not string"),
        (StructField("position", LongType(), nullable=False), "'position' may be null"),
    ],
)
def test_a_schema_with_something_else_is_refused(field: StructField, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        reading.chosen_columns(StructType([field]))


# -- Streams ---------------------------------------------------------------------------------------


def stream(monkeypatch: pytest.MonkeyPatch, log: ListLog, **options: str) -> Any:
    monkeypatch.setattr(reading, "log_of", lambda _: log)
    return reading.StreamReader({**HERE, **options}, schema_of("position"))


def offset(position: int) -> Mapping[str, int]:
    return {"position": position}


def test_a_stream_begins_where_it_is_told_to(monkeypatch: pytest.MonkeyPatch) -> None:
    log = ListLog("a" * 10, first=3)
    for start, expected in {"earliest": 2, "latest": 10, "5": 4, "1970-01-01T00:00:07Z": 6}.items():
        assert stream(monkeypatch, log, startingPosition=start).initialOffset() == offset(expected)


def test_offsets_are_json() -> None:
    assert json.loads(json.dumps(offset(5))) == offset(5)


def test_a_checkpoint_is_for_one_purpose(monkeypatch: pytest.MonkeyPatch) -> None:
    log = ListLog("a" * 10)
    rises, falls = (stream(monkeypatch, log, purpose=text) for text in ("rises", "falls"))
    begun = rises.initialOffset()
    read = rises.latestOffset(begun, ReadAllAvailable())
    assert read == {"position": 10, "purpose": "rises"} == json.loads(json.dumps(read))
    assert len(rises.partitions(begun, read)) == 1
    assert rises.latestOffset(read, ReadAllAvailable()) == read
    for use in (
        lambda: falls.latestOffset(read, ReadAllAvailable()),
        lambda: falls.partitions(begun, read),
    ):
        with pytest.raises(IllegalStateError, match="something else: for rises, and this is falls"):
            use()
    older = {"position": 4}  # of version 0.1, or of a query without a purpose
    assert falls.latestOffset(older, ReadAllAvailable()) == {"position": 10, "purpose": "falls"}
    assert stream(monkeypatch, log).latestOffset(read, ReadAllAvailable()) == read


def test_a_stream_does_not_go_back_where_a_server_is_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = ListLog("a" * 10)
    source = stream(monkeypatch, log)
    assert source.latestOffset(offset(4), ReadAllAvailable()) == offset(10)
    del log.topics[6:]
    assert source.latestOffset(offset(10), ReadAllAvailable()) == offset(10)
    assert source.partitions(offset(10), offset(10)) == []


def test_a_stream_whose_messages_are_gone_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    source = stream(monkeypatch, ListLog("a" * 10, first=7))
    with pytest.raises(MessagesGoneError, match=r"messages 5 to 6 are gone.*new checkpoint"):
        source.latestOffset(offset(4), ReadAllAvailable())
    assert source.latestOffset(offset(6), ReadAllAvailable()) == offset(10)
    # With nothing after them, nothing is missing.
    gone = stream(monkeypatch, ListLog("a" * 10, first=11))
    assert gone.latestOffset(offset(10), ReadAllAvailable()) == offset(10)


def test_a_run_that_reads_what_is_available_ends_there(monkeypatch: pytest.MonkeyPatch) -> None:
    log = ListLog("a" * 10)
    source = stream(monkeypatch, log)
    source.prepareForTriggerAvailableNow()
    log.topics += "a" * 10
    assert source.latestOffset(offset(0), ReadMaxRows(6)) == offset(6)
    assert source.latestOffset(offset(6), ReadMaxRows(6)) == offset(10)
    assert source.latestOffset(offset(10), ReadMaxRows(6)) == offset(10)


@pytest.mark.parametrize("seed", range(20))
def test_a_limit_is_kept_and_every_batch_gets_on(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    random = Random(seed)
    rare = random.choice((0.001, 0.05, 0.5, 1.0))
    log = ListLog([("a" if random.random() < rare else "other") for _ in range(800)])
    most = random.choice((1, 3, 50))
    source = stream(monkeypatch, log, maxMessagesPerTrigger=str(most))
    limit = source.getDefaultReadLimit()
    assert limit == ReadMaxRows(most)
    done, read, batches = offset(0), [], 0
    while (end := source.latestOffset(done, limit)) != done:
        found = read_all(source, source.partitions(done, end))
        assert end["position"] > done["position"]
        assert len(found) <= most
        read += found
        done, batches = end, batches + 1
    assert done == offset(800)
    assert read == [p for p in range(1, 801) if log.topics[p - 1] == "a"]
    assert batches <= -(-len(read) // most) + 1  # none is smaller than it must be


def test_without_a_limit_a_batch_has_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    source = stream(monkeypatch, ListLog("a" * 10))
    assert source.getDefaultReadLimit() == ReadAllAvailable()
    assert source.reportLatestOffset() == offset(10)
    assert source.commit(offset(3)) is None


def test_a_log_that_counts_roughly_does_not_stop_a_stream() -> None:
    class Rough(ListLog):
        def slices(self, *args: Any) -> list[LogSlice]:
            return [each._replace(messages=50) for each in super().slices(*args)]

    log = Rough("ab" * 20)
    assert planning.limited(log, ["a", "b"], 1, 40, 5) == 5


def test_a_limit_looks_at_little_more_than_it_takes() -> None:
    log = ListLog("a" * 10_000)
    assert planning.limited(log, ["a"], 1, 10_000, 10) == 10
    assert log.looked_at < 100
