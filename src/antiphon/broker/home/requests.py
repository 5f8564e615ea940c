"""Control requests of clients: proposed one at a time, and answered when they are applied.

Promises: a request is proposed behind the acknowledgements and large packs that its client sent
before it, and behind what only this server's journal has of its session. A request that is asked
again is answered again.
"""

from __future__ import annotations

from collections.abc import Callable

from antiphon.broker.dispatch.dispatcher import Dispatcher
from antiphon.broker.home.common import Common
from antiphon.broker.home.connections import ClientConnection, ServedSession
from antiphon.broker.machine import events as ev
from antiphon.errors import FormatError
from antiphon.formats import commands
from antiphon.formats import protocol as cw

_OF_A_CONSUMER = (cw.OpenConsumer, cw.CloseConsumer, cw.Widen, cw.Join, cw.Leave)
"""Requests that change nothing for the session's other consumers. (Changes for other members of a
group come as an event.)"""


class ControlRequests:
    """The requests of all clients of this server that are not answered yet."""

    def __init__(
        self, common: Common, dispatcher: Dispatcher, log_now: Callable[[int], int]
    ) -> None:
        """`log_now`: proposes to the log what only this server knows of a session, and returns the
        number that is reached when the log has it."""
        self._common = common
        self._broker = common.broker
        self._sessions = common.served
        self._proposals = common.proposals
        self._tell = common.tell
        self._dispatcher = dispatcher
        self._log_now = log_now

    def control(self, connection: ClientConnection, m: cw.Control) -> None:
        """Take a request from a client; raise `FormatError` if it cannot come now."""
        served = self._common.session_of(connection)
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
            self.propose(served)

    def propose(self, served: ServedSession) -> None:
        """Propose the request of this session, if it has one. Behind the acknowledgements that came
        before it: a consumer is not closed with messages unacknowledged that the client has
        acknowledged."""
        served.behind_large = served.publisher.large_bytes > 0
        if served.request is not None and not served.behind_large:
            m = served.request
            served.early = False
            self._proposals.want(
                ("request", served.session),
                commands.Request(served.session, m.number, m.body),
                after=self._log_now(served.session),
            )

    def on_early(self, e: ev.Early) -> None:
        """The request was ordered before packs that it is about: it is proposed again with them."""
        served = self._sessions.get(e.session)
        if served is not None and served.request is not None:
            served.early = served.request.number == e.number

    def on_answered(self, e: ev.Answered) -> None:
        """Answer the request, if its client waits here for it."""
        served = self._sessions.get(e.session)
        if served is None or served.request is None or served.request.number != e.result.number:
            return
        body, served.request, served.early = served.request.body, None, False
        self._proposals.done(("request", served.session))
        self._answer(served, body, e.result)

    def _answer(self, served: ServedSession, body: cw.Body, result: cw.Result) -> None:
        self._tell(served.connection.number, result)
        if isinstance(body, cw.Commit) and not result.code:
            for row in body.rows:
                self._dispatcher.settled(served.session, row)
        if isinstance(body, _OF_A_CONSUMER):
            self._dispatcher.follow_consumer(served.session, body.consumer)
        else:
            self._follow_session(served)

    def _follow_session(self, served: ServedSession) -> None:
        session = self._broker.sessions.get(served.session)
        if session is not None:
            for producer, last in session.streams.items():
                served.publisher.opened(producer, last)
        self._dispatcher.follow(served.session)
