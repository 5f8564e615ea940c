"""Uniform delivery: what one member hands out in a primary view, every later primary view has."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from antiphon.model.peer_views import MemberId, PeerView, held_by_quorum, is_quorum
from antiphon.peers.layers.layer import Closing, Effect, Frame, Layer, Up
from antiphon.peers.layers.reliable import Reliable


class Uniform(Layer):
    """Holds the stream of a primary view's leader back until a quorum of the view holds it.

    Promise: a frame of that stream which any member hands out is held by a quorum of the view; so
    whatever primary view follows has it, and no two members ever hand out different frames in its
    place. In a view that is not primary, frames are handed out as they come.

    Need: `Reliable` below it, which says who holds what. It belongs below `Total`, whose order is
    that of the leader's stream.

    Limits: the streams of the other members are not held back: what they send without total order
    (fifo, causal) may have been handed out by members that are cut off, and by nobody else. What
    the leader sends so without `Total`, and no quorum holds when it is cut off, is lost. A
    member counts itself and the leader, so among three each hands out at once what it gets, and the
    leader when the first acknowledgement is there; among more than three the leader tells.
    """

    name = "uniform"
    gives = frozenset({"uniform"})
    needs = frozenset({"views", "reliable"})

    def bind(self, me: MemberId, view: PeerView, below: Sequence[Layer], random: Random) -> None:
        super().bind(me, view, below, random)
        self._reliable = next(layer for layer in below if isinstance(layer, Reliable))
        self._begin(view, 0)

    def _begin(self, view: PeerView, now_ms: int) -> None:
        self._stream = view.leader if view.primary else None
        self._leads = view.leader == self.me
        self._frozen = False
        self._held_back: deque[Frame] = deque()
        self._held = 0
        self._committed = 0
        others = (member for member in view.members if member != view.leader)
        self._two_suffice = all(is_quorum(view, (other, view.leader)) for other in others)
        if self._stream is not None:
            self._reliable.commits(self._stream, 0, now_ms)

    def up(self, frame: Frame, sender: MemberId, now_ms: int) -> Sequence[Effect]:
        if frame.number <= 0 or sender != self._stream:
            return (Up(frame, sender),)
        self._held_back.append(frame)
        self._held = frame.number
        if not self._leads:
            self._reliable.hurry(sender, now_ms)
        return self._release(now_ms)

    def acknowledged(self, stream: MemberId, now_ms: int) -> Sequence[Effect]:
        # In a large view most acknowledgements come when a quorum has long had all there is.
        if stream != self._stream or self._held <= self._committed:
            return ()
        return self._release(now_ms)

    def _release(self, now_ms: int) -> Sequence[Effect]:
        """Hand out what a quorum holds."""
        if self._frozen or self._stream is None:
            return ()
        number = min(self._held, self._held_by_quorum())
        if number <= self._committed:
            return ()
        self._committed = number
        self._reliable.commits(self._stream, number, now_ms)
        if self._leads and not self._two_suffice:
            self._reliable.hurry(self.me, now_ms)
        return self._up_to(number)

    def _held_by_quorum(self) -> int:
        if self._leads:
            return held_by_quorum(self.view, self._reliable.acknowledged_by)
        return self._held if self._two_suffice else self._reliable.mark(self.view.leader)

    def _up_to(self, number: int) -> Sequence[Effect]:
        effects = []
        while self._held_back and self._held_back[0].number <= number:
            effects.append(Up(self._held_back.popleft(), self.view.leader))
        return effects

    def freeze(self, now_ms: int) -> Sequence[Effect]:
        self._frozen = True
        return ()

    def close(self, closing: Closing, now_ms: int) -> Sequence[Effect]:
        """Hand out what is within the cut: it is what all who go on have."""
        return self._up_to(closing.cut.get(self.view.leader, 0))

    def install(self, view: PeerView, summary: Any, now_ms: int) -> Sequence[Effect]:
        super().install(view, summary, now_ms)
        self._begin(view, now_ms)
        return ()

    def status(self) -> Mapping[str, Any]:
        """`held back`: frames that wait for a quorum."""
        return {"held back": len(self._held_back), "committed": self._committed}
