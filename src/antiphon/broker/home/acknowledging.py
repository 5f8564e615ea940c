"""Acknowledgements of clients: gathered, proposed to the log or kept in the own journal, answered.

Promises: a client's `Ack` is answered when the log has it, or, with local contexts and for topics,
when this server's journal has it; answers keep the order of the `Ack`s. Rows of this server itself,
about messages that its clients were not sent, go the same way.
"""

from __future__ import annotations

from collections.abc import Callable

from antiphon.broker.dispatch.dispatcher import Dispatcher
from antiphon.broker.home.ack_batches import AckBatch, Acking
from antiphon.broker.home.common import Common
from antiphon.broker.home.connections import ClientConnection, ServedSession
from antiphon.broker.home.effects import Store
from antiphon.broker.home.local_acks import LocalAcks
from antiphon.broker.machine import events as ev
from antiphon.errors import FormatError
from antiphon.formats import commands
from antiphon.formats import protocol as cw

ACK_GATHER_MS = 50
"""Acknowledgements that no client waits for gather this long: each batch is an entry of the log."""

ACK_ROW_BYTES = 32


class Acknowledgements:
    """The acknowledgements of all clients of this server that are not answered yet."""

    def __init__(
        self,
        common: Common,
        dispatcher: Dispatcher,
        acking: Acking[ServedSession | None],
        local: LocalAcks,
        propose_request: Callable[[ServedSession], None],
    ) -> None:
        """`propose_request`: a request may have waited for acknowledgements that are done now."""
        self._common = common
        self._sessions = common.served
        self._proposals = common.proposals
        self._dispatcher = dispatcher
        self._acking = acking
        self._local = local
        self._unlogged = local.unlogged
        self._propose_request = propose_request

    def ack(self, connection: ClientConnection, m: cw.Ack) -> None:
        """Take acknowledgements from a client; raise `FormatError` if they cannot be right."""
        served = self._common.session_of(connection)
        for row in m.rows:
            if not 0 <= row.first <= row.last:
                raise FormatError(f"{row} is not a range of positions")
            if row.kind in (cw.CLAIM, cw.SKIP):
                raise FormatError("only servers choose messages for a consumer")
        self.add_own_rows(connection.heard_ms)
        # All of them are handed on, even if the first ones fail.
        pressing = [self._dispatcher.acked(served.session, row) for row in m.rows]
        patient = m.patient and not any(pressing)
        due_ms = connection.heard_ms + (ACK_GATHER_MS if patient else 0)
        size = ACK_ROW_BYTES * (1 + len(m.rows))
        into_log = not self._local.takes(served.session, m.rows)
        acking = self._acking if into_log else self._local.acking
        served.acks.add(m.number, into_log)
        served.ack_batches += acking.add(served, served.session, m, size, due_ms)
        self._common.connections.waits_more(connection, size)

    def add_own_rows(self, now_ms: int) -> None:
        """Add the dispatcher's rows, before the next ones of clients: a client's row covers
        messages that it was not sent, too."""
        for session, row in self._dispatcher.rows:
            self._acking.add_own(session, (row,), now_ms)
        self._dispatcher.rows.clear()

    def store(self, now_ms: int) -> None:
        """Have the journal store acknowledgements, if that is due."""
        if (due := self._local.due(now_ms)) is not None:
            self._common.out.append(Store(*due))

    def stored(self, number: int) -> None:
        """The journal has what was to be stored with this number."""
        if (batch := self._local.acking.done(number)) is not None:
            self._done(batch, into_log=False)

    def send(self, now_ms: int) -> None:
        """Propose the next batch for the log, if it is due."""
        if (batch := self._acking.due(now_ms)) is not None:
            rows = tuple(batch.rows)
            acks = commands.Acks(self._common.node, self._common.life, batch.number, rows)
            self._proposals.want("acks", acks)

    def on_acks_done(self, e: ev.AcksDone) -> None:
        """The log has a batch of this server."""
        mine = self._common.is_mine(e.node, e.life)
        batch = self._acking.done(e.batch) if mine else None
        if batch is not None:
            self._proposals.done("acks")
            self._done(batch, into_log=True)

    def _done(self, batch: AckBatch[ServedSession | None], into_log: bool) -> None:
        for session, rows in batch.rows:
            for row in rows:
                self._dispatcher.settled(session, row)
        for served, (number, size) in batch.askers.items():
            if served is None:
                self._unlogged.logged(number)
                self._proposals.reached(number)
            elif self._sessions.get(served.session) is served:
                self._common.connections.waits_less(served.connection, size)
                self._acked(served, served.acks.done(number, into_log))

    def _acked(self, served: ServedSession, upto: int | None) -> None:
        if upto is not None:
            self._common.tell(served.connection.number, cw.Acked(upto))
        served.ack_batches -= 1
        if not served.ack_batches:
            self._propose_request(served)
