"""Connections that have not identified themselves, or have no session: a bound on their cost for a
server, all of them together.

Promise: no client with a session, and no server that is listed, notices them. An honest one makes
its request at once, and then has a session, or asks little (`antiphon cluster status`, readers of
the log). So they get little time and send small frames, and of too many the oldest goes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from antiphon.io.transport import Connection

UNIDENTIFIED_MAX = 1024
"""Connections that have made no request yet; beyond that the oldest is closed. When a server ends,
thousands may come to another one together, and each takes a round trip to say it."""

BEGUN_BYTES = 16 << 20
"""Room kept for frames of strangers that have not arrived whole; beyond that the oldest of them
ends its connection. One alone may be larger: a leader that is not listed may have a large pack."""


class Strangers:
    """All connections of one server that have no session yet, under one bound."""

    def __init__(self) -> None:
        self.unidentified: dict[Connection, None] = {}  # not even a whole request has come
        self.unattached: dict[Connection, None] = {}  # clients without a session
        self._begun: dict[Connection, int] = {}  # frames, and the room that is kept for each
        self._begun_bytes = 0

    def arrived(self, connection: Connection) -> None:
        self.unidentified[connection] = None
        if len(self.unidentified) > UNIDENTIFIED_MAX:
            oldest = next(iter(self.unidentified))
            self.left(oldest)
            oldest.end(f"more than {UNIDENTIFIED_MAX} connections have not said what they want")

    def identified(self, connection: Connection) -> None:
        """Count it no longer among those: it has made a request."""
        self.unidentified.pop(connection, None)

    def end_oldest_client(self, reason: str) -> bool:
        """False: every client has a session."""
        oldest = next(iter(self.unattached), None)
        if oldest is None:
            return False
        self.left(oldest)
        oldest.end(reason)
        return True

    def attached(self, client: Connection) -> None:
        """Stop watching it: it has a session now."""
        self.unattached.pop(client, None)
        self.whole(client)

    def begun(self, connection: Connection, size: int) -> None:
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

    def whole(self, connection: Connection) -> None:
        """Nothing is kept for a frame of it, or that does not count any more."""
        self._begun_bytes -= self._begun.pop(connection, 0)

    def left(self, connection: Connection) -> None:
        self.unidentified.pop(connection, None)
        self.attached(connection)
