"""URLs, and the servers that one names.

`antiphon://HOST:PORT[,HOST:PORT...]` is a server or a cluster, whose servers are tried in turn.
`embedded:`, `embedded:NAME` and `embedded:///PATH` are servers in this process
(`server/embedded.py`). Without a URL: `ANTIPHON_URL`, then `antiphon.toml`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from antiphon.api import arguments
from antiphon.api.messages.destinations import Destination
from antiphon.errors import ConfigurationError, InvalidDestinationError
from antiphon.io.client_link import ClientLink, OnBodies, OnLost, Route, Servers
from antiphon.io.config import CLIENT_FILE, client_config
from antiphon.io.transport import SCHEME, parse_url

EMBEDDED = "embedded:"
ENVIRONMENT = "ANTIPHON_URL"


def route_to(url: str) -> Route:
    """Return the way to the servers of this URL; raise `ConfigurationError` if it names none."""
    if arguments.text("a URL", url).startswith(EMBEDDED):
        return _Embedded(url)
    if not url.startswith(SCHEME):
        raise ConfigurationError(
            f"{url!r} is not an address of a server: write {SCHEME}HOST:PORT[,HOST:PORT...], or "
            f"{EMBEDDED} for one in this process"
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


class _Embedded:
    def __init__(self, url: str) -> None:
        # Imported here: programs that use servers elsewhere need no server inside them.
        from antiphon.server.embedded import acquire

        self._embedded = acquire(url)

    def next(self) -> str:
        return ""

    async def dial(self, at: str, on_bodies: OnBodies, on_lost: OnLost) -> ClientLink:
        return await self._embedded.connect(on_bodies, on_lost)

    async def release(self) -> None:
        await self._embedded.release()
