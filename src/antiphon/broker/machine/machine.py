"""The state machine of the messaging server: sessions, topics, queues, acknowledgements.

Promises: the same entries give the same state, the same events and the same snapshot, byte for
byte, on every replica; `apply` does not raise, whatever a client put into an entry. It knows
positions, never bodies. A message is accepted once, however often its pack is in the log; it stays
live until every subscription that must have it, or one consumer of its queue, has acknowledged it.
Time is the entries' stamps.

`apply` takes a pack (`acceptance.py`, `transactions.py`) or commands: sessions and their leases
(`sessions/lifecycle.py`), requests of clients (`requests.py`), acknowledgements
(`consumers/acknowledging.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from crc32c import crc32c

from antiphon.broker.machine import acceptance, requests, snapshot, transactions
from antiphon.broker.machine import events as ev
from antiphon.broker.machine.consumers import acknowledging
from antiphon.broker.machine.groups import membership
from antiphon.broker.machine.sessions import lifecycle
from antiphon.broker.machine.sessions.session import Session
from antiphon.broker.machine.snapshot import encoder
from antiphon.broker.machine.state import State
from antiphon.errors import FormatError, IllegalStateError, InvalidDestinationError, JMSError
from antiphon.formats import commands as command
from antiphon.formats import pack
from antiphon.formats import protocol as cw
from antiphon.formats.entry import Entry, Kind, decode_membership
from antiphon.log.effects import Accepted


class Broker(State):
    """The state machine: the state, and the effect of each entry of the log on it."""

    def snapshot(self) -> Iterator[bytes]:
        """Return the chunks of a snapshot of the present state."""
        return snapshot.write(self)

    def restore(self, chunks: Iterator[bytes]) -> None:
        """Take the state from the chunks of a snapshot."""
        snapshot.read(self, chunks)

    def apply(self, entry: Entry) -> list[Accepted]:
        """Take the next entry of the log, and return the packs that it made visible."""
        self.stamp, self.index, self.accepted = entry.stamp, entry.index, []
        told = len(self.events)
        if entry.kind == Kind.EPOCH:
            lifecycle.renew_all(self)
        # Always: a snapshot may be taken here, and a restored state must have nothing overdue.
        lifecycle.expire(self)
        if entry.kind == Kind.MEMBERSHIP:
            members = decode_membership(entry.payload).members
            lifecycle.follow_members(self, {m.node: m.incarnation for m in members})
        elif entry.kind == Kind.PACK:
            if command.is_command(entry.payload):
                self._commands(entry.payload)
            else:
                self._pack(entry.payload)
        self.groups.settle()
        self._chain(entry, self.events[told:])
        return self.accepted

    def _chain(self, entry: Entry, events: list[ev.Event]) -> None:
        mark = (self.digest, entry.index, entry.epoch, entry.stamp, self.position, events)
        self.digest = crc32c(encoder.encode(mark))

    def _pack(self, payload: bytes) -> None:
        try:
            header = pack.read_header(payload)
        except FormatError:
            return  # servers check the packs of clients; a bad one in the log is no message
        session = self.sessions.get(header.session)
        if session is None or not session.takes(header):
            return  # a duplicate, or behind a gap, or of a session that is over
        try:
            self._take(session, header, payload)
        except JMSError as error:
            self._refuse(session, header, type(error).__name__, str(error))

    def _take(self, session: Session, header: pack.PackHeader, payload: bytes) -> None:
        """Take a pack of a client; raise a `JMSError` if it cannot be taken."""
        if header.producer:
            if header.producer not in session.names:
                raise IllegalStateError(
                    f"producer {header.producer} was opened by another connection meanwhile"
                )
            self.producers.accepted(session.names[header.producer], header.last)
        wrong = self.sendable.why_not(header.destination)
        staged = header.flags & pack.STAGED
        if wrong and not (staged and self.sendable.has_ended(header.destination)):
            raise InvalidDestinationError(wrong)
        if header.flags & pack.CONTROL and header.destination not in self.groups:
            raise InvalidDestinationError(
                f"{header.destination!r} is not a group, and takes no JMS_remove or the like"
            )
        if header.flags & (pack.STAGED | pack.DELAYED):
            transactions.park(self, session, header, payload)
        elif header.flags & pack.CONTROL:
            membership.control(self, self.groups[header.destination], payload)
            self.report(ev.Taken(session.number, header.producer))
        else:
            acceptance.accept(self, header, acceptance.look_into(self, session, header, payload))

    def _refuse(self, session: Session, header: pack.PackHeader, code: str, text: str) -> None:
        refusal = cw.NotPublished(header.producer, header.sequence, header.last, code, text)
        session.refuse(refusal)
        self.report(ev.PackRefused(session.number, refusal))

    def _commands(self, payload: bytes) -> None:
        try:
            commands = command.decode(payload)
        except FormatError:
            return  # only servers write commands; a bad one is not worth a crash
        for one in commands:
            if isinstance(one, command.Request):
                self._request(one)
            elif isinstance(one, command.Acks):
                self._acks(one)
            else:
                _SESSIONS[type(one)](self, one)

    def _acks(self, m: command.Acks) -> None:
        for number, rows in m.rows:
            session = self.sessions.get(number)
            if session is not None:
                for row in rows:
                    acknowledging.acknowledge(self, session, row)
        self.report(ev.AcksDone(m.node, m.life, m.batch))

    def _request(self, m: command.Request) -> None:
        session = self.sessions.get(m.session)
        if session is None or m.number not in (session.request, session.request + 1):
            return
        if not transactions.has_arrived(session, m.body):
            self.report(ev.Early(session.number, m.number))
            return
        if m.number == session.request + 1:
            session.ask(m.number)
            session.answer(requests.answer(self, session, m))
        self.report(ev.Answered(session.number, session.result))
        if isinstance(m.body, cw.CloseSession):
            lifecycle.close(self, session, m.body.kept)


_SESSIONS: dict[type, Callable[[State, Any], None]] = {
    command.Attach: lifecycle.attach,
    command.Detach: lifecycle.detach,
    command.Renew: lifecycle.renew,
    command.Begin: lifecycle.begin,
    command.Gone: lifecycle.gone,
}
