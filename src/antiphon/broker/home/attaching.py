"""Sessions come to this server and leave it: attached on a connection, cut off, detached.

Promises: a session is served on one connection at most; a later connection, here or elsewhere,
takes it over. When a connection is lost, the log gets a command for it, after all that the session
has acknowledged here. A client whose client id went to another session while it waited is cut off.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b

from antiphon.broker.dispatch.dispatcher import Dispatcher
from antiphon.broker.home.common import Common
from antiphon.broker.home.connections import ClientConnection, ServedSession
from antiphon.broker.home.effects import Admit, Cut, Redirect
from antiphon.broker.home.incoming_packs import Publisher
from antiphon.broker.home.publishing import Publishing
from antiphon.broker.home.state_relay import StateRelay
from antiphon.broker.machine import events as ev
from antiphon.errors import FormatError
from antiphon.formats import commands
from antiphon.formats import protocol as cw

NO_LEADER = "this server hears no leader"
OVERTAKEN = "another connection has taken its client id since it asked"
NO_USERS = "this server keeps no users, and checks no password: connect without them"
ENDS = "this server ends"

UNANSWERED_MS = 10_000
"""An attach that is not in the log after this time was lost on its way."""

CLIENT_ID_MAX = 1024
SEQUENCES_MAX = 10_000
TOKEN_BYTES = 16


class Attaching:
    """The sessions that are served here, each on its connection, and the commands about them for
    the log."""

    def __init__(
        self,
        common: Common,
        dispatcher: Dispatcher,
        publishing: Publishing,
        relay: StateRelay,
        log_now: Callable[..., int],
        *,
        local: bool,
    ) -> None:
        """`local`: this server has local contexts; `log_now` as for `ControlRequests`, or of all
        sessions."""
        self._common = common
        self._broker = common.broker
        self._sessions = common.served
        self._connections = common.connections
        self._proposals = common.proposals
        self._tell = common.tell
        self._dispatcher = dispatcher
        self._publishing = publishing
        self._relay = relay
        self._log_now = log_now
        self._local = local
        self._detaching: dict[int, int] = {}  # session -> attachment whose connection is lost
        self._unanswered: dict[int, tuple[commands.Attach, int]] = {}
        """By link: attaches of connections that are gone, which may still get into the log; and
        when their clients were last heard."""

        self.ending = False  # this server ends, and attaches no session

    @property
    def is_detaching(self) -> bool:
        """Whether the log has not yet heard of all connections that are lost, or may yet attach a
        session to one."""
        return bool(self._detaching or self._unanswered)

    # -- Connections ---------------------------------------------------------------------------

    def cut(self, connection: ClientConnection, reason: str) -> None:
        """End a connection. `reason`: for this server's log; empty: the client did nothing
        wrong."""
        self.leave(connection)
        self._common.out.append(Cut(connection.number, reason))

    def leave(self, connection: ClientConnection) -> None:
        """Forget a connection that is lost; the lease of its session begins."""
        self._connections.remove(connection)
        attach = self._proposals.withdraw(("attach", connection.number))
        if isinstance(attach, commands.Attach) and self._local:
            self._unanswered[connection.number] = attach, connection.heard_ms
        if connection.served is not None:
            served = connection.served
            self._forget(served)
            self._want_detached(served.session, served.attachment)
        elif self._is_attached(connection):
            # By the state that this server took over from another one (`restored`), without a
            # notice.
            session = self._broker.sessions[connection.session]
            self._want_detached(session.number, session.attachment)

    def _is_attached(self, connection: ClientConnection) -> bool:
        session = self._broker.sessions.get(connection.session)
        place = (self._common.node, self._common.life, connection.number)
        return session is not None and not session.leased and session.place[1:] == place

    def _forget(self, served: ServedSession) -> None:
        """Serve this session no longer. Acknowledgements that it sent go on their way."""
        del self._sessions[served.session]
        served.connection.served = None
        self._publishing.forget(served)
        self._proposals.done(("request", served.session))
        self._dispatcher.close(served.session)
        self._relay.close(served.session)

    def _want_detached(self, session: int, attachment: int) -> None:
        self._detaching[session] = attachment
        detach = commands.Detach(session, attachment)
        self._proposals.want(("detach", session), detach, after=self._log_now(session))

    def _detached(self, session: int) -> None:
        """Nothing is left to be said about a connection that was lost."""
        if self._detaching.pop(session, None) is not None:
            self._proposals.done(("detach", session))

    # -- Requests of clients --------------------------------------------------------------------

    def attach(self, connection: ClientConnection, m: cw.Attach) -> None:
        """Take the first request of a connection: propose that its session is attached here."""
        if connection.session:
            raise FormatError("a connection is attached once")
        if self.ending:
            self.cut(connection, ENDS)
            return
        if self._common.is_unled(connection.heard_ms):
            self.cut(connection, NO_LEADER)
            return
        if not 0 < m.session < 1 << 63 or len(m.token) != TOKEN_BYTES:
            raise FormatError(f"a session is a positive number with a token of {TOKEN_BYTES} bytes")
        if len(m.client_id) > CLIENT_ID_MAX or len(m.sequences) > SEQUENCES_MAX:
            raise FormatError("a client id or a list of producers that is too long")
        if m.user or m.password:
            self._tell(connection.number, cw.Ended("SecurityError", NO_USERS))
            self.cut(connection, "")
            return
        connection.session, connection.seen = m.session, m.seen
        connection.client_id = m.client_id
        connection.owner = self._broker.sessions.client_ids.get(m.client_id, 0)
        self._proposals.want(
            ("attach", connection.number),
            commands.Attach(
                m.session,
                blake2b(m.token, digest_size=TOKEN_BYTES).digest(),
                m.resume,
                m.attempt,
                self._common.node,
                self._common.life,
                connection.number,
                m.client_id,
                m.lease_ms,
                m.sequences,
                self._local,
            ),
            after=self._log_now(),
        )

    # -- Events of the log ----------------------------------------------------------------------

    def on_attached(self, e: ev.Attached) -> ServedSession | None:
        """Return the session, if it is served here from now on: it is to `begin` when all events
        were heard."""
        mine = self._common.is_mine(e.node, e.life)
        if mine:
            self._unanswered.pop(e.link, None)
        served = self._sessions.get(e.session)
        if served is not None:
            if mine and served.connection.number == e.link:
                return None  # it was proposed twice
            self._gone_elsewhere(served)
        if not mine:
            self._detached(e.session)
            return None
        connection = self._connections.get(e.link)
        if connection is None:
            self._want_detached(e.session, e.attachment)
            return None
        self._proposals.done(("attach", connection.number))
        self._detached(e.session)
        served = ServedSession(e.session, e.attachment, connection)
        connection.served = self._sessions[e.session] = served
        return served

    def _gone_elsewhere(self, served: ServedSession) -> None:
        connection = served.connection
        self._forget(served)
        self.cut(connection, "its session goes on at another connection")

    def begin(self, served: ServedSession) -> None:
        """Serve a session, from the state as it is now."""
        session = self._broker.sessions.get(served.session)
        if session is None or self._sessions.get(served.session) is not served:
            return  # over already
        seen, served.connection.seen = served.connection.seen, ()
        served.publisher = Publisher(session.streams)
        settings = self._common.settings
        self._common.out.append(Admit(served.connection.number))
        self._tell(
            served.connection.number,
            cw.Attached(
                served.session,
                served.attachment,
                tuple(session.streams.items()),
                tuple(session.refusals),
                settings.heartbeat_ms,
                cw.PACK_MAX,
                settings.deliveries_max,
                settings.redelivery,
            ),
        )
        self._dispatcher.open(served.session, served.connection.number, seen)

    def on_attach_refused(self, e: ev.AttachRefused) -> None:
        """Pass the refusal on to the client, if it is connected here."""
        if not self._common.is_mine(e.node, e.life):
            return
        self._unanswered.pop(e.link, None)
        if (connection := self._connections.get(e.link)) is not None:
            self._tell(connection.number, cw.Ended(e.code, e.text))
            self.cut(connection, "")

    def on_redirected(self, e: ev.Redirected) -> None:
        """Send the client to its home; and let go of it, if this server is its home."""
        if self._common.is_mine(e.node, e.life):
            self._unanswered.pop(e.link, None)
            if (connection := self._connections.get(e.link)) is not None:
                self._common.out.append(Redirect(connection.number, e.home))
                self.cut(connection, "")
        served = self._sessions.get(e.session)
        if served is not None:
            self.cut(served.connection, "its client has turned to another server")

    def on_session_ended(self, e: ev.SessionEnded) -> None:
        """Notify the client that its session has ended, if it is served here."""
        self._detached(e.session)
        served = self._sessions.get(e.session)
        if served is not None:
            self._tell(served.connection.number, cw.Ended(e.code, e.text))
            connection = served.connection
            self._forget(served)
            self.cut(connection, e.text)

    def restored(self) -> None:
        """The state machine jumped ahead to another server's snapshot. The clients come again, and
        find the state as it is."""
        for served in list(self._sessions.values()):
            reason = "this server had fallen behind, and took over another's state"
            self.cut(served.connection, reason)
        for session in self._broker.sessions.values():
            mine = self._common.is_mine(session.node, session.life)
            if mine and not session.leased and self._connections.get(session.link) is None:
                # It was attached in between, and its client has left before this was known here.
                self._want_detached(session.number, session.attachment)

    # -- What time brings ----------------------------------------------------------------------

    def cut_the_overtaken(self) -> None:
        """Cut off clients whose client id went to another session while they waited to be attached.
        They are not proposed again: such a program may have died in silence, and the other session
        is its next life. A program that lives dials again."""
        for connection in self._connections:
            if connection.client_id and connection.served is None:
                owner = self._broker.sessions.client_ids.get(connection.client_id, 0)
                if owner not in (0, connection.owner, connection.session):
                    self.cut(connection, OVERTAKEN)

    def look_at_detaches(self, now_ms: int) -> None:
        """Forget lost connections that the log knows of, whoever proposed that; and attaches that
        do nothing any more, or were lost on their way."""
        for link, (attach, heard_ms) in list(self._unanswered.items()):
            known = self._broker.sessions.get(attach.session)
            overtaken = known is not None and known.attempt > attach.attempt
            if overtaken or now_ms - heard_ms > UNANSWERED_MS:
                del self._unanswered[link]
        for number, attachment in list(self._detaching.items()):
            session = self._broker.sessions.get(number)
            if session is None or session.leased or session.attachment != attachment:
                self._detached(number)
