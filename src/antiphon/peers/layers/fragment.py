"""Bodies of any size, in pieces that the network takes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any

from msgspec.structs import replace

from antiphon.model.peer_views import MemberId, PeerView
from antiphon.peers.layers.layer import Body, Down, Effect, Frame, Header, Layer, To, Up

PARTIAL_MAX = 4
"""Most incomplete frames of one process; one more drops the oldest."""


class Piece(Header, frozen=True):
    """The piece at `index` of `count`, of the frame of this number. The first one has the frame's
    other headers."""

    number: int
    index: int
    count: int


class _Partial:
    """A frame with missing pieces."""

    __slots__ = ("first", "left", "pieces")

    def __init__(self, count: int) -> None:
        self.pieces: list[Body | None] = [None] * count
        self.left = count
        self.first: Frame | None = None


class Fragment(Layer):
    """Cuts large bodies into pieces.

    Promise: no frame that leaves has a body above `size` bytes, and bodies of any size arrive
    whole, or not at all. Need: nothing; if a piece is lost the frame is lost, and a layer above
    (`Reliable`) sends it again, or not. Limits: headers are not cut. At most `PARTIAL_MAX` frames
    of each sender are put together at a time.
    """

    name = "fragment"
    gives = frozenset({"any size"})
    headers = (Piece,)

    def __init__(self, size: int = 1 << 20) -> None:
        self.size = size

    def options(self) -> Mapping[str, Any]:
        return {} if self.size == 1 << 20 else {"size": self.size}

    def bind(self, me: MemberId, view: PeerView, below: Sequence[Layer], random: Random) -> None:
        super().bind(me, view, below, random)
        self._number = 0
        self._partial: dict[MemberId, OrderedDict[int, _Partial]] = {}
        self._came_ms: dict[MemberId, int] = {}

    def came_ms(self, sender: MemberId) -> int:
        """Return when a piece of a frame of this process came last; -1: none has. For layers above,
        which get the frame when all of it is here: on a slow connection that takes seconds."""
        return self._came_ms.get(sender, -1)

    def down(self, frame: Frame, to: To, now_ms: int) -> Sequence[Effect]:
        total, size = len(frame.body), self.size
        if total <= size:
            return (Down(frame, to),)
        self._number += 1
        count = -(-total // size)
        body = memoryview(frame.body)
        effects = []
        for index in range(count):
            piece = Piece(self._number, index, count)
            headers = (*frame.headers, piece) if index == 0 else (piece,)
            part = body[index * size : (index + 1) * size]
            effects.append(Down(replace(frame, body=part, headers=headers), to))
        return effects

    def up(self, frame: Frame, sender: MemberId, now_ms: int) -> Sequence[Effect]:
        piece = frame.headers[-1] if frame.headers else None
        if not isinstance(piece, Piece):
            return (Up(frame, sender),)
        self._came_ms[sender] = now_ms
        whole = self._put(sender, piece, frame)
        return () if whole is None else (Up(whole, sender),)

    def _put(self, sender: MemberId, piece: Piece, frame: Frame) -> Frame | None:
        """Take a piece; return the frame if it is complete."""
        frames = self._partial.setdefault(sender, OrderedDict())
        partial = frames.get(piece.number)
        if partial is None:
            partial = frames[piece.number] = _Partial(piece.count)
            if len(frames) > PARTIAL_MAX:
                frames.popitem(last=False)
        if piece.index >= len(partial.pieces) or partial.pieces[piece.index] is not None:
            return None
        partial.pieces[piece.index] = frame.body
        partial.left -= 1
        if piece.index == 0:
            partial.first = frame
        if partial.left or partial.first is None:
            return None
        del frames[piece.number]
        bodies = [body for body in partial.pieces if body is not None]
        return replace(partial.first.pop(), body=b"".join(bodies))

    def unlinked(self, process: MemberId, goodbye: bool, now_ms: int) -> Sequence[Effect]:
        """Forget incomplete frames of a process: their other pieces are lost with the
        connection."""
        self._partial.pop(process, None)
        self._came_ms.pop(process, None)
        return ()

    def install(self, view: PeerView, summary: Any, now_ms: int) -> Sequence[Effect]:
        """Forget pieces of processes outside the view; those of members may belong to the new
        view."""
        super().install(view, summary, now_ms)
        for sender in [sender for sender in self._partial if sender not in view.members]:
            del self._partial[sender]
        return ()

    def status(self) -> Mapping[str, Any]:
        """Return the counts for operators. `incomplete`: frames with missing pieces."""
        return {"incomplete": sum(len(frames) for frames in self._partial.values())}


def came_ms_of(below: Sequence[Layer]) -> Callable[[MemberId], int]:
    """Return `Fragment.came_ms` of the layer below that cuts bodies; without one, nothing comes in
    pieces."""
    for layer in below:
        if isinstance(layer, Fragment):
            return layer.came_ms
    return lambda sender: -1
