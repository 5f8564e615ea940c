"""Sessions begin, move from server to server, and end.

A session is attached to a server, which renews (`Renew`) as long as it lives; when it no longer
does, the leases of its clients begin, and the lease of one client when its connection is lost
(`Detach`). The first entry of a new leader renews everything: while there was no leader no server
could. With local contexts some sessions wait for their server instead (`local_contexts.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from antiphon.broker.machine import events as ev
from antiphon.broker.machine import transactions
from antiphon.broker.machine.consumers import closing
from antiphon.broker.machine.deadlines import (
    DELAYED,
    EXPIRY,
    GROUP,
    HELD,
    PRODUCER,
    SERVING,
    SESSION,
    STAGED,
)
from antiphon.broker.machine.groups import membership, shared_members, suspicion
from antiphon.broker.machine.queues import redelivery
from antiphon.broker.machine.sessions import local_contexts
from antiphon.broker.machine.sessions.attachment import Cause
from antiphon.broker.machine.sessions.servers import LOCAL
from antiphon.broker.machine.sessions.session import Session
from antiphon.broker.machine.state import State
from antiphon.formats import commands
from antiphon.formats import protocol as cw
from antiphon.model.destinations import NAME_MAX

LEASE_MAX_MS = 24 * 3600 * 1000

HOME_IS_GONE = "its server was removed from the cluster, or has lost its disk"
CLIENT_ID_TAKEN = "another connection has taken its client id"


def attach(b: State, m: commands.Attach) -> None:
    """Attach a session to a server: a new one, or one that comes back or moves."""
    if not local_contexts.serves(b, m):
        return
    session = b.sessions.get(m.session)
    code, text = "", ""
    if session is None:
        attempt, until = b.sessions.ended.get(m.session, (0, 0))
        if m.attempt <= attempt and b.stamp < until:
            return  # it was opened by this, and has ended; the command is in the log twice
        code, text = _why_not_open(b, m)
    elif session.token != m.token:
        code, text = "SecurityError", "this session belongs to somebody else"
    elif m.attempt < session.attempt:
        return  # the client has gone elsewhere since
    elif session.place == (m.attempt, m.node, m.life, m.link):
        _tell_attached(b, session)  # it was proposed again
        return
    if not code and (home := local_contexts.home_of(b, session, m)):
        b.report(ev.Redirected(m.session, m.node, m.life, m.link, home))
        return
    if code:
        b.report(ev.AttachRefused(m.session, m.node, m.life, m.link, code, text))
        return
    _heard(b, m.node, m.life)
    if session is None:
        session = _open(b, m)
    session.attach(m.attempt, m.node, m.life, m.link)
    suspicion.attached(b, session)
    shared_members.review_all(b, session)
    for producer, sequence in m.sequences:
        session.go_on_with(producer, sequence)
    _tell_attached(b, session)


def _tell_attached(b: State, s: Session) -> None:
    b.report(ev.Attached(s.number, s.attachment, s.node, s.life, s.link))


def _why_not_open(b: State, m: commands.Attach) -> tuple[str, str]:
    if m.resume:
        return "ConnectionLostError", (
            "the session has ended: its lease ran out before the client came back, or another "
            "connection took its client id. Connect again"
        )
    owner = b.sessions.of_client(m.client_id)
    if owner is not None and not owner.detached:
        return "InvalidClientIDError", (
            f"client id {m.client_id!r} is in use by another connection. Nothing was changed. "
            "Choose another, or close that connection first"
        )
    if m.session <= 0 or not 0 < m.lease_ms <= LEASE_MAX_MS or len(m.client_id) > NAME_MAX:
        return "ResourceAllocationError", (
            f"a lease has 1 to {LEASE_MAX_MS} ms, not {m.lease_ms}; "
            f"a client id at most {NAME_MAX} characters, not {len(m.client_id)}"
        )
    return "", ""


def _open(b: State, m: commands.Attach) -> Session:
    owner = b.sessions.of_client(m.client_id)
    if owner is not None:
        lose(b, owner, Cause.OVERTAKEN, f"{CLIENT_ID_TAKEN} {m.client_id!r}")
    session = Session(m.session, m.token, m.client_id, m.lease_ms)
    b.sessions.add(session)
    return session


def detach(b: State, m: commands.Detach) -> None:
    """Detach a session from its server, which has lost the connection; its lease begins."""
    session = b.sessions.get(m.session)
    if session is not None and session.attachment == m.attachment and not session.leased:
        _begin_lease(b, session, Cause.LET_GO)


def _begin_lease(b: State, session: Session, cause: Cause) -> None:
    expires = b.stamp + session.lease_ms
    session.change(cause, expires)
    b.deadlines.add(expires, SESSION, session.number)
    suspicion.detached(b, session)
    shared_members.review_all(b, session)


def _hold(b: State, session: Session) -> None:
    """Let a session wait for its server, which alone knows its acknowledgements."""
    session.change(Cause.SILENCE_BOUND)
    suspicion.detached(b, session)
    shared_members.review_all(b, session)


def renew(b: State, m: commands.Renew) -> None:
    """Note that a server is alive."""
    if local_contexts.lives(b, m.node, m.life):
        _heard(b, m.node, m.life)


def begin(b: State, m: commands.Begin) -> None:
    """Begin a life of a server with local contexts. All that its former lives knew is in the
    log."""
    known = b.servers.lives.get(m.node)
    is_member = not b.servers.incarnations or b.servers.incarnations.get(m.node) == m.incarnation
    is_late = known is not None and m.opening <= known.opening
    if not is_member or is_late or not local_contexts.decide(b, LOCAL):
        return
    b.servers.begin(m.node, m.life, m.opening)
    for session in b.sessions.values():
        if session.node == m.node and session.life != m.life and not session.leased:
            _begin_lease(b, session, Cause.LET_GO)


def follow_members(b: State, incarnations: dict[int, int]) -> None:
    """Take the cluster's members from a membership entry: their incarnations, by node."""
    for node in b.servers.follow(incarnations):
        _is_gone(b, node)


def _is_gone(b: State, node: int) -> None:
    """Lose the sessions that are bound to a server that is gone for good, with the acknowledgements
    that it alone knew; none is bound to it later."""
    if not b.servers.end(node):
        return
    for session in [s for s in b.sessions.values() if s.node == node and not s.leased]:
        if local_contexts.is_bound(b, session):
            lose(b, session, Cause.GONE_BOUND, HOME_IS_GONE)
        else:
            _begin_lease(b, session, Cause.GONE)


def gone(b: State, m: commands.Gone) -> None:
    """Begin the leases of all clients of a server, which does not have to fall silent first."""
    if m.node in b.servers.serving:
        silent = b.servers.silent(m.node)
        _detach_all(b, silent.node, silent.life)


def _heard(b: State, node: int, life: int) -> None:
    known = b.servers.serving.get(node)
    if known is not None and known.life != life:
        _detach_all(b, node, known.life)
    b.servers.renew(node, life, b.stamp)


def _detach_all(b: State, node: int, life: int) -> None:
    for session in b.sessions.values():
        if session.node == node and session.life == life and not session.detached:
            if local_contexts.is_bound(b, session):
                _hold(b, session)
            else:
                _begin_lease(b, session, Cause.SILENCE)


def renew_all(b: State) -> None:
    """Begin leases and suspicions again, for there is a new leader: without one no client could
    come back."""
    for session in b.sessions.values():
        if session.leased:
            _begin_lease(b, session, Cause.NEW_LEADER)
    for serving in list(b.servers.serving.values()):
        _heard(b, serving.node, serving.life)
    suspicion.renew(b)


def expire(b: State) -> None:
    """Carry out all deadlines that have passed. Most often there are none, whether the first one
    still holds or not."""
    while (first := b.deadlines.first) is not None and first[0] <= b.stamp:
        if (due := b.next_deadline()) is None or due > b.stamp:
            return
        _, kind, key = b.deadlines.pop()
        _EXPIRE[kind](b, key)


def _lease_is_over(b: State, number: int) -> None:
    session = b.sessions[number]
    why = f"no connection for the {session.lease_ms / 1000:g} s of its lease"
    lose(b, session, Cause.LEASE_OVER, why)


def _server_is_silent(b: State, node: int) -> None:
    silent = b.servers.silent(node)
    _detach_all(b, silent.node, silent.life)


def _expire_messages(b: State, name: str) -> None:
    b.queues.expire(name, b.stamp)


def _expire_producer(b: State, name: str) -> None:
    b.producers.forget(name)


def _forget_staged(b: State, handle: str) -> None:
    b.pending.release(handle)


_EXPIRE: dict[int, Callable[[State, Any], None]] = {
    SESSION: _lease_is_over,
    SERVING: _server_is_silent,
    PRODUCER: _expire_producer,
    GROUP: membership.due,
    EXPIRY: _expire_messages,
    DELAYED: transactions.due,
    STAGED: _forget_staged,
    HELD: redelivery.due,
}


def close(b: State, session: Session, kept: tuple[cw.Kept, ...]) -> None:
    """End a session as its client asks: only messages that the application saw and did not
    acknowledge are flagged."""
    with b.queues.together(b.stamp):
        _close_consumers(b, session, kept)
    _end(b, session, Cause.CLOSED, "", "")


def _close_consumers(b: State, session: Session, kept: tuple[cw.Kept, ...]) -> None:
    for consumer in list(session.consumers.values()):
        if not consumer.closed:
            closing.shut(b, session, consumer, [k for k in kept if k.consumer == consumer.number])
    closing.return_kept(b, session, cw.Return(tuple(k for k in kept if k.wait)))
    for consumer in list(session.consumers.values()):
        closing.let_go(b, session, consumer)


def lose(b: State, session: Session, cause: Cause, why: str) -> None:
    """End a session without a request of its client: it may have seen all messages that were sent
    to it."""
    with b.queues.together(b.stamp):
        _lose_consumers(b, session, unlogged=cause is Cause.GONE_BOUND)
    _end(b, session, cause, "ConnectionLostError", why)


def _lose_consumers(b: State, session: Session, *, unlogged: bool) -> None:
    """Close the consumers of a session that is lost. `unlogged`: its server knew of
    acknowledgements that the log does not have, so the client may have seen any number of messages,
    not only some windows."""
    for consumer in list(session.consumers.values()):
        seen = b.position if unlogged else consumer.seen_most
        subscription = b.subscription(consumer)
        if consumer.destination in b.groups:
            membership.lost(b, session, consumer, seen)
        elif subscription is None:
            consumer.close()
            closing.let_go(b, session, consumer, lost=True)
        elif consumer.closed:
            session.forget(consumer.number)
        else:
            subscription.serve(None)
            if subscription.durable:
                subscription.lose(b.position, seen)
            else:
                b.topics.remove(subscription.key)
            session.forget(consumer.number)


def _end(b: State, session: Session, cause: Cause, code: str, text: str) -> None:
    session.change(cause)
    transactions.end(b, session)
    for destination in list(session.temporaries):
        drop_temporary(b, session, destination)
    for name in session.names.values():
        b.producers.close(name, b.stamp)
    b.sessions.end(session, b.stamp)
    b.report(ev.SessionEnded(session.number, code, text))


def drop_temporary(b: State, session: Session, destination: str) -> None:
    """End a temporary destination with all its messages."""
    session.delete_temporary(destination)
    b.sendable.forget(destination)
    b.queues.drop(destination)
    b.topics.forget(destination)
