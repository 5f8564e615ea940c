"""The trace of a server: the messages that it accepts and hands out, written down as it happens
(`formats/trace.py`).

So groups can be audited though no program writes a trace. The rows record the work of the servers,
not what applications saw: `send` is a message that came from a client, `sent` that it was accepted,
`deliver` and `view` that it was written to the connection of a consumer. A server records its own
clients; judges need the traces of all servers together.

Promise: a row is handed to the kernel before the message that it reports leaves this server. Times
are the log's, the same for all servers.

A member is a process of its own, `NAME@SESSION`, and each connection of its session is an
incarnation: messages that the last one was sent and may have lost come again there, marked as
redelivered. To the judges such a process is a durable member, which may be away and come back. (A
durable member that resumes with another session is another process, from the next view on.) A
member that is gone, or whose session is over, has crashed, in an incarnation behind its last one;
every server that sees that in the log writes it down, for the member's own server may be gone, too.
`remove` is written with each view for all members that are not in it any more, whatever the reason.

A server that writes no trace does none of this, and looks into no message for it.
"""

from __future__ import annotations

import errno
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, ClassVar

from antiphon.broker.machine import events as ev
from antiphon.broker.machine.machine import Broker
from antiphon.broker.machine.sessions.session import NUMBER_MAX
from antiphon.errors import ConfigurationError, FormatError
from antiphon.formats import columns, pack
from antiphon.formats import protocol as cw
from antiphon.formats.trace import Kind, TraceEvent, encode_event
from antiphon.io.trace_file import TraceFile, run_of
from antiphon.log.effects import Applied

logger = logging.getLogger("antiphon.server.trace")


class _Told:
    """A consumer on one connection, and its deliveries there."""

    def __init__(self, destination: str, member: str) -> None:
        self.destination = destination
        self.member = member  # its name in the group; empty: it is not in one
        self.entered = False  # its rows have begun
        self.in_view = False  # and so its messages can be reported under it
        self.cuts: dict[int, int] = {}  # of states that are on their way to it, by request
        self.places: dict[int, int] = defaultdict(int)  # deliveries so far, by view


class _Connection:
    """One attachment of a session."""

    def __init__(self, session: int) -> None:
        self.session = session
        self.attachment = 0
        self.before = 0  # messages up to here may have been sent on an earlier one
        self.consumers: dict[int, _Told] = {}
        self.request: cw.Control | None = None
        self.seqs: dict[str, int] = defaultdict(int)  # rows so far, by process


class ServerTrace:
    """Writes the trace of one server; promises are the module's."""

    def __init__(self, folder: str, node: int, broker: Broker) -> None:
        where = Path(folder)
        name = f"node-{node}"
        self._file: TraceFile | None
        try:
            self._file = TraceFile(where, name, f"{name}.another")
        except OSError as error:
            text = f"no trace can be written to {folder}: {error.strerror}"
            if error.errno != errno.ENOSPC:
                raise ConfigurationError(text) from None
            self._file = None
            logger.error(text)
        self._run = f"{run_of(where)}.servers"  # programs may write their own traces there
        self._broker = broker
        self._began = -1  # messages up to there were not written down; -1: not known yet
        self._rows: list[bytes] = []
        self._connections: dict[int, _Connection] = {}  # by link
        self._served: dict[int, int] = {}  # session -> link
        self._attachments: dict[int, int] = {}  # of all sessions
        self._members: dict[tuple[str, str], int] = {}  # group and name -> session
        self.restored()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    # -- From clients --------------------------------------------------------------------------

    def asked(self, link: int, request: cw.Request) -> None:
        """Write down a request. Call it before the effects of the request are carried out."""
        known = self._connections.get(link)
        if isinstance(request, cw.Attach):
            self._connections.setdefault(link, _Connection(request.session))
        elif known is not None and isinstance(request, cw.Publish):
            self._published(known, request.pack)
        elif known is not None and isinstance(request, cw.Control):
            known.request = request
        elif known is not None and isinstance(request, cw.Ack):
            self._acknowledged(known, request)
        self._flush()

    def lost(self, link: int) -> None:
        known = self._connections.pop(link, None)
        if known is not None and self._served.get(known.session) == link:
            del self._served[known.session]

    def _published(self, known: _Connection, data: bytes) -> None:
        try:
            header = columns.check(data)
        except FormatError:
            return  # it is refused
        own = header.session == known.session and header.last <= NUMBER_MAX
        if own and not header.flags & pack.CONTROL:
            self._sends("send", known, header)

    def _sends(
        self, kind: Kind, known: _Connection, header: pack.PackHeader, indexes: Iterable[int] = ()
    ) -> None:
        """Write down that all messages of a pack, or some, are sent."""
        in_order = not header.flags & (pack.STAGED | pack.DELAYED)
        persistent = not header.flags & pack.NON_PERSISTENT
        for i in indexes or range(header.count):
            self._by(
                known,
                f"{known.session:x}",
                kind,
                group=header.destination,
                message=columns.message_id(header, i),
                sender=_sender(header),
                sender_seq=header.sequence + i if in_order else -1,
                persistent=persistent,
            )

    def _acknowledged(self, known: _Connection, request: cw.Ack) -> None:
        for row in request.rows:
            told = self._told(known, row.consumer)
            if told is not None and row.last > 0:
                self._of(known, told, "acknowledge", position=row.last)

    # -- From the log --------------------------------------------------------------------------

    def applied(self, effect: Applied) -> None:
        """Write down an applied entry. Call it before its effects are sent to clients."""
        if self._served and effect.accepted:
            self._accepted(effect)
        for event in effect.events:
            if isinstance(event, ev.Attached):
                self._attachments[event.session] = event.attachment
            elif isinstance(event, ev.GroupChanged):
                self._look_at(event.destination)
            elif isinstance(event, ev.SessionEnded):
                self._ended(event.session)
        self._flush()

    def _accepted(self, effect: Applied) -> None:
        payloads = dict(effect.packs())
        for accepted in effect.accepted:
            data = payloads.get(accepted.position)
            # Messages that a transaction or a delay had parked came earlier, and have a `send`.
            link = self._served.get(accepted.session)
            if data is not None and link is not None:
                self._sends("sent", self._connections[link], pack.read_header(data))

    def restored(self) -> None:
        """Follow the state machine, which now has another server's state."""
        self._attachments = {s.number: s.attachment for s in self._broker.sessions.values()}
        self._members = {
            (group.destination, member.name): member.session
            for group in self._broker.groups.values()
            for member in group.members.values()
            if member.session
        }

    def _look_at(self, destination: str) -> None:
        group = self._broker.groups.get(destination)
        now = {m.name: m.session for m in group.members.values()} if group is not None else {}
        for (known, name), session in list(self._members.items()):
            if known == destination and now.get(name) != session:
                self._gone(destination, name, session)
        self._members |= {(destination, name): session for name, session in now.items() if session}

    def _ended(self, session: int) -> None:
        for (destination, name), known in list(self._members.items()):
            if known == session:
                self._gone(destination, name, session)
        self._attachments.pop(session, None)

    def _gone(self, destination: str, name: str, session: int) -> None:
        del self._members[destination, name]
        life = self._attachments.get(session, 0) + 1
        self._row("crash", _process(name, session), life, 1, session)

    # -- To clients ----------------------------------------------------------------------------

    def told(self, link: int, answer: cw.Answer) -> None:
        """Write down an answer. Call it before the answer is sent."""
        known = self._connections.get(link)
        handler = self._TOLD.get(type(answer))
        if known is not None and handler is not None:
            handler(self, known, answer)
            if isinstance(answer, cw.Attached):
                self._served[known.session] = link
            self._flush()

    def _attached(self, known: _Connection, answer: cw.Attached) -> None:
        known.attachment = self._attachments[known.session] = answer.attachment
        known.before = self._broker.position if answer.attachment > 1 else 0
        if self._began < 0:
            self._began = self._broker.position

    def _result(self, known: _Connection, answer: cw.Result) -> None:
        request = known.request
        if request is None or request.number != answer.number or answer.code:
            return
        if isinstance(request.body, cw.Leave | cw.CloseConsumer):
            told = known.consumers.pop(request.body.consumer, None)
            if told is not None and told.entered:
                self._of(known, told, "leave")

    def _happened(self, known: _Connection, answer: cw.Happened) -> None:
        told = self._told(known, answer.consumer)
        if told is None or not told.member:
            return
        event = answer.event
        where: dict[str, Any] = {"position": event.position}
        if event.kind == cw.VIEW:
            self._enter(known, told)
            told.in_view = True
            self._of(known, told, "view", view_id=event.view, members=event.members, **where)
            if told.member in event.came:
                group = self._broker.groups.get(told.destination)
                relation = group.relation if group is not None else ""
                self._of(known, told, "group", relation=relation, **where)
            if event.went:
                self._of(known, told, "remove", members=event.went)
        elif event.kind == cw.RELATION:
            self._of(known, told, "conflict", relation=event.relation, **where)
        elif event.kind == cw.SUSPICION:
            if event.came:
                self._of(known, told, "suspect", members=event.came, **where)
            if event.went:
                self._of(known, told, "withdraw", members=event.went, **where)

    def _delivered(self, known: _Connection, answer: cw.Deliver) -> None:
        told = self._told(known, answer.consumer)
        if told is None or (told.member and not self._enter_later(known, told)):
            return
        found = columns.Columns(answer.pack)
        header = found.header
        for i in range(header.count):
            position = answer.position + i
            extra = _extra(found.extra(i))
            if position <= self._began:
                self._sends("send", known, header, (i,))
            self._of(
                known,
                told,
                "deliver",
                didx=told.places[answer.view],
                position=position,
                message=columns.message_id(header, i),
                sender=_sender(header),
                sender_seq=header.sequence + i,
                view_id=answer.view,
                tag=extra.tag,
                key=extra.key,
                redelivered=answer.deliveries > 1 or position <= known.before,
                persistent=not header.flags & pack.NON_PERSISTENT,
            )
            told.places[answer.view] += 1

    def _state_comes(self, known: _Connection, answer: cw.StateComes) -> None:
        told = self._told(known, answer.consumer)
        if told is not None:
            told.cuts = {answer.serial: answer.position}

    def _state_chunk(self, known: _Connection, answer: cw.StateChunk) -> None:
        told = known.consumers.get(answer.consumer)
        if answer.last and told is not None and answer.serial in told.cuts:
            self._enter(known, told)
            self._of(known, told, "state", position=told.cuts[answer.serial])

    _TOLD: ClassVar[dict[type, Callable[[ServerTrace, _Connection, Any], None]]] = {
        cw.Attached: _attached,
        cw.Result: _result,
        cw.Happened: _happened,
        cw.Deliver: _delivered,
        cw.StateComes: _state_comes,
        cw.StateChunk: _state_chunk,
    }

    # -- Consumers -----------------------------------------------------------------------------

    def _told(self, known: _Connection, number: int) -> _Told | None:
        told = known.consumers.get(number)
        if told is None:
            session = self._broker.sessions.get(known.session)
            consumer = session.consumers.get(number) if session is not None else None
            if consumer is None:
                return None  # it was closed meanwhile
            group = self._broker.groups.get(consumer.destination)
            member = group.member_of(known.session, number) if group is not None else None
            name = member.name if member is not None else ""
            told = known.consumers[number] = _Told(consumer.destination, name)
        return told

    def _enter(self, known: _Connection, told: _Told) -> None:
        if told.entered:
            return
        told.entered = True
        self._of(known, told, "join", sender=told.member, durable=True)

    def _enter_later(self, known: _Connection, told: _Told) -> bool:
        """Return whether a member's messages can be judged: those behind its first view. After
        another connection of the same session, the trace of that one has the view."""
        if not told.in_view and known.attachment > 1:
            self._enter(known, told)
            told.in_view = True
        return told.in_view

    # -- Writing -------------------------------------------------------------------------------

    def _of(self, known: _Connection, told: _Told, kind: Kind, **row: Any) -> None:
        process = _process(told.member, known.session) if told.member else f"{known.session:x}"
        self._by(known, process, kind, group=told.destination, **row)

    def _by(self, known: _Connection, process: str, kind: Kind, **row: Any) -> None:
        known.seqs[process] += 1
        self._row(kind, process, known.attachment, known.seqs[process], known.session, **row)

    def _row(
        self, kind: Kind, process: str, incarnation: int, seq: int, session: int, **row: Any
    ) -> None:
        event = TraceEvent(
            run=self._run,
            process=process,
            incarnation=incarnation,
            seq=seq,
            kind=kind,
            session=f"{session:x}",
            at=self._broker.stamp / 1000,
            **row,
        )
        self._rows.append(encode_event(event))

    def _flush(self) -> None:
        """Write the rows to the file. A disk without room ends the trace, and not the server."""
        rows, self._rows = self._rows, []
        if not rows or self._file is None:
            return
        try:
            self._file.write(b"".join(rows))
        except OSError as error:
            logger.error("the trace ends here, for it cannot be written: %s", error.strerror)
            self.close()


def _process(member: str, session: int) -> str:
    return f"{member}@{session:x}"


def _extra(data: bytes) -> columns.Extra:
    """Return the headers of a message; none if a client wrote some that cannot be read, for servers
    do not check them."""
    try:
        return columns.decode_extra(data)
    except FormatError:
        return columns.PLAIN


def _sender(header: pack.PackHeader) -> str:
    return columns.message_id(header, 0).removeprefix("ID:").rpartition(".")[0]
