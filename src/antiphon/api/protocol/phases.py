"""The phase of a conversation: all phases, all causes of a change, and which phase each leads to.

Promise: a conversation changes its phase only as `TRANSITIONS` says (`attaching.py: change`). A
pair of phase and cause that is not in the table cannot happen, and is an error. `docs/STATES.md` is
drawn from this module.
"""

from __future__ import annotations

from enum import Enum


class Phase(Enum):
    """How far a conversation is with its session."""

    PAUSING = "pausing"  # before the next attempt to connect
    DIALLING = "dialling"  # the driver connects to a server
    ATTACHING = "attaching"  # connected; the server was asked to serve the session
    ATTACHED = "attached"  # the server serves it
    OVER = "over"  # closed, ended by a server, or lost


class Cause(Enum):
    """Why a conversation changes its phase."""

    PAUSED = "its pause is over"
    CONNECTED = "a connection is there"
    ADMITTED = "the server takes the session"
    LOST = "the connection, or the attempt at one, fails"
    LEFT = (
        "the client leaves the server"  # it is silent, breaks the protocol, or sends it elsewhere
    )
    TOO_LATE = "no server took the session in time"
    HOPELESS = "no attempt to connect can succeed"
    ENDED = "the server ends the session, or refuses it"
    CLOSED = "the application ends it"


def _table() -> dict[tuple[Phase, Cause], Phase]:
    pausing, dialling, attaching = Phase.PAUSING, Phase.DIALLING, Phase.ATTACHING
    attached, over = Phase.ATTACHED, Phase.OVER
    return {
        (pausing, Cause.PAUSED): dialling,
        (dialling, Cause.CONNECTED): attaching,
        (attaching, Cause.ADMITTED): attached,
        (dialling, Cause.LOST): pausing,
        (attaching, Cause.LOST): pausing,
        (attached, Cause.LOST): pausing,
        (dialling, Cause.LEFT): pausing,
        (attaching, Cause.LEFT): pausing,
        (attached, Cause.LEFT): pausing,
        (pausing, Cause.TOO_LATE): over,
        (dialling, Cause.TOO_LATE): over,
        (attaching, Cause.TOO_LATE): over,
        (dialling, Cause.HOPELESS): over,
        (attaching, Cause.ENDED): over,
        (attached, Cause.ENDED): over,
        (pausing, Cause.CLOSED): over,
        (dialling, Cause.CLOSED): over,
        (attaching, Cause.CLOSED): over,
        (attached, Cause.CLOSED): over,
    }


TRANSITIONS = _table()


def next_phase(phase: Phase, cause: Cause) -> Phase:
    """Return the phase that `cause` leads to."""
    following = TRANSITIONS.get((phase, cause))
    assert following is not None, f"a conversation that is {phase.value} has no {cause.name}"
    return following
