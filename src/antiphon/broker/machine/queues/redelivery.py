"""Redelivery: a message that a consumer could not handle comes again after a wait, in the log's
time.

A consumer of a queue reports which delivery failed, and how long to wait: meanwhile its message is
held, and others overtake it. A consumer whose messages must keep their order waits itself; its
subscription only remembers until when, for a consumer that is opened later.

Consumers may set the wait, the number of deliveries and the queue of dead letters for each queue.
The terms apply as long as the queue has messages or consumers.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from antiphon.broker.machine.deadlines import HELD
from antiphon.broker.machine.queues.queue import Queue
from antiphon.broker.machine.ranges import Span
from antiphon.broker.machine.sessions.session import Session
from antiphon.broker.machine.state import State
from antiphon.broker.machine.topics import Subscription
from antiphon.errors import IllegalStateError, InvalidDestinationError, ResourceAllocationError
from antiphon.formats import protocol as cw
from antiphon.model import destinations as names
from antiphon.model.redelivery import DELIVERIES_MAX, FACTOR_MAX, WAIT_MAX_MS, Redelivery


def hold(b: State, queue: Queue, spans: list[Span], wait_ms: int) -> None:
    """Have these messages come again after the wait."""
    until = b.stamp + _bounded(wait_ms)
    if until == b.stamp:
        queue.give_back(spans)
        return
    before = queue.next_release
    for span in spans:
        queue.hold(until, span)
    if spans and (before is None or until < before):
        b.deadlines.add(until, HELD, queue.name)


def due(b: State, name: str) -> None:
    """End the wait of held messages of this queue that is over by now."""
    queue = b.queues[name]
    queue.release(b.stamp)
    if (following := queue.next_release) is not None:
        b.deadlines.add(following, HELD, name)
    b.queues.settle(queue, b.stamp)


def postpone(b: State, subscription: Subscription, kept: Iterable[cw.Kept]) -> None:
    """Take the messages that the consumer of this subscription had seen when it closed: if handling
    some of them has failed, the client that opens the next consumer waits. A consumer that was
    closed while it waited changes nothing."""
    if wait := max((_bounded(k.wait) for k in kept), default=0):
        subscription.wait(b.stamp + wait)


def _bounded(wait_ms: int) -> int:
    return max(0, min(wait_ms, WAIT_MAX_MS))


# -- Terms of a queue ------------------------------------------------------------------------------


def agreed(b: State, m: cw.OpenConsumer) -> Redelivery:
    """Return the terms that apply to this queue from now on. Raise if those in the request are not
    valid, or differ from those of other consumers."""
    queue = b.queues.get(m.destination)
    known = queue.redelivery if queue is not None else Redelivery()
    asked = m.redelivery or Redelivery()
    _check(asked, m.destination)
    for name in asked.__struct_fields__:
        theirs, ours = getattr(asked, name), getattr(known, name)
        if None not in (theirs, ours) and theirs != ours:
            raise IllegalStateError(
                f"{m.destination!r} has {_WORDS[name]} {ours!r}, and was asked for with "
                f"{theirs!r}: all consumers of a queue ask for the same, or leave it out"
            )
    return asked.over(known)


_WORDS = {
    "delay_ms": "a redelivery_delay in ms of",
    "factor": "a redelivery_factor of",
    "most_ms": "a redelivery_most in ms of",
    "deliveries": "deliveries",
    "dead_letters": "dead_letters",
}


def _check(asked: Redelivery, destination: str) -> None:
    for wait in (asked.delay_ms, asked.most_ms):
        if wait is not None and not 0 <= wait <= WAIT_MAX_MS:
            raise ResourceAllocationError(f"a redelivery waits 0 to {WAIT_MAX_MS} ms, not {wait}")
    if asked.factor is not None and not 1 <= asked.factor <= FACTOR_MAX:
        raise ResourceAllocationError(
            f"a redelivery_factor is 1 to {FACTOR_MAX:g}, not {asked.factor}"
        )
    if asked.deliveries is not None and not 1 <= asked.deliveries <= DELIVERIES_MAX:
        raise ResourceAllocationError(f"deliveries is 1 or more, not {asked.deliveries}")
    if asked.dead_letters is not None:
        kind, _ = names.parse(asked.dead_letters)
        if kind != names.QUEUE or asked.dead_letters == destination:
            raise InvalidDestinationError(
                f"{asked.dead_letters!r} cannot have the dead letters of {destination!r}: another "
                "queue can, which is not temporary"
            )


def dead_letters(queue: Queue | None) -> str:
    """Return the name of the queue for messages of this queue that are given up."""
    asked = queue.redelivery.dead_letters if queue is not None else None
    return asked or names.DEAD_LETTERS


def with_terms(b: State, session: Session, body: cw.Body, result: cw.Result) -> cw.Result:
    """Return the answer to a client that has opened a consumer, with the terms of redelivery."""
    if not isinstance(body, cw.OpenConsumer | cw.Join) or result.code:
        return result
    consumer = session.consumers[body.consumer]
    subscription, queue = b.subscription(consumer), b.queues.get(consumer.destination)
    if subscription is not None and subscription.waits > b.stamp:
        return msgspec.structs.replace(result, wait=subscription.waits - b.stamp)
    if subscription is None and queue is not None and queue.redelivery != Redelivery():
        return msgspec.structs.replace(result, redelivery=queue.redelivery)
    return result
