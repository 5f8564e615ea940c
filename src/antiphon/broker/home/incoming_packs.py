"""The packs that one session publishes, between their arrival at the server and their acceptance.

Promises: a pack is answered only when this server's state machine has settled it, which is when a
majority has it; a non-persistent one at once, unless a persistent one of the same producer waits
before it, because an answer counts for all that came before. A pack that is not settled is proposed
again whenever it may have been lost, in the order of arrival; it counts once, because the state
machine passes over packs that it has seen.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from antiphon.broker.home.proposals import AGAIN_MAX_MS, AGAIN_MS, RETRY_MS
from antiphon.errors import FormatError
from antiphon.formats import protocol as cw
from antiphon.formats.frames import LARGE_FRAME
from antiphon.formats.pack import NON_PERSISTENT, STAGED, PackHeader

LARGE_BYTES = LARGE_FRAME
"""A pack above that is large: it is ordered when no other large one is on its way, and in the log
small ones come between."""

LARGE_BYTES_A_MS = 8 << 10
"""A large pack has at least so much time to be ordered before it counts as lost."""


class Waiting(NamedTuple):
    """A pack that is not settled yet."""

    arrival: int
    last: int  # sequence of the pack's last message
    persistent: bool
    pack: bytes


def is_large(pack: bytes) -> bool:
    """Return whether this pack goes alone, one at a time."""
    return len(pack) > LARGE_BYTES


class Stream:
    """The packs of one producer that wait."""

    def __init__(self, last: int) -> None:
        self.last = last  # the last message that arrived
        self.told = last  # up to here the client has its answer
        self.waiting: deque[Waiting] = deque()
        self.persistent = 0  # of those waiting

    def add(self, waiting: Waiting) -> None:
        """A pack has come, behind all others."""
        self.waiting.append(waiting)
        self.persistent += waiting.persistent
        self.last = waiting.last

    def settle(self, sequence: int) -> list[Waiting]:
        """Take note that everything up to here is settled; return the packs that no longer wait."""
        done = []
        while self.waiting and self.waiting[0].last <= sequence:
            done.append(self.waiting.popleft())
        self.persistent -= sum([w.persistent for w in done])
        self.last = max(self.last, sequence)
        return done

    def to_tell(self, settled: int) -> int | None:
        """Return the last sequence to answer to the client now; None: it knows."""
        upto = settled if self.persistent else max(settled, self.last)
        if upto <= self.told:
            return None
        self.told = upto
        return upto


class Publisher:
    """The packs of one session: in order, proposed, and answered when they are settled."""

    def __init__(self, settled: dict[int, int]) -> None:
        """`settled`: the session's producers, and up to where each is settled."""
        self._streams = {producer: Stream(last) for producer, last in settled.items()}
        self._arrivals = 0
        self._unproposed: list[bytes] = []
        self._again_ms = 0  # when to propose waiting packs again
        self._pause_ms = AGAIN_MS
        self._retry_ms: int | None = None  # when to try refused packs again
        self.packs = 0
        self.bytes = 0  # of those
        self.large_bytes = 0  # of the large ones among those
        self.large_flies = False  # one of these is proposed

    def opened(self, producer: int, settled: int) -> None:
        """The session has this producer; it may have had it before."""
        self._streams.setdefault(producer, Stream(settled))

    def take(self, header: PackHeader, pack: bytes) -> cw.Published | None:
        """A pack has arrived; raises `FormatError` if it cannot come now."""
        stream = self._streams.get(header.producer)
        if stream is None:
            raise FormatError(f"there is no producer {header.producer} in this session")
        if header.last <= stream.last:
            # Sent again. A settled pack is answered again; one that waits will be.
            known = header.last <= stream.told
            return cw.Published(header.producer, stream.told) if known else None
        if header.sequence != stream.last + 1:
            raise FormatError(f"message {header.sequence} after {stream.last}")
        self._arrivals += 1
        # Of a transaction that was committed, every message is there.
        persistent = header.flags & (NON_PERSISTENT | STAGED) != NON_PERSISTENT
        settled = stream.told
        stream.add(Waiting(self._arrivals, header.last, persistent, pack))
        self._unproposed.append(pack)
        if len(pack) > LARGE_BYTES:
            self.large_bytes += len(pack)
        self.packs += 1
        self.bytes += len(pack)
        return self._answer(header.producer, stream, settled)

    def settle(self, producer: int, sequence: int, now_ms: int) -> tuple[int, cw.Published | None]:
        """The bytes that no longer wait, and the answer for the client."""
        stream = self._streams.get(producer)
        if stream is None:
            return 0, None
        done = stream.settle(sequence)
        freed = sum([len(w.pack) for w in done])
        self.packs -= len(done)
        self.bytes -= freed
        if self.large_bytes and (large := [len(w.pack) for w in done if is_large(w.pack)]):
            self.large_bytes -= sum(large)
            self.large_flies = False
        if done:
            self._pause_ms = AGAIN_MS
            self._again_ms = now_ms + AGAIN_MS
        return freed, self._answer(producer, stream, sequence)

    def _answer(self, producer: int, stream: Stream, settled: int) -> cw.Published | None:
        upto = stream.to_tell(settled)
        return cw.Published(producer, upto) if upto is not None else None

    # -- Proposing -----------------------------------------------------------------------------

    def unproposed(self, now_ms: int, large: bool = True) -> list[bytes]:
        """Return the packs that the leader has not been sent; from now on it has. `large`: a large
        pack may be among them, as the last one, since the packs behind it must not overtake it."""
        if self.large_bytes:
            packs, self._unproposed = self._up_to_large(large)
        else:
            packs, self._unproposed = self._unproposed, []
        if packs:
            self._again_ms = now_ms + self._pause_ms
            if self.large_flies:
                self._again_ms += len(packs[-1]) // LARGE_BYTES_A_MS
        return packs

    def _up_to_large(self, large: bool) -> tuple[list[bytes], list[bytes]]:
        """Return the packs that may leave now, and those that may not."""
        packs = self._unproposed
        if self.large_flies:
            return [], packs
        end = next((at for at, pack in enumerate(packs) if is_large(pack)), len(packs))
        if end < len(packs) and large:
            self.large_flies = True
            end += 1
        return packs[:end], packs[end:]

    def again(self) -> bool:
        """Have everything that waits proposed again; False: nothing does."""
        waiting = sorted(w for stream in self._streams.values() for w in stream.waiting)
        self._unproposed = [w.pack for w in waiting]
        self.large_flies = False
        return bool(waiting)

    def refused(self, now_ms: int) -> None:
        """Note that the leader rejected a pack."""
        self._retry_ms = now_ms + RETRY_MS

    def overdue(self, now_ms: int, *, lost: bool) -> bool:
        """Whether waiting packs are due again: some time after they were refused, or, if they may
        have been `lost` on their way, when an answer should have come by now."""
        if self._retry_ms is not None and now_ms >= self._retry_ms:
            self._retry_ms = None
            return True
        waits = bool(self._unproposed) and not self.large_flies  # for its turn to be proposed
        if not lost or not self.packs or waits or now_ms < self._again_ms:
            return False
        self._pause_ms = min(2 * self._pause_ms, AGAIN_MAX_MS)
        return True
