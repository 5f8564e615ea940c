"""Flow control: a process sends only as much as the slowest member has room for.

Each member may send `window` bytes to each other one that this one has not taken yet; a member says
how much it has taken after every quarter of that. Both counts begin at 0 in each view.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, NamedTuple

from antiphon.model.peer_views import Level, MemberId, PeerView, ViewId
from antiphon.peers.layers.layer import Blocked, Down, Effect, Frame, Header, Layer, Tell, To, Up

OVERHEAD = 64
"""The bytes that a frame counts in addition to its body."""

PATIENCE_MS = 200
"""A process that has waited for another one this long tells the others for whom: under load all
wait now and then, for moments that nobody needs to know of."""


class Taken(Header, frozen=True):
    """The sender of this has taken `size` bytes of its receiver in this view."""

    size: int


class Waiting(Header, frozen=True):
    """In this view its sender waits for this process; None: for nobody any more."""

    view: ViewId
    process: MemberId | None
    why: str


class Awaited(NamedTuple):
    """Told to the program: the member `waiter` waits for `process`; None: for nobody any more."""

    waiter: MemberId
    process: MemberId | None
    why: str


class Flow(Layer):
    """Bounds what is under way from a process, by credits.

    Promise: less than `window` bytes, and one frame, are under way from the program of this process
    to any member that is not suspected; when there is no more room the program waits (`Blocked`),
    and it is said for whom, also at the other members, which may wait for this one (`Awaited`). A
    member whose program is behind with receiving makes no room. A new view, in which all counts
    start again, frees whoever waited, and so does a suspicion.

    Need: `Reliable` below, which loses none of the counts, and all members have the same `window`.

    Limits: what layers send by themselves is counted, but not stopped here; the leader of a total
    order stops by itself (`Layer.blocked`). Control frames are neither counted nor stopped.
    """

    name = "flow"
    gives = frozenset({"bounded"})
    needs = frozenset({"reliable"})
    headers = (Taken, Waiting)

    def __init__(self, window: int = 4 << 20) -> None:
        self.window = window

    def options(self) -> Mapping[str, Any]:
        return {"window": self.window}

    def bind(self, me: MemberId, view: PeerView, below: Sequence[Layer], random: Random) -> None:
        super().bind(me, view, below, random)
        self._suspects: set[MemberId] = set()
        self._behind = False
        self._blocked: MemberId | None = None
        self._tell_ms: int | None = None  # when the others are told of that
        self._has_told = False
        self._begin(view)

    def _begin(self, view: PeerView) -> None:
        others = [member for member in view.members if member != self.me]
        self._frozen = False
        self._to_all = 0
        self._to_one = dict.fromkeys(others, 0)
        self._room = dict.fromkeys(others, 0)  # what they have taken
        self._taken = dict.fromkeys(others, 0)
        self._told = dict.fromkeys(others, 0)
        self._has_told = False  # who tells, and who was told, both begin again with the view
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
            return (Down(frame, to), *self._block(now_ms))
        return (Down(frame, to),)

    def _find_slowest(self) -> None:
        """Note which member has the least room, and how much without what was sent to all."""
        self._slowest: MemberId | None = None
        self._least = self._to_all
        for member, taken in self._room.items():
            least = taken - self._to_one[member]
            if member not in self._suspects and (self._slowest is None or least < self._least):
                self._slowest, self._least = member, least

    def _block(self, now_ms: int) -> list[Effect]:
        """Say who is waited for now, if that has changed."""
        blocked = self._slowest if self._under_way >= self.window else None
        if blocked == self._blocked:
            return []
        if self._blocked is None:
            self._tell_ms = now_ms + PATIENCE_MS
        self._blocked = blocked
        if blocked is not None:
            return [Blocked(blocked, self._why())]
        self._tell_ms = None
        return [Blocked(None), *(self._tell_others() if self._has_told else ())]

    @property
    def _under_way(self) -> int:
        """Return how many bytes the slowest member has not taken."""
        return self._to_all - self._least

    def _why(self) -> str:
        return f"it has not taken {self._under_way} bytes that are under way to it"

    def _tell_others(self) -> list[Effect]:
        """Tell the others whom this process waits for: they may wait for this one."""
        self._has_told = self._blocked is not None
        waiting = Waiting(self.view.id, self._blocked, self._why() if self._blocked else "")
        return [Down(Frame(b"", (waiting,), control=True), tuple(self._room))]

    def tick(self, now_ms: int) -> Sequence[Effect]:
        if self._tell_ms is None or now_ms < self._tell_ms:
            return ()
        self._tell_ms = None
        return self._tell_others()

    def next_deadline_ms(self) -> int | None:
        return self._tell_ms

    def suspected(self, process: MemberId, why: str, now_ms: int) -> Sequence[Effect]:
        (self._suspects.add if why else self._suspects.discard)(process)
        self._find_slowest()
        return self._block(now_ms)

    # -- The receiver ----------------------------------------------------------------------------

    def up(self, frame: Frame, sender: MemberId, now_ms: int) -> Sequence[Effect]:
        if frame.number == 0 or sender not in self._taken:
            if (waiting := frame.top(Waiting)) is None:
                return (Up(frame, sender),)
            is_new = waiting.view == self.view.id
            return (Tell(Awaited(sender, waiting.process, waiting.why)),) if is_new else ()
        if (header := frame.top(Taken)) is not None:
            self._room[sender] = max(self._room[sender], header.size)
            self._find_slowest()
            return self._block(now_ms)
        self._taken[sender] += len(frame.body) + OVERHEAD
        if self._is_due(sender):
            return (Up(frame, sender), *self._make_room(sender))
        return (Up(frame, sender),)

    def _is_due(self, sender: MemberId) -> bool:
        return self._taken[sender] - self._told[sender] >= self.window // 4

    def _make_room(self, sender: MemberId) -> list[Effect]:
        """Tell a sender how much was taken, if the program is not behind."""
        if self._behind or self._frozen:
            return []
        self._told[sender] = self._taken[sender]
        return [Down(Frame(b"", (Taken(self._taken[sender]),), Level.NONE), (sender,))]

    def behind(self, is_behind: bool, now_ms: int) -> Sequence[Effect]:
        self._behind = is_behind
        effects: list[Effect] = []
        for sender in self._taken:
            if self._is_due(sender):
                effects += self._make_room(sender)
        return effects

    # -- Views -----------------------------------------------------------------------------------

    def freeze(self, now_ms: int) -> Sequence[Effect]:
        self._frozen = True
        return ()

    def install(self, view: PeerView, summary: Any, now_ms: int) -> Sequence[Effect]:
        super().install(view, summary, now_ms)
        self._begin(view)
        return self._block(now_ms)

    def status(self) -> Mapping[str, Any]:
        """`under way`: bytes that the slowest member has not taken; `slowest`: that member."""
        slowest = None if self._slowest is None else str(self._slowest)
        return {"under way": self._under_way, "slowest": slowest}
