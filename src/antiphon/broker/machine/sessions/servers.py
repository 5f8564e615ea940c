"""The servers as the state machine knows them: their lives, and when they were last heard."""

from __future__ import annotations

from typing import Any

import msgspec

from antiphon.broker.machine.deadlines import SERVING, Deadlines

GRACE_MS = 3000
"""A server that has not renewed for this long has lost its clients."""

REPLICATED, LOCAL = "replicated", "local"


class Serving(msgspec.Struct, array_like=True):
    """A server that has clients, and when it was last heard of."""

    node: int
    life: int
    renewed: int


class Life(msgspec.Struct, array_like=True):
    """The present life of a server with local contexts (`command.Begin`)."""

    node: int
    life: int
    opening: int


class Servers:
    """The servers, each by its node.

    Promise: one that has clients has a deadline, at which it has to be heard of again.
    """

    def __init__(self, deadlines: Deadlines) -> None:
        self._deadlines = deadlines
        self.contexts = ""  # REPLICATED or LOCAL, from the first client on
        self.serving: dict[int, Serving] = {}
        self.lives: dict[int, Life] = {}  # of those with local contexts
        self.incarnations: dict[int, int] = {}  # of the cluster's members

    def decide(self, contexts: str) -> bool:
        """Whether this cluster has such contexts; from now on, if it had no clients so far."""
        self.contexts = self.contexts or contexts
        return self.contexts == contexts

    def renew(self, node: int, life: int, stamp: int) -> None:
        """A server says that it lives; it has until `GRACE_MS` after this stamp to say so again."""
        self.serving[node] = Serving(node, life, stamp)
        self._deadlines.add(stamp + GRACE_MS, SERVING, node)

    def silent(self, node: int) -> Serving:
        """Remove and return a server that was not heard of in time."""
        return self.serving.pop(node)

    def begin(self, node: int, life: int, opening: int) -> None:
        """A server with local contexts begins a life."""
        self.lives[node] = Life(node, life, opening)

    def end(self, node: int) -> bool:
        """A server is gone for good. Return whether it had a life with local contexts."""
        return self.lives.pop(node, None) is not None

    def follow(self, incarnations: dict[int, int]) -> list[int]:
        """Take the cluster's members, and return those of before that are gone, or are others."""
        before, self.incarnations = self.incarnations, incarnations
        return [node for node, i in before.items() if incarnations.get(node) != i]

    def due(self, node: int) -> int | None:
        """Return until when a server has to be heard of again; None: it has no clients."""
        serving = self.serving.get(node)
        return serving.renewed + GRACE_MS if serving is not None else None

    # -- From a snapshot -----------------------------------------------------------------------

    def restore_contexts(self, contexts: str) -> None:
        """Take from a snapshot what was decided."""
        self.contexts = contexts

    def restore_incarnations(self, rows: list[Any]) -> None:
        """Take members of the cluster from a snapshot."""
        self.incarnations.update(rows)

    def restore_serving(self, serving: Serving) -> None:
        """Take a server that has clients from a snapshot."""
        self.renew(*msgspec.structs.astuple(serving))

    def restore_life(self, life: Life) -> None:
        """Take the life of a server from a snapshot."""
        self.lives[life.node] = life
