"""The *home* of clients: one server's side of them, between their connections and the log.

Promises: a client's request is answered only when this server's state machine has dealt with it;
until then it is proposed again whenever it may have been lost. A session is served on one
connection; a later connection, here or elsewhere, takes it over. A client that breaks the protocol,
or does not read, costs the others nothing: it receives the reason and is cut off, or it is held
back.

Needs: a driver that carries out the effects in order, reports everything that was applied, and
calls `flush` and `dispatch` after that. The driver gives connections their numbers (*links*), each
once in the life of the server. No clock and no socket is in here, so the simulator drives the same
class.

With local contexts (`broker/machine/sessions/local_contexts.py`) acknowledgements of topics are
answered when this server's own journal has them, and the log gets them later. Before the log gets
anything else about a session, it has all that the session acknowledged here.

Each part has a module: sessions come and go (`attaching.py`), packs (`publishing.py`), requests
(`requests.py`), acknowledgements (`acknowledging.py`), states on their way between clients
(`state_relay.py`), deliveries (`broker/dispatch/dispatcher.py`). They share `common.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from antiphon.broker.dispatch.dispatcher import Dispatcher
from antiphon.broker.dispatch.topic_delivery import PackSource
from antiphon.broker.home.ack_batches import Acking
from antiphon.broker.home.acknowledging import Acknowledgements
from antiphon.broker.home.attaching import ENDS, NO_LEADER, Attaching
from antiphon.broker.home.common import Common
from antiphon.broker.home.connections import ClientConnection, ServedSession
from antiphon.broker.home.effects import Effect, Propose, RelayTo
from antiphon.broker.home.incoming_packs import LARGE_BYTES, is_large
from antiphon.broker.home.local_acks import LocalAcks, OwnJournal
from antiphon.broker.home.publishing import Publishing
from antiphon.broker.home.requests import ControlRequests
from antiphon.broker.home.settings import HomeSettings
from antiphon.broker.home.state_relay import StateRelay
from antiphon.broker.machine import events as ev
from antiphon.broker.machine.machine import Broker
from antiphon.broker.machine.sessions.servers import GRACE_MS
from antiphon.broker.machine.sessions.session import Session
from antiphon.errors import FormatError
from antiphon.formats import commands
from antiphon.formats import protocol as cw
from antiphon.formats.journal import Local
from antiphon.log.clock import SLEW
from antiphon.log.effects import Accepted

PROPOSAL_BYTES = 1 << 20
"""Proposed at once: it travels to the leader in one frame."""

LOOK_MS = 250
"""How often a home looks for overdue work."""

PASS_OVER_MS = 1000
"""How often a home looks for messages that its clients are not sent (`Dispatcher.pass_over`)."""

LOG_MS = 1000
"""How often a home with local contexts proposes to the log what only its journal has."""

FRAME_BYTES = 1024
"""More bytes than a frame has in addition to the pack in it."""


class Home:
    """One server's side of its clients.

    Promises and needs: see the module. Call the doors (`connected`, `received`, `applied`, `flush`,
    `dispatch`, `tick` and so on) from one thread, and `take` the effects after each.
    """

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
        """`life`: drawn again at each start of the server; `own`: with local contexts."""
        self.settings = settings
        self._broker = broker
        self._common = common = Common(node, life, broker, settings, now_ms)
        self._connections = common.connections
        self._sessions = common.served
        self._proposals = common.proposals
        self.dispatcher = Dispatcher(
            broker,
            packs,
            common.tell,
            self._time,
            settings.delivery_bytes,
            settings.slow_quota,
            settings.deliveries_max,
        )
        self._relay = StateRelay(broker, common.tell_session, self._pass_on)
        self._acking: Acking[ServedSession | None] = Acking()  # None: rows of the journal alone
        self._local_acks = LocalAcks(broker, own, self._acking)
        log_now = self._local_acks.log_now
        self._requests = ControlRequests(common, self.dispatcher, log_now)
        self._acks = Acknowledgements(
            common, self.dispatcher, self._acking, self._local_acks, self._requests.propose
        )
        self._publishing = Publishing(common, self._requests.propose)
        self._attaching = Attaching(
            common,
            self.dispatcher,
            self._publishing,
            self._relay,
            log_now,
            local=own is not None,
        )
        self._local = own is not None
        self._doors = self._handlers_of_requests()
        self._heard_of = self._handlers_of_events()
        self._logged_ms = now_ms
        self._looked_ms = now_ms
        self._checked_ms = now_ms
        self._renewed_ms = now_ms
        self._passed_over_ms = now_ms
        self._now_ms = now_ms
        self._stamped = (now_ms, broker.stamp)  # when a stamp was first seen; the last one
        self._known = (now_ms, -1)  # when the others last heard of this server; the stamp of it
        self._refused = 0
        if own is not None:
            begin = commands.Begin(node, own.incarnation, own.opening, life)
            self._proposals.want("begin", begin, after=log_now())

    def _handlers_of_requests(self) -> dict[type, Callable[[ClientConnection, Any], None]]:
        return {
            cw.Attach: self._attaching.attach,
            cw.Publish: self._publishing.publish,
            cw.Control: self._requests.control,
            cw.Ack: self._acks.ack,
            cw.Ping: self._ping,
            cw.StateChunk: self._state_chunk,
            cw.StateTaken: self._state_taken,
            cw.StateFailed: self._state_failed,
        }

    def _handlers_of_events(self) -> dict[type, Callable[[Any], None]]:
        return {
            ev.AttachRefused: self._attaching.on_attach_refused,
            ev.Redirected: self._attaching.on_redirected,
            ev.SessionEnded: self._attaching.on_session_ended,
            ev.Answered: self._requests.on_answered,
            ev.Early: self._requests.on_early,
            ev.PackRefused: self._publishing.on_pack_refused,
            ev.AcksDone: self._acks.on_acks_done,
        }

    def take(self) -> list[Effect]:
        """Return the effects so far, to be carried out in this order."""
        common = self._common
        out, common.out = common.out, []
        return out

    # -- Connections ---------------------------------------------------------------------------

    def connected(self, link: int, now_ms: int) -> None:
        """A client has connected; nothing is known of it yet."""
        self._connections.add(link, now_ms)

    def let_go(self) -> None:
        """End: with local contexts, clients can go on elsewhere only when the log knows all that
        this server alone knew of them (`has_let_go`)."""
        self._attaching.ending = True
        for connection in self._connections:
            self._attaching.cut(connection, ENDS)

    @property
    def has_let_go(self) -> bool:
        """Whether this server may end: it serves no session, and the log has all that it knew."""
        attaching = self._attaching
        if not attaching.ending or attaching.is_detaching or self._local_acks.unlogged:
            return False
        return not any(connection.session for connection in self._connections)

    def heard(self, link: int, now_ms: int) -> None:
        """Note a sign of life of a client: a request that is not for this home."""
        if (known := self._connections.get(link)) is not None:
            known.heard_ms = now_ms

    def begun(self, link: int, size: int, now_ms: int) -> None:
        """A part of a message of this size has come."""
        if (known := self._connections.get(link)) is not None:
            known.heard_ms = now_ms
            if size > LARGE_BYTES + FRAME_BYTES:
                self._connections.asks_turn(known)

    def lost(self, link: int) -> None:
        """The connection is gone."""
        known = self._connections.get(link)
        if known is not None:
            self._attaching.leave(known)

    def drained(self, link: int, left: int = 0) -> bool:
        """All that was sent to this client has left, except for `left` bytes. Return whether there
        is more for it to `dispatch`."""
        return self.dispatcher.drained(link, left)

    def received(self, link: int, request: cw.Request, now_ms: int) -> None:
        """Take a request from a client; one that cannot be right ends its connection."""
        known = self._connections.get(link)
        if known is None:
            return
        known.heard_ms = now_ms
        try:
            handler = self._doors.get(type(request))
            if handler is None:
                raise FormatError(f"{type(request).__name__} is not a request of a session")
            handler(known, request)
        except FormatError as error:
            self._refuse(known, str(error))

    def _refuse(self, connection: ClientConnection, reason: str) -> None:
        """Say why before the connection ends: otherwise it would be tried at the next server."""
        self._refused += 1
        self._common.tell(connection.number, cw.Refused(reason))
        self._attaching.cut(connection, reason)

    def _ping(self, connection: ClientConnection, m: cw.Ping) -> None:
        self._common.tell(connection.number, cw.Pong())

    def stored(self, number: int) -> None:
        """The journal has what was to be stored with this number."""
        self._acks.stored(number)

    def kept(self) -> tuple[Local, ...]:
        """Return what only this server knows now, for its journal."""
        return self._local_acks.all()

    # -- From member to member -----------------------------------------------------------------

    def _state_chunk(self, connection: ClientConnection, m: cw.StateChunk) -> None:
        self._relay.chunk(self._common.session_of(connection).session, m)

    def _state_taken(self, connection: ClientConnection, m: cw.StateTaken) -> None:
        self._relay.taken(self._common.session_of(connection).session, m)

    def _state_failed(self, connection: ClientConnection, m: cw.StateFailed) -> None:
        self._relay.failed(self._common.session_of(connection).session, m)

    def relayed(self, session: int, attachment: int, body: bytes) -> None:
        """From another server; raises `FormatError` if it is nothing that servers relay."""
        piece = cw.decode_answer(body)
        if not isinstance(piece, cw.Relayed):
            raise FormatError(f"{type(piece).__name__} is not relayed")
        known = self._broker.sessions.get(session)
        if self._common.leads and known is not None and known.node != self._common.node:
            if known.attachment == attachment:  # it comes from a server that cannot reach that one
                self._common.out.append(RelayTo(known.node, session, attachment, body))
        else:
            self._arrived(session, attachment, piece)

    def _arrived(self, session: int, attachment: int, piece: cw.Relayed) -> None:
        served = self._sessions.get(session)
        if served is not None and served.attachment == attachment:
            self._relay.arrived(session, piece)

    def _pass_on(self, to: Session, piece: cw.Relayed, by_way_of_leader: bool) -> None:
        if to.node == self._common.node:
            self._arrived(to.number, to.attachment, piece)
            return
        node = to.node
        if by_way_of_leader and self._common.reign is not None and not self._common.leads:
            node = self._common.reign[0]
        self._common.out.append(RelayTo(node, to.number, to.attachment, cw.encode(piece)))

    # -- From the log --------------------------------------------------------------------------

    def applied(
        self, accepted: tuple[Accepted, ...], events: tuple[ev.Event, ...], now_ms: int
    ) -> None:
        """The state machine took some entries; its state is as after the last of them."""
        self._now_ms = now_ms
        if self._broker.stamp > self._stamped[1]:
            self._stamped = (now_ms, self._broker.stamp)
        fresh: list[ServedSession] = []
        streams = {(a.session, a.producer): None for a in accepted}  # of which some is settled
        groups_changed = False
        # Before anything else: a consumer that these events open begins with the state, which has
        # all that was assigned to it.
        for event in events:
            if isinstance(event, ev.Assigned):
                span = (event.first, event.last, event.deliveries)
                self.dispatcher.assigned(event.session, event.consumer, span)
        for event in events:
            if isinstance(event, ev.Assigned):
                continue
            if isinstance(event, ev.Attached):
                if (served := self._attaching.on_attached(event)) is not None:
                    fresh.append(served)
            elif isinstance(event, ev.Taken):
                streams[event.session, event.producer] = None
            elif isinstance(event, ev.GroupChanged):
                self.dispatcher.group_changed(event.destination)
                groups_changed = True
            else:
                self._heard_of[type(event)](event)
                if isinstance(event, ev.PackRefused):
                    streams[event.session, event.refusal.producer] = None
        # A fresh session begins with the state, which has all that was in these events.
        for served in fresh:
            self._attaching.begin(served)
        self._publishing.settle(streams, now_ms)
        self.dispatcher.applied(accepted)
        if groups_changed and self._relay:
            self._relay.review()
        self._look_at_renewal(now_ms)
        if "begin" in self._proposals and self._has_begun():
            self._proposals.done("begin")

    def _has_begun(self) -> bool:
        known = self._broker.servers.lives.get(self._common.node)
        return known is not None and known.life == self._common.life

    def _look_at_renewal(self, now_ms: int) -> None:
        serving = self._broker.servers.serving.get(self._common.node)
        if (
            serving is not None
            and serving.life == self._common.life
            and serving.renewed > self._known[1]
        ):
            self._known = (now_ms, serving.renewed)

    def restored(self) -> None:
        """Take note that the state machine jumped ahead to another server's snapshot, without the
        events in between."""
        self._attaching.restored()
        self.dispatcher.restored()

    def rejected(self, payloads: tuple[bytes, ...], now_ms: int) -> None:
        """The leader did not take these."""
        self._proposals.refused(now_ms)
        self._publishing.rejected(payloads, now_ms)

    # -- To the log ----------------------------------------------------------------------------

    def follow(self, reign: tuple[int, int] | None, leads: bool) -> None:
        """Take note of which node leads now, in which epoch; None: no node. `leads`: it is this
        server."""
        self._common.leads = leads
        if reign != self._common.reign:
            # Proposals that the old leader was given may have died with it.
            self._common.reign = reign
            self._attaching.cut_the_overtaken()
            self._proposals.all_again()
            self._publishing.propose_all_again()

    def flush(self, now_ms: int) -> None:
        """Store and propose everything that has come in."""
        self._now_ms = now_ms
        if self.dispatcher.rows:
            self._acks.add_own_rows(now_ms)
        if self._local:
            self._acks.store(now_ms)
        if self._common.reign is None:
            return
        self._common.led_ms = now_ms
        self._acks.send(now_ms)
        if not self._publishing.is_due and not self._proposals.due:
            return
        payloads = self._publishing.take(now_ms)
        # Commands behind the packs: a client that closes a session has sent them before.
        payloads += self._proposals.take(now_ms)
        self._common.out += map(Propose, _bounded(payloads))

    def dispatch(self) -> bool:
        """Deliver, once the journal has the rows of all that was applied; True: there is more to do
        after others had their turn."""
        self.dispatcher.dispatch()
        for session, why in self.dispatcher.too_slow:
            if (served := self._sessions.get(session)) is not None:
                self._common.tell(
                    served.connection.number, cw.Ended("ResourceAllocationError", why)
                )
                self._attaching.cut(served.connection, why)
        self.dispatcher.too_slow.clear()
        says = bool(self.dispatcher.rows) and self._common.reign is not None
        return self.dispatcher.has_work or says

    # -- Time ----------------------------------------------------------------------------------

    def next_deadline_ms(self) -> int | None:
        """Return when to call `tick` and `flush`; None: not before something else happens."""
        if not self._connections and not self._proposals and not self._local_acks.unlogged:
            return None
        due = (self._looked_ms + LOOK_MS, self._acking.due_ms, self._local_acks.acking.due_ms)
        return min([ms for ms in due if ms is not None])

    def tick(self, now_ms: int) -> None:
        """Do what time brings: call it when `next_deadline_ms` has come."""
        if now_ms < self._looked_ms + LOOK_MS:
            return
        self._looked_ms = now_ms
        self._connections.look(now_ms)
        self._look_for_the_overdue(now_ms)
        self._attaching.look_at_detaches(now_ms)
        if now_ms - self._logged_ms >= LOG_MS and not self._local_acks.unlogged.leaves:
            self._logged_ms = now_ms
            self._local_acks.log_now()
        if now_ms - self._checked_ms >= self.settings.heartbeat_ms:
            self._checked_ms = now_ms
            self._look_at_connections(now_ms)
        if now_ms - self._renewed_ms >= self.settings.renew_ms:
            self._renewed_ms = now_ms
            self._renew()
        if now_ms - self._passed_over_ms >= PASS_OVER_MS:
            self._passed_over_ms = now_ms
            self.dispatcher.pass_over(now_ms)

    def _time(self) -> int:
        """Return the servers' time: the last stamp, and the time that has passed here since. The
        leader's time may be slewed, and nothing may expire early: so it is counted as slowly as
        that allows."""
        then_ms, stamp = self._stamped
        return stamp + max(0, self._now_ms - then_ms) * (SLEW - 1) // SLEW

    def _renew(self) -> None:
        if self._sessions:
            self._proposals.want("renew", commands.Renew(self._common.node, self._common.life))
        else:
            self._proposals.done("renew")

    def _look_for_the_overdue(self, now_ms: int) -> None:
        """Propose again all that was not taken, or should have been answered by now. A leader has
        all that it did not reject; a proposal can only be lost on the way to it."""
        lost = not self._common.leads
        self._attaching.cut_the_overtaken()
        self._proposals.look(now_ms, lost=lost)
        self._publishing.look_for_the_overdue(now_ms, lost=lost)

    def _look_at_connections(self, now_ms: int) -> None:
        limit_ms = 3 * self.settings.heartbeat_ms
        for connection in self._connections.silent(limit_ms):
            self._attaching.cut(connection, f"it has said nothing for {limit_ms / 1000:g} s")
        unknown = now_ms - self._known[0] > GRACE_MS
        for connection in self._connections:
            if connection.held:
                # Its pings are not read; so that it does not take this server for dead:
                self._common.tell(connection.number, cw.Pong())
            if connection.session and connection.served is None and self._common.is_unled(now_ms):
                self._attaching.cut(connection, NO_LEADER)  # it waits to be attached
            elif connection.served is not None and unknown:
                # The others have taken its client for lost by now, or will: it is better off there.
                self._attaching.cut(connection, "this server has lost touch with the others")
            elif connection.served is not None and self._is_detached(connection.served):
                # This server was not heard for a while. The client is to come again, for its
                # lease runs.
                self._attaching.cut(connection, "the other servers took it for lost")

    def _is_detached(self, served: ServedSession) -> bool:
        session = self._broker.sessions.get(served.session)
        return session is not None and session.detached

    def counts(self) -> dict[str, int]:
        """Return the counts for operators."""
        return {
            "links": len(self._connections),
            "sessions": len(self._sessions),
            "held": self._connections.held,
            "waiting_packs": sum(s.publisher.packs for s in self._sessions.values()),
            "waiting_bytes": self._connections.waiting_bytes,
            "commands": len(self._proposals),
            "acknowledgements": self._acking.rows + self._local_acks.acking.rows,
            "unlogged": len(self._local_acks.unlogged),
            "published": self._publishing.published,
            "refused": self._refused,
            "states": len(self._relay),
            "state_bytes": self._relay.passed_bytes,
        }


def _bounded(payloads: Iterable[bytes]) -> Iterator[tuple[bytes, ...]]:
    """Return all payloads in order, in groups of about `PROPOSAL_BYTES`."""
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
