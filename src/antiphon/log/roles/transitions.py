"""The role of a replica: all roles, all causes of a change, and which role each leads to.

Promise: a replica changes its role only as `TRANSITIONS` says. A pair of role and cause that is
not in the table cannot happen, and is an error that ends the replica before it promises anything.
`docs/STATES.md` is drawn from this module.

Beside its role, a replica has a place in the cluster or seeks one: it *knocks* at other servers. A
replica that lost its place goes on campaigning, since the server that refused it may be the one
that is wrong: so a (pre-)candidate may knock, too. A newcomer always knocks, a leader never.
"""

from __future__ import annotations

from enum import Enum


class Role(Enum):
    """The part that a replica plays in its cluster at the moment."""

    NEWCOMER = "newcomer"  # belongs to no cluster yet, or not any more under this incarnation
    FOLLOWER = "follower"
    PRE_CANDIDATE = "pre-candidate"  # asks whether an election would have a chance
    CANDIDATE = "candidate"
    LEADER = "leader"


class Cause(Enum):
    """Why a replica changes its role."""

    SILENCE = "a voter hears no leader"
    PRE_VOTES = "a majority would vote for it"
    VOTES = "a majority voted for it"
    HANDED_OVER = "its leader hands over to it"
    LEADER_HEARD = "a leader of its epoch is heard"
    GIVES_WAY = "it gives way"  # to a newer epoch; or cut off, removed, or with a full disk
    NO_PLACE = "it has no place in the cluster"
    ADMITTED = "a membership in its log names it"


def _table() -> dict[tuple[Role, Cause], Role]:
    newcomer, follower, leader = Role.NEWCOMER, Role.FOLLOWER, Role.LEADER
    asking, running = Role.PRE_CANDIDATE, Role.CANDIDATE
    return {
        (newcomer, Cause.SILENCE): asking,
        (follower, Cause.SILENCE): asking,
        (asking, Cause.SILENCE): asking,
        (running, Cause.SILENCE): asking,
        (asking, Cause.PRE_VOTES): running,
        (running, Cause.VOTES): leader,
        (newcomer, Cause.HANDED_OVER): running,
        (follower, Cause.HANDED_OVER): running,
        (newcomer, Cause.LEADER_HEARD): newcomer,  # a learner whose place is not in its log yet
        (follower, Cause.LEADER_HEARD): follower,
        (asking, Cause.LEADER_HEARD): follower,
        (running, Cause.LEADER_HEARD): follower,
        (newcomer, Cause.GIVES_WAY): newcomer,
        (follower, Cause.GIVES_WAY): follower,
        (asking, Cause.GIVES_WAY): follower,
        (running, Cause.GIVES_WAY): follower,
        (leader, Cause.GIVES_WAY): follower,
        (follower, Cause.NO_PLACE): newcomer,
        (asking, Cause.NO_PLACE): newcomer,
        (running, Cause.NO_PLACE): newcomer,
        (newcomer, Cause.ADMITTED): follower,
        (follower, Cause.ADMITTED): follower,
        (asking, Cause.ADMITTED): asking,
        (running, Cause.ADMITTED): running,
    }


TRANSITIONS = _table()

KNOCKS = {Cause.NO_PLACE: True, Cause.ADMITTED: False, Cause.VOTES: False}
"""The causes that make a replica knock, or stop. It knocks already: then it has no place to lose,
and `NO_PLACE` is not a cause; it does not knock: then `ADMITTED` is none."""


def next_role(role: Role, cause: Cause) -> Role:
    """Return the role that `cause` leads to."""
    following = TRANSITIONS.get((role, cause))
    assert following is not None, f"a {role.value} cannot change because {cause.value}"
    return following
