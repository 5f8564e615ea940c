"""Configuration: of `antiphon serve`, by a TOML file and by its options; of a program, by
`antiphon.toml`.

A server's file has the names of the command's options; an option wins over the file::

    node = 1
    listen = "0.0.0.0:7470"          # default: this node's address in [cluster]
    data = "/var/lib/antiphon"       # default: ./antiphon-data
    storage = "durable"              # or "memory"
    contexts = "replicated"          # or "local"
    metrics = "127.0.0.1:9470"       # default: none
    trace = "/var/log/antiphon"      # default: none

    [cluster]                        # all servers, this one among them
    1 = "10.0.0.1:7470"
    2 = "10.0.0.2:7470"
    3 = "10.0.0.3:7470"

    [limits]                         # default: as in `Limits`
    retain = 1_000_000

A program's file::

    url = "antiphon://10.0.0.1:7470,10.0.0.2:7470"

    [destinations]                   # for `ctx.lookup("alarms")`, `antiphon.lookup("alarms")`
    alarms = "topic:Alarms"

    [factories.office]               # for `antiphon.lookup("office")`; each key may be left out
    url = "antiphon://10.0.0.1:7470" # default: as above
    domain = "topic"                 # or "queue"; default: for both
    client_id = "porter"
    connect_timeout = 10.0           # seconds, like the next two: as in `connect`
    send_timeout = 5.0
    close_timeout = 10.0

Both may be one file: each reads its own keys. Any mistake raises `ConfigurationError` that names
the file, the key, and the values that are allowed there.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal, TypeVar, get_args

import msgspec

from antiphon.errors import ConfigurationError, FormatError, InvalidDestinationError
from antiphon.io.transport import Address, parse_address
from antiphon.log.settings import Settings
from antiphon.model import destinations as destination
from antiphon.model.redelivery import FACTOR_MAX, WAIT_MAX_MS, Redelivery, in_ms

CLIENT_FILE = "antiphon.toml"
DEFAULT_LISTEN = ("127.0.0.1", 7470)
RETAIN, MEMORY_RETAIN = 1_000_000, 1_000
NODE_MAX = 1_000_000_000
_DEFAULTS = Settings()

Storage = Literal["durable", "memory"]
Contexts = Literal["replicated", "local"]
Domain = Literal["topic", "queue"]
Positive = Annotated[int, msgspec.Meta(ge=1)]
Seconds = Annotated[float, msgspec.Meta(ge=0)]
Wait = Annotated[float, msgspec.Meta(ge=0, le=WAIT_MAX_MS / 1000)]
Factor = Annotated[float, msgspec.Meta(ge=1, le=FACTOR_MAX)]
Read = TypeVar("Read")


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Limits that an operator may set, in the table `[limits]` of the file."""

    retain: Annotated[int, msgspec.Meta(ge=0)] | msgspec.UnsetType = msgspec.UNSET
    """Messages that stay readable beyond what subscriptions need; without it `RETAIN` in
    files, and `MEMORY_RETAIN` in memory."""

    deliveries: Positive = 10
    """After this many failed deliveries a message goes to the dead letters."""

    redelivery_delay: Wait | None = None
    """Seconds from the first of them to the next; None, here and below: as in
    `model/redelivery.py`."""

    redelivery_factor: Factor | None = None
    """By which each wait is longer than the one before."""

    redelivery_most: Wait | None = None
    """The longest wait, in seconds."""

    uncommitted_max_bytes: Positive = _DEFAULTS.uncommitted_max_bytes
    cache_max_bytes: Positive = _DEFAULTS.cache_max_bytes
    snapshot_every_bytes: Positive = _DEFAULTS.snapshot_every_bytes
    snapshot_every_entries: Positive = _DEFAULTS.snapshot_every_entries


class ServeOptions(msgspec.Struct, frozen=True):
    """All that `antiphon serve` needs to know, consistent."""

    listen: Address
    node: int = 1
    cluster: dict[int, Address] | None = None
    data: str = "./antiphon-data"
    storage: Storage = "durable"
    contexts: Contexts = "replicated"
    metrics: Address | None = None
    trace: str | None = None
    json: bool = False  # its output is for programs
    limits: Limits = Limits()

    @property
    def retain(self) -> int:
        if self.limits.retain is not msgspec.UNSET:
            return self.limits.retain
        return MEMORY_RETAIN if self.storage == "memory" else RETAIN

    @property
    def settings(self) -> Settings:
        chosen = msgspec.structs.asdict(self.limits)
        own = {name: chosen[name] for name in Settings.__struct_fields__ if name in chosen}
        return Settings(volatile=self.storage == "memory", **own)

    @property
    def redelivery(self) -> Redelivery:
        limits = self.limits
        return Redelivery(
            in_ms(limits.redelivery_delay), limits.redelivery_factor, in_ms(limits.redelivery_most)
        )


class _ServerFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The file as it is written; an absent key is `UNSET`."""

    node: Annotated[int, msgspec.Meta(ge=1, le=NODE_MAX)] | msgspec.UnsetType = msgspec.UNSET
    listen: str | msgspec.UnsetType = msgspec.UNSET
    data: str | msgspec.UnsetType = msgspec.UNSET
    storage: Storage | msgspec.UnsetType = msgspec.UNSET
    contexts: Contexts | msgspec.UnsetType = msgspec.UNSET
    metrics: str | msgspec.UnsetType = msgspec.UNSET
    trace: str | msgspec.UnsetType = msgspec.UNSET
    cluster: dict[str, str] | msgspec.UnsetType = msgspec.UNSET
    limits: Limits = Limits()


class Factory(msgspec.Struct, frozen=True):
    """A connection factory; an absent key is `UNSET`."""

    url: str | msgspec.UnsetType = msgspec.UNSET
    domain: Domain | msgspec.UnsetType = msgspec.UNSET
    client_id: str | msgspec.UnsetType = msgspec.UNSET
    connect_timeout: Seconds | msgspec.UnsetType = msgspec.UNSET
    send_timeout: Seconds | msgspec.UnsetType = msgspec.UNSET
    close_timeout: Seconds | msgspec.UnsetType = msgspec.UNSET


class _ClientFile(msgspec.Struct, frozen=True):
    """The file as it is written; the content of the tables is not checked yet."""

    url: str = ""
    destinations: dict[str, Any] = {}
    factories: dict[str, Any] = {}


class ClientConfig(msgspec.Struct, frozen=True):
    """The content of `antiphon.toml`."""

    url: str = ""
    destinations: dict[str, str] = {}
    factories: dict[str, Factory] = {}


# -- Servers ---------------------------------------------------------------------------------------


def serve_options(given: Mapping[str, Any], file: str | None = None) -> ServeOptions:
    """`given` are the options of the command line, parsed, without those that were not given."""
    chosen = {**(_read_server_file(file) if file is not None else {}), **given}
    _check_together(chosen)
    if "listen" not in chosen:
        in_cluster = "cluster" in chosen
        chosen["listen"] = chosen["cluster"][chosen["node"]] if in_cluster else DEFAULT_LISTEN
    return ServeOptions(**chosen)


def _check_together(chosen: Mapping[str, Any]) -> None:
    """Raise `ConfigurationError` if options that are good by themselves do not go together."""
    if ("node" in chosen) != ("cluster" in chosen):
        raise ConfigurationError(
            "--node and --cluster go together, on the command line or in the file"
        )
    if "cluster" in chosen and chosen["node"] not in chosen["cluster"]:
        raise ConfigurationError(
            f"--cluster lists no node {chosen['node']}, only {_listed(chosen['cluster'])}"
        )
    check_contexts(chosen.get("contexts", "replicated"), chosen.get("storage", "durable"))


def check_contexts(contexts: str, storage: str) -> None:
    if contexts == "local" and storage == "memory":
        raise ConfigurationError(
            "contexts = local needs storage = durable: what lives at one server only would be "
            "lost with its memory"
        )


def _read_server_file(file: str) -> dict[str, Any]:
    told = _read(file, _ServerFile)
    chosen = {
        name: value
        for name, value in msgspec.structs.asdict(told).items()
        if value is not msgspec.UNSET
    }
    for name in ("listen", "metrics"):
        if name in chosen:
            chosen[name] = _address(file, name, chosen[name])
    if "cluster" in chosen:
        chosen["cluster"] = dict(_node(file, *item) for item in chosen["cluster"].items())
    return chosen


def _node(path: str, node: str, address: str) -> tuple[int, Address]:
    if not (node.isdecimal() and len(node) < 20 and 0 < int(node) <= NODE_MAX):
        raise ConfigurationError(
            f"{path}: cluster.{node}: servers have numbers, from 1 on, up to {NODE_MAX}"
        )
    return int(node), _address(path, f"cluster.{node}", address)


def _address(path: str, key: str, text: str) -> Address:
    try:
        return parse_address(text)
    except FormatError as error:
        raise ConfigurationError(f"{path}: {key}: {error}") from None


# -- Programs --------------------------------------------------------------------------------------


def client_config(folder: str | os.PathLike[str] = "") -> ClientConfig:
    """Return the content of `antiphon.toml` in a folder, by default the current one; an empty
    configuration if there is no such file."""
    path = os.path.join(folder, CLIENT_FILE)
    return client_file(path) if os.path.exists(path) else ClientConfig()


def client_file(path: str) -> ClientConfig:
    told = _read(path, _ClientFile)
    config = ClientConfig(
        told.url,
        {name: _destination(path, name, text) for name, text in told.destinations.items()},
        {name: _factory(path, name, table) for name, table in told.factories.items()},
    )
    for name in config.factories:
        if name in config.destinations:
            raise ConfigurationError(f"{path}: factories.{name}: a destination has that name, too")
    return config


def _destination(path: str, name: str, value: Any) -> str:
    key = f"destinations.{name}"
    text = _converted(path, value, str, key)
    try:
        destination.parse(text)
    except InvalidDestinationError as error:
        raise ConfigurationError(f"{path}: {key}: {error}") from None
    return text


def _factory(path: str, name: str, value: Any) -> Factory:
    key = f"factories.{name}"
    table = _converted(path, value, dict[str, Any], key)
    for word in ("user", "password"):
        if word in table:
            raise ConfigurationError(
                f"{path}: {key}.{word}: servers of this version keep no users, and would not check "
                "it: leave it out"
            )
    _check_keys(path, f"{key}.", table, _fields(Factory))
    _check_choice(path, f"{key}.domain", table.get("domain"), get_args(Domain))
    return _converted(path, table, Factory, key)


# -- Reading ---------------------------------------------------------------------------------------


def _read(path: str, kind: type[Read]) -> Read:
    import tomllib  # not at the top: most programs that import antiphon read no such file

    try:
        with open(path, "rb") as file:
            table = tomllib.load(file)
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path} is not TOML: {error}") from None
    others = _fields(_ClientFile if kind is _ServerFile else _ServerFile)
    table = {key: value for key, value in table.items() if key not in others}
    _check_keys(path, "", table, _fields(kind))
    if isinstance(limits := table.get("limits"), dict):
        _check_keys(path, "limits.", limits, _fields(Limits))
    for key, choices in (("storage", get_args(Storage)), ("contexts", get_args(Contexts))):
        _check_choice(path, key, table.get(key), choices)
    return _converted(path, table, kind)


def _converted(path: str, value: Any, kind: type[Read], key: str = "") -> Read:
    """`key`: where in the file it stands; empty: it is the whole."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise ConfigurationError(f"{path}: {_where(key, str(error))}") from None


def _check_choice(path: str, key: str, choice: Any, choices: tuple[str, ...]) -> None:
    if isinstance(choice, str) and choice not in choices:
        raise ConfigurationError(f"{path}: {key}: no {choice!r}; it is one of {_listed(choices)}")


def _fields(kind: type[Any]) -> tuple[str, ...]:
    fields: tuple[str, ...] = kind.__struct_fields__
    return fields


def _check_keys(path: str, table: str, found: Iterable[str], allowed: tuple[str, ...]) -> None:
    import difflib

    for key in found:
        if key not in allowed:
            close = difflib.get_close_matches(key, allowed, 1)
            hint = f"did you mean {table}{close[0]}? " if close else ""
            raise ConfigurationError(
                f"{path}: no key {table}{key}; {hint}Allowed are {_listed(allowed)}"
            )


_PLAIN_WORDS = {
    "`int`": "a whole number",
    "`float`": "a number",
    "`str`": "a text in quotes",
    "`bool`": "true or false",
    "`object`": "a table",
    "`array`": "a list",
}


def _where(key: str, complaint: str) -> str:
    """msgspec's words made plain, the key in front: `node: expected a whole number, got a list`."""
    what, _, place = complaint.partition(" - at `$.")
    for word, plain in _PLAIN_WORDS.items():
        what = what.replace(word, plain)
    keys = ".".join(part for part in (key, place.removesuffix("`")) if part)
    return f"{keys}: {what[0].lower()}{what[1:]}"


def _listed(names: Iterable[object]) -> str:
    return ", ".join(map(str, names))
