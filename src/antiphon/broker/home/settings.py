"""The settings of a home (`home.py`)."""

from __future__ import annotations

import msgspec

from antiphon.model.redelivery import Redelivery


class HomeSettings(msgspec.Struct, frozen=True):
    """The choices that an operator has for the clients of a server."""

    heartbeat_ms: int = 3000
    """A client that says nothing for three of these is cut off, and takes a server that says
    nothing for as long for lost."""

    renew_ms: int = 1000
    """A home with clients says this often that it lives; well below `broker.GRACE_MS`."""

    client_window_bytes: int = 8 << 20
    """Bytes that one client may have unanswered; beyond that nothing is read from it until half is
    left."""

    window_bytes: int = 64 << 20
    """The same for all clients of a server together."""

    delivery_bytes: int = 256 << 10
    """Packs on their way to one client before the others have their turn."""

    unread_bytes: int = 96 << 20
    """A client for which more than this waits to be sent is cut off: it does not read the answers
    to its own requests. More than the largest message and all deliveries that are on their way at a
    time."""

    slow_quota: int = 100_000
    """Messages by which a consumer may be behind, unless it spills to the journal."""

    deliveries_max: int = 10
    """After this many failed deliveries a message goes to the dead letters."""

    redelivery: Redelivery = Redelivery()
    """When it comes again before that, unless its queue has other terms."""
