"""Messages on their way to the servers: gathered into packs, and kept until their answers come.

A policy decides when a pack leaves, and with how many messages (`packing.py`).

A pack holds consecutive messages of one producer, for one destination, in one delivery mode, of one
transaction or of none. Once it has left it never changes: it is sent again as it was. From `put`
on, every message has a number in its stream (the session's own, or that of a named producer).

The bytes held are bounded: when `has_room` is false, senders wait for `room()`.

One batch is *open*: it may take more messages. `put` opens it, and almost every message is only one
`more` like the last one, which costs little: all counts are made when the batch is sealed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import chain
from typing import Any

from antiphon.api.protocol.packing import Packing
from antiphon.api.protocol.ticket import Ticket
from antiphon.errors import FormatError, JMSError, ResourceAllocationError
from antiphon.formats import columns, pack
from antiphon.formats.columns import Outgoing, Run
from antiphon.formats.pack import SPECIAL
from antiphon.formats.protocol import PACK_MAX

MESSAGE_BYTES = 64
"""The memory that a message takes here in addition to its content; it counts, so that many empty
ones are bounded."""

PACK_OVERHEAD = 4096
"""Limit of the bytes of a pack's own header, its destination, and a message's place in the
columns."""

ROOM_BYTES = 8 << 20
"""With this many bytes gathered or unanswered, senders begin to wait; at half of it they go on."""


class Stream:
    """One sequence of messages: the session's own (producer 0), or a named producer's."""

    __slots__ = ("open", "producer", "sealed", "settled", "unanswered")

    def __init__(self, producer: int, sequence: int) -> None:
        self.producer = producer
        self.sealed = sequence  # of the last message in a batch that takes no more
        self.settled = sequence  # up to here all are answered
        self.open: Batch | None = None
        self.unanswered: deque[Batch] = deque()  # that have left

    @property
    def sequence(self) -> int:
        """Return the number of the last message put in."""
        return self.sealed if self.open is None else self.open.last


class Batch(Ticket):
    """Messages that leave as one pack, and are answered together."""

    __slots__ = (
        "_count",
        "_neglected",
        "bodies",
        "body",
        "destination",
        "extras",
        "first",
        "flags",
        "giver",
        "key",
        "kind",
        "left",
        "pack",
        "runs",
        "size",
        "stream",
        "until_s",
    )

    def __init__(
        self, stream: Stream, destination: str, flags: int, key: Any, neglected: deque[JMSError]
    ) -> None:
        super().__init__()
        self.stream = stream
        self.destination = destination
        self.flags = flags
        self.key = key
        self.giver: object = None  # has put the last message, and may put `more`
        self.left = False  # it is on its way, or there and back
        self.first = stream.sequence + 1
        self._count = 0  # when it is no longer open
        self.size = 0
        self.bodies: list[bytes] = []
        self.runs: list[Run] = []
        self.kind = -1  # of the last run
        self.until_s = 0.0  # the end of the millisecond of the last run
        self.extras: dict[int, bytes] = {}  # of those that have any, by their place
        self.body = b""  # instead of these, if they came packed
        self.pack = b""  # until it has left
        self._neglected = neglected

    def __del__(self) -> None:
        # The program has dropped this batch without asking for its error, so it is reported here,
        # as futures of asyncio do. In a Python that does not count references, this comes later.
        # Any thread may come through here, and a deque can take that.
        if self.error is not None and not self.looked_at:
            self._neglected.append(self.error)

    @property
    def count(self) -> int:
        return self._count or len(self.bodies)

    @property
    def last(self) -> int:
        return self.first + self.count - 1

    def add(self, message: Outgoing, size: int) -> None:
        kind, body, extra, timestamp = message
        if extra:
            self.extras[len(self.bodies)] = extra
        if not self.runs or self.runs[-1][1:] != (kind, timestamp):
            self.begin_run(kind, timestamp)
        self.bodies.append(body)
        self.size += size

    def begin_run(self, kind: int, timestamp: int) -> None:
        """Begin a run of messages of this kind, sent in this millisecond."""
        self.runs.append(Run(len(self.bodies), kind, timestamp))
        self.kind = kind
        self.until_s = (timestamp + 1) / 1000

    def seal(self, count: int) -> None:
        """Take no more messages."""
        self._count = count

    def close(self, session: int) -> None:
        """Make it a pack, which never changes."""
        body, flags = (self.body, 0) if self.body else self._encoded()
        self._forget_messages()
        self.left = True
        self.pack = pack.encode(
            self.destination,
            self.count,
            body,
            session,
            self.first,
            self.stream.producer,
            flags | self.flags,
        )

    def _encoded(self) -> tuple[bytes, int]:
        extras = [self.extras.get(i, b"") for i in range(self.count)] if self.extras else ()
        return columns.encode_runs(self.runs, self.bodies, extras)

    def _forget_messages(self) -> None:
        self.bodies, self.runs, self.extras = [], [], {}
        self.body = b""

    def finish(self, error: JMSError | None = None) -> None:
        self._forget_messages()
        self.pack = b""
        self.settle(error)


class Outbox:
    """All messages of one session that are not answered. It holds a bounded number of bytes
    (`ROOM_BYTES`) and does not touch the network: `leaving` returns the packs that leave now."""

    def __init__(self, session: int, packing: Packing) -> None:
        self._session = session
        self._packing = packing
        self._bytes_max = packing.bytes_max
        self._messages_max = packing.messages_max
        self._gathering: deque[Batch] = deque()
        self._open: Batch | None = None  # the last of these: it may take more messages
        self._in_flight = 0
        self._flying_bytes = 0
        self._answered_count = 0  # of messages
        self._held_bytes = 0
        self._room: Ticket | None = None
        self.has_room = True
        self.may_leave = True  # a new pack could leave at once, although it could grow
        self.due_ms: int | None = None  # when the open batch leaves, full or not
        self.streams: dict[int, Stream] = {0: Stream(0, 0)}
        self.pack_max = PACK_MAX
        self.neglected: deque[JMSError] = deque()
        """Errors of sends that the program has not asked for, and no longer can."""

    def open(self, producer: int, sequence: int) -> Stream:
        stream = self.streams[producer] = Stream(producer, sequence)
        return stream

    # -- In -------------------------------------------------------------------------------------

    def put(
        self, stream: Stream, destination: str, flags: int, message: Outgoing, key: Any = None
    ) -> Batch | None:
        """Return the batch that the message is in, with others of the same `key` only; None: there
        is no room. Raise `ResourceAllocationError`, before anything else, if the message is too
        big."""
        _, body, extra, _ = message
        size = len(body) + len(extra) + MESSAGE_BYTES
        batch = self._open
        if (
            batch is None
            or batch.size + size > self._bytes_max
            or batch.count >= self._messages_max
            or batch.destination != destination
            or batch.stream is not stream
            or (batch.flags ^ flags) & ~SPECIAL
            or batch.key != key
        ):
            self._check_size(size)
            self.seal()
            if not self.has_room:
                return None
            batch = self._open = stream.open = Batch(
                stream, destination, flags, key, self.neglected
            )
            self._gathering.append(batch)
        batch.flags |= flags
        batch.add(message, size)
        batch.giver = None
        if batch.size >= self._bytes_max:
            self.seal()
        return batch

    def more(self, giver: object, kind: int, body: bytes, now_s: float) -> Batch | None:
        """Put one more message without headers into the open batch, if `giver` was set with the one
        before it; None: `put` it. This runs for almost every message, so it omits all work that can
        be done for a pack, or for all messages of a millisecond. (A clock that is set back in the
        middle of a pack stands still until it is complete.)"""
        batch = self._open
        if batch is None or batch.giver is not giver:
            return None
        bodies = batch.bodies
        size = batch.size + len(body) + MESSAGE_BYTES
        if size > self._bytes_max or len(bodies) >= self._messages_max:
            return None
        if kind != batch.kind or now_s >= batch.until_s:
            batch.begin_run(kind, int(now_s * 1000))
        batch.size = size
        bodies.append(body)
        return batch

    def seal(self) -> None:
        """Close the open batch for more messages, and count it."""
        batch = self._open
        if batch is None:
            return
        batch.seal(len(batch.bodies))
        batch.stream.sealed = batch.last
        batch.stream.open = self._open = None
        self._hold(batch.size)

    def _hold(self, size: int) -> None:
        self._held_bytes += size
        self.has_room = self._held_bytes < ROOM_BYTES

    def put_packed(
        self, stream: Stream, destination: str, flags: int, body: bytes, count: int
    ) -> Batch | None:
        """Put the body of a whole pack, which leaves as it is; None: there is no room."""
        size = len(body) + count * MESSAGE_BYTES
        self._check_size(size)
        self.seal()
        if not self.has_room:
            return None
        batch = Batch(stream, destination, flags, None, self.neglected)
        batch.body, batch.size = body, size
        batch.seal(count)
        self._gathering.append(batch)
        stream.sealed = batch.last
        self._hold(size)
        return batch

    def _check_size(self, size: int) -> None:
        limit = self.pack_max - PACK_OVERHEAD
        if size > limit:
            raise ResourceAllocationError(
                f"a message of {size} bytes with its headers; the servers take {limit}. "
                "Nothing was sent"
            )

    def room(self) -> Ticket:
        """Return a ticket that is settled when there is room again."""
        room = self._room or Ticket()
        if self.has_room:
            room.settle()
        else:
            self._room = room
        return room

    # -- Out ------------------------------------------------------------------------------------

    def leaving(self, now_ms: int) -> Iterator[bytes]:
        """Return the packs that may leave now."""
        self._packing.observe(self._answered_count, now_ms)
        self._messages_max = self._packing.messages_max
        while self._gathering and self._may_leave(self._gathering[0], now_ms):
            batch = self._gathering.popleft()
            if batch is self._open:
                self.seal()
            self.due_ms = None
            batch.close(self._session)
            batch.stream.unanswered.append(batch)
            self._flies(1, batch.size)
            yield batch.pack

    def _may_leave(self, batch: Batch, now_ms: int) -> bool:
        """Return whether a batch takes no more messages, or has waited long enough for them, and
        not too many packs are on their way."""
        if batch is not self._open or batch.count >= self._messages_max:
            return self._packing.may_leave(self._in_flight, self._flying_bytes, grows=False)
        if not self.may_leave:
            return False
        if self.due_ms is None:
            self.due_ms = now_ms + self._packing.wait_ms
        return now_ms >= self.due_ms

    def _flies(self, more: int, size: int) -> None:
        self._in_flight += more
        self._flying_bytes += more * size
        self.may_leave = self._packing.may_leave(self._in_flight, self._flying_bytes, grows=True)

    def unanswered(self) -> list[bytes]:
        """Return the packs that have left and must be sent again on a new connection."""
        return [b.pack for stream in self.streams.values() for b in stream.unanswered]

    def sequences(self) -> tuple[tuple[int, int], ...]:
        """Return the first number with which each stream goes on, on a new connection."""
        return tuple((p, stream.settled + 1) for p, stream in self.streams.items())

    # -- Answers --------------------------------------------------------------------------------

    def published(self, producer: int, sequence: int) -> list[Ticket]:
        """Settle all messages up to this one; return the tickets that were settled."""
        stream = self._stream(producer, sequence)
        settled: list[Ticket] = []
        while stream.unanswered and stream.unanswered[0].last <= sequence:
            settled.append(self._answered(stream))
        return self._with_room(settled)

    def refused(self, producer: int, first: int, last: int, error: JMSError) -> list[Ticket]:
        """Settle the refused messages with the error; return the tickets that were settled. Those
        before `first` were accepted, for servers take the packs of a stream in order."""
        settled = self.published(producer, first - 1)
        stream = self._stream(producer, last)
        while stream.unanswered and stream.unanswered[0].last <= last:
            settled.append(self._answered(stream, error))
        return self._with_room(settled)

    def fail(self, sent: JMSError, unsent: JMSError) -> list[Ticket]:
        """Settle all tickets with an error, and take no more messages."""
        self.seal()
        settled: list[Ticket] = []
        for stream in self.streams.values():
            while stream.unanswered:
                settled.append(self._answered(stream, _copy(sent)))
        for batch in self._gathering:
            batch.left = True
            batch.finish(_copy(unsent))
            settled.append(batch)
        self._gathering.clear()
        self.due_ms = None
        self._held_bytes = 0
        settled = self._with_room(settled)
        self.has_room = False
        return settled

    def unsettled(self) -> list[Batch]:
        left = (stream.unanswered for stream in self.streams.values())
        return list(chain(chain.from_iterable(left), self._gathering))

    def _stream(self, producer: int, sequence: int) -> Stream:
        stream = self.streams.get(producer)
        if stream is None or sequence > stream.sequence:
            raise FormatError(f"an answer for message {sequence} of producer {producer}: not sent")
        return stream

    def _answered(self, stream: Stream, error: JMSError | None = None) -> Batch:
        batch = stream.unanswered.popleft()
        stream.settled = batch.last
        self._flies(-1, batch.size)
        self._answered_count += batch.count
        self._held_bytes -= batch.size
        batch.finish(error)
        return batch

    def _with_room(self, settled: list[Ticket]) -> list[Ticket]:
        if not self.has_room and self._held_bytes <= ROOM_BYTES // 2:
            self.has_room = True
            if self._room is not None:
                self._room.settle()
                settled.append(self._room)
                self._room = None
        return settled


def _copy(error: JMSError) -> JMSError:
    """Return a copy, for each waiter raises an error with its own traceback."""
    return type(error)(*error.args, happened=error.happened)
