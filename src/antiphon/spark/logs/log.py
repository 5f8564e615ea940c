"""The interface of all logs from which Spark reads: a server, a journal's folder, or an archive.

A *log* has accepted messages only, by position. A position that it does not keep any more, or that
belongs to none of the wanted topics, is simply absent; the caller checks for messages that should
be there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

from antiphon import LogBounds, LogSlice

if TYPE_CHECKING:
    import pyarrow as pa


class Log(Protocol):
    """A log, which can be pickled: a task opens what it reads."""

    def bounds(self) -> LogBounds: ...

    def position_at(self, stamp: int) -> int:
        """Return the first position that was accepted at this time (ms since 1970, the log's clock)
        or later; the one behind the last message, if there is none."""

    def slices(self, topics: Sequence[str], first: int, last: int, most: int) -> list[LogSlice]:
        """Return all messages of the topics, which may be patterns, between two positions, by topic
        and then position, in slices of at most about `most` messages. They come from an index,
        without a cost per message."""

    def read(self, piece: LogSlice, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the messages of a slice in order, with these columns of `arrow.py: SCHEMA`."""
