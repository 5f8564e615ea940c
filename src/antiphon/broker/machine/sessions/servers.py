"""The servers as the state machine knows them: their lives, and when they were last heard."""

from __future__ import annotations

import msgspec

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
    """The servers, each by its node."""

    def __init__(self) -> None:
        self.contexts = ""  # REPLICATED or LOCAL, from the first client on
        self.serving: dict[int, Serving] = {}
        self.lives: dict[int, Life] = {}  # of those with local contexts
        self.incarnations: dict[int, int] = {}  # of the cluster's members
