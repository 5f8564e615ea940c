"""JGroups' protocols, and the stacks of this project that they become.

Each protocol belongs to a family. A family is a layer, settings of a layer, a way in which
processes find each other, or a promise that every stack keeps. So the order in a list of protocols
means nothing, and one that JGroups needs for reliability or views may be missing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from antiphon import peers
from antiphon.errors import ConfigurationError
from antiphon.peers.layers.causal import Causal
from antiphon.peers.layers.detector import Detector
from antiphon.peers.layers.detour import Detour
from antiphon.peers.layers.flow import Flow
from antiphon.peers.layers.fragment import Fragment
from antiphon.peers.layers.layer import Layer
from antiphon.peers.layers.reliable import Reliable
from antiphon.peers.layers.safe import Safe
from antiphon.peers.layers.state import State
from antiphon.peers.layers.total import Total
from antiphon.peers.membership.membership import Membership

FAMILIES: Mapping[str, Sequence[str]] = MappingProxyType(
    {
        "transport": ("UDP", "TCP", "TCP_NIO", "TCP_NIO2"),  # TCP, always
        "discovery": (
            *("PING", "MPING", "BPING", "LOCAL_PING"),
            *("TCPPING", "FILE_PING", "DNS_PING"),
        ),
        "merging": ("MERGE", "MERGE2", "MERGE3"),  # Membership
        "detection": (
            *("FD", "FD_SOCK", "FD_SOCK2", "FD_ALL", "FD_ALL2", "FD_ALL3", "FD_HOST"),
            *("VERIFY_SUSPECT", "VERIFY_SUSPECT2"),
        ),
        "reliability": (
            *("NAKACK", "NAKACK2", "NAKACK3", "NAKACK4", "STABLE"),
            *("UNICAST", "UNICAST2", "UNICAST3", "UNICAST4"),
        ),
        "membership": ("GMS",),
        "flow": ("FC", "SFC", "UFC", "MFC", "UFC_NB", "MFC_NB"),
        "fragments": ("FRAG", "FRAG2", "FRAG3", "FRAG4"),
        "causal": ("CAUSAL",),
        "total": ("SEQUENCER", "SEQUENCER2", "TOTAL", "TOTAL_TOKEN"),
        "safe": ("RSVP",),
        "state": ("STATE_TRANSFER", "STATE", "STATE_SOCK"),
        "always": ("BARRIER", "FLUSH"),  # views cut what is sent, in every stack
        "idle": ("RED",),  # about threads and buffers that do not exist here
    }
)
_FAMILY = {name: family for family, names in FAMILIES.items() for name in names}
_SECURITY = ("AUTH", "SASL", "ENCRYPT", "SYM_ENCRYPT", "ASYM_ENCRYPT", "SSL_KEY_EXCHANGE")
_MEANT: Mapping[str, frozenset[str]] = {
    "UDP": frozenset({"bind_addr"}),
    "TCP": frozenset({"bind_addr"}),
    "TCP_NIO": frozenset({"bind_addr"}),
    "TCP_NIO2": frozenset({"bind_addr"}),
    "TCPPING": frozenset({"initial_hosts"}),
    "FILE_PING": frozenset({"location"}),
    "DNS_PING": frozenset({"dns_query"}),
    "FD": frozenset({"timeout", "max_tries"}),
    **{name: frozenset({"timeout"}) for name in ("FD_ALL", "FD_ALL2", "FD_ALL3")},
    **{name: frozenset({"max_credits"}) for name in FAMILIES["flow"]},
    **{name: frozenset({"frag_size"}) for name in FAMILIES["fragments"]},
}
"""The attributes that mean something here."""

FD_TRIES = 2
"""Of FD without `max_tries`."""
DNS_PORT = "7800"
"""Where processes that DNS names listen, if the transport does not say."""
_UNITS = {"": 1, "k": 1000, "kb": 1000, "m": 1000**2, "mb": 1000**2, "g": 1000**3, "gb": 1000**3}
_UNITS |= {"kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30}
_TIMES_MS = {"": 1, "ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000}
_HOST = re.compile(r"\s*([^\s\[\]]+)\[(\d+)\]\s*")


class Protocol(NamedTuple):
    """A protocol of JGroups with its attributes, as a configuration has it."""

    name: str
    attributes: Mapping[str, str] = MappingProxyType({})


class Configured(NamedTuple):
    """A configuration, as it is here. `cluster`: the URL of a cluster, with `{}` in the place of
    its name. `ignored`: the protocols and attributes that mean nothing here."""

    stack: peers.Stack
    cluster: str
    listen: str | None
    ignored: tuple[str, ...]


def configured(protocols: Iterable[Protocol | tuple[str, Mapping[str, str]] | str]) -> Configured:
    """Return what these protocols are here. Raise `ConfigurationError` for one that does not exist
    here, for a list without transport, and for attributes that make no sense."""
    found: dict[str, Protocol] = {}
    for each in protocols:
        protocol = Protocol(each) if isinstance(each, str) else Protocol(*each)
        name = protocol.name.rpartition(".")[2]  # pbcast.GMS
        _check(name)
        found[name] = Protocol(name, protocol.attributes)
    families = {_FAMILY[name] for name in found}
    if "transport" not in families:
        raise ConfigurationError(
            f"a stack begins with a transport: {', '.join(FAMILIES['transport'])}"
        )
    listen, is_symbolic = _listen(found)
    ignored = tuple(_ignored(found, is_symbolic))
    return Configured(_stack(found, families), _cluster(found), listen, ignored)


def _check(name: str) -> None:
    if name in _SECURITY:
        raise ConfigurationError(
            f"{name} is not here: give the channel tls=peers.Tls(certificate, key, authority), "
            "with which members prove who they are, and nobody else can read"
        )
    if name not in _FAMILY:
        known = ", ".join(sorted(_FAMILY))
        raise ConfigurationError(f"there is no protocol {name!r} here; there are {known}")


def _stack(found: Mapping[str, Protocol], families: set[str]) -> peers.Stack:
    order: list[Layer] = [Safe()] if "safe" in families else []
    if families & {"causal", "total"}:
        order.append(Causal())
    if "total" in families:
        order.append(Total())
    return peers.Stack(
        Detour(),
        _fragment(found),
        Reliable(),
        _flow(found),
        _detector(found),
        Membership(lead="oldest"),
        *order,
        State(),
    )


def _fragment(found: Mapping[str, Protocol]) -> Fragment:
    sizes = _numbers(found, FAMILIES["fragments"], "frag_size", _UNITS)
    return Fragment(min(sizes)) if sizes else Fragment()


def _flow(found: Mapping[str, Protocol]) -> Flow:
    windows = _numbers(found, FAMILIES["flow"], "max_credits", _UNITS)
    return Flow(min(windows)) if windows else Flow()


def _detector(found: Mapping[str, Protocol]) -> Detector:
    """Return a detector that suspects who has been silent for as long as the protocols say."""
    silences = _numbers(found, ("FD_ALL", "FD_ALL2", "FD_ALL3"), "timeout", _TIMES_MS)
    for timeout in _numbers(found, ("FD",), "timeout", _TIMES_MS):
        tries = _numbers(found, ("FD",), "max_tries", {"": 1}) or [FD_TRIES]
        silences.append(timeout * tries[0])
    if not silences:
        return Detector()
    silence = min(silences)
    return Detector(min(250, silence // 4 + 1), silence, silence)


def _numbers(
    found: Mapping[str, Protocol], names: Iterable[str], attribute: str, units: Mapping[str, int]
) -> list[int]:
    """Return the values of an attribute, of those protocols that are there and have it."""
    numbers = []
    for name in names:
        text = found[name].attributes.get(attribute) if name in found else None
        if text is not None:
            match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*", text)
            unit = units.get(match[2].lower()) if match else None
            number = int(float(match[1]) * unit) if match and unit else 0
            if number < 1:
                raise ConfigurationError(f"{name}.{attribute} is a number above 0, not {text!r}")
            numbers.append(number)
    return numbers


def _cluster(found: Mapping[str, Protocol]) -> str:
    """Return where processes find each other."""
    if (listed := found.get("TCPPING")) is not None:
        hosts = _needed(listed, "initial_hosts").split(",")
        return f"peer://{','.join(map(_address, hosts))}/{{}}"
    if (folder := found.get("FILE_PING")) is not None:
        return f"peer:file/{_needed(folder, 'location')}/{{}}"
    if (dns := found.get("DNS_PING")) is not None:
        ports = (
            found[name].attributes.get("bind_port")
            for name in FAMILIES["transport"]
            if name in found
        )
        port = next((port for port in ports if port), DNS_PORT)
        return f"peer:dns/{_needed(dns, 'dns_query')}:{port}/{{}}"
    return "peer:{}"


def _needed(protocol: Protocol, attribute: str) -> str:
    text = protocol.attributes.get(attribute, "").strip()
    if not text:
        raise ConfigurationError(f"{protocol.name} needs {attribute}")
    return text


def _address(host: str) -> str:
    match = _HOST.fullmatch(host)
    if match is None:
        raise ConfigurationError(f"initial_hosts has HOST[PORT],HOST[PORT], not {host!r}")
    return f"{match[1]}:{match[2]}"


def _listen(found: Mapping[str, Protocol]) -> tuple[str | None, bool]:
    """Return where this process listens, None: where its cluster says; and whether `bind_addr` is
    one of JGroups' words for addresses, which mean nothing here."""
    for name in FAMILIES["transport"]:
        address = found[name].attributes.get("bind_addr") if name in found else None
        if address is not None:
            if re.fullmatch(r"[A-Z_]+|match-.*|custom:.*", address):
                return None, True
            listed = {"TCPPING", "DNS_PING"} & found.keys()
            return (None if listed else f"{address}:0"), bool(listed)
    return None, False


def _ignored(found: Mapping[str, Protocol], is_symbolic: bool) -> Iterable[str]:
    for name, protocol in found.items():
        if _FAMILY[name] == "idle":
            yield name
        for attribute in protocol.attributes:
            meant = attribute in _MEANT.get(name, ())
            if attribute == "bind_port" and "DNS_PING" in found:
                meant = True
            if not meant or (attribute == "bind_addr" and is_symbolic):
                yield f"{name}.{attribute}"
