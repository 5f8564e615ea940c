"""Acknowledgements of all clients of a server, gathered into one command for the log at a time.

One batch is on its way into the log; acknowledgements that come meanwhile make the next one, and
those without a waiting client gather a while longer. So the more there is to acknowledge, the less
each acknowledgement costs, and batches are done in the order in which they were gathered: an answer
to a client counts for all that it acknowledged before.

A server adds rows of its own (`add_own`), about messages that no client was sent. They need no
answer.

With local contexts some batches go into the server's own journal instead, beside those that go into
the log: `Answers` sees to it that no answer comes too early.
"""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar

from antiphon.formats import protocol as cw

ROWS_MAX = 20_000
"""Rows in one batch, which is one entry of the log."""

Asker = TypeVar("Asker")


class AckBatch(Generic[Asker]):
    """Rows that go into the log, or into the journal, together, and the sessions that wait for an
    answer."""

    def __init__(self, number: int, due_ms: int) -> None:
        self.number = number
        self.due_ms = due_ms  # until then more may gather
        self.rows: list[tuple[int, tuple[cw.AckRow, ...]]] = []  # session, its acknowledgements
        self.count = 0  # of rows
        self.askers: dict[Asker, tuple[int, int]] = {}  # -> number of its last `Ack`, bytes


class Acking(Generic[Asker]):
    """The batches that are gathered or on their way.

    Promises: one batch is on its way at a time; batches are done in the order in which they began.
    """

    def __init__(self) -> None:
        self._batches: deque[AckBatch[Asker]] = deque()  # the oldest first
        self._numbered = 0
        self._on_its_way = False  # the oldest

    def add(self, asker: Asker, session: int, ack: cw.Ack, size: int, due_ms: int) -> bool:
        """`size`: the bytes that wait until this is done. True: it is the asker's first of this
        batch."""
        batch = self._gather(session, ack.rows, due_ms)
        first = asker not in batch.askers
        _, before = batch.askers.get(asker, (0, 0))
        batch.askers[asker] = (ack.number, before + size)
        return first

    def add_own(self, session: int, rows: tuple[cw.AckRow, ...], due_ms: int) -> None:
        """Add rows of this server's own about a session's messages."""
        self._gather(session, rows, due_ms)

    def _gather(self, session: int, rows: tuple[cw.AckRow, ...], due_ms: int) -> AckBatch[Asker]:
        if len(self._batches) == self._on_its_way or self._batches[-1].count >= ROWS_MAX:
            self._numbered += 1
            self._batches.append(AckBatch(self._numbered, due_ms))
        batch = self._batches[-1]
        batch.due_ms = min(batch.due_ms, due_ms)
        batch.rows.append((session, rows))
        batch.count += len(rows)
        return batch

    @property
    def due_ms(self) -> int | None:
        """The time at which a batch is due to be proposed; None: not before something else
        happens."""
        if self._on_its_way or not self._batches:
            return None
        return self._batches[0].due_ms

    def due(self, now_ms: int) -> AckBatch[Asker] | None:
        """The batch to be proposed now, if there is one."""
        if self._on_its_way or not self._batches or self._batches[0].due_ms > now_ms:
            return None
        self._on_its_way = True
        return self._batches[0]

    def done(self, number: int) -> AckBatch[Asker] | None:
        """The batch of this number, if it was on its way."""
        if not self._on_its_way or self._batches[0].number != number:
            return None
        self._on_its_way = False
        return self._batches.popleft()

    @property
    def rows(self) -> int:
        """How many rows are not done yet."""
        return sum(batch.count for batch in self._batches)


class Answers:
    """The `Ack`s of one session that wait for their answers, on two ways: into the log, and into
    this server's journal. On each of them they are done in order."""

    def __init__(self) -> None:
        self._waiting: dict[int, bool] = {}  # number -> whether it goes into the log
        self._last = 0
        self._told = 0

    def add(self, number: int, into_log: bool) -> None:
        """Wait for this `Ack`."""
        self._waiting[number] = into_log
        self._last = max(self._last, number)

    def done(self, number: int, into_log: bool) -> int | None:
        """Note that all up to this one are done, on this way. Return the last one that can be
        answered to the client; None: an earlier one still waits."""
        for one in [n for n, way in self._waiting.items() if n <= number and way == into_log]:
            del self._waiting[one]
        upto = min(self._waiting, default=self._last + 1) - 1
        if upto <= self._told:
            return None
        self._told = upto
        return upto
