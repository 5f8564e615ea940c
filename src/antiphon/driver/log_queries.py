"""Queries of readers of the log, as tasks of a server: bounds, slices, packs of a range.

Promises: the answers have all accepted messages in the range and no others: a server that has not
reached the wanted end waits until it has, and one that no longer keeps the beginning raises
`MessagesGoneError`. Each turn does a bounded piece of the work, so other clients hardly notice;
packs that are read from the disk push nothing out of the server's memory.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import Protocol

from antiphon.errors import FormatError, MessagesGoneError
from antiphon.formats import protocol as cw
from antiphon.formats.journal import Row
from antiphon.journal.journal import Journal
from antiphon.model import destinations as names

ROWS_A_TURN = 10_000
"""Rows of the index that are counted in one turn: a few milliseconds."""

PACKS_A_TURN = 100
TOPICS_MAX = 10_000


class Progress(enum.Enum):
    """The state of a task after a piece of its work."""

    DONE = enum.auto()
    MORE = enum.auto()  # it can go on at once
    WAITS = enum.auto()  # for messages to be accepted, for credit, or for sent packs to leave


class Reader(Protocol):
    """The client that sent the query."""

    @property
    def room(self) -> int: ...
    def send_pack(self, row: Row, data: bytes) -> None: ...
    def answer(self, answer: cw.Answer) -> None: ...


class Task(Protocol):
    """A query of one reader, which is done in pieces."""

    def work(self, upto: int) -> Progress:
        """Do a piece; the journal has the rows of all messages up to `upto`, the last one that was
        accepted. Raise `MessagesGoneError` if the journal no longer keeps messages of the range."""


class FindBounds:
    """Finds the first and the last position that are kept, and the position of a stamp."""

    def __init__(self, reader: Reader, journal: Journal, m: cw.AskLog) -> None:
        self._reader = reader
        self._journal = journal
        self._stamp = m.stamp

    def work(self, upto: int) -> Progress:
        first = self._journal.whole_from(upto)
        at = self._journal.position_at(self._stamp)
        at = upto + 1 if at is None else max(at, first)
        self._reader.answer(cw.LogBounds(first, upto, at))
        return Progress.DONE


class FindSlices:
    """Finds where messages of some topics are."""

    def __init__(self, reader: Reader, journal: Journal, m: cw.AskSlices) -> None:
        check_range(m.first, m.last)
        if m.most < 1 or len(m.topics) > TOPICS_MAX:
            raise FormatError(f"slices of {m.most} messages, of {len(m.topics)} topics")
        self._reader = reader
        self._journal = journal
        self._asked = m
        self._matches = matcher_of_any(m.topics)

    def work(self, upto: int) -> Progress:
        m = self._asked
        if upto < m.last:
            return Progress.WAITS
        check_kept(self._journal, m.first, m.last, upto)
        found, following = self._journal.slices(self._matches, m.first, m.last, m.most, ROWS_A_TURN)
        self._reader.answer(cw.LogSlices(tuple(found), following))
        return Progress.DONE


class ReadRange:
    """Sends the packs of one destination in a range of positions, as far as the reader has room."""

    def __init__(self, reader: Reader, journal: Journal, m: cw.ReadLog) -> None:
        check_range(m.first, m.last)
        names.parse(m.destination)
        self._reader = reader
        self._journal = journal
        self._destination = m.destination
        self._next = m.first
        self._last = m.last

    def work(self, upto: int) -> Progress:
        end = min(self._last, upto)
        if self._next <= end:
            if self._reader.room <= 0:
                return Progress.WAITS
            # Each time: the journal may drop messages meanwhile.
            check_kept(self._journal, self._next, self._last, upto)
            self._send(end)
        if self._next > self._last:
            self._reader.answer(cw.LogEnd(self._last))
            return Progress.DONE
        return Progress.MORE if self._next <= end else Progress.WAITS

    def _send(self, end: int) -> None:
        rows = self._journal.rows_for(self._destination, self._next, PACKS_A_TURN)
        for row in rows:
            if row.position > end:
                break
            if self._reader.room <= 0:
                return
            self._reader.send_pack(row, self._journal.payload(row))
            self._next = row.position + row.count
        else:
            if len(rows) == PACKS_A_TURN:
                return
        self._next = end + 1  # there are no others up to there


def task_for(m: cw.AskLog | cw.AskSlices | cw.ReadLog, reader: Reader, journal: Journal) -> Task:
    """Return the task for a request. Raise `FormatError` on one that makes no sense, and
    `InvalidDestinationError` on a name that is not a destination."""
    if isinstance(m, cw.AskLog):
        return FindBounds(reader, journal, m)
    if isinstance(m, cw.AskSlices):
        return FindSlices(reader, journal, m)
    return ReadRange(reader, journal, m)


def check_range(first: int, last: int) -> None:
    if not 0 < first <= last:
        raise FormatError(f"no range of positions: {first} to {last}")


def check_kept(journal: Journal, first: int, last: int, upto: int) -> None:
    kept_from = journal.whole_from(upto)
    if first < kept_from:
        gone = min(last, kept_from - 1)
        raise MessagesGoneError(
            f"messages {first} to {gone} are gone: this server keeps those from {kept_from} on"
        )


def matcher_of_any(topics: Sequence[str]) -> Callable[[str], bool]:
    """Return whether a destination matches any of these topics, as a function. Raise
    `InvalidDestinationError` if one of them is not a destination."""
    for topic in topics:
        names.parse(topic)
    exact = frozenset(topics)
    patterns = [names.matcher(t) for t in topics if names.is_pattern(t.partition(":")[2])]
    return lambda name: name in exact or any(matches(name) for matches in patterns)
