"""Safe delivery: a message is handed out when all members of the view hold it."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from antiphon.model.peer_views import Level, MemberId, PeerView
from antiphon.peers.layers.layer import Closing, Effect, Frame, Layer, Up
from antiphon.peers.layers.reliable import Reliable


class Safe(Layer):
    """Holds messages of level safe back until all members hold them.

    Promise: when a message of level safe is handed out, every member of the view holds it, or the
    view ends and all that go on from it hold it.

    Need: `Reliable` below it, which knows which members hold which frames. It belongs below
    `Total`, if there is one: a safe message then keeps its place in the total order.

    Limits: later messages of its sender (in total order: of all members) wait with a safe message.
    One slow member delays all.
    """

    name = "safe"
    gives = frozenset({"safe"})
    needs = frozenset({"views", "reliable"})

    def bind(self, me: MemberId, view: PeerView, below: Sequence[Layer], random: Random) -> None:
        super().bind(me, view, below, random)
        self._reliable = next(layer for layer in below if isinstance(layer, Reliable))
        self._begin(view)

    def _begin(self, view: PeerView) -> None:
        self._frozen = False
        self._held_back: dict[MemberId, deque[Frame]] = {one: deque() for one in view.members}

    def up(self, frame: Frame, sender: MemberId, now_ms: int) -> Sequence[Effect]:
        if frame.number <= 0:
            return (Up(frame, sender),)
        waiting = self._held_back[sender]
        if not waiting and frame.level < Level.SAFE:
            return (Up(frame, sender),)
        waiting.append(frame)
        if sender != self.me:
            self._reliable.hurry(sender, now_ms)
        return self._release(sender)

    def acknowledged(self, stream: MemberId, now_ms: int) -> Sequence[Effect]:
        if not self._held_back.get(stream):
            return ()
        released = self._release(stream)
        if released and stream == self.me:
            self._reliable.hurry(stream, now_ms)
        return released

    def _release(self, stream: MemberId) -> Sequence[Effect]:
        """Hand out the messages that all members hold, and those that need not wait behind them."""
        if self._frozen:
            return ()
        stable, waiting = self._reliable.stable(stream), self._held_back[stream]
        effects = []
        while waiting and (waiting[0].level < Level.SAFE or waiting[0].number <= stable):
            effects.append(Up(waiting.popleft(), stream))
        return effects

    def freeze(self, now_ms: int) -> Sequence[Effect]:
        self._frozen = True
        return ()

    def close(self, closing: Closing, now_ms: int) -> Sequence[Effect]:
        """Hand out the messages within the cut, which all members that go on have."""
        effects = []
        for stream, waiting in self._held_back.items():
            cut = closing.cut.get(stream, 0)
            effects += [Up(frame, stream) for frame in waiting if frame.number <= cut]
        return effects

    def install(self, view: PeerView, summary: Any, now_ms: int) -> Sequence[Effect]:
        super().install(view, summary, now_ms)
        self._begin(view)
        return ()

    def status(self) -> Mapping[str, Any]:
        """Return the counts for operators. `held back`: messages that wait until all members hold
        them, by sender."""
        return {
            "held back": {
                str(stream): len(waiting) for stream, waiting in self._held_back.items() if waiting
            }
        }
