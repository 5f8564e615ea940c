"""Local acknowledgements: those that a home with local contexts keeps in its own journal.

They are gathered like all others (`ack_batches.py`), but into records of the server's own journal,
and are then proposed to the log, later and fewer (`unlogged_acks.py`). A home without local
contexts keeps nothing.
"""

from __future__ import annotations

import msgspec

from antiphon.broker.home.ack_batches import Acking
from antiphon.broker.home.connections import ServedSession
from antiphon.broker.home.unlogged_acks import Unlogged
from antiphon.broker.machine.machine import Broker
from antiphon.broker.machine.sessions import local_contexts
from antiphon.formats import commands
from antiphon.formats import protocol as cw
from antiphon.formats.journal import Local


class OwnJournal(msgspec.Struct, frozen=True):
    """With local contexts: the past of this server, as its journal has it."""

    incarnation: int
    opening: int
    records: list[bytes]  # of acknowledgements that the log may lack


class LocalAcks:
    """Acknowledgements that this server's journal has, or is to have, and the log not yet."""

    def __init__(
        self, broker: Broker, own: OwnJournal | None, log_acking: Acking[ServedSession | None]
    ) -> None:
        """`log_acking`: the batches that go into the log."""
        self._broker = broker
        self._log_acking = log_acking
        self._own = own
        self.acking: Acking[ServedSession | None] = Acking()
        self.unlogged = Unlogged(map(commands.decode_rows, own.records if own is not None else ()))

    def takes(self, number: int, rows: tuple[cw.AckRow, ...]) -> bool:
        """Whether it is enough that this server's journal has these."""
        session = self._broker.sessions.get(number)
        if self._own is None or session is None:
            return False
        return local_contexts.is_bound(self._broker, session) and all(
            row.kind == cw.ACK
            and row.last <= self._broker.position
            and (consumer := session.consumers.get(row.consumer)) is not None
            and consumer.subscription is not None
            for row in rows
        )

    def due(self, now_ms: int) -> tuple[Local, int] | None:
        """Return the record to be stored now, and its number, by which `acking` knows that it is
        done."""
        batch = self.acking.due(now_ms)
        if batch is None:
            return None
        rows = tuple(batch.rows)
        self.unlogged.add(rows)
        return Local(whole=False, data=commands.encode_rows(rows)), batch.number

    def log_now(self, *sessions: int) -> int:
        """Propose everything that only the journal has of these sessions, or of all. Return the
        number that is reached when the log has it."""
        for number, session, rows in self.unlogged.leave(*sessions):
            self._log_acking.add(None, session, cw.Ack(number, rows), 0, due_ms=0)
        return self.unlogged.last_of(*sessions)

    def all(self) -> tuple[Local, ...]:
        """Return everything that the log may lack, in records that replace all before them."""
        if self._own is None:
            return ()
        pieces = enumerate(self.unlogged.pieces())
        return tuple(Local(whole=n == 0, data=commands.encode_rows(rows)) for n, rows in pieces)
