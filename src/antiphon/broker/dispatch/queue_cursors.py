"""Cursors of queues: the messages that one consumer, or one browser, still has to be sent."""

from __future__ import annotations

from antiphon.broker.dispatch.outlets import Outlet
from antiphon.broker.machine.consumers.consumer import Consumer
from antiphon.broker.machine.ranges import Range, Span, Spans
from antiphon.model.selectors.evaluate import Selector, parse


class QueueCursor:
    """The messages that one consumer of a queue was assigned, and was not sent."""

    def __init__(self, consumer: Consumer, outlet: Outlet, pending: list[Span]) -> None:
        self.consumer = consumer
        self.outlet = outlet
        self.pending = pending
        self.selector: Selector | None = parse(consumer.selector)
        self.looked = 0  # with a selector: waiting messages up to here were looked at
        self.returned = -1  # as of this state of the queue
        self.claims = 0  # rows on their way into the log
        self.buried = False  # one was given up since its last acknowledgement


class BrowserCursor:
    """The messages that a browser is still to be sent."""

    def __init__(self, consumer: Consumer, outlet: Outlet, ranges: list[Range]) -> None:
        self.consumer = consumer
        self.outlet = outlet
        self.ranges = ranges
        self.selector: Selector | None = parse(consumer.selector)
        self.unacked = Spans()
        self.done = False  # all was sent, and
        self.told = False  # it knows

    @property
    def room(self) -> int:
        """How many messages its client may still be sent."""
        return self.consumer.prefetch - self.unacked.count
