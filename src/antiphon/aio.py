"""Antiphon for programs with asyncio: the names of `antiphon`, to be awaited.

The public names, re-exported; nothing else lives here.
"""

from antiphon.api.aio import (
    Browser,
    Consumer,
    Context,
    Member,
    Opening,
    Producer,
    SendFuture,
    connect,
)

__all__ = [
    "Browser",
    "Consumer",
    "Context",
    "Member",
    "Opening",
    "Producer",
    "SendFuture",
    "connect",
]
