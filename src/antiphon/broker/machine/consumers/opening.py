"""Consumers are opened: of queues and topics, alone or shared, durable or not; browsers; members.

Each kind of consumer has one function here, which checks the request, raises a `JMSError` if it
cannot be granted, and adds the consumer to its session.
"""

from __future__ import annotations

from antiphon.broker.machine import keys
from antiphon.broker.machine.consumers import subscriptions
from antiphon.broker.machine.consumers.consumer import Consumer
from antiphon.broker.machine.groups import membership, shared_members
from antiphon.broker.machine.keys import Owner, SubscriptionKey
from antiphon.broker.machine.queues import redelivery
from antiphon.broker.machine.queues.queue import Queue, QueueConsumer
from antiphon.broker.machine.sessions.session import Session
from antiphon.broker.machine.state import State
from antiphon.broker.machine.topics import Subscription
from antiphon.errors import (
    IllegalStateError,
    InvalidDestinationError,
    ResourceAllocationError,
)
from antiphon.formats import protocol as cw
from antiphon.model import destinations as names
from antiphon.model.selectors import evaluate

PREFETCH_MAX = 1 << 20

CONSUMERS_MAX = 10_000

SLOW = ("spill", "disconnect", "drop")


def open_consumer(b: State, session: Session, m: cw.OpenConsumer) -> int | tuple[int, bytes]:
    """Open a consumer of the kind that the client asks for. Raise a `JMSError` if that cannot
    be."""
    names.parse(m.destination)
    check_new(session, m.consumer, m.prefetch)
    if m.slow not in SLOW:
        raise IllegalStateError(f"slow={m.slow!r} is not one of {', '.join(SLOW)}")
    if m.no_local and (m.shared or names.is_queue(m.destination)):
        raise IllegalStateError("no_local is for topics, and for subscriptions of one consumer")
    if names.is_temporary(m.destination) and b.sessions.owner_of(m.destination) is not session:
        raise InvalidDestinationError(
            f"{m.destination!r} belongs to another connection, or is gone; only the connection "
            "that created it may consume from it"
        )
    if m.browse:
        return _open_browser(b, session, m)
    if names.is_queue(m.destination):
        return _open_queue_consumer(b, session, m)
    if m.shared:
        return _open_shared_consumer(b, session, m)
    if m.destination in b.groups:
        return _open_member(b, session, m)
    return _open_topic_consumer(b, session, m)


def check_new(session: Session, consumer: int, prefetch: int) -> None:
    """Raise if the session cannot have this consumer."""
    if consumer in session.consumers:
        raise IllegalStateError(f"consumer {consumer} is open")
    if len(session.consumers) >= CONSUMERS_MAX:
        raise ResourceAllocationError(f"a connection has at most {CONSUMERS_MAX} consumers")
    if not 1 <= prefetch <= PREFETCH_MAX:
        raise ResourceAllocationError(f"prefetch is 1 to {PREFETCH_MAX}, not {prefetch}")


def _open_member(b: State, session: Session, m: cw.OpenConsumer) -> tuple[int, bytes]:
    """Make the consumer a member: subscribing to a group is joining it (thesis, table 4.2)."""
    if m.durable:
        subscriptions.durable_key(session, m.durable)  # the classic call needs a client id
    durable = bool(m.durable)
    asked = cw.Join(m.consumer, m.destination, m.prefetch, m.durable, durable, takes_state=False)
    return join(b, session, asked, *_choice(session, m))


def join(
    b: State, session: Session, asked: cw.Join, selector: str, no_local: Owner | None
) -> tuple[int, bytes]:
    """Make the consumer a member. Its selector applies to messages, not to views and other events.
    A member that comes back with another selector is the same one, but messages that waited for it
    are gone."""
    granted = membership.join(b, session, asked)
    old = b.subscription(session.consumers[asked.consumer])
    assert old is not None
    if (old.selector, old.no_local) != (selector, no_local):
        new = Subscription(old.key, old.durable, old.pattern, selector, b.position, no_local)
        new.serve(old.consumer)
        b.topics.add(new)
    return granted


def _choice(session: Session, m: cw.OpenConsumer) -> tuple[str, Owner | None]:
    """Return the `selector` and `no_local` of its subscription. Selectors that differ in blanks
    only are the same. Raise `InvalidSelectorError`."""
    selector = evaluate.parse(m.selector)
    return "" if selector is None else selector.text, session.owner if m.no_local else None


def leave(b: State, session: Session, m: cw.Leave) -> int:
    """A member leaves its group."""
    consumer = session.consumers.get(m.consumer)
    if consumer is None or consumer.destination not in b.groups:
        raise IllegalStateError(f"consumer {m.consumer} is not a member of a group")
    membership.leave(b, session, consumer)
    session.forget(m.consumer)
    return 0


def _open_queue_consumer(b: State, session: Session, m: cw.OpenConsumer) -> int:
    if m.durable or m.shared:
        raise InvalidDestinationError(f"{m.destination!r} is a queue: it needs no subscription")
    wanted = redelivery.agreed(b, m)
    queue = b.queues.named(m.destination)
    _consume(b, session, m, queue)
    queue.agree(wanted)
    return 0


def _consume(b: State, session: Session, m: cw.OpenConsumer, queue: Queue) -> None:
    selector, _ = _choice(session, m)
    session.open(
        Consumer(session.number, m.consumer, queue.name, m.prefetch, m.slow, None, selector)
    )
    taker = QueueConsumer(m.prefetch, bool(selector), m.exclusive)
    queue.open((session.number, m.consumer), taker)
    b.queues.assign(queue, b.stamp)


def _open_browser(b: State, session: Session, m: cw.OpenConsumer) -> int:
    if not names.is_queue(m.destination):
        raise InvalidDestinationError(f"{m.destination!r} is not a queue: only queues are browsed")
    selector, _ = _choice(session, m)
    session.open(
        Consumer(
            session.number,
            m.consumer,
            m.destination,
            m.prefetch,
            m.slow,
            None,
            selector,
            browses=b.position,
        )
    )
    return 0


def _open_shared_consumer(b: State, session: Session, m: cw.OpenConsumer) -> int:
    if m.durable not in ("", m.shared):
        raise IllegalStateError(f"{m.shared!r} cannot be durable under the name {m.durable!r}")
    name = subscriptions.shared_queue(session, m.shared, bool(m.durable))
    if (
        session.client_id
        and subscriptions.durable_key(session, m.durable) in b.topics.subscriptions
    ):
        raise IllegalStateError(
            f"{m.durable!r} is a durable subscription that is not shared. Choose another name"
        )
    selector, _ = _choice(session, m)
    queue = b.queues.get(name)
    if queue is not None and (queue.pattern, queue.selector) != (m.destination, selector):
        if any(not taker.closed for taker in queue.takers.values()):
            raise IllegalStateError(
                f"the shared subscription {m.shared!r} is in use with another topic or selector"
            )
        b.queues.drop(name)  # re-created, it is a new one
        subscriptions.forget_shared(b, name)
        queue = None
    if (group := b.groups.get(m.destination)) is not None:
        shared_members.enter(b, group, m.shared, name, bool(m.durable))
    if queue is None:
        queue = b.queues.named(name)
        queue.share(m.destination, selector, bool(m.durable))
        for position in b.last_values.positions(names.matcher(m.destination)):
            queue.put(position, position)
        b.queues.shared_changed()
    _consume(b, session, m, queue)
    shared_members.review(b, queue)
    return int(group is not None)


def _open_topic_consumer(b: State, session: Session, m: cw.OpenConsumer) -> int:
    if m.durable:
        subscription = _durable(b, session, m)
    else:
        subscription = _subscribe(b, session, m, keys.of_consumer(session.number, m.consumer))
    subscription.serve((session.number, m.consumer))
    session.open(
        Consumer(session.number, m.consumer, m.destination, m.prefetch, m.slow, subscription.key)
    )
    return subscription.floor


def _durable(b: State, session: Session, m: cw.OpenConsumer) -> Subscription:
    key = subscriptions.durable_key(session, m.durable)
    if subscriptions.shared_queue(session, m.durable, durable=True) in b.queues:
        raise IllegalStateError(
            f"{m.durable!r} is a shared durable subscription. Choose another name"
        )
    known = b.topics.subscriptions.get(key)
    if known is not None and known.consumer is not None:
        raise IllegalStateError(
            f"the durable subscription {m.durable!r} is active. Close its consumer first"
        )
    asked = (m.destination, *_choice(session, m))
    if known is not None and (known.pattern, known.selector, known.no_local) != asked:
        # Re-created with another topic or selector it is a new one: the old backlog is gone.
        subscriptions.forget_kept(b, key)
        known = None
    return known or _subscribe(b, session, m, key)


def _subscribe(
    b: State, session: Session, m: cw.OpenConsumer, key: SubscriptionKey
) -> Subscription:
    selector, no_local = _choice(session, m)
    new = Subscription(key, bool(m.durable), m.destination, selector, b.position, no_local)
    new.begin_with(b.last_values.positions(new.matches), b.position)
    b.topics.add(new)
    return new


def widen(b: State, session: Session, m: cw.Widen) -> int:
    """Raise the window of a consumer."""
    consumer = session.consumers.get(m.consumer)
    if consumer is None or consumer.closed:
        return 0
    if not consumer.prefetch <= m.prefetch <= PREFETCH_MAX:
        raise ResourceAllocationError(
            f"a prefetch of {consumer.prefetch} can be raised up to {PREFETCH_MAX}, not to "
            f"{m.prefetch}"
        )
    consumer.widen(m.prefetch)
    queue = b.queues.get(consumer.destination)
    taker = (session.number, consumer.number)
    if queue is not None and taker in queue.takers:
        queue.widen(taker, m.prefetch)
        b.queues.assign(queue, b.stamp)
    return 0
