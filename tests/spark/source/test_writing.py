"""A write happens once, without Spark: stages, their order, tokens, lost answers."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StringType, StructField, StructType

import antiphon
from antiphon.errors import (
    ConnectionLostError,
    FormatError,
    IllegalStateError,
    OutcomeUnknownError,
    TransactionRolledBackError,
)
from antiphon.spark.source import writing
from antiphon.spark.source.writing import BatchWriter, Stage, StreamWriter, Target

TEXT = StructType([StructField("text", StringType())])
_numbers = count(1)


class Task:
    """What Spark tells a task."""

    def __init__(self, partition: int, query: str | None) -> None:
        self._partition, self._query = partition, query

    def partitionId(self) -> int:  # noqa: N802
        return self._partition

    def getLocalProperty(self, name: str) -> str | None:  # noqa: N802
        return self._query if name == "sql.streaming.queryId" else None


class Queue:
    """A queue of an embedded server, and tasks that write into it."""

    def __init__(self, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.target = Target(url, "queue:q")
        self._monkeypatch = monkeypatch

    def task(self, writer: Any, partition: int, *texts: str, query: str = "query") -> Stage:
        self._monkeypatch.setattr(writing, "_task", lambda: Task(partition, query))
        batches = [pa.record_batch({"text": pa.array([text])}) for text in texts]
        stage: Stage = pickle.loads(pickle.dumps(writer)).write(iter(batches))
        return stage

    def texts(self) -> list[str]:
        with antiphon.connect(self.target.url) as context:
            return [message.text for message in context.create_browser(context.create_queue("q"))]


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch) -> Iterator[Queue]:
    url = f"embedded:writing{next(_numbers)}"
    with antiphon.connect(url):  # it lives as long as somebody is there
        yield Queue(url, monkeypatch)


def test_nothing_is_seen_before_the_commit_and_everything_after_it(queue: Queue) -> None:
    writer = BatchWriter(queue.target, "token")
    stages = [queue.task(writer, 0, "a", "b"), queue.task(writer, 1, "c")]
    assert queue.texts() == []
    writer.commit(stages)
    assert queue.texts() == ["a", "b", "c"]


def test_only_the_attempts_that_count_are_committed(queue: Queue) -> None:
    writer = BatchWriter(queue.target, "token")
    queue.task(writer, 0, "failed after staging")
    chosen = queue.task(writer, 0, "a")
    queue.task(writer, 0, "overtaken")
    writer.commit([chosen])
    assert queue.texts() == ["a"]


def test_partitions_are_in_their_order_whichever_is_told_first(queue: Queue) -> None:
    writer = BatchWriter(queue.target, "token")
    stages = [queue.task(writer, n, f"{n}a", f"{n}b") for n in (2, 0, 10, 1)]
    writer.commit(stages)
    assert queue.texts() == ["0a", "0b", "1a", "1b", "2a", "2b", "10a", "10b"]


def test_a_single_write_is_repeated_without_effect(queue: Queue) -> None:
    for _ in range(2):
        writer = BatchWriter(queue.target, "named by the user")
        writer.commit([queue.task(writer, 0, "a")])
    assert queue.texts() == ["a"]


def test_a_batch_of_a_stream_is_repeated_without_effect(queue: Queue) -> None:
    for batch in (0, 0, 1):
        writer = StreamWriter(queue.target)
        writer.commit([queue.task(writer, 0, f"{batch}")], batch)
    writer.commit([queue.task(writer, 0, "of another query", query="other")], 1)
    assert queue.texts() == ["0", "1", "of another query"]


def test_a_stream_without_a_name_is_refused(queue: Queue) -> None:
    with pytest.raises(IllegalStateError, match="which query"):
        queue.task(StreamWriter(queue.target), 0, "a", query="")


def test_tasks_without_rows_need_no_server() -> None:
    target = Target("antiphon://127.0.0.1:1", "t")
    empty = pa.record_batch({"text": pa.array([], pa.string())})
    assert writing.stage(target, iter([])) == writing.stage(target, iter([empty])) == ""
    BatchWriter(target, "token").commit([Stage(0, ""), Stage(1, "")])
    StreamWriter(target).commit([Stage(0, "", "query")], 0)


def test_a_write_of_nothing_does_not_use_up_its_token(queue: Queue) -> None:
    writer = BatchWriter(queue.target, "token")
    writer.commit([queue.task(writer, 0)])
    writer.commit([queue.task(writer, 0), queue.task(writer, 1, "a")])
    assert queue.texts() == ["a"]


def test_abort_takes_nothing_back(queue: Queue) -> None:
    """Spark calls it also when it has not learned how a commit ended."""
    single, stream = BatchWriter(queue.target, "token"), StreamWriter(queue.target)
    one, other = queue.task(single, 0, "a"), queue.task(stream, 0, "b")
    single.abort([one, None])
    stream.abort([other, None], 0)
    assert queue.texts() == []
    single.commit([one])
    stream.commit([other], 0)
    single.abort([one])
    stream.abort([other], 0)
    assert queue.texts() == ["a", "b"]


def test_a_part_that_is_missing_is_an_error(queue: Queue) -> None:
    writer = BatchWriter(queue.target, "token")
    with pytest.raises(IllegalStateError, match="lost a part"):
        writer.commit([queue.task(writer, 0, "a"), None])
    assert queue.texts() == []


def test_a_stage_that_is_gone_is_an_error_and_nothing_is_published(queue: Queue) -> None:
    writer = BatchWriter(queue.target, "token")
    with pytest.raises(TransactionRolledBackError, match="nothing is staged as 'gone'"):
        writer.commit([queue.task(writer, 0, "a"), Stage(1, "gone")])
    assert queue.texts() == []


def test_a_row_that_is_wrong_stages_nothing(queue: Queue) -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"text": pa.array(["a"])})
        yield pa.record_batch({"priority": pa.array([10])})

    with pytest.raises(ValueError, match="priority"):
        writing.stage(queue.target, batches())
    assert queue.texts() == []


def test_more_than_a_connection_holds_is_one_stage(queue: Queue) -> None:
    rows = pa.array([bytes(1 << 20)] * 3)
    batches = (pa.record_batch({"body": rows}) for _ in range(10))
    writing.commit(queue.target.url, "t", [writing.stage(queue.target, batches)])
    with antiphon.connect(queue.target.url) as context:
        assert len(list(context.create_browser(context.create_queue("q")))) == 30


# -- Answers that are lost -------------------------------------------------------------------------


@pytest.fixture
def losing(monkeypatch: pytest.MonkeyPatch) -> Callable[[list[bool | None]], None]:
    """Has connections lost: each at its commit, before it happens (False), after it (True), or not
    at all (None)."""
    connect = antiphon.connect

    def plan(happens: list[bool | None]) -> None:
        @contextmanager
        def connected(url: str, **options: Any) -> Iterator[Any]:
            fate = happens.pop(0)
            with connect(url, **options) as context:
                if fate is None:
                    yield context
                else:
                    yield _Losing(context, fate)

        monkeypatch.setattr(antiphon, "connect", connected)

    return plan


class _Losing:
    def __init__(self, context: antiphon.Context, happens: bool) -> None:
        self._context, self._happens = context, happens

    def commit(self, **what: Any) -> bool:
        if self._happens:
            self._context.commit(**what)
        raise ConnectionLostError("no server")


@pytest.mark.parametrize("happens", [True, False])
def test_a_commit_is_asked_for_again(
    queue: Queue, losing: Callable[[list[bool | None]], None], happens: bool
) -> None:
    writer = BatchWriter(queue.target, "token")
    stages = [queue.task(writer, 0, "a"), queue.task(writer, 1, "b")]
    losing([happens, None, None])
    writer.commit(stages)
    assert queue.texts() == ["a", "b"]


def test_a_commit_that_stays_unknown_says_how_to_go_on(
    queue: Queue, losing: Callable[[list[bool | None]], None]
) -> None:
    writer = BatchWriter(queue.target, "spark/7")
    stage = queue.task(writer, 0, "a")
    losing([False] * writing.COMMIT_ATTEMPTS)
    with pytest.raises(OutcomeUnknownError, match="with the option token='spark/7' publishes them"):
        writer.commit([stage])


# -- What is said before the job starts ------------------------------------------------------------


def test_each_single_write_has_a_token_of_its_own() -> None:
    options = {"url": "antiphon://127.0.0.1:1", "topic": "t"}
    one, other = (writing.batch_writer(options, TEXT, False) for _ in range(2))
    named = writing.batch_writer({**options, "token": "mine"}, TEXT, False)
    assert len({one._token, other._token}) == 2
    assert named._token == "mine"


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"url": "embedded:"}, "a server inside one program"),
        ({"url": "http://x"}, "not an address of a server"),
        ({"topic": "a.*"}, "stands for many topics"),
        ({"topic": None}, "where do the rows go"),
        ({"tokn": "run 7"}, "option 'tokn' is not known.*; there are: url, topic"),
        ({"tpic": "x"}, r"option 'tpic' is not known \(did you mean topic\?\)"),
        ({"path": "/tmp/x"}, "option 'path' is not known: no path is read or written"),
        ({"journal": "/tmp/x"}, "option 'journal' is not known"),
        ({"topic": ""}, "option topic is empty"),
        ({"url": ""}, "option url is empty"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], error: str) -> None:
    every = {"url": "antiphon://127.0.0.1:1", "topic": "t", **options}
    given = {name: value for name, value in every.items() if value is not None}
    for make in (writing.batch_writer, writing.stream_writer):
        with pytest.raises((ValueError, FormatError, antiphon.JMSError), match=error):
            make(given, TEXT, False)


def test_options_come_in_any_case_and_with_those_of_spark_itself() -> None:
    given = {"URL": "antiphon://127.0.0.1:1", "topic": "t"}
    single = writing.batch_writer({**given, "tOkEn": "mine"}, TEXT, False)
    assert single._token == "mine"
    own = {"checkpointlocation": "/tmp/c", "queryname": "q"}
    writing.stream_writer({**given, **own}, TEXT, False)
    with pytest.raises(ValueError, match="option 'checkpointlocation' is not known"):
        writing.batch_writer({**given, **own}, TEXT, False)
    with pytest.raises(ValueError, match=r"option 'tokn' is not known \(did you mean token\?\)"):
        writing.batch_writer({**given, "tokn": "run 7"}, TEXT, False)
    with pytest.raises(ValueError, match="option token is empty"):
        writing.batch_writer({**given, "token": ""}, TEXT, False)


def test_a_stream_takes_no_token_and_nothing_is_overwritten() -> None:
    options = {"url": "antiphon://127.0.0.1:1", "topic": "t"}
    with pytest.raises(ValueError, match="for single writes"):
        writing.stream_writer({**options, "Token": "t"}, TEXT, False)
    for make in (writing.batch_writer, writing.stream_writer):
        with pytest.raises(IllegalStateError, match="mode 'append'"):
            make(options, TEXT, True)
