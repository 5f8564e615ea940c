"""A number of each member that all others can read, carried by the frames that are sent anyway.

::

    Written   on top of any frame, or alone: the sender's number, and how often it has written
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, NamedTuple

from antiphon.model.peer_views import MemberId, PeerView
from antiphon.peers.layers.layer import Down, Effect, Frame, Header, Layer, Tell, To, Up

WAIT_MS = 275
"""A number that no frame has carried to a process by then leaves in a frame of its own. Heartbeats
are a bit more frequent (`Detector`), so that hardly happens."""
AGAIN_MS = 1000
"""A number is sent again after this time: the connection that carried it may have been lost."""
GONE_MAX = 100
"""Numbers of this many processes are kept that are neither connected nor in the view: frames of
theirs that come late must not bring older ones."""

VALUE_MIN, VALUE_MAX = -(1 << 63), (1 << 63) - 1


class Written(Header, frozen=True):
    """The sender's number; `version`: how often it has written one. `alone`: the frame has left for
    this header only, and has nothing for the layers above."""

    version: int
    value: int
    alone: bool = False


class Numbers(NamedTuple):
    """For the program: the newest number of each process, as far as it is known."""

    of: Mapping[MemberId, int]


class Whiteboard(Layer):
    """Shows each member's newest number to the others.

    Promise: while two processes are connected, a number that one writes reaches the other within
    `WAIT_MS` and the time of a frame. It travels on frames that are sent anyway, such as messages,
    acknowledgements and heartbeats; a frame of its own leaves only if there is no other one. A
    number never replaces one that the same process wrote later. A view begins with the numbers that
    its members had when the change began.

    Need: nothing. It carries numbers on frames of the layers above it, so it belongs below
    `Reliable` and `Detector`; above `Fragment`, which cuts frames in pieces.

    Limits: not every number is seen, only the newest; numbers have no order among those of other
    processes, nor with messages. A member that is reached by detours only may learn a number
    `AGAIN_MS` later, if the one between is lost.
    """

    name = "whiteboard"
    gives = frozenset({"whiteboard"})
    headers = (Written,)

    def bind(self, me: MemberId, view: PeerView, below: Sequence[Layer], random: Random) -> None:
        super().bind(me, view, below, random)
        self._known: dict[MemberId, tuple[int, int]] = {}  # version, number
        self._linked: set[MemberId] = set()
        self._lacking: set[MemberId] = set()  # nothing has carried the newest number to these
        self._due_ms: int | None = None
        """With some lacking it: when a frame leaves for them. Else when all are sent it again."""

    # -- Writing ---------------------------------------------------------------------------------

    def write(self, value: int, now_ms: int) -> Sequence[Effect]:
        """Show the others this number of this process."""
        version, _ = self._known.get(self.me, (0, 0))
        self._known[self.me] = version + 1, value
        self._send_to(self._others(), now_ms)
        return ()

    def _others(self) -> set[MemberId]:
        return self._linked.union(self.view.members) - {self.me}

    def _send_to(self, processes: set[MemberId], now_ms: int) -> None:
        """Have the next frames to these carry the number, if there is one."""
        if self.me not in self._known or processes <= self._lacking:
            return
        if not self._lacking:
            self._due_ms = now_ms + WAIT_MS
        self._lacking |= processes

    def down(self, frame: Frame, to: To, now_ms: int) -> Sequence[Effect]:
        lacking = self._lacking
        if not lacking:
            return (Down(frame, to),)
        reached = lacking.intersection(self.view.members if to is None else to)
        if not reached:
            return (Down(frame, to),)
        lacking -= reached
        if not lacking:
            self._due_ms = now_ms + AGAIN_MS
        return (Down(frame.push(Written(*self._known[self.me])), to),)

    def tick(self, now_ms: int) -> Sequence[Effect]:
        if not self._lacking:
            self._due_ms = None
            self._send_to(self._others(), now_ms)
            return ()
        late = tuple(sorted(self._lacking))
        self._lacking.clear()
        self._due_ms = now_ms + AGAIN_MS
        written = Written(*self._known[self.me], alone=True)
        return (Down(Frame(b"", (written,), control=True), late),)

    def next_deadline_ms(self) -> int | None:
        return self._due_ms

    # -- Reading ---------------------------------------------------------------------------------

    def up(self, frame: Frame, sender: MemberId, now_ms: int) -> Sequence[Effect]:
        written = frame.headers[-1] if frame.headers else None
        if type(written) is not Written:
            return (Up(frame, sender),)
        effects: list[Effect] = []
        if self._take(sender, written.version, written.value):
            effects.append(self._numbers())
        if not written.alone:
            effects.append(Up(frame.pop(), sender))
        return effects

    def _take(self, process: MemberId, version: int, value: int) -> bool:
        """Take a number, unless a later one of the same process is known; return whether."""
        is_newer = version > self._known.get(process, (0, 0))[0]
        if is_newer:
            self._known.pop(process, None)  # so that the last one heard of stands last
            self._known[process] = version, value
        return is_newer

    def _numbers(self) -> Tell:
        return Tell(Numbers({process: value for process, (_, value) in self._known.items()}))

    # -- Connections and views -------------------------------------------------------------------

    def linked(self, process: MemberId, address: str, now_ms: int) -> Sequence[Effect]:
        """Send the number again: frames on the connection before may be lost."""
        self._linked.add(process)
        self._lacking.discard(process)
        self._send_to({process}, now_ms)
        return ()

    def unlinked(self, process: MemberId, goodbye: bool, now_ms: int) -> Sequence[Effect]:
        self._linked.discard(process)
        self._forget()
        return ()

    def _forget(self) -> None:
        """Send nothing to processes that are neither connected nor in the view, and forget the
        numbers of those of which nothing has come for the longest time."""
        others = self._others()
        self._lacking &= others
        gone = [one for one in self._known if one not in others and one != self.me]
        for process in gone[: len(gone) - GONE_MAX]:
            del self._known[process]

    def summary(self) -> Any:
        """Return this process's number, with its version; None: it has not written any."""
        return self._known.get(self.me)

    def merge(self, summaries: Mapping[MemberId, Any]) -> Any:
        return [
            (process.name, process.incarnation, *written)
            for process, written in sorted(summaries.items())
            if written is not None
        ]

    def install(self, view: PeerView, summary: Any, now_ms: int) -> Sequence[Effect]:
        super().install(view, summary, now_ms)
        self._forget()
        for name, incarnation, version, value in summary or ():
            self._take(MemberId(name, incarnation), version, value)
        self._lacking.clear()
        self._send_to(self._others(), now_ms)
        return (self._numbers(),)

    # -- For people ------------------------------------------------------------------------------

    def status(self) -> Mapping[str, Any]:
        """Return the state for operators. `numbers`: of each process; `lacking`: the processes to
        which nothing has carried this one's yet."""
        return {
            "numbers": {str(process): value for process, (_, value) in self._known.items()},
            "lacking": sorted(map(str, self._lacking)),
        }
