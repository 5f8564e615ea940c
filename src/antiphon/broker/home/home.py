"""What a server does for its clients: their *home*, between their connections and the log.

Promises: a client's request is answered only when this server's state machine has dealt with it;
until then it is proposed again whenever it may have been lost. A session is served on one
connection; who comes later, here or elsewhere, takes it over. What one client does wrong, or does
not read, costs nobody else anything: it is told why and cut off, or held back.

Needs: a driver that carries out the effects in order, tells of everything that was applied, and
calls `flush` and `dispatch` after that. The driver gives connections (*links*) their numbers, each
once in the life of the server. No clock and no socket is in here, so the simulator drives the same
class.

With local contexts (`local_contexts.py`) acknowledgements of topics are answered when this server's
own journal has them, and the log is told later. Before anything else is said in the log of a
session, it has all that the session acknowledged here.

Connections and their limits are kept in `connections.py`; what is published waits in
`incoming_packs.py`; acknowledgements are gathered by `ack_batches.py`, and those that the log is to
lack for a while by `local_acks.py`; commands are seen through by `proposals.py`; deliveries are
made by `dispatcher.py`; what clients say to each other goes through `state_relay.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from hashlib import blake2b
from typing import Any, ClassVar

from antiphon.broker.dispatch.dispatcher import Dispatcher, PackSource
from antiphon.broker.home.ack_batches import AckBatch, Acking
from antiphon.broker.home.connections import Link, Links, Served
from antiphon.broker.home.effects import (
    Admit,
    Cut,
    Effect,
    Hold,
    Propose,
    Redirect,
    RelayTo,
    Store,
    Tell,
)
from antiphon.broker.home.incoming_packs import LARGE_BYTES, Publisher, is_large
from antiphon.broker.home.local_acks import Keeping, OwnJournal
from antiphon.broker.home.proposals import Proposals
from antiphon.broker.home.settings import HomeSettings
from antiphon.broker.home.state_relay import Relay
from antiphon.broker.machine import events as ev
from antiphon.broker.machine.machine import Broker
from antiphon.broker.machine.sessions.servers import GRACE_MS
from antiphon.broker.machine.sessions.session import Session
from antiphon.errors import FormatError
from antiphon.formats import columns, commands, pack
from antiphon.formats import protocol as cw
from antiphon.formats.journal import Local
from antiphon.log.clock import SLEW
from antiphon.log.effects import Accepted

PROPOSAL_BYTES = 1 << 20
"""Proposed at once: it travels to the leader in one frame."""

LOOK_MS = 250
"""How often a home looks for what is overdue."""

ACK_GATHER_MS = 50
"""So long acknowledgements gather that nobody waits for: each batch is an entry of the log."""

UNLED_MS = 2000
"""A home that has heard no leader for so long attaches nobody: longer than an election takes, and
much shorter than a client would wait for an answer."""

PASS_OVER_MS = 1000
"""How often a home looks for messages that its clients are not sent (`Dispatcher.pass_over`)."""

LOG_MS = 1000
"""So often a home with local contexts tells the log what only its journal has."""

NO_LEADER = "this server hears no leader"
OVERTAKEN = "another connection has taken its client id since it asked"

FRAME_BYTES = 1024
"""What a frame may have besides the pack in it, and more."""

ACK_ROW_BYTES = 32
CLIENT_ID_MAX = 1024
SEQUENCES_MAX = 10_000
TOKEN_BYTES = 16
NO_USERS = "this server keeps no users, and checks no password: connect without them"

_OF_A_CONSUMER = (cw.OpenConsumer, cw.CloseConsumer, cw.Widen, cw.Join, cw.Leave)
"""Requests that change nothing for the session's other consumers. (What they change for other
members of a group is told by an event.)"""


class Home:
    def __init__(
        self,
        node: int,
        life: int,
        broker: Broker,
        packs: PackSource,
        settings: HomeSettings,
        now_ms: int,
        own: OwnJournal | None = None,
    ) -> None:
        """`life`: drawn anew at each start of the server; `own`: with local contexts."""
        self.settings = settings
        self._node = node
        self._life = life
        self._broker = broker
        self._out: list[Effect] = []
        self._links = Links(settings.client_window_bytes, settings.window_bytes, self._hold, now_ms)
        self._sessions: dict[int, Served] = {}
        self._proposals = Proposals()
        self.dispatcher = Dispatcher(
            broker,
            packs,
            self._tell,
            self._time,
            settings.delivery_bytes,
            settings.slow_quota,
            settings.deliveries_max,
        )
        self._relay = Relay(broker, self._tell_session, self._pass_on)
        self._due: dict[Served, None] = {}  # have packs to propose
        self._large: Served | None = None  # whose large pack is on its way
        self._large_wait: dict[Served, None] = {}  # have a large pack, and wait for that one
        self._acking: Acking[Served | None] = Acking()  # None: what was in the journal only
        self._local = own is not None
        self._keeping = Keeping(broker, own)
        self._unlogged = self._keeping.unlogged
        self._logged_ms = now_ms
        self._ending = False
        self._detaching: dict[int, int] = {}  # session -> attachment whose connection is lost
        self._reign: tuple[int, int] | None = None  # the leader's node, and its epoch
        self._leads = False
        self._led_ms = now_ms  # when there was a leader
        self._looked_ms = now_ms
        self._checked_ms = now_ms
        self._renewed_ms = now_ms
        self._passed_over_ms = now_ms
        self._now_ms = now_ms
        self._stamped = (now_ms, broker.stamp)  # when a stamp was first seen; the last one
        self._known = (now_ms, -1)  # when the others last heard of this server; the stamp of it
        self._published = 0  # packs
        self._refused = 0
        if own is not None:
            begin = commands.Begin(node, own.incarnation, own.opening, life)
            self._proposals.want("begin", begin, after=self._log_now())

    def take(self) -> list[Effect]:
        """What is to be done, in this order."""
        out, self._out = self._out, []
        return out

    # -- Connections ---------------------------------------------------------------------------

    def connected(self, link: int, now_ms: int) -> None:
        self._links.add(link, now_ms)

    def let_go(self) -> None:
        """This server ends: with local contexts its clients can go on elsewhere only when the log
        knows all that this server alone knew of them (`has_let_go`)."""
        self._ending = True
        for link in self._links:
            self._cut(link, "this server ends")

    @property
    def has_let_go(self) -> bool:
        if not self._ending or self._detaching or self._unlogged:
            return False
        return not any(link.session for link in self._links)

    def heard(self, link: int, now_ms: int) -> None:
        """Its client has said something that is not for this home."""
        if (known := self._links.get(link)) is not None:
            known.heard_ms = now_ms

    def begun(self, link: int, size: int, now_ms: int) -> None:
        """A part of a message of this size has come."""
        if (known := self._links.get(link)) is not None:
            known.heard_ms = now_ms
            if size > LARGE_BYTES + FRAME_BYTES:
                self._links.asks_turn(known)

    def lost(self, link: int) -> None:
        """The connection is gone."""
        known = self._links.get(link)
        if known is not None:
            self._leave(known)

    def drained(self, link: int, left: int = 0) -> bool:
        """What was told to this client has left, except for so many bytes; True: there is more for
        it to `dispatch`."""
        return self.dispatcher.drained(link, left)

    def received(self, link: int, request: cw.Request, now_ms: int) -> None:
        known = self._links.get(link)
        if known is None:
            return
        known.heard_ms = now_ms
        try:
            handler = self._REQUESTS.get(type(request))
            if handler is None:
                raise FormatError(f"{type(request).__name__} is no request of a session")
            handler(self, known, request)
        except FormatError as error:
            self._refuse(known, str(error))

    def _refuse(self, link: Link, reason: str) -> None:
        """Told before the connection ends: otherwise it would be tried at the next server."""
        self._refused += 1
        self._tell(link.number, cw.Refused(reason))
        self._cut(link, reason)

    def _cut(self, link: Link, reason: str) -> None:
        self._leave(link)
        self._out.append(Cut(link.number, reason))

    def _leave(self, link: Link) -> None:
        """Forget a connection; the lease of its session begins."""
        self._links.remove(link)
        self._proposals.done(("attach", link.number))
        if link.served is not None:
            served = link.served
            self._forget(served)
            self._want_detached(served.session, served.attachment)
        elif self._is_attached(link):
            # By what this server took over from another one (`restored`), and was not told of.
            session = self._broker.sessions[link.session]
            self._want_detached(session.number, session.attachment)

    def _is_attached(self, link: Link) -> bool:
        session = self._broker.sessions.get(link.session)
        place = (self._node, self._life, link.number)
        return session is not None and not session.leased and session.place[1:] == place

    def _forget(self, served: Served) -> None:
        """This session is no longer served here. Acknowledgements that it sent go on their way."""
        del self._sessions[served.session]
        served.link.served = None
        if served is self._large:
            self._large_is_over()
        self._large_wait.pop(served, None)
        self._due.pop(served, None)  # the last of these: the others put it there
        self._proposals.done(("request", served.session))
        self.dispatcher.close(served.session)
        self._relay.close(served.session)

    def _want_detached(self, session: int, attachment: int) -> None:
        self._detaching[session] = attachment
        detach = commands.Detach(session, attachment)
        self._proposals.want(("detach", session), detach, after=self._log_now(session))

    def _detached(self, session: int) -> None:
        """Nothing is left to be said about a connection that was lost."""
        if self._detaching.pop(session, None) is not None:
            self._proposals.done(("detach", session))

    def _tell(self, link: int, answer: cw.Answer) -> None:
        self._out.append(Tell(link, answer))

    def _hold(self, link: int, hold: bool) -> None:
        self._out.append(Hold(link, hold))

    # -- Attaching -----------------------------------------------------------------------------

    def _attach(self, link: Link, m: cw.Attach) -> None:
        if link.session:
            raise FormatError("a connection is attached once")
        if self._ending:
            self._cut(link, "this server ends")
            return
        if self._is_unled(link.heard_ms):
            self._cut(link, NO_LEADER)
            return
        if not 0 < m.session < 1 << 63 or len(m.token) != TOKEN_BYTES:
            raise FormatError(f"a session is a positive number with a token of {TOKEN_BYTES} bytes")
        if len(m.client_id) > CLIENT_ID_MAX or len(m.sequences) > SEQUENCES_MAX:
            raise FormatError("a client id or a list of producers that is too long")
        if m.user or m.password:
            self._tell(link.number, cw.Ended("SecurityError", NO_USERS))
            self._cut(link, "")
            return
        link.session, link.seen = m.session, m.seen
        link.client_id = m.client_id
        link.owner = self._broker.sessions.client_ids.get(m.client_id, 0)
        self._proposals.want(
            ("attach", link.number),
            commands.Attach(
                m.session,
                blake2b(m.token, digest_size=TOKEN_BYTES).digest(),
                m.resume,
                m.attempt,
                self._node,
                self._life,
                link.number,
                m.client_id,
                m.lease_ms,
                m.sequences,
                self._local,
            ),
            after=self._log_now(),
        )

    def _on_attached(self, e: ev.Attached, fresh: list[Served]) -> None:
        mine = (e.node, e.life) == (self._node, self._life)
        served = self._sessions.get(e.session)
        if served is not None:
            if mine and served.link.number == e.link:
                return  # it was proposed twice
            self._gone_elsewhere(served)
        if not mine:
            self._detached(e.session)
            return
        link = self._links.get(e.link)
        if link is None:
            self._want_detached(e.session, e.attachment)
            return
        self._proposals.done(("attach", link.number))
        self._detached(e.session)
        link.served = self._sessions[e.session] = Served(e.session, e.attachment, link)
        fresh.append(link.served)

    def _gone_elsewhere(self, served: Served) -> None:
        link = served.link
        self._forget(served)
        self._cut(link, "its session goes on at another connection")

    def _begin(self, served: Served) -> None:
        """Serve a session, from the state as it is now."""
        session = self._broker.sessions.get(served.session)
        if session is None or self._sessions.get(served.session) is not served:
            return  # over already
        seen, served.link.seen = served.link.seen, ()
        served.publisher = Publisher(session.streams)
        self._out.append(Admit(served.link.number))
        self._tell(
            served.link.number,
            cw.Attached(
                served.session,
                served.attachment,
                tuple(session.streams.items()),
                tuple(session.refusals),
                self.settings.heartbeat_ms,
                cw.PACK_MAX,
                self.settings.deliveries_max,
                self.settings.redelivery,
            ),
        )
        self.dispatcher.open(served.session, served.link.number, seen)

    def _on_attach_refused(self, e: ev.AttachRefused) -> None:
        link = self._links.get(e.link)
        if (e.node, e.life) == (self._node, self._life) and link is not None:
            self._tell(link.number, cw.Ended(e.code, e.text))
            self._cut(link, "")

    def _on_redirected(self, e: ev.Redirected) -> None:
        link = self._links.get(e.link)
        if (e.node, e.life) == (self._node, self._life) and link is not None:
            self._out.append(Redirect(link.number, e.home))
            self._cut(link, "")
        served = self._sessions.get(e.session)
        if served is not None:
            self._cut(served.link, "its client has turned to another server")

    def _on_session_ended(self, e: ev.SessionEnded) -> None:
        self._detached(e.session)
        served = self._sessions.get(e.session)
        if served is not None:
            self._tell(served.link.number, cw.Ended(e.code, e.text))
            link = served.link
            self._forget(served)
            self._cut(link, e.text)

    # -- Publishing ----------------------------------------------------------------------------

    def _publish(self, link: Link, m: cw.Publish) -> None:
        served = self._served(link)
        if len(m.pack) > cw.PACK_MAX:
            raise FormatError(f"a pack has at most {cw.PACK_MAX} bytes, not {len(m.pack)}")
        header = columns.check(m.pack)
        if header.session != served.session:
            raise FormatError(f"session {header.session} on the connection of {served.session}")
        before = served.publisher.bytes
        answer = served.publisher.take(header, m.pack)
        if served.publisher.bytes > before:
            self._due[served] = None
            self._links.waits_more(link, len(m.pack), large=is_large(m.pack))
        if not link.large_bytes:
            self._links.ends_turn(link)  # what had begun is settled already, or is no large pack
        if answer is not None:
            self._tell(link.number, answer)

    def _settle_packs(self, streams: Iterable[tuple[int, int]], now_ms: int) -> None:
        """Answer what the state machine has settled of these sessions and producers."""
        for session, producer in streams:
            served = self._sessions.get(session)
            if served is not None:
                sequence = self._broker.last_sequence(session, producer)
                waiting = served.publisher.packs
                large = served.publisher.large_bytes
                freed, answer = served.publisher.settle(producer, sequence, now_ms)
                self._published += waiting - served.publisher.packs
                if answer is not None:
                    self._tell(served.link.number, answer)
                if freed:
                    large -= served.publisher.large_bytes
                    self._links.waits_less(served.link, freed, large)
                    if served is self._large and not served.publisher.large_flies:
                        self._large_is_over()
                    if served.early or served.behind_large:
                        self._propose_request(served)

    def _on_pack_refused(self, e: ev.PackRefused) -> None:
        served = self._sessions.get(e.session)
        if served is not None:
            self._tell(served.link.number, e.refusal)

    def _served(self, link: Link) -> Served:
        if link.served is None:
            raise FormatError("nothing can be asked before the session is attached")
        return link.served

    # -- Control requests ----------------------------------------------------------------------

    def _control(self, link: Link, m: cw.Control) -> None:
        served = self._served(link)
        if served.request is not None:
            if served.request.number == m.number:
                return  # it is on its way
            raise FormatError(f"request {m.number} before {served.request.number} is answered")
        session = self._broker.sessions.get(served.session)
        if session is not None and m.number == session.request:
            self._answer(served, m.body, session.result)  # asked again
            return
        if session is not None and m.number != session.request + 1:
            raise FormatError(f"request {m.number} after {session.request}")
        served.request = m
        if not served.ack_batches:
            self._propose_request(served)

    def _propose_request(self, served: Served) -> None:
        """Behind the acknowledgements that came before it: a consumer is not closed with
        messages unacknowledged that the client has acknowledged."""
        served.behind_large = served.publisher.large_bytes > 0
        if served.request is not None and not served.behind_large:
            m = served.request
            served.early = False
            self._proposals.want(
                ("request", served.session),
                commands.Request(served.session, m.number, m.body),
                after=self._log_now(served.session),
            )

    def _on_early(self, e: ev.Early) -> None:
        served = self._sessions.get(e.session)
        if served is not None and served.request is not None:
            served.early = served.request.number == e.number

    def _on_answered(self, e: ev.Answered) -> None:
        served = self._sessions.get(e.session)
        if served is None or served.request is None or served.request.number != e.result.number:
            return
        body, served.request, served.early = served.request.body, None, False
        self._proposals.done(("request", served.session))
        self._answer(served, body, e.result)

    def _answer(self, served: Served, body: cw.Body, result: cw.Result) -> None:
        self._tell(served.link.number, result)
        if isinstance(body, cw.Commit) and not result.code:
            for row in body.rows:
                self.dispatcher.settled(served.session, row)
        if isinstance(body, _OF_A_CONSUMER):
            self.dispatcher.follow_consumer(served.session, body.consumer)
        else:
            self._follow_session(served)

    def _follow_session(self, served: Served) -> None:
        session = self._broker.sessions.get(served.session)
        if session is not None:
            for producer, last in session.streams.items():
                served.publisher.opened(producer, last)
        self.dispatcher.follow(served.session)

    # -- Acknowledgements ----------------------------------------------------------------------

    def _ack(self, link: Link, m: cw.Ack) -> None:
        served = self._served(link)
        for row in m.rows:
            if not 0 <= row.first <= row.last:
                raise FormatError(f"{row} is no range of positions")
            if row.kind in (cw.CLAIM, cw.SKIP):
                raise FormatError("only servers choose messages for a consumer")
        self._add_own_rows(link.heard_ms)
        # All of them are handed on, whatever the first ones say.
        pressing = [self.dispatcher.acked(served.session, row) for row in m.rows]
        patient = m.patient and not any(pressing)
        due_ms = link.heard_ms + (ACK_GATHER_MS if patient else 0)
        size = ACK_ROW_BYTES * (1 + len(m.rows))
        into_log = not self._keeping.takes(served.session, m.rows)
        acking = self._acking if into_log else self._keeping.acking
        served.acks.add(m.number, into_log)
        served.ack_batches += acking.add(served, served.session, m, size, due_ms)
        self._links.waits_more(link, size)

    def _store_acks(self, now_ms: int) -> None:
        if (due := self._keeping.due(now_ms)) is not None:
            self._out.append(Store(*due))

    def stored(self, number: int) -> None:
        """The journal has what was to be stored with this number."""
        if (batch := self._keeping.acking.done(number)) is not None:
            self._acks_done(batch, into_log=False)

    def kept(self) -> tuple[Local, ...]:
        """What only this server knows now, for its journal."""
        return self._keeping.all()

    def _log_now(self, *sessions: int) -> int:
        """Tell the log what only the journal has of these sessions, or of all. Returns the number
        that is reached when the log knows."""
        for number, session, rows in self._unlogged.leave(*sessions):
            self._acking.add(None, session, cw.Ack(number, rows), 0, due_ms=0)
        return self._unlogged.last_of(*sessions)

    def _add_own_rows(self, now_ms: int) -> None:
        """Before what clients say next: that counts for what they were not sent, too."""
        for session, row in self.dispatcher.rows:
            self._acking.add_own(session, (row,), now_ms)
        self.dispatcher.rows.clear()

    def _send_acks(self, now_ms: int) -> None:
        if (batch := self._acking.due(now_ms)) is not None:
            rows = tuple(batch.rows)
            self._proposals.want("acks", commands.Acks(self._node, self._life, batch.number, rows))

    def _on_acks_done(self, e: ev.AcksDone) -> None:
        mine = (e.node, e.life) == (self._node, self._life)
        batch = self._acking.done(e.batch) if mine else None
        if batch is not None:
            self._proposals.done("acks")
            self._acks_done(batch, into_log=True)

    def _acks_done(self, batch: AckBatch[Served | None], into_log: bool) -> None:
        for session, rows in batch.rows:
            for row in rows:
                self.dispatcher.settled(session, row)
        for served, (number, size) in batch.askers.items():
            if served is None:
                self._unlogged.logged(number)
                self._proposals.reached(number)
            elif self._sessions.get(served.session) is served:
                self._links.waits_less(served.link, size)
                self._acked(served, served.acks.done(number, into_log))

    def _acked(self, served: Served, upto: int | None) -> None:
        if upto is not None:
            self._tell(served.link.number, cw.Acked(upto))
        served.ack_batches -= 1
        if not served.ack_batches:
            self._propose_request(served)

    # -- From member to member -----------------------------------------------------------------

    def _state_chunk(self, link: Link, m: cw.StateChunk) -> None:
        self._relay.chunk(self._served(link).session, m)

    def _state_taken(self, link: Link, m: cw.StateTaken) -> None:
        self._relay.taken(self._served(link).session, m)

    def _state_failed(self, link: Link, m: cw.StateFailed) -> None:
        self._relay.failed(self._served(link).session, m)

    def relayed(self, session: int, attachment: int, body: bytes) -> None:
        """From another server; raises `FormatError` if it is nothing that servers relay."""
        piece = cw.decode_answer(body)
        if not isinstance(piece, cw.Relayed):
            raise FormatError(f"{type(piece).__name__} is not relayed")
        known = self._broker.sessions.get(session)
        if self._leads and known is not None and known.node != self._node:
            if known.attachment == attachment:  # it comes from a server that cannot reach that one
                self._out.append(RelayTo(known.node, session, attachment, body))
        else:
            self._arrived(session, attachment, piece)

    def _arrived(self, session: int, attachment: int, piece: cw.Relayed) -> None:
        served = self._sessions.get(session)
        if served is not None and served.attachment == attachment:
            self._relay.arrived(session, piece)

    def _pass_on(self, to: Session, piece: cw.Relayed, by_way_of_leader: bool) -> None:
        if to.node == self._node:
            self._arrived(to.number, to.attachment, piece)
            return
        node = to.node
        if by_way_of_leader and self._reign is not None and not self._leads:
            node = self._reign[0]
        self._out.append(RelayTo(node, to.number, to.attachment, cw.encode(piece)))

    def _tell_session(self, session: int, answer: cw.Answer) -> None:
        served = self._sessions.get(session)
        if served is not None:
            self._tell(served.link.number, answer)

    # -- Heartbeats ----------------------------------------------------------------------------

    def _ping(self, link: Link, m: cw.Ping) -> None:
        self._tell(link.number, cw.Pong())

    _REQUESTS: ClassVar[dict[type, Callable[[Home, Link, Any], None]]] = {
        cw.Attach: _attach,
        cw.Publish: _publish,
        cw.Control: _control,
        cw.Ack: _ack,
        cw.Ping: _ping,
        cw.StateChunk: _state_chunk,
        cw.StateTaken: _state_taken,
        cw.StateFailed: _state_failed,
    }

    # -- From the log --------------------------------------------------------------------------

    def applied(
        self, accepted: tuple[Accepted, ...], events: tuple[ev.Event, ...], now_ms: int
    ) -> None:
        """The state machine took some entries; its state is as after the last of them."""
        self._now_ms = now_ms
        if self._broker.stamp > self._stamped[1]:
            self._stamped = (now_ms, self._broker.stamp)
        fresh: list[Served] = []
        streams = {(a.session, a.producer): None for a in accepted}  # of which some is settled
        groups_changed = False
        # Before anything else: a consumer that these events tell to be open begins with the state,
        # which has all that was assigned to it.
        for event in events:
            if isinstance(event, ev.Assigned):
                span = (event.first, event.last, event.deliveries)
                self.dispatcher.assigned(event.session, event.consumer, span)
        for event in events:
            if isinstance(event, ev.Assigned):
                continue
            if isinstance(event, ev.Attached):
                self._on_attached(event, fresh)
            elif isinstance(event, ev.Taken):
                streams[event.session, event.producer] = None
            elif isinstance(event, ev.GroupChanged):
                self.dispatcher.group_changed(event.destination)
                groups_changed = True
            else:
                self._EVENTS[type(event)](self, event)
                if isinstance(event, ev.PackRefused):
                    streams[event.session, event.refusal.producer] = None
        # A fresh session begins with the state, which has all that these events told of it.
        for served in fresh:
            self._begin(served)
        self._settle_packs(streams, now_ms)
        self.dispatcher.applied(accepted)
        if groups_changed and self._relay:
            self._relay.review()
        self._look_at_renewal(now_ms)
        if "begin" in self._proposals and self._has_begun():
            self._proposals.done("begin")

    def _has_begun(self) -> bool:
        known = self._broker.servers.lives.get(self._node)
        return known is not None and known.life == self._life

    def _look_at_renewal(self, now_ms: int) -> None:
        serving = self._broker.servers.serving.get(self._node)
        if serving is not None and serving.life == self._life and serving.renewed > self._known[1]:
            self._known = (now_ms, serving.renewed)

    _EVENTS: ClassVar[dict[type, Callable[[Home, Any], None]]] = {
        ev.AttachRefused: _on_attach_refused,
        ev.Redirected: _on_redirected,
        ev.Answered: _on_answered,
        ev.Early: _on_early,
        ev.PackRefused: _on_pack_refused,
        ev.SessionEnded: _on_session_ended,
        ev.AcksDone: _on_acks_done,
    }

    def restored(self) -> None:
        """The state machine jumped ahead to another server's snapshot, and nobody told of what
        happened in between. The clients come again, and find the state as it is."""
        for served in list(self._sessions.values()):
            self._cut(served.link, "this server had fallen behind, and took over another's state")
        for session in self._broker.sessions.values():
            mine = (session.node, session.life) == (self._node, self._life)
            if mine and not session.leased and self._links.get(session.link) is None:
                # It was attached in between, and its client has left before this was known here.
                self._want_detached(session.number, session.attachment)
        self.dispatcher.restored()

    def rejected(self, payloads: tuple[bytes, ...], now_ms: int) -> None:
        """The leader did not take these."""
        self._proposals.refused(now_ms)
        for payload in payloads:
            if not commands.is_command(payload):
                served = self._sessions.get(pack.read_header(payload).session)
                if served is not None:
                    served.publisher.refused(now_ms)

    # -- To the log ----------------------------------------------------------------------------

    def follow(self, reign: tuple[int, int] | None, leads: bool) -> None:
        """Which node leads now, in which epoch; None: nobody. `leads`: it is this server."""
        self._leads = leads
        if reign != self._reign:
            # What the old leader was given may have died with it.
            self._reign = reign
            self._cut_the_overtaken()
            self._proposals.all_again()
            for served in self._sessions.values():
                self._propose_again(served)

    def _cut_the_overtaken(self) -> None:
        """Whose client id went to another session while it waited to be attached is not proposed
        again: its program may have died in silence, and the other one is its next life. A program
        that lives dials again."""
        for link in self._links:
            if link.client_id and link.served is None:
                owner = self._broker.sessions.client_ids.get(link.client_id, 0)
                if owner not in (0, link.owner, link.session):
                    self._cut(link, OVERTAKEN)

    def _propose_again(self, served: Served) -> None:
        if served.publisher.again():
            self._due[served] = None

    def flush(self, now_ms: int) -> None:
        """Store and propose what has come in."""
        self._now_ms = now_ms
        if self.dispatcher.rows:
            self._add_own_rows(now_ms)
        if self._local:
            self._store_acks(now_ms)
        if self._reign is None:
            return
        self._led_ms = now_ms
        self._send_acks(now_ms)
        if not self._due and not self._proposals.due:
            return
        due, self._due = self._due, {}
        payloads: list[bytes] = []
        for served in due:
            publisher = served.publisher
            payloads += publisher.unproposed(now_ms, large=self._large in (None, served))
            if publisher.large_flies:
                self._large = served
            elif publisher.large_bytes:
                self._large_wait[served] = None
        # Commands behind the packs: who closes a session has sent them before.
        payloads += self._proposals.take(now_ms)
        self._out += map(Propose, _bounded(payloads))

    def _large_is_over(self) -> None:
        """The next one may leave. One at a time: so small ones come between them."""
        self._due.update(self._large_wait)
        self._large_wait = {}
        if self._large is not None:
            self._due[self._large] = None  # what it has sent after it
            self._large = None

    def dispatch(self) -> bool:
        """Deliver, once the journal has the rows of what was applied; True: there is more to do
        after others had their turn."""
        self.dispatcher.dispatch()
        for session, why in self.dispatcher.too_slow:
            if (served := self._sessions.get(session)) is not None:
                self._tell(served.link.number, cw.Ended("ResourceAllocationError", why))
                self._cut(served.link, why)
        self.dispatcher.too_slow.clear()
        says = bool(self.dispatcher.rows) and self._reign is not None
        return self.dispatcher.has_work or says

    # -- Time ----------------------------------------------------------------------------------

    def next_deadline_ms(self) -> int | None:
        """When `tick` and `flush` are to be called; None: not before something else happens."""
        if not self._links and not self._proposals and not self._unlogged:
            return None
        due = (self._looked_ms + LOOK_MS, self._acking.due_ms, self._keeping.acking.due_ms)
        return min([ms for ms in due if ms is not None])

    def tick(self, now_ms: int) -> None:
        if now_ms < self._looked_ms + LOOK_MS:
            return
        self._looked_ms = now_ms
        self._links.look(now_ms)
        self._look_for_the_overdue(now_ms)
        self._look_at_detaches()
        if now_ms - self._logged_ms >= LOG_MS and not self._unlogged.leaves:
            self._logged_ms = now_ms
            self._log_now()
        if now_ms - self._checked_ms >= self.settings.heartbeat_ms:
            self._checked_ms = now_ms
            self._look_at_links(now_ms)
        if now_ms - self._renewed_ms >= self.settings.renew_ms:
            self._renewed_ms = now_ms
            self._renew()
        if now_ms - self._passed_over_ms >= PASS_OVER_MS:
            self._passed_over_ms = now_ms
            self.dispatcher.pass_over(now_ms)

    def _time(self) -> int:
        """The servers' time: the last stamp, and what has passed here since. The leader's time may
        be slewed, and nothing is to expire early: so it is counted as slowly as that allows."""
        then_ms, stamp = self._stamped
        return stamp + max(0, self._now_ms - then_ms) * (SLEW - 1) // SLEW

    def _renew(self) -> None:
        if self._sessions:
            self._proposals.want("renew", commands.Renew(self._node, self._life))
        else:
            self._proposals.done("renew")

    def _look_for_the_overdue(self, now_ms: int) -> None:
        """What was not taken, and what should have been answered by now, is proposed again. A
        leader has what it did not reject; only on the way to it something may be lost."""
        self._cut_the_overtaken()
        self._proposals.look(now_ms, lost=not self._leads)
        for served in self._sessions.values():
            if served.publisher.overdue(now_ms, lost=not self._leads):
                self._propose_again(served)

    def _look_at_detaches(self) -> None:
        for number, attachment in list(self._detaching.items()):
            session = self._broker.sessions.get(number)
            if session is None or session.leased or session.attachment != attachment:
                self._detached(number)

    def _look_at_links(self, now_ms: int) -> None:
        limit_ms = 3 * self.settings.heartbeat_ms
        for link in self._links.silent(limit_ms):
            self._cut(link, f"it has said nothing for {limit_ms / 1000:g} s")
        unknown = now_ms - self._known[0] > GRACE_MS
        for link in self._links:
            if link.held:
                # Its pings are not read; so that it does not take this server for dead:
                self._tell(link.number, cw.Pong())
            if link.session and link.served is None and self._is_unled(now_ms):
                self._cut(link, NO_LEADER)  # it waits to be attached
            elif link.served is not None and unknown:
                # The others have taken its client for lost by now, or will: it is better off there.
                self._cut(link, "this server has lost touch with the others")
            elif link.served is not None and self._is_detached(link.served):
                # This server was not heard for a while. The client is to come again, for its
                # lease runs.
                self._cut(link, "the other servers took it for lost")

    def _is_unled(self, now_ms: int) -> bool:
        return self._reign is None and now_ms - self._led_ms > UNLED_MS

    def _is_detached(self, served: Served) -> bool:
        session = self._broker.sessions.get(served.session)
        return session is not None and session.detached

    def counts(self) -> dict[str, int]:
        return {
            "links": len(self._links),
            "sessions": len(self._sessions),
            "held": self._links.held,
            "waiting_packs": sum(s.publisher.packs for s in self._sessions.values()),
            "waiting_bytes": self._links.waiting_bytes,
            "commands": len(self._proposals),
            "acknowledgements": self._acking.rows + self._keeping.acking.rows,
            "unlogged": len(self._unlogged),
            "published": self._published,
            "refused": self._refused,
            "states": len(self._relay),
            "state_bytes": self._relay.passed_bytes,
        }


def _bounded(payloads: Iterable[bytes]) -> Iterator[tuple[bytes, ...]]:
    """All in order, in groups of about `PROPOSAL_BYTES`."""
    some: list[bytes] = []
    size = 0
    for one in payloads:
        if some and is_large(one):
            yield tuple(some)
            some, size = [], 0
        some.append(one)
        size += len(one)
        if size >= PROPOSAL_BYTES:
            yield tuple(some)
            some, size = [], 0
    if some:
        yield tuple(some)
