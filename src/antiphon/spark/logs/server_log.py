"""The log of a running server, or of a cluster: it asks one of the servers, and another one when
that one dies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import antiphon
from antiphon import LogBounds, LogSlice
from antiphon.errors import ConfigurationError, MessagesGoneError
from antiphon.spark.logs import arrow

if TYPE_CHECKING:
    import pyarrow as pa


class ServerLog:
    """A `Log` without a connection between calls: so it can be pickled, and costs servers
    nothing."""

    def __init__(self, url: str) -> None:
        if url.startswith("embedded:"):
            raise ConfigurationError(
                f"{url!r} is a server inside one process, and tasks run in others: start a server, "
                "or read the folder of embedded:///PATH with the option journal"
            )
        self._url = url

    def bounds(self) -> LogBounds:
        with antiphon.open_log(self._url) as log:
            return log.bounds()

    def position_at(self, stamp: int) -> int:
        with antiphon.open_log(self._url) as log:
            return log.position_at(stamp)

    def slices(self, topics: Sequence[str], first: int, last: int, most: int) -> list[LogSlice]:
        with antiphon.open_log(self._url) as log:
            return log.slices(topics, first, last, most)

    def read(self, piece: LogSlice, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        with antiphon.open_log(self._url) as log:
            packs = log.packs(piece.topic, piece.first, piece.last)
            yield from _counted(arrow.batches(packs, piece.first, piece.last, columns), piece)


def _counted(batches: Iterator[pa.RecordBatch], piece: LogSlice) -> Iterator[pa.RecordBatch]:
    """Yield the batches. Raise `MessagesGoneError` if they have fewer messages than the slice."""
    rows = 0
    for batch in batches:
        rows += batch.num_rows
        yield batch
    if rows != piece.messages:
        raise MessagesGoneError(
            f"topic {piece.topic!r} had {piece.messages} messages from {piece.first} to "
            f"{piece.last} when this was planned, and has {rows} now"
        )
