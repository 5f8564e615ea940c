"""The servers inside processes that do without other ones: `peer:NAME` and its relatives
(`discovery/urls.py`).

All connections of a process to one URL share one server, which is a member of the cluster as long
as one of them is open.
"""

from __future__ import annotations

from functools import partial

from antiphon.errors import ConfigurationError
from antiphon.peers.discovery.urls import cluster_of
from antiphon.peers.server import PeerServer
from antiphon.server.embedded import Embedded, Inside, shared


def acquire(url: str) -> Embedded:
    """Return the server of this URL, which starts with the first connection; raise
    `ConfigurationError` if it names no cluster."""
    if not cluster_of(url).discovery.founds:
        raise ConfigurationError(
            f"{url!r}: nobody founds a cluster there, so it has no primary view, and a server "
            "needs one: list the addresses of those who found it, name a folder that they share, "
            "or servers as a name service"
        )
    return shared(url, partial(_begin, url))


async def _begin(url: str) -> Inside:
    server = PeerServer(cluster_of(url))
    await server.start()
    return server
