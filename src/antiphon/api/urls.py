"""URLs, and the servers that one names.

`antiphon://HOST:PORT[,HOST:PORT...]` is a server or a cluster, whose servers are tried in turn.
`embedded:`, `embedded:NAME` and `embedded:///PATH` are servers in this process
(`server/embedded.py`); with `peer:NAME` and its relatives this process is one of those that are the
servers themselves (`peers/embedded.py`). Without a URL: `ANTIPHON_URL`, then `antiphon.toml`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from importlib import import_module
from typing import TYPE_CHECKING

from antiphon.api import arguments
from antiphon.api.messages.destinations import Destination
from antiphon.errors import ConfigurationError, InvalidDestinationError
from antiphon.io.client_link import ClientLink, OnBodies, OnLost, Route, Servers
from antiphon.io.config import CLIENT_FILE, client_config
from antiphon.io.transport import SCHEME, parse_url

if TYPE_CHECKING:
    from antiphon.server.embedded import Embedded

EMBEDDED, PEER = "embedded:", "peer:"
INSIDE = {EMBEDDED: "antiphon.server.embedded", PEER: "antiphon.peers.embedded"}
"""Where the servers inside a process are made, by the scheme of their URLs. Imported when they are
needed: most programs use servers elsewhere, and `peers` stands on what is in this room."""

ENVIRONMENT = "ANTIPHON_URL"


def route_to(url: str) -> Route:
    """Return the way to the servers of this URL; raise `ConfigurationError` if it names none."""
    scheme = arguments.text("a URL", url).partition(":")[0] + ":"
    if scheme in INSIDE:
        return _Inside(import_module(INSIDE[scheme]).acquire(url))
    if not url.startswith(SCHEME):
        raise ConfigurationError(
            f"{url!r} is not an address of a server: write {SCHEME}HOST:PORT[,HOST:PORT...], "
            f"{EMBEDDED} for one in this process, or {PEER}NAME to do without servers"
        )
    return Servers(parse_url(url))


def default_url() -> str:
    """Return the URL that the environment or `antiphon.toml` names; raise `ConfigurationError` if
    neither does."""
    url = os.environ.get(ENVIRONMENT) or client_config().url
    if not url:
        raise ConfigurationError(
            f"no server to connect to: pass a URL, or set {ENVIRONMENT}, or write url = ... in "
            f"{CLIENT_FILE}"
        )
    return url


def look_up(name: str) -> Destination:
    """Return the destination that has this name in `antiphon.toml`; raise
    `InvalidDestinationError` if there is none."""
    config = client_config()
    if arguments.text("a name", name) in config.destinations:
        return Destination.parse(config.destinations[name])
    path = os.path.abspath(CLIENT_FILE)
    if name in config.factories:
        raise InvalidDestinationError(
            f"{path}: {name!r} is a connection factory, no destination: antiphon.lookup({name!r}) "
            "gives it"
        )
    known = listed(config.destinations)
    raise InvalidDestinationError(f"{path} has no destination {name!r}, only: {known}")


def listed(names: Iterable[str]) -> str:
    """Return the names in order, for an error text."""
    return ", ".join(sorted(names)) or "none"


class _Inside:
    """The way to a server in this process."""

    def __init__(self, embedded: Embedded) -> None:
        self._embedded = embedded

    def next(self) -> str:
        return ""

    async def dial(self, at: str, on_bodies: OnBodies, on_lost: OnLost) -> ClientLink:
        return await self._embedded.connect(on_bodies, on_lost)

    async def release(self) -> None:
        await self._embedded.release()
