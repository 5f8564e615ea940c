"""Destinations and connection factories by name, as JMS programs get them from a directory.

The names are those of `antiphon.toml` (`io/config.py`), so that a program need not know the
addresses of its servers, nor the names of its topics and queues there.
"""

from __future__ import annotations

import os
from typing import Any

import msgspec

from antiphon.api import arguments
from antiphon.api.classic.domains import QueueConnectionFactory, TopicConnectionFactory
from antiphon.api.classic.sessions import ConnectionFactory
from antiphon.api.messages.destinations import Destination
from antiphon.api.urls import listed
from antiphon.errors import InvalidDestinationError
from antiphon.io.config import CLIENT_FILE, ClientConfig, Factory, client_config, client_file

_KINDS = {"topic": TopicConnectionFactory, "queue": QueueConnectionFactory}


def lookup(name: str, config: str | os.PathLike[str] | None = None) -> Any:
    """Return the destination or the connection factory of this name in `antiphon.toml`, of the
    current folder or of the path `config`. Raise `InvalidDestinationError` if it has neither, and
    `ConfigurationError` if the file makes no sense."""
    path = arguments.path("config", config)
    told = client_config() if path is None else client_file(path)
    if arguments.text("a name", name) in told.destinations:
        return Destination.parse(told.destinations[name])
    if name in told.factories:
        return _made(told.factories[name], told)
    file = os.path.abspath(CLIENT_FILE if path is None else path)
    raise InvalidDestinationError(
        f"{file} has nothing that is called {name!r}. Destinations: {listed(told.destinations)}; "
        f"factories: {listed(told.factories)}"
    )


def _made(factory: Factory, told: ClientConfig) -> ConnectionFactory:
    values = msgspec.structs.asdict(factory)
    given = {key: value for key, value in values.items() if value is not msgspec.UNSET}
    kind = _KINDS.get(given.pop("domain", ""), ConnectionFactory)
    url = given.pop("url", told.url) or None
    return kind(url, **given)
