"""Fields that the parts of a home share: its connections, the sessions that it serves, its effects.

Needs: only `attaching.py` adds sessions to `served` and takes them out; each other part changes of
a served session what its own methods say.
"""

from __future__ import annotations

from antiphon.broker.home.connections import ClientConnection, Connections, ServedSession
from antiphon.broker.home.effects import Effect, Hold, Tell
from antiphon.broker.home.proposals import Proposals
from antiphon.broker.home.settings import HomeSettings
from antiphon.broker.machine.machine import Broker
from antiphon.errors import FormatError
from antiphon.formats import protocol as cw

UNLED_MS = 2000
"""A home that has heard no leader for this long attaches no session: longer than an election takes,
and much shorter than a client would wait for an answer."""


class Common:
    """Fields that several parts of one home use."""

    def __init__(
        self, node: int, life: int, broker: Broker, settings: HomeSettings, now_ms: int
    ) -> None:
        self.node = node
        self.life = life
        self.broker = broker
        self.settings = settings
        self.out: list[Effect] = []
        self.connections = Connections(
            settings.client_window_bytes, settings.window_bytes, self._hold, now_ms
        )
        self.served: dict[int, ServedSession] = {}  # by session
        self.proposals = Proposals()
        self.reign: tuple[int, int] | None = None  # the leader's node, and its epoch
        self.leads = False  # this server is the leader
        self.led_ms = now_ms  # when there was a leader

    def tell(self, link: int, answer: cw.Answer) -> None:
        """Send an answer on the connection of this number."""
        self.out.append(Tell(link, answer))

    def tell_session(self, session: int, answer: cw.Answer) -> None:
        """Send an answer to the client of this session, if it is served here."""
        served = self.served.get(session)
        if served is not None:
            self.tell(served.connection.number, answer)

    def session_of(self, connection: ClientConnection) -> ServedSession:
        """Return the session that is served on a connection; raise `FormatError` if none is."""
        if connection.served is None:
            raise FormatError("nothing can be asked before the session is attached")
        return connection.served

    def is_mine(self, node: int, life: int) -> bool:
        """Return whether this life of this server is meant."""
        return node == self.node and life == self.life

    def is_unled(self, now_ms: int) -> bool:
        """Return whether this server has heard no leader for a while."""
        return self.reign is None and now_ms - self.led_ms > UNLED_MS

    def _hold(self, link: int, hold: bool) -> None:
        self.out.append(Hold(link, hold))
