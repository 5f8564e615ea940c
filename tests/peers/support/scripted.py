"""A stand-in for Membership."""

from collections.abc import Sequence

from antiphon.peers.layers.layer import Effect, Layer


class Scripted(Layer):
    """Claims that views are agreed on: a test has them installed (`Group.install`). It counts how
    often layers asked for a change."""

    name = "scripted"
    gives = frozenset({"views"})

    def __init__(self) -> None:
        self.changes = 0

    def change(self, now_ms: int) -> Sequence[Effect]:
        self.changes += 1
        return ()
