"""Acknowledgements: an `AckRow` of a consumer is applied to its subscription or its queue.

Promises: a row that comes twice changes nothing the second time; one for messages that another
consumer has by now changes nothing at all. A row may also say that handling has failed, that a
message is given up, or (from servers only) which messages a selector wants.
"""

from __future__ import annotations

import msgspec

from antiphon.broker.machine import events as ev
from antiphon.broker.machine.consumers import closing
from antiphon.broker.machine.consumers.consumer import Consumer
from antiphon.broker.machine.groups import membership
from antiphon.broker.machine.queues import redelivery
from antiphon.broker.machine.queues.queue import Queue, Taker
from antiphon.broker.machine.sessions.session import Session
from antiphon.broker.machine.state import State
from antiphon.broker.machine.topics import Subscription
from antiphon.formats import protocol as cw
from antiphon.model import destinations as names
from antiphon.model.redelivery import DELIVERIES_MAX

REASON_MAX = 1000


def acknowledge(b: State, session: Session, row: cw.AckRow) -> None:
    """Apply one row: to the subscription of the consumer, or to its queue."""
    consumer = session.consumers.get(row.consumer)
    if consumer is None or not 0 <= row.first <= row.last <= b.position:
        return
    subscription = b.subscription(consumer)
    key = (session.number, consumer.number)
    if subscription is not None and subscription.consumer not in (None, key):
        return  # another consumer is served from this cursor now
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
        consumer.take_kept(row.first, row.last)
    elif (queue := b.queues.get(consumer.destination)) is not None:
        _acknowledge_queue(b, queue, key, row)
    closing.drop_if_done(b, session, consumer)


def taken_over(b: State, session: Session, row: cw.AckRow) -> Subscription | None:
    """Return the subscription if a later consumer has it, and so gets the messages of this row.
    None: they are acknowledged already, or no later consumer has it."""
    consumer = session.consumers.get(row.consumer)
    subscription = b.subscription(consumer) if consumer is not None else None
    if subscription is None or row.last <= subscription.floor:
        return None
    mine = subscription.consumer in (None, (session.number, row.consumer))
    return None if mine else subscription


def _acknowledge_queue(b: State, queue: Queue, taker: Taker, row: cw.AckRow) -> None:
    if taker not in queue.takers:
        return
    if row.kind == cw.CLAIM:
        for first, last, deliveries in queue.claim(taker, row.first, row.last):
            b.report(ev.Assigned(*taker, first, last, deliveries))
    elif row.kind == cw.SKIP:
        if queue.pattern and queue.selector:
            queue.skip(row.first, row.last)
    elif queue.acknowledge(taker, row.first, row.last):
        b.queues.assign(queue, b.stamp)


def _fail(b: State, session: Session, consumer: Consumer, row: cw.AckRow) -> None:
    """Have messages come again that the consumer could not handle. The row may be in the log twice:
    messages that were delivered again since then are not meant."""
    k = cw.Kept(row.consumer, row.first, row.last, row.deliveries, row.wait)
    queue = b.queues.get(consumer.destination)
    taker = queue.takers.get((session.number, consumer.number)) if queue is not None else None
    for first, last, deliveries in taker.assigned.between(k.first, k.last) if taker else ():
        if deliveries <= (k.deliveries or DELIVERIES_MAX):
            closing.give_back(
                b, session, consumer, msgspec.structs.replace(k, first=first, last=last)
            )


def buries(b: State, consumer: Consumer, position: int) -> bool:
    """Return whether a message that this consumer cannot handle goes to the dead letters: unless
    it is one of them. A member of a group skips nothing, nor do the consumers that are one member
    together."""
    queue = b.queues.get(consumer.destination)
    if queue is not None and queue.reasons.of(position) is not None:
        return False
    source = queue.pattern if queue is not None and queue.pattern else consumer.destination
    return source != names.DEAD_LETTERS and source not in b.groups


def _bury(b: State, consumer: Consumer, subscription: Subscription | None, row: cw.AckRow) -> None:
    """Put a message into the dead letters, if the consumer has not acknowledged it and the journal
    has it."""
    queue = None
    if subscription is None:
        queue = b.queues.get(consumer.destination)
        taker = queue.takers.get((consumer.session, consumer.number)) if queue else None
        spans = taker.assigned.between(row.first, row.last) if taker is not None else []
    else:
        upto = min(row.last, b.topics.last_for(subscription))
        spans = subscription.runs(row.first, upto, 0) if row.first else []
    if spans:
        dead = b.queues.named(redelivery.dead_letters(queue))
        dead.put_dead(spans, row.reason[:REASON_MAX])
        b.queues.assign(dead, b.stamp)
