"""All sessions: by number, by client id, and those that have ended not long ago."""

from __future__ import annotations

from typing import Any

from antiphon.broker.machine.sessions.session import Session
from antiphon.errors import InvalidDestinationError
from antiphon.model import destinations as names

ENDED_MS = 600_000
"""A session that has ended is remembered for this long: far longer than a command is on its way."""

ENDED_MAX = 100_000


class Sessions(dict[int, Session]):
    """The sessions that have not ended, by number, in the order in which they began.

    Promise: a client id belongs to one of them at most. Needs: only `add` and `end` put sessions in
    and take them out, for they keep the client ids and the list of those that have ended.
    """

    def __init__(self) -> None:
        super().__init__()
        self.client_ids: dict[str, int] = {}  # -> session
        self.ended: dict[int, tuple[int, int]] = {}  # session -> last attempt, remembered until

    def add(self, session: Session) -> None:
        """Add a session, which owns its client id from now on."""
        self[session.number] = session
        if session.client_id:
            self.client_ids[session.client_id] = session.number

    def end(self, session: Session, stamp: int) -> None:
        """Take a session out, and remember that it has ended: otherwise a late copy of the command
        that opened it would open it again, and a client that resumes would find an empty session in
        place of its own."""
        if self.client_ids.get(session.client_id) == session.number:
            del self.client_ids[session.client_id]
        del self[session.number]
        self.ended.pop(session.number, None)
        self.ended[session.number] = (session.attempt, stamp + ENDED_MS)
        while len(self.ended) > ENDED_MAX or next(iter(self.ended.values()))[1] <= stamp:
            del self.ended[next(iter(self.ended))]

    def restore_ended(self, rows: list[Any]) -> None:
        """Take sessions that have ended from a snapshot."""
        self.ended.update((session, (attempt, until)) for session, (attempt, until) in rows)

    def of_client(self, client_id: str) -> Session | None:
        """Return the session that has this client id."""
        return self.get(self.client_ids.get(client_id, 0))

    def owner_of(self, temporary: str) -> Session | None:
        """Return the session whose temporary destination this is."""
        try:
            session = self.get(names.owner(temporary))
        except InvalidDestinationError:
            return None
        return session if session is not None and temporary in session.temporaries else None
