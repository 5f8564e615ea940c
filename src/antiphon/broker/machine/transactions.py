"""Messages that are stored before they are visible: those of transactions, and delayed ones.

Such a pack is *parked*: the state machine knows the entry that has it, and the journal keeps that
entry. It gets its positions at the entry that makes it visible: a commit, or the one with whose
stamp its delay is over. So whoever consumes sees it at one place in the order, like any other.

A commit is one entry: at it all that the transaction received is acknowledged and all that it sent
becomes visible, one message directly after the other, whatever their destinations; or, if something
is wrong with any of it, nothing happens. Packs may also be staged under a handle, for any session
to commit. A token makes a second commit of the same thing one that sends nothing.
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
"""Staged packs that nobody commits are forgotten after this time."""

TOKEN_RETENTION_MS = 7 * 24 * 3600 * 1000
TOKEN_LENGTH_MAX = 1024

CONTROL_MAX = 64 << 10
"""Bytes of a pack for a group itself: it is kept here as it is until its time comes."""


# -- Packs that are not visible yet ----------------------------------------------------------------


def park(b: State, session: Session, header: PackHeader, payload: bytes) -> None:
    """Raises what is wrong with it: at its commit, or when its time has come, nothing may be."""
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
    """The delay of this pack is over."""
    _appear(b, b.pending.take_due(index))


def _appear(b: State, parked: Parked) -> None:
    header = parked.header
    if b.sendable.has_ended(header.destination):
        b.count_dropped(header.count)
    elif header.flags & pack.CONTROL:
        group = b.groups.get(header.destination)
        if group is not None:  # otherwise it is over, and there is nobody whom this concerns
            membership.control(b, group, parked.payload)
    else:
        acceptance.accept(b, header, parked.notes, parked.index)


# -- What clients ask for --------------------------------------------------------------------------


def has_arrived(session: Session, body: cw.Body) -> bool:
    """Whether all that this request is about was applied: what a client sends before a request may
    be ordered after it, if it was lost on its way to the leader."""
    if not isinstance(body, cw.Commit | cw.Stage | cw.Discard):
        return True
    return all(session.streams.get(producer, last) >= last for producer, _, last in body.sent)


def commit(b: State, session: Session, m: cw.Commit) -> int:
    """Do what the transaction did, or nothing. Return 1 if its messages were sent: the token is
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
    """Return the packs that become visible, in this order; raise if anything is wrong with one."""
    packs = _own(session, m.sent)
    for handle in dict.fromkeys(m.staged):
        if handle not in b.pending.staged:
            raise IllegalStateError(f"nothing is staged as {handle!r}, or not any more")
        packs += b.pending.staged[handle].packs
    return packs


def _own(session: Session, sent: tuple[cw.Sent, ...]) -> list[Parked]:
    """Raises `TransactionRolledBackError` if something is missing."""
    found: dict[int, Parked] = {}  # by entry: each pack once, whatever a client lists
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
    handle = f"{session.number:x}-{b.index}-{session.request}"  # nobody ever had or has this one
    b.pending.stage(handle, b.stamp + STAGED_RETENTION_MS, packs)
    return 0, handle.encode()


def discard(b: State, session: Session, m: cw.Discard) -> int:
    """Forget packs of this session: they are rolled back."""
    _forget_own(b, session, m.sent)
    return 0


def end(b: State, session: Session) -> None:
    """A session is over: what it has not committed is as if it had never been sent."""
    b.pending.unpark(session.unstage_all())
