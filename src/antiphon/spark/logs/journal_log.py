"""A journal's folder as a log: Spark reads it without a server, or beside one that runs.

`journal_files.py` decides what is accepted, and what is damage. Messages of queues, and for
temporary destinations, are in the same journal and are not read here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from antiphon import LogBounds, LogSlice
from antiphon.errors import MessagesGoneError
from antiphon.model.destinations import TOPIC, matcher
from antiphon.spark.logs.journal_files import Accepted, JournalFiles, Sight

if TYPE_CHECKING:
    import pyarrow as pa

ALL_TOPICS = (">",)


class JournalLog:
    """A `Log` over a server's journal, read from its folder while the server may go on writing.

    It has what is on the disk and accepted at the moment of each call. It needs no server, and
    changes nothing in the folder.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = str(Path(folder).absolute())

    def bounds(self) -> LogBounds:
        sight = self._look()
        return LogBounds(sight.first, sight.last)

    def position_at(self, stamp: int) -> int:
        sight = self._look()
        found = (segment.index.since(stamp) for segment in sight.segments)
        return next((position for position in found if position is not None), sight.last + 1)

    def slices(self, topics: Sequence[str], first: int, last: int, most: int) -> list[LogSlice]:
        sight = self._look()
        return [
            piece
            for topic in matching(sight.destinations(), topics)
            for piece in _cut(
                topic, sight.accepted(f"{TOPIC}:{topic}", first, last), first, last, most
            )
        ]

    def read(self, piece: LogSlice, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        from antiphon.spark.logs.arrow import batches

        accepted = list(self._look().accepted(f"{TOPIC}:{piece.topic}", piece.first, piece.last))
        found = sum(_within(one, piece.first, piece.last) for one in accepted)
        if found < piece.messages:
            raise MessagesGoneError(
                f"the journal in {self.folder!r} has let go of messages while they were read: "
                f"{piece.messages - found} of {piece.messages} of topic {piece.topic!r} between "
                f"positions {piece.first} and {piece.last}. Let it keep more (limits.retain), or "
                "archive it more often"
            )
        return batches((one.read() for one in accepted), piece.first, piece.last, columns)

    def missing(self, first: int, last: int) -> list[LogBounds]:
        """Return positions between these two that the journal does not have any more."""
        return [LogBounds(*gap) for gap in self._look().missing(first, last)]

    def sealed(self) -> int:
        """The last position in a segment that is finished; the one before the first: none is."""
        return self._look().sealed()

    def _look(self) -> Sight:
        return _files(self.folder).look()


@lru_cache(maxsize=8)
def _files(folder: str) -> JournalFiles:
    """Return one object for all tasks of a process, so that parts that do not change are read
    once."""
    return JournalFiles(Path(folder))


def matching(destinations: set[str], topics: Sequence[str]) -> list[str]:
    """Return the names of the wanted topics, in order."""
    matches = [matcher(f"{TOPIC}:{topic}") for topic in topics]
    return sorted(
        name.removeprefix(f"{TOPIC}:")
        for name in destinations
        if name.startswith(f"{TOPIC}:") and any(match(name) for match in matches)
    )


def _cut(
    topic: str, accepted: Iterator[Accepted], first: int, last: int, most: int
) -> Iterator[LogSlice]:
    begin = end = messages = 0
    for one in accepted:
        begin = begin or max(first, one.row.position)
        end = min(last, one.last)
        messages += _within(one, first, last)
        if messages >= most:
            yield LogSlice(topic, begin, end, messages)
            begin = messages = 0
    if messages:
        yield LogSlice(topic, begin, end, messages)


def _within(one: Accepted, first: int, last: int) -> int:
    """Return how many of a pack's messages are between two positions."""
    return min(last, one.last) - max(first, one.row.position) + 1
