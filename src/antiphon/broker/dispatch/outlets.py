"""Connections to clients as outlets of packs: the bytes on their way, the cursors that wait, and
whose turn it is.

Promises: for one connection at most `delivery_bytes` are on their way; the rest follows when it has
drained. Each cursor that is ready has a turn of about `TURN_BYTES`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from antiphon.broker.dispatch.filtering import Sieve
from antiphon.broker.machine.ranges import Span
from antiphon.formats import columns
from antiphon.formats import protocol as cw
from antiphon.formats.journal import Row
from antiphon.formats.pack import SPECIAL, flags_of

TURN_BYTES = 4 << 20
"""Packs handed out in one turn; then the server looks after other things."""

ALL_DELIVERY_BYTES = 256 << 20
"""On their way to all clients together; beyond that each gets one pack at a time."""

OVERHEAD_BYTES = 64
"""The bytes of a delivery in addition to its pack."""

Tell = Callable[[int, cw.Answer], None]


class Outlet:
    """A connection, and the deliveries on their way to its client."""

    def __init__(self, link: int) -> None:
        self.link = link
        self.bytes = 0
        self.blocked: dict[Any, None] = {}  # cursors that go on when it has drained


class Outlets:
    """All outlets of one server, and the cursors that may have messages to send through them."""

    def __init__(self, tell: Tell, sieve: Sieve, delivery_bytes: int) -> None:
        self.tell = tell
        self._sieve = sieve
        self._delivery_bytes = delivery_bytes
        self._by_session: dict[int, Outlet] = {}
        self._by_link: dict[int, Outlet] = {}
        self.ready: dict[Any, None] = {}  # cursors that may have messages to send
        self.turn_bytes = 0  # sent in this turn
        self.on_the_way = 0  # bytes, to all outlets
        self.delivered_packs = 0
        self.delivered_bytes = 0

    def open(self, session: int, link: int) -> None:
        """The session is attached to this connection."""
        self._by_session[session] = self._by_link[link] = Outlet(link)

    def close(self, session: int) -> None:
        """Forget the outlet of this session, if it has one."""
        outlet = self._by_session.pop(session, None)
        if outlet is not None:
            self.on_the_way -= outlet.bytes
            del self._by_link[outlet.link]

    def of(self, session: int) -> Outlet:
        """Return the outlet of a session that is served here."""
        return self._by_session[session]

    def forget(self, cursor: Any) -> None:
        """This cursor sends nothing more."""
        self.ready.pop(cursor, None)
        cursor.outlet.blocked.pop(cursor, None)

    def drained(self, link: int, left: int) -> bool:
        """All but `left` bytes have left. Return whether a cursor has waited for that."""
        outlet = self._by_link.get(link)
        if outlet is None:
            return False
        self.on_the_way += left - outlet.bytes
        outlet.bytes = left
        waited = bool(outlet.blocked)
        self.ready.update(outlet.blocked)
        outlet.blocked.clear()
        return waited

    def has_room(self, cursor: Any) -> bool:
        """Return whether a pack may be sent now; if not, the cursor goes on when there is room."""
        limit = self._delivery_bytes if self.on_the_way < ALL_DELIVERY_BYTES else 1
        if cursor.outlet.bytes < limit:
            return True
        cursor.outlet.blocked[cursor] = None
        return False

    def deliver(self, cursor: Any, row: Row, pack: bytes, span: Span, reason: str = "") -> int:
        """Send these messages of a pack, and return how many bytes they are."""
        first, last, deliveries = span
        count = last - first + 1
        data = pack if count == row.count else columns.slice_of(pack, first - row.position, count)
        number = cursor.consumer.number
        age = self._sieve.age(row) if flags_of(pack) & SPECIAL else 0
        answer = cw.Deliver(number, first, row.stamp, deliveries, data, row.view, age, reason)
        self.tell(cursor.outlet.link, answer)
        size = len(data) + OVERHEAD_BYTES
        cursor.outlet.bytes += size
        self.on_the_way += size
        self.turn_bytes += size
        self.delivered_packs += 1
        self.delivered_bytes += len(data)
        return len(data)
