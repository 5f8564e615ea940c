"""The streams of a view, as far as one process holds them; for `Reliable`, and not a layer."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from antiphon.model.peer_views import MemberId, PeerView
from antiphon.peers.layers.layer import Frame

EARLY_MAX = 4096
"""Most frames that are kept beyond a gap; the others are asked for again."""
WANTED_MAX = 256
"""Most missing frames in one request."""
ASK_AGAIN_MS = 100
"""A holder that does not answer for this long is passed over for another one."""


class Stream:
    """The frames 1, 2, 3... of one sender.

    Promise: `held` is the last one up to which this process has all. Frames that come behind a gap
    are kept until it is filled (`EARLY_MAX` at most). Frames up to the mark of `purge` are
    forgotten, but still count as held. `known`: the sender has sent up to here.
    """

    __slots__ = ("_early", "_frames", "held", "known")

    def __init__(self) -> None:
        self.held = 0
        self.known = 0
        self._frames: deque[Frame] = deque()  # the last one is number `held`
        self._early: dict[int, Frame] = {}

    def __len__(self) -> int:
        """Return how many frames are in memory."""
        return len(self._frames) + len(self._early)

    def append(self, frame: Frame) -> None:
        """Keep the next frame."""
        self._frames.append(frame)
        self.held += 1

    def take(self, number: int, frame: Frame) -> Sequence[Frame]:
        """Keep a frame; return the frames that have no gap before them any more."""
        if number != self.held + 1:
            if self.held < number <= self.held + EARLY_MAX:
                self._early[number] = frame
                self.known = max(self.known, number)
            return ()
        self.append(frame)
        if not self._early:
            return (frame,)
        fresh = [frame]
        while (following := self._early.pop(self.held + 1, None)) is not None:
            self.append(following)
            fresh.append(following)
        return fresh

    def read(self, first: int, last: int) -> Iterator[tuple[int, Frame]]:
        """Yield these frames with their numbers, from the first one that is still in memory."""
        forgotten = self.held - len(self._frames)
        for number in range(max(first, forgotten + 1), min(last, self.held) + 1):
            yield number, self._frames[number - forgotten - 1]

    def purge(self, number: int) -> None:
        """Forget the frames up to this one."""
        frames = self._frames
        for _ in range(len(frames) - (self.held - number)):
            frames.popleft()

    def drop_early(self) -> None:
        """Forget the frames behind a gap."""
        self._early.clear()

    def missing(self) -> tuple[int, int] | None:
        """Return the first and the last number of the first gap, as far as it is known."""
        if self._early:
            return self.held + 1, min(self._early) - 1
        if self.known > self.held:
            return self.held + 1, self.known
        return None


class ViewStreams:
    """All streams of one view. `committed`: see `Streams.committed`; a stream that is not named
    there is committed as far as it is held."""

    def __init__(self, view: PeerView) -> None:
        self.view = view
        self.streams = {member: Stream() for member in view.members}
        self.committed: dict[MemberId, int] = {}

    def held(self) -> dict[MemberId, int]:
        return {member: stream.held for member, stream in self.streams.items()}

    def all_committed(self) -> dict[MemberId, int]:
        return {
            member: self.committed.get(member, stream.held)
            for member, stream in self.streams.items()
        }


class Ask(NamedTuple):
    """A request for missing frames: the holder to ask, and the frames."""

    holder: MemberId
    first: int
    last: int


class Gap:
    """The missing frames of one stream, and the holder that was asked for them.

    Promise: the origin is asked first; a holder that sends nothing within `ASK_AGAIN_MS`, not even
    a piece of a frame (`came_ms`, see `Fragment`), is passed over for the next one; a holder that
    sends a part is asked for the rest at once.
    """

    __slots__ = (
        "_asked_from",
        "_asked_ms",
        "_asked_to",
        "_came_ms",
        "_holders",
        "_stream",
        "_turn",
    )

    def __init__(
        self, stream: Stream, holders: Sequence[MemberId], came_ms: Callable[[MemberId], int]
    ) -> None:
        """`holders`: the processes that may be asked, the origin first."""
        self._came_ms = came_ms
        self._stream = stream
        self._holders = holders
        self._turn = 0
        self._asked_from = 0
        self._asked_to = 0
        self._asked_ms: int | None = None

    @property
    def due_ms(self) -> int:
        """Return when to look again at the latest."""
        return 0 if self._asked_ms is None else self._asked_ms + ASK_AGAIN_MS

    @property
    def is_filled(self) -> bool:
        return self._stream.missing() is None

    def hurry(self) -> None:
        """Ask again at the next occasion: the last request may be lost."""
        self._asked_ms = None

    def ask(self, now_ms: int) -> Ask | None:
        """Return the request that is due now; None: wait."""
        missing = self._stream.missing()
        if missing is None:
            return None
        first, last = missing
        if self._asked_ms is not None and first <= self._asked_to:
            if first > self._asked_from:  # an answer is coming in
                self._asked_from, self._asked_ms = first, now_ms
            holder = self._holders[self._turn % len(self._holders)]
            self._asked_ms = max(self._asked_ms, self._came_ms(holder))
            if now_ms < self.due_ms:
                return None
            self._turn += 1
        self._asked_from, self._asked_ms = first, now_ms
        self._asked_to = min(last, first + WANTED_MAX - 1)
        return Ask(self._holders[self._turn % len(self._holders)], first, self._asked_to)
