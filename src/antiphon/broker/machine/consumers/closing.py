"""Consumers are closed, or return messages that they cannot handle.

A closed consumer stays known while messages that its application saw may yet be acknowledged.
"""

from __future__ import annotations

from antiphon.broker.machine.consumers.consumer import Consumer
from antiphon.broker.machine.groups import membership, shared_members
from antiphon.broker.machine.queues import redelivery
from antiphon.broker.machine.queues.queue import Queue
from antiphon.broker.machine.ranges import Span, Spans
from antiphon.broker.machine.sessions.session import Session
from antiphon.broker.machine.state import State
from antiphon.formats import protocol as cw
from antiphon.model.redelivery import DELIVERIES_MAX


def close_consumer(b: State, session: Session, m: cw.CloseConsumer) -> int:
    """Close a consumer, as its client asks."""
    consumer = session.consumers.get(m.consumer)
    if consumer is None or consumer.closed:
        return 0
    if m.failed and consumer.destination in b.groups:
        membership.lost(b, session, consumer, consumer.seen_most)
    else:
        seen = [k for k in (*m.kept, *m.back) if k.consumer == m.consumer]
        with b.queues.together(b.stamp):
            shut(b, session, consumer, seen)
            return_kept(b, session, cw.Return(m.back))
    return 0


def shut(b: State, session: Session, consumer: Consumer, kept: list[cw.Kept]) -> None:
    """Give this consumer no more messages; those that it has not seen go back as they were."""
    subscription = b.subscription(consumer)
    if subscription is not None:
        redelivery.postpone(b, subscription, kept)
    if consumer.destination in b.groups:
        membership.closed(b, session, consumer, list(_valid(b, kept)))
        return
    seen = _valid(b, kept)
    consumer.close(seen if subscription is not None and subscription.durable else None)
    if subscription is not None:
        subscription.serve(None)
        if subscription.durable:
            subscription.give_back(list(seen))
        else:
            b.topics.remove(subscription.key)
    elif consumer.browses is None and (queue := b.queues.get(consumer.destination)) is not None:
        taker = (session.number, consumer.number)
        queue.close(taker)
        shared_members.review(b, queue)
        if consumer.number not in session.consumers:
            return  # it was the last one of a member, which has left its group
        stays = [s for k in kept for s in _counted(k, queue.take_from(taker, k.first, k.last))]
        queue.keep_only(taker, stays)
    drop_if_done(b, session, consumer)


def _valid(b: State, kept: list[cw.Kept]) -> Spans:
    spans = Spans()
    for k in kept:
        if 0 < k.first <= k.last <= b.position:
            spans.take(k.first, k.last)
            spans.add(k.first, k.last, _bounded(k.deliveries))
    return spans


def return_kept(b: State, session: Session, m: cw.Return) -> int:
    """Give back messages that the client cannot handle; its consumers stay open."""
    for k in m.kept:
        consumer = session.consumers.get(k.consumer)
        if consumer is not None:
            give_back(b, session, consumer, k)
    return 0


def give_back(b: State, session: Session, consumer: Consumer, k: cw.Kept) -> None:
    """Give back one range, with the count of deliveries that the client saw."""
    subscription = b.subscription(consumer)
    if subscription is not None:
        subscription.give_back(_counted(k, consumer.take_kept(k.first, k.last)))
    elif (queue := b.queues.get(consumer.destination)) is not None:
        taker = (session.number, consumer.number)
        if taker in queue.takers:
            spans = _counted(k, queue.take_from(taker, k.first, k.last))
            redelivery.hold(b, queue, spans, k.wait)
            b.queues.assign(queue, b.stamp)
    drop_if_done(b, session, consumer)


def let_go(b: State, session: Session, consumer: Consumer, *, lost: bool = False) -> None:
    """Give back the messages that a closed consumer still has, as delivered once more."""
    session.forget(consumer.number)
    key = (session.number, consumer.number)
    queue = b.queues.get(consumer.destination) if consumer.subscription is None else None
    if queue is not None and key in queue.takers:
        queue.lose(key)
        shared_members.review(b, queue, lost=lost)
        _settle(b, queue)


def drop_if_done(b: State, session: Session, consumer: Consumer) -> None:
    """Forget a closed consumer when none of its messages may yet be acknowledged."""
    if not consumer.closed or consumer.kept:
        return
    if consumer.subscription is None:
        queue = b.queues.get(consumer.destination)
        taker = queue.takers.get((session.number, consumer.number)) if queue else None
        if queue is not None and taker is not None:
            if taker.assigned:
                b.queues.assign(queue, b.stamp)
                return
            queue.remove((session.number, consumer.number))
            _settle(b, queue)
    session.forget(consumer.number)


def _settle(b: State, queue: Queue) -> None:
    """Settle a queue of which a consumer is gone. A shared subscription that is not durable lasts
    as long as one is open, or may yet give messages back."""
    if queue.pattern and not queue.durable and not queue.takers:
        b.queues.drop(queue.name)
    else:
        b.queues.settle(queue, b.stamp)


def _counted(k: cw.Kept, spans: list[Span]) -> list[Span]:
    """Return the messages that the application saw, with the count of deliveries that it saw."""
    deliveries = _bounded(k.deliveries)
    return [(low, high, max(d, deliveries)) for low, high, d in spans]


def _bounded(deliveries: int) -> int:
    return max(1, min(deliveries, DELIVERIES_MAX))
