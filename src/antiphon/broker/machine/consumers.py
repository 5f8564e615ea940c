"""Consumers: opened, acknowledging, returning what they cannot handle, closed.

A closed consumer stays known while something that its application saw may yet be acknowledged.
"""

from __future__ import annotations

import msgspec

from antiphon.broker.machine import events as ev
from antiphon.broker.machine import redelivery
from antiphon.broker.machine.groups import membership, shared_members
from antiphon.broker.machine.queues import Queue, QueueConsumer, Taker
from antiphon.broker.machine.ranges import Span, Spans
from antiphon.broker.machine.sessions import Consumer, Session
from antiphon.broker.machine.state import State
from antiphon.broker.machine.topics import Key, Subscription
from antiphon.errors import (
    IllegalStateError,
    InvalidDestinationError,
    ResourceAllocationError,
)
from antiphon.formats import protocol as cw
from antiphon.model import destinations as names
from antiphon.model.redelivery import DELIVERIES_MAX
from antiphon.model.selectors import evaluate

PREFETCH_MAX = 1 << 20

CONSUMERS_MAX = 10_000

SLOW = ("spill", "disconnect", "drop")

REASON_MAX = 1000


def open_consumer(b: State, session: Session, m: cw.OpenConsumer) -> int | tuple[int, bytes]:
    names.parse(m.destination)
    check_new(session, m.consumer, m.prefetch)
    if m.slow not in SLOW:
        raise IllegalStateError(f"slow={m.slow!r} is not one of {', '.join(SLOW)}")
    if m.no_local and (m.shared or names.is_queue(m.destination)):
        raise IllegalStateError("no_local is for topics, and for subscriptions of one consumer")
    if names.is_temporary(m.destination) and b.owner_of(m.destination) is not session:
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
    if consumer in session.consumers:
        raise IllegalStateError(f"consumer {consumer} is open")
    if len(session.consumers) >= CONSUMERS_MAX:
        raise ResourceAllocationError(f"a connection has at most {CONSUMERS_MAX} consumers")
    if not 1 <= prefetch <= PREFETCH_MAX:
        raise ResourceAllocationError(f"prefetch is 1 to {PREFETCH_MAX}, not {prefetch}")


def _open_member(b: State, session: Session, m: cw.OpenConsumer) -> tuple[int, bytes]:
    """Subscribing to a group is joining it (table 4.2)."""
    if m.durable:
        durable_key(session, m.durable)  # the classic call needs a client id
    durable = bool(m.durable)
    asked = cw.Join(m.consumer, m.destination, m.prefetch, m.durable, durable, takes_state=False)
    return join(b, session, asked, *_choice(session, m))


def join(
    b: State, session: Session, asked: cw.Join, selector: str, no_local: str
) -> tuple[int, bytes]:
    """Messages are selected for a member, what happens to its group is not. One that comes back
    with another selector is the same member, but what waited for it is gone."""
    granted = membership.join(b, session, asked)
    old = b.subscription(session.consumers[asked.consumer])
    assert old is not None
    if (old.selector, old.no_local) != (selector, no_local):
        new = Subscription(old.key, old.durable, old.pattern, selector, b.position, no_local)
        new.consumer = old.consumer
        b.topics.add(new)
    return granted


def _choice(session: Session, m: cw.OpenConsumer) -> tuple[str, str]:
    """Which messages it wants, as a subscription keeps it: `selector` and `no_local`. Selectors
    that differ in blanks only are the same. Raises `InvalidSelectorError`."""
    selector = evaluate.parse(m.selector)
    return "" if selector is None else selector.text, session.owner if m.no_local else ""


def leave(b: State, session: Session, m: cw.Leave) -> int:
    consumer = session.consumers.get(m.consumer)
    if consumer is None or consumer.destination not in b.groups:
        raise IllegalStateError(f"consumer {m.consumer} is no member of a group")
    membership.leave(b, session, consumer)
    session.consumers.pop(m.consumer, None)
    return 0


def _open_queue_consumer(b: State, session: Session, m: cw.OpenConsumer) -> int:
    if m.durable or m.shared:
        raise InvalidDestinationError(f"{m.destination!r} is a queue: it needs no subscription")
    wanted = redelivery.agreed(b, m)
    queue = b.queue(m.destination)
    _consume(b, session, m, queue)
    queue.redelivery = wanted
    return 0


def _consume(b: State, session: Session, m: cw.OpenConsumer, queue: Queue) -> None:
    selector, _ = _choice(session, m)
    session.consumers[m.consumer] = Consumer(
        session.number, m.consumer, queue.name, m.prefetch, m.slow, None, selector
    )
    taker = QueueConsumer(m.prefetch, bool(selector), m.exclusive)
    queue.open((session.number, m.consumer), taker)
    b.assign(queue)


def _open_browser(b: State, session: Session, m: cw.OpenConsumer) -> int:
    if not names.is_queue(m.destination):
        raise InvalidDestinationError(f"{m.destination!r} is no queue: only queues are browsed")
    selector, _ = _choice(session, m)
    session.consumers[m.consumer] = browser = Consumer(
        session.number, m.consumer, m.destination, m.prefetch, m.slow, None, selector
    )
    browser.browses = b.position
    return 0


def _open_shared_consumer(b: State, session: Session, m: cw.OpenConsumer) -> int:
    if m.durable not in ("", m.shared):
        raise IllegalStateError(f"{m.shared!r} cannot be durable under the name {m.durable!r}")
    name = shared_name(session, m.shared, bool(m.durable))
    if session.client_id and durable_key(session, m.durable) in b.topics.subscriptions:
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
        b.drop_queue(name)  # re-created, it is a new one
        _forget_shared(b, name)
        queue = None
    if (group := b.groups.get(m.destination)) is not None:
        shared_members.enter(b, group, m.shared, name, bool(m.durable))
    if queue is None:
        queue = b.queue(name)
        queue.pattern, queue.selector, queue.durable = m.destination, selector, bool(m.durable)
        for position in b.last_values.positions(names.matcher(m.destination)):
            queue.put(position, position)
        b.shared_changed()
    _consume(b, session, m, queue)
    shared_members.review(b, queue)
    return int(group is not None)


def shared_name(session: Session, name: str, durable: bool) -> str:
    """Of the queue: no destination has such a name."""
    if not 0 < len(name) <= names.NAME_MAX:
        raise IllegalStateError(f"a subscription's name has 1 to {names.NAME_MAX} characters")
    return f"{'durable' if durable else 'shared'} {session.client_id!r} {name}"


def _forget_shared(b: State, name: str) -> None:
    for session in b.sessions.values():
        for consumer in list(session.consumers.values()):
            if consumer.closed and consumer.destination == name:
                del session.consumers[consumer.number]


def _open_topic_consumer(b: State, session: Session, m: cw.OpenConsumer) -> int:
    if m.durable:
        subscription = _durable(b, session, m)
    else:
        subscription = _subscribe(b, session, m, (f"{session.number:x}", f"{m.consumer:x}"))
    subscription.consumer = (session.number, m.consumer)
    session.consumers[m.consumer] = Consumer(
        session.number, m.consumer, m.destination, m.prefetch, m.slow, subscription.key
    )
    return subscription.floor


def _durable(b: State, session: Session, m: cw.OpenConsumer) -> Subscription:
    key = durable_key(session, m.durable)
    if shared_name(session, m.durable, durable=True) in b.queues:
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
        _forget_kept(b, key)
        known = None
    return known or _subscribe(b, session, m, key)


def _subscribe(b: State, session: Session, m: cw.OpenConsumer, key: Key) -> Subscription:
    selector, no_local = _choice(session, m)
    new = Subscription(key, bool(m.durable), m.destination, selector, b.position, no_local)
    new.begin_with(b.last_values.positions(new.matches), b.position)
    b.topics.add(new)
    return new


def durable_key(session: Session, name: str) -> Key:
    if not session.client_id:
        raise IllegalStateError(
            f"the durable subscription {name!r} needs a client id: connect(client_id=...), or set "
            "that of a classic connection before anything else"
        )
    if len(name) > names.NAME_MAX:
        raise IllegalStateError(f"a subscription's name has at most {names.NAME_MAX} characters")
    # A blank cannot be in the number of a session: the two kinds of key do not meet.
    return (f"{session.client_id} ", name)


def _forget_kept(b: State, key: Key) -> None:
    """Closed consumers of a subscription that is replaced or gone have nothing to keep."""
    for session in b.sessions.values():
        for consumer in list(session.consumers.values()):
            if consumer.closed and consumer.subscription == key:
                del session.consumers[consumer.number]


def widen(b: State, session: Session, m: cw.Widen) -> int:
    consumer = session.consumers.get(m.consumer)
    if consumer is None or consumer.closed:
        return 0
    if not consumer.prefetch <= m.prefetch <= PREFETCH_MAX:
        raise ResourceAllocationError(
            f"a prefetch of {consumer.prefetch} can be raised up to {PREFETCH_MAX}, not to "
            f"{m.prefetch}"
        )
    consumer.prefetch = m.prefetch
    queue = b.queues.get(consumer.destination)
    taker = queue.takers.get((session.number, consumer.number)) if queue is not None else None
    if queue is not None and taker is not None:
        taker.prefetch = m.prefetch
        b.assign(queue)
    return 0


def close_consumer(b: State, session: Session, m: cw.CloseConsumer) -> int:
    consumer = session.consumers.get(m.consumer)
    if consumer is None or consumer.closed:
        return 0
    if m.failed and consumer.destination in b.groups:
        membership.lost(b, session, consumer)
    else:
        seen = [k for k in (*m.kept, *m.back) if k.consumer == m.consumer]
        with b.together():
            shut(b, session, consumer, seen)
            return_kept(b, session, cw.Return(m.back))
    return 0


def shut(b: State, session: Session, consumer: Consumer, kept: list[cw.Kept]) -> None:
    """Nothing more is for this consumer; what it has not seen goes back as it was."""
    subscription = b.subscription(consumer)
    if subscription is not None:
        redelivery.postpone(b, subscription, kept)
    if consumer.destination in b.groups:
        membership.closed(b, session, consumer, list(_valid(b, kept)))
        return
    consumer.closed = True
    if subscription is not None:
        subscription.consumer = None
        if subscription.durable:
            consumer.kept = _valid(b, kept)
            subscription.give_back(list(consumer.kept))
        else:
            b.topics.remove(subscription.key)
    elif consumer.browses is None and (queue := b.queues.get(consumer.destination)) is not None:
        taker = queue.takers[session.number, consumer.number]
        taker.closed = True
        queue.leave((session.number, consumer.number))
        shared_members.review(b, queue)
        if consumer.number not in session.consumers:
            return  # it was the last one of a member, which has left its group
        stays = [span for k in kept for span in _counted(k, taker.assigned)]
        queue.give_back([(one, two, d - 1) for one, two, d in taker.assigned.clear()])
        for span in stays:
            taker.assigned.add(*span)
    _drop_if_done(b, session, consumer)


def _valid(b: State, kept: list[cw.Kept]) -> Spans:
    spans = Spans()
    for k in kept:
        if 0 < k.first <= k.last <= b.position:
            spans.take(k.first, k.last)
            spans.add(k.first, k.last, _bounded(k.deliveries))
    return spans


def _drop_if_done(b: State, session: Session, consumer: Consumer) -> None:
    """A closed consumer stays only while something of it may yet be acknowledged."""
    if not consumer.closed or consumer.kept:
        return
    if consumer.subscription is None:
        queue = b.queues.get(consumer.destination)
        taker = queue.takers.get((session.number, consumer.number)) if queue else None
        if queue is not None and taker is not None:
            if taker.assigned:
                b.assign(queue)
                return
            del queue.takers[session.number, consumer.number]
            _settle(b, queue)
    del session.consumers[consumer.number]


def _settle(b: State, queue: Queue) -> None:
    """A consumer is gone. A shared subscription that is not durable lasts as long as one is open,
    or may yet give something back."""
    if queue.pattern and not queue.durable and not queue.takers:
        b.drop_queue(queue.name)
    else:
        b.settle(queue)


def acknowledge(b: State, session: Session, row: cw.AckRow) -> None:
    consumer = session.consumers.get(row.consumer)
    if consumer is None or not 0 <= row.first <= row.last <= b.position:
        return
    subscription = b.subscription(consumer)
    key = (session.number, consumer.number)
    if subscription is not None and subscription.consumer not in (None, key):
        return  # somebody else is served from this cursor now
    if row.kind == cw.FAILED or (row.kind == cw.DEAD and not buries(b, consumer, row.first)):
        _fail(b, session, consumer, row)
        return
    if row.kind == cw.DEAD:
        _bury(b, consumer, subscription, row)
    if subscription is not None:
        had_state = subscription.base is not None
        subscription.acknowledge(row.first, row.last)
        if row.event or had_state:
            membership.acknowledge(b, session, consumer, row)
        consumer.kept.take(row.first, row.last)
    elif (queue := b.queues.get(consumer.destination)) is not None:
        _acknowledge_queue(b, queue, key, row)
    _drop_if_done(b, session, consumer)


def taken_over(b: State, session: Session, row: cw.AckRow) -> Subscription | None:
    """The subscription that a later consumer has: what this row would acknowledge goes to that
    one. None: there is no such thing."""
    consumer = session.consumers.get(row.consumer)
    subscription = b.subscription(consumer) if consumer is not None else None
    if subscription is None or row.last <= subscription.floor:
        return None
    mine = subscription.consumer in (None, (session.number, row.consumer))
    return None if mine else subscription


def _acknowledge_queue(b: State, queue: Queue, taker: Taker, row: cw.AckRow) -> None:
    consumer = queue.takers.get(taker)
    if consumer is None:
        return
    if row.kind == cw.CLAIM:
        for first, last, deliveries in queue.claim(taker, row.first, row.last):
            b.events.append(ev.Assigned(*taker, first, last, deliveries))
    elif row.kind == cw.SKIP:
        if queue.pattern and queue.selector:
            queue.skip(row.first, row.last)
    elif taken := consumer.assigned.take(row.first, row.last):
        for first, last, _ in taken:
            queue.forget(first, last)
        b.assign(queue)


def _fail(b: State, session: Session, consumer: Consumer, row: cw.AckRow) -> None:
    """It could not handle these, and they come again. The row may be in the log twice: what was
    delivered again since then is not meant."""
    k = cw.Kept(row.consumer, row.first, row.last, row.deliveries, row.wait)
    queue = b.queues.get(consumer.destination)
    taker = queue.takers.get((session.number, consumer.number)) if queue is not None else None
    for first, last, deliveries in taker.assigned.between(k.first, k.last) if taker else ():
        if deliveries <= (k.deliveries or DELIVERIES_MAX):
            _give_back(b, session, consumer, msgspec.structs.replace(k, first=first, last=last))


def buries(b: State, consumer: Consumer, position: int) -> bool:
    """What this consumer cannot handle goes to the dead letters, unless it is one of them. A member
    of a group skips nothing, nor do those who are one together."""
    queue = b.queues.get(consumer.destination)
    if queue is not None and queue.reasons.of(position) is not None:
        return False
    source = queue.pattern if queue is not None and queue.pattern else consumer.destination
    return source != names.DEAD_LETTERS and source not in b.groups


def _bury(b: State, consumer: Consumer, subscription: Subscription | None, row: cw.AckRow) -> None:
    """Only what it has not acknowledged, and the journal has."""
    queue = None
    if subscription is None:
        queue = b.queues.get(consumer.destination)
        taker = queue.takers.get((consumer.session, consumer.number)) if queue else None
        spans = taker.assigned.between(row.first, row.last) if taker is not None else []
    else:
        upto = min(row.last, b.topics.last_for(subscription))
        spans = subscription.runs(row.first, upto, 0) if row.first else []
    if spans:
        dead = b.queue(redelivery.dead_letters(queue))
        dead.put_dead(spans, row.reason[:REASON_MAX])
        b.assign(dead)


def return_kept(b: State, session: Session, m: cw.Return) -> int:
    for k in m.kept:
        consumer = session.consumers.get(k.consumer)
        if consumer is not None:
            _give_back(b, session, consumer, k)
    return 0


def _give_back(b: State, session: Session, consumer: Consumer, k: cw.Kept) -> None:
    subscription = b.subscription(consumer)
    if subscription is not None:
        subscription.give_back(_counted(k, consumer.kept))
    elif (queue := b.queues.get(consumer.destination)) is not None:
        taker = queue.takers.get((session.number, consumer.number))
        if taker is not None:
            redelivery.hold(b, queue, _counted(k, taker.assigned), k.wait)
            b.assign(queue)
    _drop_if_done(b, session, consumer)


def let_go(b: State, session: Session, consumer: Consumer, *, lost: bool = False) -> None:
    """Whatever a closed consumer still has goes back, and counts as delivered."""
    del session.consumers[consumer.number]
    key = (session.number, consumer.number)
    queue = b.queues.get(consumer.destination) if consumer.subscription is None else None
    if queue is not None and key in queue.takers:
        queue.leave(key)
        taker = queue.takers.pop(key)
        queue.give_back(taker.assigned.clear())
        shared_members.review(b, queue, lost=lost)
        _settle(b, queue)


def unsubscribe(b: State, session: Session, m: cw.Unsubscribe) -> int:
    if group := m.group or _group_with(b, session, m.name):
        membership.unsubscribe(b, group, m.name)
        return 0
    if _unsubscribe_shared(b, session, m.name):
        return 0
    key = (f"{session.client_id} ", m.name)
    subscription = b.topics.subscriptions.get(key)
    if subscription is None:
        whose = "" if session.client_id else "; an unshared one would belong to a client id"
        raise InvalidDestinationError(f"there is no durable subscription {m.name!r}{whose}")
    if subscription.consumer is not None:
        raise IllegalStateError(
            f"the durable subscription {m.name!r} is active. Close its consumer first"
        )
    b.topics.remove(key)
    _forget_kept(b, key)
    return 0


def _unsubscribe_shared(b: State, session: Session, name: str) -> bool:
    """False: there is no shared durable subscription of this name."""
    shared = shared_name(session, name, durable=True)
    queue = b.queues.get(shared)
    if queue is None:
        return False
    if any(not taker.closed for taker in queue.takers.values()):
        raise IllegalStateError(
            f"the shared durable subscription {name!r} is active. Close its consumers first"
        )
    b.drop_queue(shared)
    _forget_shared(b, shared)
    return True


def _group_with(b: State, session: Session, name: str) -> str:
    """The group whose member is meant by its name alone; empty: a durable subscription is."""
    found = [g.destination for g in b.groups.values() if name in g.members]
    mine = (f"{session.client_id} ", name) in b.topics.subscriptions
    if len(found) + mine > 1:
        where = ", ".join([*found, "a durable subscription of this client"][: len(found) + mine])
        raise IllegalStateError(f"{name!r} stands for several: {where}. Say which group is meant")
    return found[0] if found else ""


def _counted(k: cw.Kept, spans: Spans) -> list[Span]:
    """Take what the application saw out of `spans`, with the count that it saw."""
    deliveries = _bounded(k.deliveries)
    return [(one, two, max(d, deliveries)) for one, two, d in spans.take(k.first, k.last)]


def _bounded(deliveries: int) -> int:
    return max(1, min(deliveries, DELIVERIES_MAX))
