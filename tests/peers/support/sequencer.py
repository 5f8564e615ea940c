"""A stand-in for Total."""

from collections.abc import Sequence
from typing import Any

from antiphon.model.peer_views import Level, MemberId, PeerView
from antiphon.peers.layers.layer import Down, Effect, Frame, Header, Layer, To, Up


class Wanted(Header, frozen=True):
    """For the leader: give this a place."""


class Placed(Header, frozen=True):
    """A message that has its place: the next one of the leader."""

    sender: MemberId
    number: int


class Sequencer(Layer):
    """Sends agreed messages through the leader, and again in the next view if they are not back.

    It counts on links that keep their order. Nothing is filtered: a test makes sure that nothing
    comes twice.
    """

    name = "sequencer"
    gives = frozenset({"total"})
    headers = (Wanted, Placed)

    def __init__(self) -> None:
        self._kept: list[Frame] = []
        self._placed = 0

    def kept(self) -> int:
        return len(self._kept)

    def down(self, frame: Frame, to: To, now_ms: int) -> Sequence[Effect]:
        if frame.control or to is not None or frame.level < Level.AGREED:
            return (Down(frame, to),)
        self._kept.append(frame)
        return (self._ask(frame),)

    def _ask(self, frame: Frame) -> Down:
        return Down(frame.push(Wanted()), (self.view.leader,))

    def up(self, frame: Frame, sender: MemberId, now_ms: int) -> Sequence[Effect]:
        if frame.top(Wanted):
            self._placed += 1
            return (Down(frame.pop().push(Placed(sender, self._placed))),)
        if (header := frame.top(Placed)) is None:
            return (Up(frame, sender),)
        if header.sender == self.me:
            self._kept.pop(0)
        return (Up(frame.pop(), header.sender),)

    def install(self, view: PeerView, summary: Any, now_ms: int) -> Sequence[Effect]:
        super().install(view, summary, now_ms)
        return [self._ask(frame) for frame in self._kept]
