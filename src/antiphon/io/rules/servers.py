"""The other servers: the newest connection that came in from each, and which of them may stay.

Promises: of two connections from one server the newer one counts, and the older one ends; a server
that is listed is never ended for others, nor for its silence: on the connection that it dialled it
may have nothing to say.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Generic, Protocol, TypeVar

from antiphon.errors import FormatError

SILENT_S = 9.0
"""A server that is not listed and sends nothing for this long is closed."""

SERVERS_MAX = 64
"""Beyond that the oldest that is not listed is closed."""


class Heard(Protocol):
    """A connection from a server."""

    spoke: bool
    """Whether bytes have arrived since this was set to False."""

    @property
    def ended(self) -> bool: ...
    def end(self, reason: str = "") -> None:
        """Close it, after what is queued; `reason`: what the other side is to blame for."""

    def abort(self) -> None:
        """Close it at once."""


AnyConnection = TypeVar("AnyConnection", bound=Heard)


class Servers(Generic[AnyConnection]):
    """The connections that came from other servers."""

    def __init__(self, listed: Collection[int]) -> None:
        """`listed`: the nodes that this server dials, as they are at each call."""
        self.newest: dict[int, AnyConnection] = {}
        self._listed = listed
        self._heard_s: dict[int, float] = {}

    def came(self, node: int, connection: AnyConnection) -> None:
        """Take a server's connection. Raise `FormatError` if there are too many servers."""
        older = self.newest.get(node)
        if older is not None:
            older.abort()  # a server that dials again has lost it
        elif len(self.newest) >= SERVERS_MAX:
            self._make_room()
        self.newest[node] = connection

    def _make_room(self) -> None:
        full = f"{SERVERS_MAX} servers are connected, and no more are taken"
        for node, connection in self.newest.items():
            if node not in self._listed:
                self._forget(node)
                connection.end(f"{full}; it is not listed")
                return
        raise FormatError(full)

    def left(self, connection: AnyConnection) -> None:
        """Forget a connection that is gone, unless a newer one has its place."""
        for node, newest in list(self.newest.items()):
            if newest is connection:
                self._forget(node)

    def _forget(self, node: int) -> None:
        del self.newest[node]
        self._heard_s.pop(node, None)

    def is_here(self, node: int) -> bool:
        """Return whether this server has a connection to us: then it lives, even if a firewall
        refuses ours."""
        connection = self.newest.get(node)
        return connection is not None and not connection.ended

    def sweep(self, now_s: float) -> None:
        """End the connections of servers that are not listed and say nothing. Call it now and
        then."""
        for node, connection in list(self.newest.items()):
            if connection.spoke:
                connection.spoke = False
                self._heard_s[node] = now_s
            elif node not in self._listed and now_s - self._heard_s[node] > SILENT_S:
                connection.end(f"it is not listed, and has said nothing for {SILENT_S:g} s")
