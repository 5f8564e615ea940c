"""Messages on their way into the stack, gathered into packs.

A pack holds consecutive messages for the same members at the same level; layers see packs only. It
leaves when it is sealed, or at once while few packs are on their way through the total order: so a
lone message does not wait, and under load packs grow (`api/protocol/packing.py`).

What is held is bounded: without room, senders wait for `room`. One thread puts in while another
takes out, so every method needs the lock of the conversation.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from antiphon.api.protocol.packing import SelfClocking
from antiphon.api.protocol.ticket import Ticket
from antiphon.formats import columns, pack
from antiphon.formats.columns import Run
from antiphon.model.peer_views import Level, MemberId
from antiphon.peers.layers.layer import To

MESSAGE_BYTES = 64
"""The memory that a message takes here in addition to its content: it is counted, so that many
empty ones are bounded."""

ROOM_BYTES = 8 << 20
"""With this many bytes gathered, senders begin to wait; at half of it they go on."""


class Leaving(NamedTuple):
    """A pack that leaves."""

    body: bytes
    to: To
    level: Level


class Batch:
    """Messages that leave as one pack."""

    __slots__ = ("bodies", "extras", "level", "runs", "size", "to")

    def __init__(self, to: To, level: Level) -> None:
        self.to = to
        self.level = level
        self.bodies: list[bytes] = []
        self.runs: list[Run] = []
        self.extras: dict[int, bytes] = {}
        self.size = 0

    def add(self, kind: int, body: bytes, extra: bytes, timestamp: int) -> None:
        runs = self.runs
        if not runs or runs[-1].kind != kind or runs[-1].timestamp != timestamp:
            runs.append(Run(len(self.bodies), kind, timestamp))
        if extra:
            self.extras[len(self.bodies)] = extra
        self.bodies.append(body)


class Outbox:
    """What one process wants to send, and has not handed to its stack yet."""

    def __init__(self, me: MemberId, destination: str) -> None:
        """`destination`: what the messages say where they were sent."""
        self.has_room = True
        self._me = me
        self._destination = destination
        self._packing = SelfClocking()
        self._batches: deque[Batch] = deque()  # the last one may take more messages
        self._held_bytes = 0
        self._sequence = 1  # of the next message that leaves
        self._ordering: deque[int] = deque()  # sizes of packs that are being ordered
        self._ordering_bytes = 0
        self._room: Ticket | None = None

    def put(
        self, kind: int, body: bytes, extra: bytes, timestamp: int, to: To, level: Level
    ) -> bool:
        """Take a message; return False if there is no room for it."""
        if not self.has_room:
            return False
        size = len(body) + len(extra) + MESSAGE_BYTES
        batch = self._batches[-1] if self._batches else None
        if batch is None or batch.level != level or batch.to != to or not self._fits(batch, size):
            batch = Batch(to, level)
            self._batches.append(batch)
        batch.add(kind, body, extra, timestamp)
        batch.size += size
        self._held_bytes += size
        self.has_room = self._held_bytes < ROOM_BYTES
        return True

    def _fits(self, batch: Batch, size: int) -> bool:
        packing = self._packing
        return batch.size + size <= packing.bytes_max and len(batch.bodies) < packing.messages_max

    def room(self) -> Ticket:
        """Return a ticket that is settled when there is room again."""
        room = self._room or Ticket()
        if self.has_room:
            room.settle()
        else:
            self._room = room
        return room

    @property
    def is_empty(self) -> bool:
        """Return whether all has left, and what was to be ordered was."""
        return not self._batches and not self._ordering

    @property
    def is_ordering(self) -> bool:
        """Return whether some packs have left, and not come back in their order."""
        return bool(self._ordering)

    def next(self) -> Leaving | None:
        """Return the pack that leaves now; None: there is none, or it has to wait."""
        if not self._batches:
            return None
        batch = self._batches[0]
        grows = len(self._batches) == 1
        if not self._packing.may_leave(len(self._ordering), self._ordering_bytes, grows):
            return None
        self._batches.popleft()
        self._held_bytes -= batch.size
        if batch.to is None and batch.level >= Level.AGREED:
            self._ordering.append(batch.size)
            self._ordering_bytes += batch.size
        return Leaving(self._encoded(batch), batch.to, batch.level)

    def _encoded(self, batch: Batch) -> bytes:
        count = len(batch.bodies)
        extras = [batch.extras.get(i, b"") for i in range(count)] if batch.extras else ()
        body, flags = columns.encode_runs(batch.runs, batch.bodies, extras)
        first, self._sequence = self._sequence, self._sequence + count
        session = self._me.incarnation
        return pack.encode(self._destination, count, body, session, first, flags=flags)

    def ordered(self) -> None:
        """The first of the packs that were being ordered has come back."""
        if self._ordering:
            self._ordering_bytes -= self._ordering.popleft()

    def view_changed(self) -> None:
        """Count anew: what was being ordered comes back, or others have it and this process is told
        by the state that it takes over."""
        self._ordering.clear()
        self._ordering_bytes = 0

    def take_room(self) -> Ticket | None:
        """Return the ticket of those who wait for room, settled, once there is enough."""
        if self.has_room or self._held_bytes > ROOM_BYTES // 2:
            return None
        self.has_room = True
        room, self._room = self._room, None
        if room is not None:
            room.settle()
        return room

    def close(self) -> Ticket | None:
        """Drop everything, and wake those who wait for room."""
        self._batches.clear()
        self.view_changed()
        room, self._room = self._room, None
        if room is not None:
            room.settle()
        return room
