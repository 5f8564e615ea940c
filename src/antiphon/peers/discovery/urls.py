"""The clusters that URLs name: `peer:NAME` and its relatives.

- `peer:NAME`, or `NAME` alone: the processes of this machine (`local.py`);
- `peer://HOST:PORT,HOST:PORT/NAME`: a list of addresses (`listed.py`);
- `peer:file/DIR/NAME`: a folder that the machines share (`folder.py`);
- `peer:dns/SERVICE:PORT/NAME`: a name in DNS (`listed.py`);
- `peer:mdns/NAME`: announcements in a local network (`mdns.py`);
- `peer:antiphon://HOST:PORT/NAME`: an Antiphon server as name service (`name_service.py`).

`?min=N` behind it: `connect` waits for a view of N members.
"""

from __future__ import annotations

from typing import NamedTuple

from antiphon.errors import ConfigurationError, FormatError, InvalidDestinationError
from antiphon.io.transport import parse_address
from antiphon.model import destinations
from antiphon.peers.discovery.discovery import Discovery
from antiphon.peers.discovery.folder import Folder
from antiphon.peers.discovery.listed import Dns, Listed
from antiphon.peers.discovery.local import Local
from antiphon.peers.discovery.mdns import Mdns
from antiphon.peers.discovery.name_service import NameService

SCHEME = "peer:"
FORMS = (
    "peer:NAME, peer://HOST:PORT,HOST:PORT/NAME, peer:file/DIR/NAME, peer:dns/SERVICE:PORT/NAME, "
    "peer:mdns/NAME or peer:antiphon://HOST:PORT/NAME"
)


class Cluster(NamedTuple):
    """A cluster of peers, as a URL names it."""

    name: str
    discovery: Discovery
    members_min: int  # of the view that `connect` waits for


def cluster_of(url: str) -> Cluster:
    """Return the cluster of this URL. Raises `ConfigurationError`."""
    path, _, query = url.removeprefix(SCHEME).partition("?")
    rest, slash, name = path.rpartition("/")
    try:
        destinations.check_name(name)
    except InvalidDestinationError as error:
        raise ConfigurationError(f"{url!r}: {error}") from None
    if destinations.is_pattern(name):
        raise ConfigurationError(f"{url!r}: the name of a cluster has no wildcards")
    return Cluster(name, _discovery(url, rest, slash, name), _members_min(url, query))


def _discovery(url: str, rest: str, slash: str, name: str) -> Discovery:
    if not slash:
        return Local(name)
    kind, _, place = rest.partition("/")
    try:
        if kind == "" and place.startswith("/"):
            return Listed(place.removeprefix("/").split(","))
        if kind == "file" and place:
            return Folder(place, name)
        if kind == "antiphon:" and place.startswith("/"):
            return NameService(rest, name)
        if rest == "mdns":
            return Mdns(name)
        if kind == "dns":
            return Dns(*parse_address(place))
    except FormatError as error:
        raise ConfigurationError(f"{url!r}: {error}") from None
    raise ConfigurationError(f"{url!r} is not a cluster of peers: write {FORMS}")


def _members_min(url: str, query: str) -> int:
    if not query:
        return 1
    name, _, number = query.partition("=")
    if name != "min" or not number.isdecimal() or int(number) < 1:
        raise ConfigurationError(f"{url!r}: the only option is min=N, with N from 1, not {query!r}")
    return int(number)
