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
from antiphon.formats.pack import FULL_BYTES
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

    __slots__ = (
        "bodies",
        "extras",
        "kind",
        "left_bytes",
        "level",
        "room_bytes",
        "runs",
        "timestamp",
        "to",
    )

    def __init__(self, to: To, level: Level, room_bytes: int) -> None:
        """`room_bytes`: what it takes; of a single message, also more."""
        self.to = to
        self.level = level
        self.bodies: list[bytes] = []
        self.runs: list[Run] = []
        self.kind = self.timestamp = -1  # of the newest run
        self.extras: dict[int, bytes] = {}
        self.room_bytes = self.left_bytes = room_bytes

    @property
    def size(self) -> int:
        """Return the bytes of its messages, as they are counted here."""
        return self.room_bytes - self.left_bytes

    def begin_run(self, kind: int, timestamp: int) -> None:
        """Begin a run: the next messages are of another kind, or later, than those before."""
        self.kind, self.timestamp = kind, timestamp
        self.runs.append(Run(len(self.bodies), kind, timestamp))


class Outbox:
    """Messages that one process sends, and has not handed to its stack yet."""

    def __init__(self, me: MemberId, destination: str) -> None:
        """`destination`: what the messages say where they were sent."""
        self.has_room = True
        self._me = me
        self._destination = destination
        self._packing = SelfClocking()
        self._batches: deque[Batch] = deque()
        self._newest: Batch | None = None  # the last one, which may take more messages
        self._sealed_bytes = 0  # of all batches but the newest
        self._sequence = 1  # of the next message that leaves
        self._ordering: deque[int] = deque()  # sizes of packs that are being ordered
        self._ordering_bytes = 0
        self._room: Ticket | None = None
        self._shut = False

    def put(
        self, kind: int, body: bytes, extra: bytes, timestamp: int, to: To, level: Level
    ) -> bool:
        """Take a message; return False if there is no room for it, or it is shut."""
        # This is done for every message: as little as possible, and no calls. Nothing counts
        # messages: that many bytes, `MESSAGE_BYTES` each, are at most `FULL_MESSAGES`. Nor does
        # anything look for room: a batch gets what there is.
        size = len(body) + len(extra) + MESSAGE_BYTES
        batch = self._newest
        if batch is None or batch.left_bytes < size or batch.level is not level or batch.to != to:
            batch = self._begin(to, level)
            if batch is None:
                return False
        if batch.timestamp != timestamp or batch.kind != kind:
            batch.begin_run(kind, timestamp)
        if extra:
            batch.extras[len(batch.bodies)] = extra
        batch.bodies.append(body)
        batch.left_bytes -= size
        return True

    def _begin(self, to: To, level: Level) -> Batch | None:
        self._seal()
        if self._sealed_bytes >= ROOM_BYTES:
            self.has_room = False
        if not self.has_room:
            return None
        room_bytes = min(FULL_BYTES, ROOM_BYTES - self._sealed_bytes)
        batch = self._newest = Batch(to, level, room_bytes)
        self._batches.append(batch)
        return batch

    def _seal(self) -> None:
        """Have the newest batch take no more messages."""
        if self._newest is not None:
            self._sealed_bytes += self._newest.size
            self._newest = None

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
    def has_unsent(self) -> bool:
        """Return whether something has not left."""
        return bool(self._batches)

    @property
    def is_ordering(self) -> bool:
        """Return whether some packs have left, and not come back in their order."""
        return bool(self._ordering)

    def next(self) -> Leaving | None:
        """Return the pack that leaves now; None: there is none, or it has to wait."""
        if not self._batches:
            return None
        batch = self._batches[0]
        grows = batch is self._newest
        if not self._packing.may_leave(len(self._ordering), self._ordering_bytes, grows):
            return None
        if grows:
            self._seal()
        self._batches.popleft()
        self._sealed_bytes -= batch.size
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
        if self.has_room or self._sealed_bytes > ROOM_BYTES // 2:
            return None
        self.has_room = not self._shut
        room, self._room = self._room, None
        if room is not None:
            room.settle()
        return room

    def shut(self) -> None:
        """Take nothing more; what is here leaves."""
        self._shut, self.has_room = True, False
        self._seal()

    def close(self) -> Ticket | None:
        """Take nothing more, drop everything, and wake those who wait for room."""
        self.shut()
        self._batches.clear()
        self._newest = None
        self.view_changed()
        room, self._room = self._room, None
        if room is not None:
            room.settle()
        return room
