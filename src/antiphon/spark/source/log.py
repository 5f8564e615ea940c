"""Where messages are read from: a server, a journal's folder or an archive, all asked alike.

A *log* knows accepted messages only, by position. A position that it does not keep any more, or
that belongs to no topic that was asked for, is simply not there; that something *should* be there
and is not, is an error of whoever reads it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

from antiphon import LogBounds, LogSlice

if TYPE_CHECKING:
    import pyarrow as pa


class Log(Protocol):
    """Can be pickled: a task opens what it reads."""

    def bounds(self) -> LogBounds: ...

    def position_at(self, stamp: int) -> int:
        """The first position that was accepted at this time (ms since 1970, the log's clock) or
        later; behind the last one, if there is none."""

    def slices(self, topics: Sequence[str], first: int, last: int, most: int) -> list[LogSlice]:
        """All messages of the topics, which may be patterns, between two positions, by topic and
        then position, in slices of at most about `most` messages. Read from an index: it costs
        nothing per message."""

    def read(self, piece: LogSlice, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """The messages of a slice in order, with the columns of `columns.SCHEMA` that are named."""
