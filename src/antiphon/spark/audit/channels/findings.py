"""Broken promises of channels, as the audit tells them."""

from __future__ import annotations

from typing import NamedTuple

PROPERTIES = (
    *("inside", "rising", "one meaning", "together", "merges", "one chain"),
    *("virtual synchrony", "prefix", "uniform", "once", "own", "one view"),
    *("fifo", "causal", "total", "safe"),
)


class World(NamedTuple):
    """A cluster in a run: what happens in one has nothing to do with others."""

    run: str
    cluster: str


class Finding(NamedTuple):
    """A violation: of which property, where, and in a sentence."""

    property: str
    world: World
    text: str


def life_name(life: str) -> str:
    """Return the name of a process, of the text of a life."""
    return life.partition(".")[2]


def view_name(view: str) -> str:
    """Return a view as people read it: its round, and the name of its coordinator."""
    round_, _, life = view.partition(".")
    return f"{round_}.{life_name(life)}"
