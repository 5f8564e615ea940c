"""Acknowledgements that a server's own journal has, and the log does not have yet.

With local contexts (`broker/machine/sessions/local_contexts.py`) a home answers its clients as soon
as its journal has their acknowledgements. Here these are put together, so that they cost the log a
few rows a consumer now and then, however many there were. A row that is proposed twice changes
nothing: so none is forgotten before it is seen in the log, and after a crash all rows of the
journal are proposed again.

Proposals are numbered, and get there in that order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from antiphon.broker.machine.ranges import Spans
from antiphon.formats import commands
from antiphon.formats import protocol as cw

SESSIONS_A_PIECE = 4096


class _Progress:
    """The acknowledgements of one consumer, in as few rows as it takes."""

    def __init__(self) -> None:
        self._upto = 0
        self._beyond = Spans()
        self._event = 0
        self._state = 0

    def add(self, row: cw.AckRow) -> None:
        if row.first == 0:
            self._upto = max(self._upto, row.last)
            self._beyond.take(1, self._upto)
        elif row.last > self._upto:
            self._beyond.take(row.first, row.last)
            self._beyond.add(row.first, row.last, 1)
        self._event = max(self._event, row.event)
        self._state = max(self._state, row.state)

    def rows(self, consumer: int) -> Iterator[cw.AckRow]:
        if self._upto or self._event or self._state:
            yield cw.AckRow(consumer, 0, self._upto, self._event, self._state)
        for first, last, _ in self._beyond:
            yield cw.AckRow(consumer, first, last)


class Unlogged:
    """Acknowledgements that this server's journal has and the log may lack, by session and
    consumer."""

    def __init__(self, rows: Iterable[commands.Rows] = ()) -> None:
        """`rows`: those that the journal has from former lives."""
        self._gathering: dict[int, dict[int, _Progress]] = {}  # by session and consumer
        self._leaving: dict[int, tuple[int, tuple[cw.AckRow, ...]]] = {}  # by number: session, rows
        self._numbered = 0
        for some in rows:
            self.add(some)

    def __len__(self) -> int:
        """Return about how many sessions have acknowledgements that are not in the log."""
        return len(self._gathering) + len(self._leaving)

    @property
    def leaves(self) -> bool:
        """Whether rows are on their way into the log."""
        return bool(self._leaving)

    def add(self, rows: commands.Rows) -> None:
        """The journal has these rows, or is to have them."""
        for session, some in rows:
            consumers = self._gathering.setdefault(session, {})
            for row in some:
                consumers.setdefault(row.consumer, _Progress()).add(row)

    def leave(self, *sessions: int) -> list[tuple[int, int, tuple[cw.AckRow, ...]]]:
        """Return number, session and rows of the next proposals: of these sessions, or of all."""
        begun = []
        for session in [s for s in sessions or (*self._gathering,) if s in self._gathering]:
            rows = _rows(self._gathering.pop(session))
            self._numbered += 1
            self._leaving[self._numbered] = (session, rows)
            begun.append((self._numbered, session, rows))
        return begun

    def last_of(self, *sessions: int) -> int:
        """Return the number with which the log has all that left for it of these sessions, or of
        all; 0: it has."""
        some = self._leaving.items()
        return max((n for n, (s, _) in some if not sessions or s in sessions), default=0)

    def logged(self, number: int) -> None:
        """The log has what left for it up to this number."""
        for done in [n for n in self._leaving if n <= number]:
            del self._leaving[done]

    def pieces(self) -> Iterator[commands.Rows]:
        """Return all that the log may lack, in bounded pieces; at least one."""
        rest = self._all()
        yield tuple(islice(rest, SESSIONS_A_PIECE))
        while some := tuple(islice(rest, SESSIONS_A_PIECE)):
            yield some

    def _all(self) -> Iterator[tuple[int, tuple[cw.AckRow, ...]]]:
        yield from self._leaving.values()
        for session, consumers in self._gathering.items():
            yield session, _rows(consumers)


def _rows(consumers: dict[int, _Progress]) -> tuple[cw.AckRow, ...]:
    return tuple(row for number, p in consumers.items() for row in p.rows(number))
