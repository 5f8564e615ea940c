"""Messages as they arrive, without a server."""

from __future__ import annotations

from typing import Any

from antiphon.api.messages.arriving import arrived
from antiphon.api.messages.message import Arrival, Message
from antiphon.api.messages.sending import outgoing
from antiphon.formats import columns, pack
from antiphon.formats.columns import Columns, Outgoing

NOW = 1_700_000_000_123


def delivered(
    sent: Outgoing,
    *,
    deliveries: int = 1,
    owner: Any = None,
    flags: int = 0,
    pickled: bool = False,
    stamp: int = 0,
) -> Message:
    """As it arrives, between two others in its pack."""
    other = outgoing("another", now_ms=NOW - 5)
    body, more = columns.encode([other, sent, other])
    data = pack.encode("topic:Alarms", 3, body, 0xABC, 41, 0, flags | more)
    arriving = Columns(data)
    arriving.stamp = stamp
    return next(arrived(Arrival(arriving, 1000, deliveries, owner, pickled), (1,)))


def through(content: Any, **headers: Any) -> Any:
    """Sent and received."""
    return delivered(outgoing(content, now_ms=NOW, **headers))
