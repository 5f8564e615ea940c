"""The attachment of a session: its states, the causes of a change, and which state each leads to.

Promise: a session changes its attachment only as `TRANSITIONS` says (`session.py: Session.change`).
A pair of state and cause that is not in the table cannot happen, and is an error. `docs/STATES.md`
is drawn from this module.

A session is *bound* while its server may have acknowledgements that the log lacks
(`local_contexts.py`): then no other server may serve it, and it is held instead of leased.
"""

from __future__ import annotations

from enum import Enum


class Attachment(Enum):
    """Whether a server serves the client of a session, and if not, who may."""

    NEW = "new"
    ATTACHED = "attached"  # a server serves its client
    LEASED = "leased"  # no server does; any may, until the lease ends
    HELD = "held"  # its server is away, and no other may; no lease runs
    ENDED = "ended"


class Cause(Enum):
    """Why a session changes its attachment."""

    ATTACH = "a server attaches it"
    LET_GO = "its server lets go of it"
    SILENCE = "its server falls silent"
    SILENCE_BOUND = "its server falls silent; it is bound"
    GONE = "its server is gone for good"
    GONE_BOUND = "its server is gone for good; it is bound"
    NEW_LEADER = "the cluster has a new leader"
    LEASE_OVER = "its lease is over"
    OVERTAKEN = "another session takes its client id"
    CLOSED = "its client closes it"


def _table() -> dict[tuple[Attachment, Cause], Attachment]:
    new, attached, leased = Attachment.NEW, Attachment.ATTACHED, Attachment.LEASED
    held, ended = Attachment.HELD, Attachment.ENDED
    return {
        (new, Cause.ATTACH): attached,
        (attached, Cause.ATTACH): attached,
        (leased, Cause.ATTACH): attached,
        (held, Cause.ATTACH): attached,
        (attached, Cause.LET_GO): leased,
        (held, Cause.LET_GO): leased,
        (attached, Cause.SILENCE): leased,
        (attached, Cause.SILENCE_BOUND): held,
        (attached, Cause.GONE): leased,
        (held, Cause.GONE): leased,
        (attached, Cause.GONE_BOUND): ended,
        (held, Cause.GONE_BOUND): ended,
        (leased, Cause.NEW_LEADER): leased,  # begins again: no server could attach it meanwhile
        (leased, Cause.LEASE_OVER): ended,
        (leased, Cause.OVERTAKEN): ended,
        (attached, Cause.CLOSED): ended,
        (leased, Cause.CLOSED): ended,  # its last request was ordered behind the loss of its server
        (held, Cause.CLOSED): ended,
    }


TRANSITIONS = _table()


def next_attachment(attachment: Attachment, cause: Cause) -> Attachment:
    """Return the state that `cause` leads to."""
    following = TRANSITIONS.get((attachment, cause))
    assert following is not None, f"a session that is {attachment.value} has no {cause.name}"
    return following
