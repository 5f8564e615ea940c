"""A broken promise that the audit found: the property, a sentence, and the rows that prove it."""

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
    """A violation: its property, group, sentence, and proof."""

    property: str
    world: World
    text: str
    members: tuple[Member, ...] = ()
    messages: tuple[str, ...] = ()  # their rows prove it
    views: tuple[int, ...] = ()  # or the rows of these views

    def __str__(self) -> str:
        return f"{self.property}: {self.text} (group {self.world.group}, run {self.world.run})"
