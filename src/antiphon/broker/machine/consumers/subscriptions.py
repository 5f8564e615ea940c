"""Subscriptions by name: whose they are, and how they end.

A subscription outlives its consumers. One that is durable and not shared belongs to a client id; a
shared one is a queue that a topic fills (`broker/machine/queues/queue.py`).
"""

from __future__ import annotations

from antiphon.broker.machine import keys
from antiphon.broker.machine.groups import membership
from antiphon.broker.machine.keys import SharedKey, SubscriptionKey
from antiphon.broker.machine.sessions.session import Session
from antiphon.broker.machine.state import State
from antiphon.errors import (
    IllegalStateError,
    InvalidDestinationError,
)
from antiphon.formats import protocol as cw
from antiphon.model import destinations as names


def shared_queue(session: Session, name: str, durable: bool) -> str:
    """Return the name of a shared subscription's queue; raise if it cannot have this name."""
    if not 0 < len(name) <= names.NAME_MAX:
        raise IllegalStateError(f"a subscription's name has 1 to {names.NAME_MAX} characters")
    return SharedKey(durable, session.client_id, name).queue


def durable_key(session: Session, name: str) -> SubscriptionKey:
    """Return the key of a durable subscription; raise if the session has no client id."""
    if not session.client_id:
        raise IllegalStateError(
            f"the durable subscription {name!r} needs a client id: connect(client_id=...), or set "
            "that of a classic connection before anything else"
        )
    if len(name) > names.NAME_MAX:
        raise IllegalStateError(f"a subscription's name has at most {names.NAME_MAX} characters")
    return keys.durable(session.client_id, name)


def forget_shared(b: State, name: str) -> None:
    """Forget closed consumers of a shared subscription that is gone: they have nothing to keep."""
    for session in b.sessions.values():
        for consumer in list(session.consumers.values()):
            if consumer.closed and consumer.destination == name:
                session.forget(consumer.number)


def forget_kept(b: State, key: SubscriptionKey) -> None:
    """Forget closed consumers of a subscription that is replaced or gone: they have nothing to
    keep."""
    for session in b.sessions.values():
        for consumer in list(session.consumers.values()):
            if consumer.closed and consumer.subscription == key:
                session.forget(consumer.number)


def unsubscribe(b: State, session: Session, m: cw.Unsubscribe) -> int:
    """End a durable subscription, or remove a member of a group by its name."""
    if group := m.group or _group_with(b, session, m.name):
        membership.unsubscribe(b, group, m.name)
        return 0
    if _unsubscribe_shared(b, session, m.name):
        return 0
    key = keys.durable(session.client_id, m.name)
    subscription = b.topics.subscriptions.get(key)
    if subscription is None:
        whose = "" if session.client_id else "; an unshared one would belong to a client id"
        raise InvalidDestinationError(f"there is no durable subscription {m.name!r}{whose}")
    if subscription.consumer is not None:
        raise IllegalStateError(
            f"the durable subscription {m.name!r} is active. Close its consumer first"
        )
    b.topics.remove(key)
    forget_kept(b, key)
    return 0


def _unsubscribe_shared(b: State, session: Session, name: str) -> bool:
    """End a shared durable subscription. Return False if there is none of this name."""
    shared = shared_queue(session, name, durable=True)
    queue = b.queues.get(shared)
    if queue is None:
        return False
    if any(not taker.closed for taker in queue.takers.values()):
        raise IllegalStateError(
            f"the shared durable subscription {name!r} is active. Close its consumers first"
        )
    b.queues.drop(shared)
    forget_shared(b, shared)
    return True


def _group_with(b: State, session: Session, name: str) -> str:
    """Return the group with a member of this name; empty: a durable subscription has the name."""
    found = [g.destination for g in b.groups.values() if name in g.members]
    mine = keys.durable(session.client_id, name) in b.topics.subscriptions
    if len(found) + mine > 1:
        where = ", ".join([*found, "a durable subscription of this client"][: len(found) + mine])
        raise IllegalStateError(f"{name!r} stands for several: {where}. Say which group is meant")
    return found[0] if found else ""
