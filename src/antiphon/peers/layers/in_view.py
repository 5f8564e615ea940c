"""Frames stay in the view that they were sent in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from antiphon.model.peer_views import MemberId, PeerView, ViewId
from antiphon.peers.layers.layer import Closing, Down, Effect, Frame, Header, Layer, To, Up

EARLY_MAX = 1000


class SentIn(Header, frozen=True):
    """The view that the sender was in."""

    view: ViewId


class InView(Layer):
    """Frames stay in the view that they were sent in: the least that ordering layers build on.

    Promise: a frame is handed up in the view that its sender sent it in, or not at all. A frame
    that comes before its view waits for it, and one that comes during a change of the view is
    handed up when the view is closed. Need: nothing; `Reliable` promises this itself, and this
    layer takes its place in stacks that have no `Reliable`. Limits: at most `EARLY_MAX` frames
    wait; one more is lost. Members may have got different frames when a view ends: only `Reliable`
    and `Membership` together bring them to one cut.
    """

    name = "in-view"
    gives = frozenset({"in view"})
    headers = (SentIn,)

    def __init__(self) -> None:
        self._early: list[tuple[ViewId, Frame, MemberId]] = []
        self._frozen = False

    def down(self, frame: Frame, to: To, now_ms: int) -> Sequence[Effect]:
        if frame.control:
            return (Down(frame, to),)
        return (Down(frame.push(SentIn(self.view.id)), to),)

    def up(self, frame: Frame, sender: MemberId, now_ms: int) -> Sequence[Effect]:
        header = frame.top(SentIn)
        if header is None:
            return (Up(frame, sender),)
        if header.view == self.view.id and not self._frozen:
            return (Up(frame.pop(), sender),)
        if header.view >= self.view.id and len(self._early) < EARLY_MAX:
            self._early.append((header.view, frame.pop(), sender))
        return ()

    def freeze(self, now_ms: int) -> Sequence[Effect]:
        self._frozen = True
        return ()

    def close(self, closing: Closing, now_ms: int) -> Sequence[Effect]:
        return self._take(self.view.id)

    def install(self, view: PeerView, summary: Any, now_ms: int) -> Sequence[Effect]:
        super().install(view, summary, now_ms)
        self._frozen = False
        self._early = [early for early in self._early if early[0] >= view.id]
        return self._take(view.id)

    def _take(self, view: ViewId) -> list[Effect]:
        """Return the frames of a view that wait, and keep the others."""
        taken: list[Effect] = [Up(frame, sender) for at, frame, sender in self._early if at == view]
        self._early = [early for early in self._early if early[0] != view]
        return taken

    def status(self) -> Mapping[str, Any]:
        return {"early": len(self._early)}
