"""Connections of clients at one server: which are held back, which are silent, and how much they
wait for.

Promises: the bytes that clients have sent and that are not answered are bounded, for each and for
all together; beyond that nothing is read from a client until half is left. Large packs are counted
apart: a few clients at a time may send one, and have it ordered, and the others wait for their
turn; so they hold back no client that sends small ones. A client that was silent for the given time
is found, unless it could not be heard: because it was held back, or because this process itself
stood still.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from antiphon.broker.home.ack_batches import Answers
from antiphon.broker.home.incoming_packs import Publisher
from antiphon.formats import protocol as cw

TURNS = 4
"""Large packs, at once, that are arriving or not settled yet: more would only wait in memory."""

STOOD_STILL_MS = 1000
"""If `look` was not called for this long, the process was not running."""


class ClientConnection:
    """A connection."""

    def __init__(self, number: int, now_ms: int) -> None:
        self.number = number
        self.heard_ms = now_ms
        self.session = 0  # that it asked for
        self.client_id = ""  # with that
        self.owner = 0  # the session that had the client id then
        self.seen: tuple[cw.Seen, ...] = ()  # the messages at its client, until it is served
        self.served: ServedSession | None = None
        self.waiting_bytes = 0  # of requests that are not answered
        self.large_bytes = 0  # of these, of large packs
        self.held = False


class ServedSession:
    """A session that is attached to a connection here."""

    def __init__(self, session: int, attachment: int, connection: ClientConnection) -> None:
        self.session = session
        self.attachment = attachment
        self.connection = connection
        self.publisher = Publisher({})
        self.request: cw.Control | None = None  # not answered
        self.early = False  # that was ordered before packs that it is about
        self.behind_large = False  # the request waits for a large pack to be settled
        self.ack_batches = 0  # not done, with acknowledgements of this session
        self.acks = Answers()


class Connections:
    """All connections of clients at one server.

    Needs: `waits_more` and `waits_less` for all that clients have sent and was not answered yet;
    `look` regularly.
    """

    def __init__(
        self, window_bytes: int, all_bytes: int, hold: Callable[[int, bool], None], now_ms: int
    ) -> None:
        """`window_bytes` is for one client, `all_bytes` for all together."""
        self._window_bytes = window_bytes
        self._all_bytes = all_bytes
        self._hold = hold
        self._connections: dict[int, ClientConnection] = {}
        self._held: dict[ClientConnection, None] = {}
        self._turns: dict[ClientConnection, None] = {}  # of those with a large pack
        self._turn_wait: dict[
            ClientConnection, None
        ] = {}  # have begun to send one, and are not read
        self._large_bytes = 0
        self.waiting_bytes = 0
        self._now_ms = now_ms
        self._stood_still = False

    def __len__(self) -> int:
        return len(self._connections)

    def __iter__(self) -> Iterator[ClientConnection]:
        """Also while some of them leave."""
        return iter(list(self._connections.values()))

    @property
    def held(self) -> int:
        """How many connections are not read from."""
        return len(self._held)

    def get(self, number: int) -> ClientConnection | None:
        """Return the connection of this number, if it is there."""
        return self._connections.get(number)

    def add(self, number: int, now_ms: int) -> None:
        """A client has connected."""
        self._connections[number] = ClientConnection(number, now_ms)

    def remove(self, connection: ClientConnection) -> None:
        """Forget a connection."""
        del self._connections[connection.number]
        self._held.pop(connection, None)
        self._turn_wait.pop(connection, None)
        self.waits_less(connection, connection.waiting_bytes, connection.large_bytes)
        self.ends_turn(connection)

    # -- Holding back --------------------------------------------------------------------------

    def waits_more(self, connection: ClientConnection, size: int, *, large: bool = False) -> None:
        """`large`: it is a large pack."""
        connection.waiting_bytes += size
        self.waiting_bytes += size
        if large:
            connection.large_bytes += size
            self._large_bytes += size
        small_bytes = self.waiting_bytes - self._large_bytes
        if connection.waiting_bytes > self._window_bytes or small_bytes > self._all_bytes:
            self._hold_back(connection)

    def waits_less(self, connection: ClientConnection, size: int, large: int = 0) -> None:
        """`large`: so much of it was of large packs."""
        connection.waiting_bytes -= size
        self.waiting_bytes -= size
        if large:
            connection.large_bytes -= large
            self._large_bytes -= large
            if not connection.large_bytes:
                self.ends_turn(connection)
        if not self._held or self.waiting_bytes - self._large_bytes > self._all_bytes // 2:
            return
        for held in list(self._held):
            if held.waiting_bytes <= self._window_bytes // 2 and held not in self._turn_wait:
                self._let_go(held)

    def asks_turn(self, connection: ClientConnection) -> None:
        """Its client has begun to send a large pack."""
        if connection in self._turns or connection in self._turn_wait:
            return
        if len(self._turns) < TURNS:
            self._turns[connection] = None
        else:
            self._turn_wait[connection] = None
            self._hold_back(connection)

    def ends_turn(self, connection: ClientConnection) -> None:
        """It has no large pack here, or none that is not settled."""
        if connection not in self._turns:
            return
        del self._turns[connection]
        if self._turn_wait:
            first = next(iter(self._turn_wait))
            del self._turn_wait[first]
            self._turns[first] = None
            if first.waiting_bytes <= self._window_bytes:
                self._let_go(first)

    def _hold_back(self, connection: ClientConnection) -> None:
        if not connection.held:
            connection.held = True
            self._held[connection] = None
            self._hold(connection.number, True)

    def _let_go(self, connection: ClientConnection) -> None:
        del self._held[connection]
        connection.held = False
        connection.heard_ms = self._now_ms  # while it was not read, it could not be heard
        self._hold(connection.number, False)

    # -- Silence -------------------------------------------------------------------------------

    def look(self, now_ms: int) -> None:
        """Take note of the time. Call it often: so it is noticed when this process stood still."""
        self._stood_still = self._stood_still or now_ms - self._now_ms > STOOD_STILL_MS
        self._now_ms = now_ms

    def silent(self, limit_ms: int) -> list[ClientConnection]:
        """Return the connections on which nothing was heard for longer than this."""
        if self._stood_still:
            # A server that has heard no client was not running itself.
            self._stood_still = False
            for connection in self._connections.values():
                connection.heard_ms = self._now_ms
        return [
            connection
            for connection in self._connections.values()
            if self._now_ms - connection.heard_ms > limit_ms and not connection.held
        ]
