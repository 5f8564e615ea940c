"""The options of a connection, listed once for all that connects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict, Unpack

from antiphon.api.connection import Options, options_of
from antiphon.api.modes import SessionMode
from antiphon.api.operations.opening import terms_of
from antiphon.api.protocol.attaching import Terms


class FactoryOptions(TypedDict, total=False):
    """The options of a connection, all by keyword.

    `client_id`: the name under which durable subscriptions are known; one live connection has it
    at a time. `user`, `password`: refused, since servers of this version let everybody in.
    `connect_timeout` (10.0): seconds until a server must have taken the session. `send_timeout`
    (None, no limit): seconds that `send` waits for an answer. `close_timeout` (10.0): seconds that
    `close` waits for the answers to what was sent. `trace`: a folder in which this program writes
    down what it sent and was handed, to be audited. `tls`: refused, not there yet. `allow_pickle`
    (False): object messages may contain any object; only between programs that trust each other,
    for whoever can send such a message can run code in the receiver. `packing` ("adaptive"): when a
    pack of messages leaves: "adaptive" by itself, "off" with each message, "fixed=N" when it has N
    messages, or "hill-climbing", which looks for the best N.
    """

    client_id: str | None
    user: str | None
    password: str | None
    connect_timeout: float
    send_timeout: float | None
    close_timeout: float
    trace: str | None
    tls: Any
    allow_pickle: bool
    packing: str


class ConnectOptions(FactoryOptions, total=False):
    """The options of `connect`, all by keyword: those of `FactoryOptions`, and
    `session_mode` (`AUTO_ACKNOWLEDGE`), when what the context receives counts as handled."""

    session_mode: SessionMode


def check_names(options: Mapping[str, object]) -> None:
    """Raise `TypeError` if one of these is not an option of a connection."""
    unknown = options.keys() - ConnectOptions.__annotations__.keys()
    if unknown:
        raise TypeError(f"a connection has no option {', '.join(sorted(unknown))!r}")


def parts_of(**options: Unpack[ConnectOptions]) -> tuple[Terms, Options, SessionMode]:
    """Return what the session asks of the servers, what the connection does by itself, and the mode
    of the context. Raise what is wrong with the options, before anything is sent."""
    check_names(options)
    mode = options.get("session_mode", SessionMode.AUTO_ACKNOWLEDGE)
    terms = terms_of(
        options.get("client_id"),
        options.get("user"),
        options.get("password"),
        mode,
        options.get("connect_timeout", 10.0),
        options.get("tls"),
    )
    rest = options_of(
        options.get("send_timeout"),
        options.get("close_timeout", 10.0),
        options.get("allow_pickle", False),
        options.get("trace"),
        options.get("packing", "adaptive"),
    )
    return terms, rest, mode
