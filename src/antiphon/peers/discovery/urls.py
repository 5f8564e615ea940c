"""The clusters that URLs name: `peer:NAME` and its relatives.

- `peer:NAME`, or `NAME` alone: the processes of this machine (`local.py`);
- `peer://HOST:PORT,HOST:PORT/NAME`: a list of addresses (`listed.py`);
- `peer:file/DIR/NAME`: a folder that the machines share (`folder.py`);
- `peer:at/HOST:PORT,HOST:PORT/NAME`, `peer:at/NAME`: some processes, or none yet (`listed.py`);
- `peer:dns/SERVICE:PORT/NAME`: a name in DNS (`listed.py`);
- `peer:mdns/NAME`: announcements in a local network (`mdns.py`);
- `peer:antiphon://HOST:PORT/NAME`: an Antiphon server as name service (`name_service.py`).

Options behind it, as `?min=3&listen=10.0.0.7:7400`:

- `min=N`: `connect` waits for a view of N members;
- `name=NAME`: of this process, if it is a server itself (`peers/server.py`);
- `listen=HOST:PORT`: where this process listens, if not at one of the addresses in the URL;
- `address=HOST:PORT`: where the others reach it, if not there;
- `certificate=FILE`, `key=FILE`, `authority=FILE`: mutual TLS (`io/peers/security.py`);
- `plaintext=yes`: off loopback, everybody who can reach this process may read, send and join.
"""

from __future__ import annotations

from typing import NamedTuple

from antiphon.errors import ConfigurationError, FormatError, InvalidDestinationError
from antiphon.io.transport import parse_address
from antiphon.model import destinations
from antiphon.peers.discovery.discovery import Discovery
from antiphon.peers.discovery.folder import Folder
from antiphon.peers.discovery.listed import At, Dns, Listed
from antiphon.peers.discovery.local import Local
from antiphon.peers.discovery.mdns import Mdns
from antiphon.peers.discovery.name_service import NameService

SCHEME = "peer:"
FORMS = (
    "peer:NAME, peer://HOST:PORT,HOST:PORT/NAME, peer:file/DIR/NAME, peer:at/HOST:PORT/NAME, "
    "peer:dns/SERVICE:PORT/NAME, peer:mdns/NAME or peer:antiphon://HOST:PORT/NAME"
)

TLS = ("certificate", "key", "authority")
OPTIONS = ("min", "name", "listen", "address", *TLS, "plaintext")


class Cluster(NamedTuple):
    """A cluster of peers, as a URL names it."""

    name: str
    discovery: Discovery
    members_min: int  # of the view that `connect` waits for
    process: str = ""  # its name; "": any
    listen: str | None = None  # HOST:PORT; None: `discovery.listen`
    address: str = ""  # where the others reach this process; "": where it listens
    files: tuple[str, ...] = ()  # of TLS: certificate, key, authority
    plaintext: bool = False


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
    discovery = _discovery(url, rest, slash, name)
    options = _options(url, query)
    members_min, listen = options.pop("min", "1"), options.pop("listen", None)
    process, address = options.pop("name", ""), options.pop("address", "")
    if not members_min.isdecimal() or int(members_min) < 1:
        raise ConfigurationError(f"{url!r}: min= is a number from 1, not {members_min!r}")
    plaintext = options.pop("plaintext", "no")
    if plaintext not in ("yes", "no"):
        raise ConfigurationError(f"{url!r}: plaintext= is yes or no, not {plaintext!r}")
    if options and len(options) < len(TLS):
        raise ConfigurationError(f"{url!r}: TLS needs {', '.join(TLS)}, all of them")
    files = tuple(options[name] for name in TLS) if options else ()
    return Cluster(
        name, discovery, int(members_min), process, listen, address, files, plaintext == "yes"
    )


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
        if kind == "at":
            return At(place.split(",") if place else ())
        if rest == "mdns":
            return Mdns(name)
        if kind == "dns":
            return Dns(*parse_address(place))
    except FormatError as error:
        raise ConfigurationError(f"{url!r}: {error}") from None
    raise ConfigurationError(f"{url!r} is not a cluster of peers: write {FORMS}")


def _options(url: str, query: str) -> dict[str, str]:
    options: dict[str, str] = {}
    for option in query.split("&") if query else ():
        name, _, value = option.partition("=")
        if name not in OPTIONS or name in options or not value:
            raise ConfigurationError(
                f"{url!r}: {option!r} is no option: {', '.join(OPTIONS)}, each once, with a value"
            )
        options[name] = value
    return options
