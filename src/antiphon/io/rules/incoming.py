"""Connections that come in: how many of them, and how much those may cost that have not identified
themselves, or have no session, all of them together.

Promise: no client with a session, and no server that is listed, notices the others. An honest one
makes its request at once, and then has a session, or asks little (`antiphon cluster status`,
readers of the log). So they get little time and send small frames, and of too many the oldest goes.
"""

from __future__ import annotations

from typing import Generic, Protocol, TypeVar

from antiphon.errors import FormatError

UNIDENTIFIED_MAX = 1024
"""Connections that have made no request yet; beyond that the oldest is closed. When a server ends,
thousands may come to another one together, and each takes a round trip to say it."""

BEGUN_BYTES = 16 << 20
"""Room kept for frames of strangers that have not arrived whole; beyond that the oldest of them
ends its connection. One alone may be larger: a leader that is not listed may have a large pack."""

CLIENTS_MAX = 20_000
"""Beyond that the oldest without a session is closed; if all have one, no more are taken."""


class Ends(Protocol):
    """A connection, as far as it may be ended."""

    def end(self, reason: str = "") -> None:
        """Close it; `reason`: what the other side is to blame for."""


AnyConnection = TypeVar("AnyConnection", bound=Ends)


class Incoming(Generic[AnyConnection]):
    """All connections that came to one server, under one bound."""

    def __init__(self) -> None:
        self.unidentified: dict[AnyConnection, None] = {}  # not even a whole request has come
        self.unattached: dict[AnyConnection, None] = {}  # clients without a session
        self.clients: set[AnyConnection] = set()
        self._begun: dict[AnyConnection, int] = {}  # frames, and the room that is kept for each
        self._begun_bytes = 0

    def arrived(self, connection: AnyConnection) -> None:
        """Take a connection that has not identified itself yet."""
        self.unidentified[connection] = None
        if len(self.unidentified) > UNIDENTIFIED_MAX:
            oldest = next(iter(self.unidentified))
            self.left(oldest)
            oldest.end(f"more than {UNIDENTIFIED_MAX} connections have not said what they want")

    def identified(self, connection: AnyConnection) -> None:
        """Count it no longer among those: it has made a request."""
        self.unidentified.pop(connection, None)

    def is_client(self, connection: AnyConnection) -> None:
        """Take it as a client without a session. Raise `FormatError` if there are too many."""
        if len(self.clients) >= CLIENTS_MAX:
            full = f"{CLIENTS_MAX} clients are connected, and no more are taken"
            oldest = next(iter(self.unattached), None)
            if oldest is None:
                raise FormatError(full)
            self.left(oldest)
            oldest.end(f"{full}; it has no session")
        self.clients.add(connection)
        self.unattached[connection] = None

    def attached(self, client: AnyConnection) -> None:
        """Stop watching it: it has a session now."""
        self.unattached.pop(client, None)
        self.whole(client)

    def begun(self, connection: AnyConnection, size: int) -> None:
        """It has begun a frame, for which so much room is kept, or sent more of it."""
        self._begun_bytes += size - self._begun.get(connection, 0)
        self._begun[connection] = size
        while self._begun_bytes > BEGUN_BYTES and len(self._begun) > 1:
            oldest = next(iter(self._begun))
            self.whole(oldest)
            oldest.end(
                f"connections without a session have begun frames for more than {BEGUN_BYTES} "
                "bytes, and its frame is the oldest"
            )

    def whole(self, connection: AnyConnection) -> None:
        """Nothing is kept for a frame of it, or that does not count any more."""
        self._begun_bytes -= self._begun.pop(connection, 0)

    def left(self, connection: AnyConnection) -> None:
        """Forget a connection that is gone, or is about to go."""
        self.unidentified.pop(connection, None)
        self.clients.discard(connection)
        self.attached(connection)
