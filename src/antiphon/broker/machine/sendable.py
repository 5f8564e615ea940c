"""Where clients may send, and why not: by the name of a destination, and for temporary ones, by the
sessions that have created them."""

from __future__ import annotations

from antiphon.broker.machine.sessions.registry import Sessions
from antiphon.errors import InvalidDestinationError
from antiphon.model import destinations as names

KNOWN_MAX = 65536


class Sendable:
    """A cache of destinations, each with the reason why clients cannot send there.

    Needs: `forget` when a temporary destination is created or ends.
    """

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self._known: dict[str, str] = {}  # destination -> why not; empty: one can

    def why_not(self, destination: str) -> str:
        """Return why clients cannot send there; empty: they can."""
        wrong = self._known.get(destination)
        if wrong is None:
            if len(self._known) >= KNOWN_MAX:
                self._known.clear()
            wrong = self._known[destination] = self._check(destination)
        return wrong

    def has_ended(self, destination: str) -> bool:
        """Return whether it was a temporary destination. A client that sends there in a transaction
        cannot know, and has done the work: the message is dropped."""
        if not names.is_temporary(destination) or not self.why_not(destination):
            return False
        try:
            names.owner(destination)
        except InvalidDestinationError:
            return False
        return True

    def forget(self, destination: str) -> None:
        """Forget a temporary destination that was created, or has ended."""
        self._known.pop(destination, None)

    def _check(self, destination: str) -> str:
        try:
            _, name = names.parse(destination)
        except InvalidDestinationError as error:
            return str(error)
        if names.is_pattern(name):
            return f"{destination!r} has a wildcard: it can be subscribed to, not sent to"
        if names.is_temporary(destination) and not self._sessions.owner_of(destination):
            return f"{destination!r} does not exist: it was deleted, or its connection has ended"
        return ""
