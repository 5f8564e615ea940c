"""GCom's reliable multicast: each process passes a frame on before it is handed up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from antiphon.errors import FormatError
from antiphon.model.peer_views import MemberId, PeerView
from antiphon.peers.layers.layer import Down, Effect, Frame, Header, Layer, To, Up


class Origin(Header, frozen=True):
    """The first sender of a frame, by its place in the view, and the frame's number there."""

    rank: int
    number: int


class Relay(Layer):
    """A frame that one correct member hands up is handed up by all correct members.

    Promise: if a member that does not crash hands up a multicast, every other member of the view
    that does not crash gets it too, even if its sender crashed while it was sending; each hands it
    up once, as coming from its sender, and in any order. Need: `in view`, and links that lose
    nothing while both ends live. Limits: each frame travels over every link of the group; a frame
    to some members is not passed on, and neither is one that arrives during a change of the view.
    `Reliable` promises more and costs less; this layer is GCom's reliable multicast.
    """

    name = "relay"
    gives = frozenset({"relayed"})
    needs = frozenset({"in view"})
    headers = (Origin,)

    def __init__(self) -> None:
        self._sent = 0
        self._seen: list[_Seen] = []
        self._frozen = False

    def bind(self, me: MemberId, view: PeerView, below: Sequence[Layer], random: Any) -> None:
        super().bind(me, view, below, random)
        self._seen = [_Seen() for _ in view.members]

    def down(self, frame: Frame, to: To, now_ms: int) -> Sequence[Effect]:
        if frame.control or to is not None:
            return (Down(frame, to),)
        self._sent += 1
        return (Down(frame.push(Origin(self.view.members.index(self.me), self._sent)), None),)

    def up(self, frame: Frame, sender: MemberId, now_ms: int) -> Sequence[Effect]:
        header = frame.top(Origin)
        if header is None:
            return (Up(frame, sender),)
        if not 0 <= header.rank < len(self._seen):
            raise FormatError(f"a frame of member {header.rank} of {len(self._seen)}")
        if not self._seen[header.rank].add(header.number):
            return ()
        origin = self.view.members[header.rank]
        others = [m for m in self.view.members if m not in (self.me, origin, sender)]
        handed = Up(frame.pop(), origin)
        if self._frozen or origin == self.me or not others:
            return (handed,)
        return (Down(frame, tuple(others)), handed)

    def freeze(self, now_ms: int) -> Sequence[Effect]:
        self._frozen = True
        return ()

    def install(self, view: PeerView, summary: Any, now_ms: int) -> Sequence[Effect]:
        self._sent = 0
        self._seen = [_Seen() for _ in view.members]
        self._frozen = False
        return super().install(view, summary, now_ms)

    def status(self) -> Mapping[str, Any]:
        return {"sent": self._sent}


class _Seen:
    """Numbers of known frames: all up to one, and some above it."""

    def __init__(self) -> None:
        self._up_to = 0
        self._above: set[int] = set()

    def add(self, number: int) -> bool:
        """Return whether this number is new."""
        if number <= self._up_to or number in self._above:
            return False
        self._above.add(number)
        while self._up_to + 1 in self._above:
            self._up_to += 1
            self._above.remove(self._up_to)
        return True
