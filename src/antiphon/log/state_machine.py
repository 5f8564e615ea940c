"""The state machine on the log: its interface to `Node`, and the smallest useful one.

The same entries give the same state, byte for byte in the snapshot, on every replica. A machine
holds positions and numbers, never bodies: those stay in the journal.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any, Protocol

import msgspec
from crc32c import crc32c

from antiphon.errors import FormatError
from antiphon.formats import pack
from antiphon.formats.entry import Entry, Kind
from antiphon.log.effects import Accepted

SESSIONS_A_CHUNK = 4096


class Machine(Protocol):
    """A deterministic state machine, as `Node` uses it; promises are the module's."""

    digest: int
    """A checksum over everything applied so far: equal at equal index, or the replicas diverged."""

    def apply(self, entry: Entry) -> list[Accepted]:
        """Take the next committed entry; never raises, whatever a client put into it."""

    def take_events(self) -> tuple[Any, ...]:
        """Return and forget the events of the entries, in addition to accepted packs: the same at
        every replica. The machine works on if they are never taken."""

    def next_deadline(self) -> int | None:
        """Return the stamp at which time itself would change the state; None: never."""

    def snapshot(self) -> Iterator[bytes]:
        """Return the state as it is now, in bounded chunks; valid while the machine goes on."""

    def restore(self, chunks: Iterator[bytes]) -> None: ...

    def live(self) -> tuple[tuple[int, int], ...]:
        """Return the ranges of positions (first, last) that may still be read."""

    def parked(self) -> tuple[int, ...]:
        """Return the entries with packs that have no positions yet, and may get them later."""


class PackMachine:
    """Accepts every pack and gives each message its position, dense over the whole log.

    A pack that names a session is accepted only if it goes on where the session was: below is a
    duplicate, above leaves a gap; both are passed over. So a resent pack counts once.
    """

    def __init__(self, retain: int | None = None) -> None:
        """`retain`: how many messages stay readable; None: all."""
        self._retain = retain
        self.position = 0  # of the last accepted message
        self.digest = 0
        self._sessions: dict[int, int] = {}  # session -> its last accepted sequence

    def apply(self, entry: Entry) -> list[Accepted]:
        accepted = self._accept(entry) if entry.kind == Kind.PACK else []
        mark = f"{self.digest},{entry.index},{entry.epoch},{self.position},{entry.stamp}"
        self.digest = crc32c(mark.encode())
        return accepted

    def _accept(self, entry: Entry) -> list[Accepted]:
        try:
            header = pack.read_header(entry.payload)
        except FormatError:
            return []  # the home checks arriving packs; bytes that slip in are not a message
        if header.session:
            if header.sequence != self._sessions.get(header.session, 0) + 1:
                return []
            self._sessions[header.session] = header.sequence + header.count - 1
        first = self.position + 1
        self.position += header.count
        return [
            Accepted(
                entry.index,
                first,
                header.count,
                entry.stamp,
                0,
                header.destination,
                header.session,
                header.sequence,
                header.producer,
            )
        ]

    def take_events(self) -> tuple[Any, ...]:
        return ()

    def last_sequence(self, session: int) -> int:
        """Return the last sequence that was accepted from a session."""
        return self._sessions.get(session, 0)

    def next_deadline(self) -> int | None:
        return None

    def snapshot(self) -> Iterator[bytes]:
        return self._chunks(self.position, self.digest, sorted(self._sessions.items()))

    @staticmethod
    def _chunks(position: int, digest: int, sessions: list[tuple[int, int]]) -> Iterator[bytes]:
        yield msgspec.msgpack.encode((position, digest))
        rest = iter(sessions)
        while some := list(islice(rest, SESSIONS_A_CHUNK)):
            yield msgspec.msgpack.encode(some)

    def restore(self, chunks: Iterator[bytes]) -> None:
        self.position, self.digest = msgspec.msgpack.decode(next(chunks), type=tuple[int, int])
        self._sessions = {}
        for chunk in chunks:
            self._sessions.update(msgspec.msgpack.decode(chunk, type=list[tuple[int, int]]))

    def parked(self) -> tuple[int, ...]:
        return ()

    def live(self) -> tuple[tuple[int, int], ...]:
        first = 1 if self._retain is None else max(1, self.position - self._retain + 1)
        return ((first, self.position),) if first <= self.position else ()
