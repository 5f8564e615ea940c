"""The options of a connection, listed once for both fronts and the classic API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict, Unpack

from antiphon.api.connection import Options, options_of
from antiphon.api.modes import SessionMode
from antiphon.api.operations.opening import terms_of
from antiphon.api.protocol.attaching import Terms


class FactoryOptions(TypedDict, total=False):
    """The options of `ConnectionFactory`, all by keyword: those of `connect`, which explains them,
    but for `session_mode`."""

    client_id: str | None
    user: str | None
    password: str | None
    connect_timeout: float
    send_timeout: float | None
    close_timeout: float | None
    trace: str | None
    tls: Any
    allow_pickle: bool
    packing: str


class ConnectOptions(FactoryOptions, total=False):
    """The options of `connect`, which explains them, all by keyword."""

    session_mode: SessionMode


FACTORY_DEFAULTS = FactoryOptions(
    client_id=None,
    user=None,
    password=None,
    connect_timeout=10.0,
    send_timeout=None,
    close_timeout=10.0,
    trace=None,
    tls=None,
    allow_pickle=False,
    packing="adaptive",
)

DEFAULTS: ConnectOptions = {**FACTORY_DEFAULTS, "session_mode": SessionMode.AUTO_ACKNOWLEDGE}
"""The value of each option that is not given."""


def check_names(options: Mapping[str, object]) -> None:
    """Raise `TypeError` if one of these is not an option of a connection."""
    unknown = options.keys() - ConnectOptions.__annotations__.keys()
    if unknown:
        raise TypeError(f"a connection has no option {', '.join(sorted(unknown))!r}")


def parts_of(**options: Unpack[ConnectOptions]) -> tuple[Terms, Options, SessionMode]:
    """Return the terms of the session, the options of the connection, and the mode of the context.
    Raise an error for an option that makes no sense, before anything is sent."""
    check_names(options)
    given: ConnectOptions = {**DEFAULTS, **options}
    mode = given["session_mode"]
    terms = terms_of(
        given["client_id"],
        given["user"],
        given["password"],
        mode,
        given["connect_timeout"],
        given["tls"],
    )
    rest = options_of(
        given["send_timeout"],
        given["close_timeout"],
        given["allow_pickle"],
        given["trace"],
        given["packing"],
    )
    return terms, rest, mode
