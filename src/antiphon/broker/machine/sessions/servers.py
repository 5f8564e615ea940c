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
    """The present life of a server with local contexts (`commands.Begin`)."""

    node: int
    life: int
    opening: int


class Servers:
    """The servers, each by its node.

    Promise: one that has clients has a deadline, by which it must have renewed.
    """

    def __init__(self, deadlines: Deadlines) -> None:
        self._deadlines = deadlines
        self.contexts = ""  # REPLICATED or LOCAL, from the first client on
        self.serving: dict[int, Serving] = {}
        self.lives: dict[int, Life] = {}  # of those with local contexts
        self.incarnations: dict[int, int] = {}  # of the cluster's members

    def decide(self, contexts: str) -> bool:
        """Return whether this cluster has such contexts; if it had no clients so far, it has from
        now on."""
        self.contexts = self.contexts or contexts
        return self.contexts == contexts

    def renew(self, node: int, life: int, stamp: int) -> None:
        """Note that a server is alive; it must renew again within `GRACE_MS` of this stamp."""
        self.serving[node] = Serving(node, life, stamp)
        self._deadlines.add(stamp + GRACE_MS, SERVING, node)

    def silent(self, node: int) -> Serving:
        """Remove and return a server that has not renewed in time."""
        return self.serving.pop(node)

    def begin(self, node: int, life: int, opening: int) -> None:
        """Note that a server with local contexts begins a life."""
        self.lives[node] = Life(node, life, opening)

    def end(self, node: int) -> bool:
        """Forget a server that is gone for good. Return whether it had a life with local
        contexts."""
        return self.lives.pop(node, None) is not None

    def follow(self, incarnations: dict[int, int]) -> list[int]:
        """Take the cluster's members, and return the earlier ones that are gone, or have another
        incarnation now."""
        before, self.incarnations = self.incarnations, incarnations
        return [node for node, i in before.items() if incarnations.get(node) != i]

    def due(self, node: int) -> int | None:
        """Return until when a server has to renew; None: it has no clients."""
        serving = self.serving.get(node)
        return serving.renewed + GRACE_MS if serving is not None else None

    # -- From a snapshot -----------------------------------------------------------------------

    def restore_contexts(self, contexts: str) -> None:
        """Take the kind of contexts from a snapshot."""
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
