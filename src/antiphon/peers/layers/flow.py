"""Flow control: a process sends only as much as the slowest member has room for.

Each member may send `window` bytes to each other one that this one has not taken yet; a member says
how much it has taken after every quarter of that. Both counts begin at 0 in each view.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from antiphon.model.peer_views import Level, MemberId, PeerView
from antiphon.peers.layers.layer import Blocked, Down, Effect, Frame, Header, Layer, To, Up

OVERHEAD = 64
"""What a frame counts besides its body."""


class Taken(Header, frozen=True):
    """So many bytes of who gets this have been taken in this view."""

    size: int


class Flow(Layer):
    """Bounds what is under way from a process, by credits.

    Promise: less than `window` bytes, and one frame, are under way from the program of this process
    to any member that is not suspected; when there is no more room the program waits (`Blocked`),
    and it is said for whom. A member whose program is behind with receiving makes no room. A new
    view, in which all counts start again, frees whoever waited, and so does a suspicion.

    Need: `Reliable` below, which loses none of the counts, and all members have the same `window`.

    Limits: what layers send by themselves is counted, but not stopped here; the leader of a total
    order stops by itself (`Layer.blocked`). Control frames are neither counted nor stopped.
    """

    name = "flow"
    gives = frozenset({"bounded"})
    needs = frozenset({"reliable"})
    headers = (Taken,)

    def __init__(self, window: int = 4 << 20) -> None:
        self.window = window

    def options(self) -> Mapping[str, Any]:
        return {"window": self.window}

    def bind(self, me: MemberId, view: PeerView, below: Sequence[Layer], random: Random) -> None:
        super().bind(me, view, below, random)
        self._suspects: set[MemberId] = set()
        self._behind = False
        self._blocked: MemberId | None = None
        self._begin(view)

    def _begin(self, view: PeerView) -> None:
        others = [member for member in view.members if member != self.me]
        self._frozen = False
        self._to_all = 0
        self._to_one = dict.fromkeys(others, 0)
        self._room = dict.fromkeys(others, 0)  # what they have taken
        self._taken = dict.fromkeys(others, 0)
        self._told = dict.fromkeys(others, 0)
        self._find_slowest()

    # -- The sender ------------------------------------------------------------------------------

    def down(self, frame: Frame, to: To, now_ms: int) -> Sequence[Effect]:
        if frame.control:
            return (Down(frame, to),)
        size = len(frame.body) + OVERHEAD
        if to is None:
            self._to_all += size
        else:
            for target in to:
                if target in self._to_one:
                    self._to_one[target] += size
            self._find_slowest()
        if self._blocked is None and self._to_all - self._least >= self.window:
            return (Down(frame, to), *self._block())
        return (Down(frame, to),)

    def _find_slowest(self) -> None:
        """Note which member has the least room, and how much without what was sent to all."""
        self._slowest: MemberId | None = None
        self._least = self._to_all
        for member, taken in self._room.items():
            least = taken - self._to_one[member]
            if member not in self._suspects and (self._slowest is None or least < self._least):
                self._slowest, self._least = member, least

    def _block(self) -> list[Effect]:
        """Say who is waited for now, if that has changed."""
        under_way = self._to_all - self._least
        blocked = self._slowest if under_way >= self.window else None
        if blocked == self._blocked:
            return []
        self._blocked = blocked
        why = f"it has not taken {under_way} bytes that are under way to it" if blocked else ""
        return [Blocked(blocked, why)]

    def suspected(self, process: MemberId, why: str, now_ms: int) -> Sequence[Effect]:
        (self._suspects.add if why else self._suspects.discard)(process)
        self._find_slowest()
        return self._block()

    # -- The receiver ----------------------------------------------------------------------------

    def up(self, frame: Frame, sender: MemberId, now_ms: int) -> Sequence[Effect]:
        if frame.number == 0 or sender not in self._taken:
            return (Up(frame, sender),)
        if (header := frame.top(Taken)) is not None:
            self._room[sender] = max(self._room[sender], header.size)
            self._find_slowest()
            return self._block()
        self._taken[sender] += len(frame.body) + OVERHEAD
        if self._is_due(sender):
            return (Up(frame, sender), *self._tell(sender))
        return (Up(frame, sender),)

    def _is_due(self, sender: MemberId) -> bool:
        return self._taken[sender] - self._told[sender] >= self.window // 4

    def _tell(self, sender: MemberId) -> list[Effect]:
        """Make room, if the program is not behind."""
        if self._behind or self._frozen:
            return []
        self._told[sender] = self._taken[sender]
        return [Down(Frame(b"", (Taken(self._taken[sender]),), Level.NONE), (sender,))]

    def behind(self, is_behind: bool, now_ms: int) -> Sequence[Effect]:
        self._behind = is_behind
        effects: list[Effect] = []
        for sender in self._taken:
            if self._is_due(sender):
                effects += self._tell(sender)
        return effects

    # -- Views -----------------------------------------------------------------------------------

    def freeze(self, now_ms: int) -> Sequence[Effect]:
        self._frozen = True
        return ()

    def install(self, view: PeerView, summary: Any, now_ms: int) -> Sequence[Effect]:
        super().install(view, summary, now_ms)
        self._begin(view)
        return self._block()

    def status(self) -> Mapping[str, Any]:
        """`under way`: bytes that the slowest member has not taken; `slowest`: that member."""
        slowest = None if self._slowest is None else str(self._slowest)
        return {"under way": self._to_all - self._least, "slowest": slowest}
