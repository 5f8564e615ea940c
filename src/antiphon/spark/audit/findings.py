"""A broken promise that the audit found: which property, in words, and where to look for proof."""

from __future__ import annotations

from typing import NamedTuple

from antiphon.spark.audit.members import Member, World

PROPERTIES = (
    "P1",
    "P2",
    "P3",
    "P4",
    "P5",
    "fifo",
    "causal",
    "total",
    "views",
    "durable",
    "state",
)


class Finding(NamedTuple):
    """A violation: of which property, in which group, in a sentence, and what proves it."""

    property: str
    world: World
    text: str
    members: tuple[Member, ...] = ()
    messages: tuple[str, ...] = ()  # whose rows prove it
    views: tuple[int, ...] = ()  # or those of these views

    def __str__(self) -> str:
        return f"{self.property}: {self.text} (group {self.world.group}, run {self.world.run})"
