"""Suspicions, for programs that want to know of them before the view."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from antiphon.model.peer_views import MemberId
from antiphon.peers.layers.layer import Effect, Layer


class Suspicions(Layer):
    """Tells the program whom the detector suspects.

    Promise: `tell` is called with the name of each member of the view that is suspected, on the
    thread of the stack, which it must not hold up. Need: a layer that suspects. Limits: a member
    that was suspected wrongly may stay in the view, and that is not told.
    """

    name = "suspicions"
    local = True

    def __init__(self, tell: Callable[[str], object]) -> None:
        self._tell = tell

    def fresh(self) -> Suspicions:
        return Suspicions(self._tell)

    def suspected(self, process: MemberId, why: str, now_ms: int) -> Sequence[Effect]:
        if why and process in self.view.members:
            self._tell(process.name)
        return ()
