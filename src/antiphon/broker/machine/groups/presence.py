"""The presence of a member: its states, the causes of a change, and which state each leads to.

Promise: a member changes its presence only as `TRANSITIONS` says (`group.py: Member.change`). A
pair of state and cause that is not in the table cannot happen, and is an error. `docs/STATES.md` is
drawn from this module. A member may leave or be removed in any state; then the group has none.

A shared subscription is a member without a session of its own. So its state means less: it is
`PRESENT` even when all its consumers are closed, and `SUSPECTED` even when their sessions are lost.
"""

from __future__ import annotations

from enum import Enum


class Presence(Enum):
    """Whether a member of a group is there, and if not, why."""

    PRESENT = "present"
    CUT_OFF = "cut off"  # without a connection; suspected if it does not come back in time
    SUSPECTED = "suspected"  # the group knows that it is cut off; its session may bring it back
    INACTIVE = "inactive"  # closed in order, or invited and has not come
    LOST = "lost"  # suspected, and without a session: only a new session can bring it back


class Cause(Enum):
    """Why a member changes its presence."""

    COMES = "it comes, or comes back with another session"
    CONNECTED = "its connection is there"
    DISCONNECTED = "its connection is lost"
    TIME_OVER = "it has not come back in time"
    NOTHING_KEPT = "it was invited, and nothing is kept for it"
    SESSION_LOST = "its session is lost"
    CLOSED = "its consumer is closed in order"
    NEW_LEADER = "the cluster has a new leader"


def _table() -> dict[tuple[Presence, Cause], Presence]:
    present, cut_off, suspected = Presence.PRESENT, Presence.CUT_OFF, Presence.SUSPECTED
    inactive, lost = Presence.INACTIVE, Presence.LOST
    return {
        (suspected, Cause.COMES): present,
        (inactive, Cause.COMES): present,
        (lost, Cause.COMES): present,
        (present, Cause.CONNECTED): present,
        (cut_off, Cause.CONNECTED): present,
        (suspected, Cause.CONNECTED): present,
        (present, Cause.DISCONNECTED): cut_off,
        (cut_off, Cause.DISCONNECTED): cut_off,
        (suspected, Cause.DISCONNECTED): suspected,
        (cut_off, Cause.TIME_OVER): suspected,
        (inactive, Cause.NOTHING_KEPT): lost,
        (present, Cause.SESSION_LOST): lost,
        (cut_off, Cause.SESSION_LOST): lost,
        (suspected, Cause.SESSION_LOST): lost,
        (present, Cause.CLOSED): inactive,
        (cut_off, Cause.CLOSED): inactive,
        (suspected, Cause.CLOSED): lost,
        (cut_off, Cause.NEW_LEADER): cut_off,  # its time begins again
    }


TRANSITIONS = _table()


def next_presence(presence: Presence, cause: Cause) -> Presence:
    """Return the state that `cause` leads to."""
    following = TRANSITIONS.get((presence, cause))
    assert following is not None, f"a member that is {presence.value} has no {cause.name}"
    return following
