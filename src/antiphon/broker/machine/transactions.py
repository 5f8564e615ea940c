"""Messages that are stored before they are visible: those of transactions, and delayed ones.

Such a pack is *parked*: the state machine knows the entry that has it, and the journal keeps that
entry. It gets its positions at the entry that makes it visible: a commit, or the one with whose
stamp its delay is over. So every consumer sees it at one place in the order, like any other.

A commit is one entry: with it all messages that the transaction received are acknowledged and all
that it sent become visible, one directly after the other, whatever their destinations; or, if one
of them cannot be, nothing changes. Packs may also be staged under a handle, for any session to
commit. With a token, a second commit of the same transaction sends nothing.
"""

from __future__ import annotations

from antiphon.broker.machine import acceptance
from antiphon.broker.machine import events as ev
from antiphon.broker.machine.consumers import acknowledging
from antiphon.broker.machine.groups import membership
from antiphon.broker.machine.pending_packs import Parked
from antiphon.broker.machine.sessions.session import Session
from antiphon.broker.machine.state import State
from antiphon.errors import (
    IllegalStateError,
    ResourceAllocationError,
    TransactionRolledBackError,
)
from antiphon.formats import pack
from antiphon.formats import protocol as cw
from antiphon.formats.columns import Columns, decode_extra
from antiphon.formats.pack import PackHeader

STAGED_RETENTION_MS = 24 * 3600 * 1000
"""Packs that are staged under a handle and not committed are forgotten after this time."""

TOKEN_RETENTION_MS = 7 * 24 * 3600 * 1000
TOKEN_LENGTH_MAX = 1024

CONTROL_MAX = 64 << 10
"""Limit of the bytes of a parked pack for a group itself: the state keeps it as it is until its
time comes."""


# -- Packs that are not visible yet ----------------------------------------------------------------


def park(b: State, session: Session, header: PackHeader, payload: bytes) -> None:
    """Park a pack. Raise a `JMSError` if it cannot be taken: later, at its commit or when its time
    has come, it must not fail."""
    b.pending.check_room()
    delay = acceptance.delay_of(payload) if header.flags & pack.DELAYED else 0
    notes = acceptance.look_into(b, session, header, payload)
    control = _checked_control(payload) if header.flags & pack.CONTROL else b""
    parked = Parked(b.index, header, notes, delay, control)
    if header.flags & pack.STAGED:
        session.stage(parked)
        b.pending.park()
    else:
        b.pending.delay(b.stamp + delay, parked)
    b.report(ev.Taken(session.number, header.producer))


def _checked_control(payload: bytes) -> bytes:
    if len(payload) > CONTROL_MAX:
        raise ResourceAllocationError(
            f"messages for a group itself have at most {CONTROL_MAX} bytes, not {len(payload)}, if "
            "they are sent in a transaction or with a delay"
        )
    columns = Columns(payload)
    for i in range(columns.count):
        decode_extra(columns.extra(i))
    return payload


def due(b: State, index: int) -> None:
    """Make a pack visible whose delay is over."""
    _appear(b, b.pending.take_due(index))


def _appear(b: State, parked: Parked) -> None:
    header = parked.header
    if b.sendable.has_ended(header.destination):
        b.count_dropped(header.count)
    elif header.flags & pack.CONTROL:
        group = b.groups.get(header.destination)
        if group is not None:  # otherwise the group is over
            membership.control(b, group, parked.payload)
    else:
        acceptance.accept(b, header, parked.notes, parked.index)


# -- Requests of clients ---------------------------------------------------------------------------


def has_arrived(session: Session, body: cw.Body) -> bool:
    """Return whether all packs that this request names were applied: a pack that a client sends
    before a request may be ordered after it, if it was lost on its way to the leader."""
    if not isinstance(body, cw.Commit | cw.Stage | cw.Discard):
        return True
    return all(session.streams.get(producer, last) >= last for producer, _, last in body.sent)


def commit(b: State, session: Session, m: cw.Commit) -> int:
    """Commit all of a transaction, or nothing. Return 1 if its messages were sent: the token is
    new."""
    fresh = not b.pending.knows(m.token, b.stamp)
    try:
        _check(b, session, m)
        packs = _listed(b, session, m) if fresh else []
    except (IllegalStateError, TransactionRolledBackError) as error:
        _forget_own(b, session, m.sent)
        raise TransactionRolledBackError(f"nothing was committed: {error}") from None
    b.pending.remember(m.token, b.stamp, b.stamp + TOKEN_RETENTION_MS)
    _forget_own(b, session, m.sent)
    for handle in m.staged:
        b.pending.release(handle)
    with b.queues.together(b.stamp):
        for row in m.rows:
            acknowledging.acknowledge(b, session, row)
        for parked in packs:
            _publish(b, parked)
    return int(fresh)


def _check(b: State, session: Session, m: cw.Commit) -> None:
    if len(m.token) > TOKEN_LENGTH_MAX:
        raise IllegalStateError(f"a token has at most {TOKEN_LENGTH_MAX} characters")
    if any(row.kind not in (cw.ACK, cw.DEAD) for row in m.rows):
        raise IllegalStateError("only servers choose messages for a consumer")
    for row in m.rows:
        if subscription := acknowledging.taken_over(b, session, row):
            raise IllegalStateError(
                f"what was received from {subscription.pattern!r} goes to the consumer that was "
                "opened since then"
            )


def _listed(b: State, session: Session, m: cw.Commit) -> list[Parked]:
    """Return the packs that become visible, in this order; raise if one of them cannot."""
    packs = _own(session, m.sent)
    for handle in dict.fromkeys(m.staged):
        if handle not in b.pending.staged:
            raise IllegalStateError(f"nothing is staged as {handle!r}, or not any more")
        packs += b.pending.staged[handle].packs
    return packs


def _own(session: Session, sent: tuple[cw.Sent, ...]) -> list[Parked]:
    """Return the packs in these ranges that this session has staged. Raise
    `TransactionRolledBackError` if one is missing."""
    found: dict[int, Parked] = {}  # by entry: each pack once, even if a client lists it twice
    for producer, first, last in sent:
        while first <= last:
            parked = session.staged.get((producer, first))
            if parked is None:
                raise TransactionRolledBackError(_why_missing(session, producer, first))
            found[parked.index] = parked
            first = parked.header.last + 1
    return list(found.values())


def _why_missing(session: Session, producer: int, sequence: int) -> str:
    for refusal in session.refusals:
        if refusal.producer == producer and refusal.first <= sequence <= refusal.last:
            return refusal.text
    return f"message {sequence} of this transaction is not here"


def _forget_own(b: State, session: Session, sent: tuple[cw.Sent, ...]) -> None:
    """Forget the packs in these ranges that this session has staged."""
    b.pending.unpark(session.unstage(sent))


def _publish(b: State, parked: Parked) -> None:
    if parked.header.flags & pack.DELAYED:
        b.pending.delay(b.stamp + parked.delay, parked)
    else:
        _appear(b, parked)


def stage(b: State, session: Session, m: cw.Stage) -> tuple[int, bytes]:
    """Keep packs of this session under a handle, which is returned, for any session to commit."""
    try:
        packs = _own(session, m.sent)
    finally:
        _forget_own(b, session, m.sent)
    handle = f"{session.number:x}-{b.index}-{session.request}"  # unique in this cluster
    b.pending.stage(handle, b.stamp + STAGED_RETENTION_MS, packs)
    return 0, handle.encode()


def discard(b: State, session: Session, m: cw.Discard) -> int:
    """Forget packs of this session: they are rolled back."""
    _forget_own(b, session, m.sent)
    return 0


def end(b: State, session: Session) -> None:
    """Forget all staged packs of a session that is over, as if they had never been sent."""
    b.pending.unpark(session.unstage_all())
