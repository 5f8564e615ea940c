"""The state machine of the messaging server: sessions, topics, queues, acknowledgements.

Promises: the same entries give the same state, the same events and the same snapshot, byte for
byte, on every replica; whatever a client put into an entry, `apply` does not raise. It knows
positions, never bodies. A message is accepted once, however often its pack is in the log; it stays
live until every subscription that must have it, or one consumer of its queue, has acknowledged it.
Time is the entries' stamps.

`apply` takes a pack (`_pack`) or commands: sessions and their leases (`leases.py`), what clients
ask for (`requests.py`), acknowledgements (`consumers.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import google_crc32c

from antiphon.broker import arrivals, consumers, groups, leases, requests
from antiphon.broker import events as ev
from antiphon.broker.group_state import Group
from antiphon.broker.leases import NUMBER_MAX
from antiphon.broker.sessions import Session
from antiphon.broker.state import State, encoder
from antiphon.core.effects import Accepted
from antiphon.errors import (
    FormatError,
    IllegalStateError,
    InvalidDestinationError,
    ResourceAllocationError,
)
from antiphon.formats import client_wire as cw
from antiphon.formats import command, pack
from antiphon.formats import destination as names
from antiphon.formats.entry import Entry, Kind

KNOWN_MAX = 65536


class Broker(State):
    def apply(self, entry: Entry) -> list[Accepted]:
        self.stamp = entry.stamp
        accepted: list[Accepted] = []
        told = len(self.events)
        if entry.kind == Kind.EPOCH:
            leases.renew_all(self)
        else:
            leases.expire(self)
        if entry.kind == Kind.PACK:
            if command.is_command(entry.payload):
                self._commands(entry.payload)
            else:
                accepted = self._pack(entry)
        self._chain(entry, self.events[told:])
        return accepted

    def _chain(self, entry: Entry, events: list[ev.Event]) -> None:
        mark = (self.digest, entry.index, entry.epoch, entry.stamp, self.position, events)
        self.digest = google_crc32c.value(encoder.encode(mark))

    def _pack(self, entry: Entry) -> list[Accepted]:
        try:
            header = pack.read_header(entry.payload)
        except FormatError:
            return []  # servers check what clients send; what slips in is nobody's message
        session = self.sessions.get(header.session)
        last = session.streams.get(header.producer) if session is not None else None
        if session is None or last is None or header.sequence != last + 1:
            return []  # a duplicate, or behind a gap, or of a session that is over
        if header.last > NUMBER_MAX:
            return []
        session.streams[header.producer] = header.last
        if header.producer and header.producer not in session.names:
            text = f"producer {header.producer} was opened by another connection meanwhile"
            self._refuse(session, header, IllegalStateError.__name__, text)
            return []
        if header.producer:
            self.producers[session.names[header.producer]].last = header.last
        wrong = self._why_not(header.destination)
        if wrong:
            self._refuse(session, header, InvalidDestinationError.__name__, wrong)
            return []
        if full := arrivals.why_not(self, header, entry.payload):
            self._refuse(session, header, ResourceAllocationError.__name__, full)
            return []
        group = self.groups.get(header.destination)
        if header.flags & pack.CONTROL:
            self._control(session, header, group, entry.payload)
            return []
        first = self.position + 1
        self.position += header.count
        if names.is_queue(header.destination):
            queue = self.queue(header.destination)
            queue.put(first, self.position)
            self.assign(queue)
        else:
            arrivals.take(self, session, header, entry.payload, first)
        if group is not None:
            group.messages += header.count
        return [
            Accepted(
                entry.index,
                first,
                header.count,
                entry.stamp,
                group.view if group is not None else 0,
                header.destination,
                header.session,
                header.sequence,
                header.producer,
            )
        ]

    def _control(
        self, session: Session, header: pack.PackHeader, group: Group | None, payload: bytes
    ) -> None:
        """Messages for a group itself."""
        if group is None:
            text = f"{header.destination!r} is no group, and takes no JMS_remove or the like"
            self._refuse(session, header, InvalidDestinationError.__name__, text)
            return
        groups.control(self, group, payload)
        self.events.append(ev.Taken(session.number, header.producer))

    def _why_not(self, destination: str) -> str:
        """Why nothing can be sent there; empty: it can."""
        wrong = self.unsendable.get(destination)
        if wrong is None:
            if len(self.unsendable) >= KNOWN_MAX:
                self.unsendable.clear()
            wrong = self.unsendable[destination] = self._check_sendable(destination)
        return wrong

    def _check_sendable(self, destination: str) -> str:
        try:
            _, name = names.parse(destination)
        except InvalidDestinationError as error:
            return str(error)
        if names.is_pattern(name):
            return f"{destination!r} has a wildcard: it can be subscribed to, not sent to"
        if names.is_temporary(destination) and not self.owner_of(destination):
            return f"{destination!r} does not exist: it was deleted, or its connection has ended"
        return ""

    def _refuse(self, session: Session, header: pack.PackHeader, code: str, text: str) -> None:
        refusal = cw.NotPublished(header.producer, header.sequence, header.last, code, text)
        session.refuse(refusal)
        self.events.append(ev.PackRefused(session.number, refusal))

    def _commands(self, payload: bytes) -> None:
        try:
            commands = command.decode(payload)
        except FormatError:
            return  # only servers write commands; a foreign one is not worth a crash
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
                    consumers.acknowledge(self, session, row)
        self.events.append(ev.AcksDone(m.node, m.life, m.batch))

    def _request(self, m: command.Request) -> None:
        session = self.sessions.get(m.session)
        if session is None or m.number not in (session.request, session.request + 1):
            return
        if m.number == session.request + 1:
            session.request = m.number
            session.result = requests.answer(self, session, m)
        self.events.append(ev.Answered(session.number, session.result))
        if isinstance(m.body, cw.CloseSession):
            leases.close(self, session, m.body.kept)


_SESSIONS: dict[type, Callable[[State, Any], None]] = {
    command.Attach: leases.attach,
    command.Detach: leases.detach,
    command.Renew: leases.renew,
}
