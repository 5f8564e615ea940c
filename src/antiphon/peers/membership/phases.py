"""The part of a process in a change of the view: its phases, and what leads from one to another.

Promise: a process changes its phase only as `TRANSITIONS` says. A pair that is not in the table
cannot happen. `docs/STATES.md` is drawn from this module.
"""

from __future__ import annotations

from enum import Enum


class Phase(Enum):
    """How far a process is in a change."""

    IN_VIEW = "in a view"
    TOLD = "has told what it has"  # frozen from here on
    FETCHING = "fetches frames"
    INSTALLED = "has installed"
    WAITING = "waits for a primary view"  # frozen; only if the other views are hidden
    OUT = "out"


class Cause(Enum):
    """Why a process changes its phase."""

    ASKED = "it promises a newer change"
    LACKING = "the change is decided, frames are missing"
    COMPLETE = "it holds all that belongs to the change"
    SHOWN = "all have installed it"
    HIDDEN = "all have installed a view that is hidden"
    BEHIND = "it has missed a primary view, and shows that"
    MISSED = "it has missed a primary view, and hides that"
    LEFT = "it has left"


def _table() -> dict[tuple[Phase, Cause], Phase]:
    told, fetching, installed = Phase.TOLD, Phase.FETCHING, Phase.INSTALLED
    waiting, out = Phase.WAITING, Phase.OUT
    table = {(phase, Cause.ASKED): told for phase in Phase if phase is not out}
    table |= {(phase, Cause.LEFT): out for phase in Phase if phase is not out}
    return table | {
        (told, Cause.LACKING): fetching,
        (told, Cause.COMPLETE): installed,
        (fetching, Cause.COMPLETE): installed,
        (installed, Cause.SHOWN): Phase.IN_VIEW,
        (installed, Cause.HIDDEN): waiting,
        (told, Cause.BEHIND): Phase.IN_VIEW,
        (told, Cause.MISSED): waiting,
    }


TRANSITIONS = _table()


def next_phase(phase: Phase, cause: Cause) -> Phase:
    """Return the phase that `cause` leads to."""
    following = TRANSITIONS.get((phase, cause))
    assert following is not None, f"a process that {phase.value} cannot change: {cause.value}"
    return following
