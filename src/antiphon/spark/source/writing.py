"""`df.write` and `df.writeStream`: rows are published as messages, exactly once.

A task sends its rows in a transaction and stages it: the servers keep them invisible. When all
tasks are done the driver commits the stages of exactly those attempts that Spark counts, in one
entry of the log. So rows of an attempt that was lost, repeated or overtaken never become visible,
and the rows of a batch become visible together, in the order of the partitions and inside of each.

The commit has a token: of a stream the query and the batch, of a single write a random one, or the
user's. A batch that Spark repeats because the end of its commit is not known is published once.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

import antiphon
from antiphon.errors import (
    IllegalStateError,
    JMSError,
    OutcomeUnknownError,
    TransactionRolledBackError,
)
from antiphon.spark.source import options, rows

if TYPE_CHECKING:
    import pyarrow as pa

COMMIT_ATTEMPTS = 3
"""Attempts to commit; each waits for servers as long as a session lives. The token makes them one
commit."""


class Target(NamedTuple):
    """The servers and the topic of the rows."""

    url: str
    topic: str | None  # of rows without one


@dataclass(frozen=True)
class Stage(WriterCommitMessage):
    """The report of a task: the handle of its stage."""

    partition: int
    handle: str  # empty: it had no rows
    query: str = ""  # of a stream


class BatchWriter(DataSourceArrowWriter):
    """Publishes the rows of `df.write` in one commit, with the token of the write."""

    def __init__(self, target: Target, token: str) -> None:
        self._target = target
        self._token = token

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Stage:
        return Stage(_task().partitionId(), stage(self._target, iterator))

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        commit(self._target.url, self._token, handles(messages))

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Do nothing: Spark also calls this after a commit whose end is not known. Servers forget
        stages that are not committed."""


class StreamWriter(DataSourceStreamArrowWriter):
    """Publishes each batch of `df.writeStream` in one commit; query and batch are its token."""

    def __init__(self, target: Target) -> None:
        self._target = target

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Stage:
        task = _task()
        # The identity in the checkpoint: the same after a restart.
        query = task.getLocalProperty("sql.streaming.queryId")
        if not query:
            raise IllegalStateError("Spark does not say which query this is")
        return Stage(task.partitionId(), stage(self._target, iterator), query)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        if staged := handles(messages):
            queries = {m.query for m in messages if isinstance(m, Stage)}
            commit(self._target.url, f"spark/{queries.pop()}/{batchId}", staged)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Do nothing, as for a single write."""


def batch_writer(given: Mapping[str, str], schema: StructType, overwrite: bool) -> BatchWriter:
    """Return the writer of a single write. Raise an error for wrong options or columns."""
    values = options.known(given, ("url", "topic", "token"))
    target = _target(values, schema, overwrite)
    return BatchWriter(target, values.get("token") or f"spark/{uuid.uuid4()}")


def stream_writer(given: Mapping[str, str], schema: StructType, overwrite: bool) -> StreamWriter:
    """Return the writer of a stream. Raise an error for wrong options or columns."""
    if any(name.lower() == "token" for name in given):
        raise ValueError("option token is for single writes: a stream has one for each batch")
    values = options.known(given, ("url", "topic", *options.SPARKS_OWN))
    return StreamWriter(_target(values, schema, overwrite))


def _target(values: Mapping[str, str], schema: StructType, overwrite: bool) -> Target:
    """Return the target of the rows. Raise all errors that can be found before the job."""
    if overwrite:
        raise IllegalStateError(
            "messages that were published cannot be replaced: write in mode 'append'"
        )
    url, topic = _servers(values.get("url")), values.get("topic")
    rows.check_columns(schema, topic)
    if topic is not None:
        rows.destination(topic)
    return Target(url, topic)


def _servers(given: str | None) -> str:
    """Return the URL of servers that tasks can reach: `given`, or this program's default."""
    _check_reachable(given or "")
    with antiphon.open_log(given) as log:  # checks the URL, without a connection
        _check_reachable(log.url)
        return log.url


def _check_reachable(url: str) -> None:
    if url.startswith("embedded:"):
        raise IllegalStateError(
            f"{url!r} is a server inside one program, and Spark's tasks are others: give the URL "
            "of servers, antiphon://HOST:PORT"
        )


def stage(target: Target, batches: Iterator[pa.RecordBatch]) -> str:
    """Send these rows in a transaction, stage it, and return its handle; empty without any rows."""
    packs = (found for batch in batches for found in rows.packs(batch, target.topic))
    first = next(packs, None)
    if first is None:
        return ""
    with antiphon.connect(target.url, session_mode=antiphon.SESSION_TRANSACTED) as context:
        producer = context.create_producer()
        for destination, packed in chain((first,), packs):
            producer.send_packed(destination, packed)
        return context.stage()


def handles(messages: Sequence[WriterCommitMessage | None]) -> list[str]:
    """Return the handles to commit, in the order of the partitions. Raise if one is missing."""
    stages = [message for message in messages if isinstance(message, Stage)]
    if len(stages) < len(messages):
        raise IllegalStateError("Spark commits a write of which it has lost a part")
    return [s.handle for s in sorted(stages, key=lambda s: s.partition) if s.handle]


def commit(url: str, token: str, staged: Sequence[str]) -> None:
    """Commit these stages. With the same token they are published once, however often this runs."""
    if not staged:
        return
    unknown: JMSError | None = None
    for _ in range(COMMIT_ATTEMPTS):
        try:
            with antiphon.connect(url, session_mode=antiphon.SESSION_TRANSACTED) as context:
                context.commit(token=token, staged=staged)
                return
        except TransactionRolledBackError:
            raise
        except JMSError as error:
            if error.happened == "no" and unknown is None:
                raise
            unknown = error
    raise OutcomeUnknownError(
        f"it is not known whether the rows were published: {unknown}. A write of the same rows "
        f"with the option token={token!r} publishes them if they were not"
    ) from unknown


def _task() -> TaskContext:
    task = TaskContext.get()
    assert task is not None, "only tasks write"
    return task
