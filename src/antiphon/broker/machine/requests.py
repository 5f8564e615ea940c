"""The requests of clients, one numbered request at a time (`protocol.Control`).

A request that cannot be granted changes nothing, and its answer is the error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from antiphon.broker.machine import transactions
from antiphon.broker.machine.consumers import closing, opening, subscriptions
from antiphon.broker.machine.groups import membership, state_requests
from antiphon.broker.machine.queues import redelivery
from antiphon.broker.machine.sessions import lifecycle
from antiphon.broker.machine.sessions.session import Session
from antiphon.broker.machine.state import State
from antiphon.errors import (
    IllegalStateError,
    InvalidDestinationError,
    JMSError,
    ResourceAllocationError,
)
from antiphon.formats import commands
from antiphon.formats import protocol as cw
from antiphon.model import destinations as names

TEMPORARIES_MAX = 10_000

PRODUCERS_MAX = 1_000
Granted = tuple[int, bytes]  # `value` and `data` of the answer


def answer(b: State, session: Session, m: commands.Request) -> cw.Result:
    """Carry out a request, and return the answer; an error is an answer, too."""
    try:
        granted = _REQUESTS[type(m.body)](b, session, m.body)
    except JMSError as error:
        return cw.Result(m.number, type(error).__name__, str(error))
    value, data = granted if isinstance(granted, tuple) else (granted, b"")
    return redelivery.with_terms(b, session, m.body, cw.Result(m.number, value=value, data=data))


def _create_temporary(b: State, session: Session, m: cw.CreateTemporary) -> int:
    names.parse(m.destination)
    if not names.is_temporary(m.destination) or names.owner(m.destination) != session.number:
        raise InvalidDestinationError(f"{m.destination!r} is not this connection's to create")
    if len(session.temporaries) >= TEMPORARIES_MAX:
        raise ResourceAllocationError(
            f"a connection has at most {TEMPORARIES_MAX} temporary destinations"
        )
    session.create_temporary(m.destination)
    b.sendable.forget(m.destination)
    return 0


def _delete_temporary(b: State, session: Session, m: cw.DeleteTemporary) -> int:
    if m.destination not in session.temporaries:
        raise InvalidDestinationError(f"{m.destination!r} does not exist here")
    users = [c for c in session.consumers.values() if c.destination == m.destination]
    if any(not consumer.closed for consumer in users):
        raise IllegalStateError(f"{m.destination!r} has consumers. Close them first")
    for consumer in users:
        session.forget(consumer.number)
    lifecycle.drop_temporary(b, session, m.destination)
    return 0


def _open_producer(b: State, session: Session, m: cw.OpenProducer) -> int:
    if not 0 < len(m.name) <= names.NAME_MAX:
        raise IllegalStateError(f"a producer's name has 1 to {names.NAME_MAX} characters")
    if m.producer <= 0 or m.producer in session.streams:
        raise IllegalStateError(f"producer {m.producer} cannot be opened")
    if len(session.streams) > PRODUCERS_MAX:
        raise ResourceAllocationError(f"a connection has at most {PRODUCERS_MAX} producers")
    known = b.producers.get(m.name)
    owner = b.sessions.get(known.session) if known is not None else None
    if known is not None and owner is not None:
        if not owner.detached or owner is session:
            raise IllegalStateError(f"the producer {m.name!r} is open in another connection")
        owner.lose_producer(known.number)
    last = b.producers.open(m.name, session.number, m.producer).last
    session.open_producer(m.producer, m.name, last)
    return last


def _close_session(b: State, session: Session, m: cw.CloseSession) -> int:
    return 0  # the session is closed after the answer (`machine.py: Broker._request`)


def _create_group(b: State, session: Session, m: cw.CreateGroup) -> Granted:
    return membership.create(b, m)


def _delete_group(b: State, session: Session, m: cw.DeleteGroup) -> int:
    membership.delete(b, m)
    return 0


def _join(b: State, session: Session, m: cw.Join) -> Granted:
    opening.check_new(session, m.consumer, m.prefetch)
    return opening.join(b, session, m, "", None)


def _create_topic(b: State, session: Session, m: cw.CreateTopic) -> int:
    if m.destination in b.groups:
        raise InvalidDestinationError(f"{m.destination!r} is a group, and keeps no last values")
    b.last_values.declare(m.destination)
    return 0


_REQUESTS: dict[type, Callable[[State, Session, Any], int | Granted]] = {
    cw.OpenConsumer: opening.open_consumer,
    cw.CloseConsumer: closing.close_consumer,
    cw.Return: closing.return_kept,
    cw.Unsubscribe: subscriptions.unsubscribe,
    cw.CreateTemporary: _create_temporary,
    cw.DeleteTemporary: _delete_temporary,
    cw.OpenProducer: _open_producer,
    cw.CloseSession: _close_session,
    cw.CreateGroup: _create_group,
    cw.DeleteGroup: _delete_group,
    cw.Join: _join,
    cw.Leave: opening.leave,
    cw.AskState: state_requests.ask_again,
    cw.StateDone: state_requests.done,
    cw.Commit: transactions.commit,
    cw.Stage: transactions.stage,
    cw.Discard: transactions.discard,
    cw.Widen: opening.widen,
    cw.CreateTopic: _create_topic,
}
