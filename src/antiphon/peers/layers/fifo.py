"""Sender order: frames of a member are handed up in the order in which it sent them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from antiphon.model.peer_views import Level, MemberId, PeerView
from antiphon.peers.layers.layer import Down, Effect, Frame, Header, Layer, To, Up

WAITING_MAX = 10_000


class InOrder(Header, frozen=True):
    """The number of a frame among those of its sender in this view: of its multicasts, or of its
    frames for the receiver alone."""

    number: int
    alone: bool = False


class Fifo(Layer):
    """Sender order, by numbers, for stacks without `Reliable`, which keeps this order itself.

    Promise: a member's multicasts are handed up in the order in which it sent them, each at most
    once, and so are its frames for one member; there is no order between the two. Frames of the
    level `NONE` are passed on as they come. Need: `in view`. Limits: this layer repeats no frame.
    After a lost frame, those behind it wait, and are dropped when the view ends; of each sender at
    most `WAITING_MAX` wait.
    """

    name = "fifo"
    gives = frozenset({"fifo"})
    needs = frozenset({"in view"})
    headers = (InOrder,)

    def __init__(self) -> None:
        self._sent: dict[MemberId | None, int] = {}
        """By receiver; None: by all."""

        self._streams: dict[tuple[MemberId, bool], _Stream] = {}

    def down(self, frame: Frame, to: To, now_ms: int) -> Sequence[Effect]:
        if frame.control or frame.level < Level.FIFO:
            return (Down(frame, to),)
        if to is None:
            return (Down(frame.push(InOrder(self._next(None))), None),)
        return [Down(frame.push(InOrder(self._next(each), True)), (each,)) for each in to]

    def _next(self, receiver: MemberId | None) -> int:
        number = self._sent[receiver] = self._sent.get(receiver, 0) + 1
        return number

    def up(self, frame: Frame, sender: MemberId, now_ms: int) -> Sequence[Effect]:
        header = frame.top(InOrder)
        if header is None:
            return (Up(frame, sender),)
        stream = self._streams.setdefault((sender, header.alone), _Stream())
        return [Up(each, sender) for each in stream.take(header.number, frame.pop())]

    def install(self, view: PeerView, summary: Any, now_ms: int) -> Sequence[Effect]:
        self._sent.clear()
        self._streams.clear()
        return super().install(view, summary, now_ms)

    def status(self) -> Mapping[str, Any]:
        waiting = {sender: s for (sender, _), s in self._streams.items() if s.waiting}
        return {"waiting": {sender.name: len(s.waiting) for sender, s in waiting.items()}}


class _Stream:
    """The frames of one sender that have arrived."""

    def __init__(self) -> None:
        self.handed_up = 0
        self.waiting: dict[int, Frame] = {}

    def take(self, number: int, frame: Frame) -> list[Frame]:
        """Take a frame, and return those whose turn it is."""
        follows = number == self.handed_up + 1
        if follows or (number > self.handed_up and len(self.waiting) < WAITING_MAX):
            self.waiting.setdefault(number, frame)
        ready = []
        while (following := self.waiting.pop(self.handed_up + 1, None)) is not None:
            self.handed_up += 1
            ready.append(following)
        return ready
