"""The cursor of a topic's consumer: how far its deliveries are.

Promise: `room` is never more than the consumer's window, nor more than may be sent beyond the
messages that the state machine knows to be acknowledged.
"""

from __future__ import annotations

from antiphon.broker.dispatch.audience import Audience
from antiphon.broker.dispatch.outlets import Outlet
from antiphon.broker.machine.consumers.consumer import Consumer
from antiphon.broker.machine.ranges import Range, Spans
from antiphon.broker.machine.topics import RESERVE, Subscription
from antiphon.formats import protocol as cw
from antiphon.model.selectors.evaluate import Selector, parse

WINDOW_BYTES = 16 << 20
"""Sent to one consumer of a topic and not acknowledged by it; at most one pack goes beyond that."""


class TopicCursor:
    """How far the deliveries to one consumer of a topic are."""

    def __init__(
        self,
        consumer: Consumer,
        subscription: Subscription,
        outlet: Outlet,
        audience: Audience[TopicCursor],
    ) -> None:
        self.consumer = consumer
        self.subscription = subscription
        self.outlet = outlet
        self.audience = audience
        self.selector: Selector | None = parse(subscription.selector)
        # The next position to look at. With a selector, and caught up, it may be an older one.
        self.next = subscription.floor + 1
        self.caught_up = False
        self.behind = 0  # messages that came while it lagged
        self.rank = 0  # messages sent since it was opened
        self.unacked = Spans()  # sent, and not acknowledged by the client
        self.unacked_bytes = 0  # about
        self.unsettled = Spans()  # sent, and not known to the state machine as acknowledged
        self.had = 0  # the client had everything up to here when it came here from elsewhere
        self.uncounted: Range | None = None  # the part of it that is in neither of these yet
        self.passed = 0  # the last position that it was not sent, for it was not wanted or over
        self.moved_to = 0  # the floor, when the log knows the rows sent from here, and
        self.moved_ms = 0  # when that was
        self.buried = False  # a message was given up since the last acknowledgement
        self.burying = False  # and the log does not know yet; so later messages wait here
        self.event = 0  # of a group: its events up to here were sent
        self.waits = False  # of a member: for its state; so messages wait here
        self.told: cw.StateComes | None = None  # the last notice of that

    @property
    def room(self) -> int:
        """How many messages its client may still be sent."""
        prefetch = self.consumer.prefetch
        if self.waits or self.burying or self.unacked_bytes >= WINDOW_BYTES:
            return 0
        return min(prefetch - self.unacked.count, prefetch * RESERVE - self.unsettled.count)

    def acked(self, first: int, last: int) -> None:
        """The client has acknowledged these."""
        before = self.unacked.count
        self.unacked.take(first, last)
        if before:
            self.unacked_bytes = self.unacked_bytes * self.unacked.count // before

    @property
    def passed_to(self) -> int:
        """The position up to which there may be messages that it was not sent."""
        return self.passed if self.selector is None else max(self.passed, self.audience.passed)

    def skip(self) -> None:
        """Note that the floor may have moved by itself: messages in the state that a member takes
        over are not for it any more, and do not fill its window."""
        floor = self.subscription.floor
        self.acked(1, floor)
        self.unsettled.take(1, floor)
        self.next = max(self.next, floor + 1)

    def sent(self, first: int, last: int) -> None:
        """These were sent to the client."""
        self.unacked.add(first, last, 1)
        self.unsettled.add(first, last, 1)
        self.rank += last - first + 1

    def done_to(self, dispatched: int) -> int:
        """Return the position up to which the client was sent all that is for it, and the log has
        its acknowledgements. `dispatched`: up to there those who are caught up have been served."""
        if self.waits or self.uncounted is not None or self.subscription.base is not None:
            return 0  # the number of messages at the client is not known here
        unsettled = next(iter(self.unsettled), None)
        if unsettled is not None:
            return unsettled[0] - 1
        return dispatched if self.caught_up else self.next - 1
