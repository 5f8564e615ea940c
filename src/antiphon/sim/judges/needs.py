"""The messages that a consumer may still get, one by one; and a check that none of them was given
up before.

A journal gets ranges (`State.live`), which may have messages that no consumer needs. A
subscription's range leads from its floor to the last message for it. There is none while no message
for it waits, and the journal deletes messages that no other consumer may get; the next message for
it brings the range back, over deleted messages as well, of which none was for it.
"""

from __future__ import annotations

from antiphon.broker.machine.machine import Broker
from antiphon.broker.machine.ranges import Spans
from antiphon.broker.machine.topics import Subscription
from antiphon.sim.judges.message_ledger import Ledger
from antiphon.sim.violations import ViolationError


def is_needed(broker: Broker, position: int, destination: str) -> bool:
    """Return whether a consumer may still get this message, which was sent there."""
    kept = [*broker.last_values.live(), *(r for q in broker.queues.values() for r in q.live())]
    return any(first <= position <= last for first, last in kept) or any(
        subscription.matches(destination) and _may_get(subscription, position)
        for subscription in broker.topics.subscriptions.values()
    )


def _may_get(subscription: Subscription, position: int) -> bool:
    # A state that is not acknowledged may be lost; then the messages in it come again.
    place = subscription.floor if subscription.base is None else subscription.base
    ends = position if subscription.ends is None else subscription.ends
    return place < position <= ends and not subscription.acked.deliveries(position)


class GivenUp:
    """Messages that were in no live range after some entry: any journal may have deleted them."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._spans = Spans()

    def applied(self, broker: Broker) -> None:
        """Judge the state right after an entry; call it for each, in the order of the log. Raise
        `ViolationError`."""
        live = Spans((first, last, 1) for first, last in broker.live())
        for first, last, _ in live:
            for low, high, _ in self._spans.between(first, last):
                self._look_at(broker, range(low, high + 1))
        for first, last in live.gaps(1, broker.position):
            for low, high in self._spans.gaps(first, last):
                self._spans.add(low, high, 1)

    def _look_at(self, broker: Broker, positions: range) -> None:
        for position in positions:
            destination = self._ledger.destinations[position]
            if is_needed(broker, position, destination):
                raise ViolationError(
                    f"position {position} of {destination} was in no live range, and is needed"
                )
