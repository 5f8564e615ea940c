"""The answers of servers to one session: about its packs, requests, acknowledgements and consumers.

Promises: a request that is answered twice is settled once, and a message that is delivered twice
arrives once; an answer without a request is a `FormatError`. The answers that end the session, or
send it to another server, are in `conversation.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from antiphon.api.protocol.effects import Arrived, Complete, Dropped, Event, Occurred, Settled
from antiphon.api.protocol.inbox import Slice
from antiphon.api.protocol.inbox_items import GroupColumns, PerishableColumns
from antiphon.api.protocol.outbox import Outbox
from antiphon.api.protocol.receipts import QueueReceipts, Receipts, TopicReceipts
from antiphon.api.protocol.requests import OPENING, Request, Unanswered
from antiphon.api.protocol.state_transfer import States
from antiphon.api.protocol.ticket import Ticket
from antiphon.errors import FormatError
from antiphon.formats import protocol as cw
from antiphon.formats.columns import Columns
from antiphon.formats.pack import SPECIAL
from antiphon.formats.protocol.refusals import error_of
from antiphon.model.redelivery import Redelivery

Handler = Callable[[Any, int], None]


class Answers:
    """Takes answers, with the time, and adds their results to the events of the conversation.

    Needs: the parts of the conversation that wait for answers, and `closed`, which is called when
    the servers have closed the session as the application had asked.
    """

    def __init__(
        self,
        outbox: Outbox,
        unanswered: Unanswered,
        states: States,
        events: list[Event],
        closed: Callable[[], None],
    ) -> None:
        self._outbox = outbox
        self._unanswered = unanswered
        self._states = states
        self._events = events
        self._closed = closed
        self._receipts: dict[int, Receipts] = {}  # by consumer
        self.handlers: dict[type, Handler] = {
            cw.Published: self._on_published,
            cw.NotPublished: self.on_not_published,
            cw.Result: self._on_result,
            cw.Acked: self._on_acked,
            cw.Deliver: self._on_deliver,
            cw.Happened: self._on_happened,
            cw.Browsed: self._on_browsed,
            cw.ConsumerEnded: self._on_consumer_ended,
            cw.StateComes: states.received,
            cw.StateChunk: states.received,
            cw.StateTaken: states.received,
            cw.StateFailed: states.received,
            cw.StateStopped: states.received,
            cw.Pong: self._on_pong,
        }

    def settled(self, tickets: Iterable[Ticket]) -> None:
        """Report that these were settled."""
        self._events += map(Settled, tickets)

    # -- Consumers ------------------------------------------------------------------------------

    def open(self, consumer: int, divided: bool) -> None:
        """Take messages for this consumer from now on. `divided`: it shares its messages with
        others."""
        self._receipts[consumer] = QueueReceipts(consumer) if divided else TopicReceipts(consumer)

    def forget(self, consumer: int) -> bool:
        """Take nothing more for this consumer; return whether it was known."""
        self._states.leave(consumer)
        return self._receipts.pop(consumer, None) is not None

    def forget_all(self) -> None:
        """Take nothing more: the session is over."""
        self._receipts.clear()

    def seen(self) -> tuple[cw.Seen, ...]:
        """Return the receipts of each consumer, for a new server of the session."""
        return tuple(receipts.seen() for receipts in self._receipts.values())

    def failed(self, row: cw.AckRow) -> None:
        """Note that the client could not handle these messages, and they will come again."""
        if (receipts := self._receipts.get(row.consumer)) is not None:
            receipts.failed(row.first, row.last, row.deliveries)

    def _acknowledged(self, rows: Iterable[cw.AckRow]) -> None:
        for row in rows:
            receipts = self._receipts.get(row.consumer)
            if receipts is not None:
                receipts.acknowledged(row)

    # -- Answers to packs and requests -----------------------------------------------------------

    def _on_published(self, m: cw.Published, _: int) -> None:
        self.settled(self._outbox.published(m.producer, m.sequence))

    def on_not_published(self, m: cw.NotPublished, _: int) -> None:
        """Take the refusal of a pack, on this connection or an earlier one."""
        stream = self._outbox.streams.get(m.producer)
        if stream is not None and m.first > stream.settled:  # otherwise it is known
            error = error_of(m.code, m.text)
            self.settled(self._outbox.refused(m.producer, m.first, m.last, error))

    def _on_result(self, m: cw.Result, _: int) -> None:
        request = self._unanswered.answered(m)
        if request is None:
            return
        if m.code:
            request.settle(error_of(m.code, m.text))
        else:
            request.data = m.data
            request.redelivery, request.wait_ms = m.redelivery or Redelivery(), m.wait
            request.settle(value=m.value)
        self._requested(request)
        self._events.append(Settled(request))

    def _requested(self, request: Request) -> None:
        """Carry out the changes here of a request that was granted or refused."""
        if isinstance(request.body, OPENING) and request.error is not None:
            self.forget(request.body.consumer)
        elif isinstance(request.body, cw.StateDone):
            self._states.granted(request.body, request.value)
        elif isinstance(request.body, cw.OpenProducer) and request.error is None:
            self._outbox.open(request.body.producer, request.value)
        elif isinstance(request.body, cw.Commit) and request.error is None:
            self._acknowledged(request.body.rows)
        elif isinstance(request.body, cw.CloseSession):
            self._closed()

    def _on_acked(self, m: cw.Acked, _: int) -> None:
        for ack in self._unanswered.acked(m.number):
            self._acknowledged(ack.rows)
            ack.settle()
            self._events.append(Settled(ack))

    # -- Deliveries to consumers ----------------------------------------------------------------

    def _on_deliver(self, m: cw.Deliver, now_ms: int) -> None:
        receipts = self._receipts.get(m.consumer)
        if receipts is None:
            return  # closed meanwhile; it goes back
        columns = GroupColumns(m.pack, m.view) if m.view else Columns(m.pack)
        if columns.header.flags & SPECIAL and not m.view and not m.reason:  # dead letters stay
            columns = PerishableColumns(m.pack, now_ms - m.age)
        columns.stamp, columns.reason = m.stamp, m.reason
        if m.position <= 0 or m.deliveries <= 0:
            raise FormatError(f"a message at position {m.position}, delivery {m.deliveries}")
        end = m.position + columns.count
        for first, last in receipts.new(m.position, end - 1, m.deliveries):
            at, end = first - m.position, last + 1 - m.position
            slice_ = Slice(columns, m.position, at, end, m.deliveries)
            self._events.append(Arrived(m.consumer, slice_))

    def _on_happened(self, m: cw.Happened, _: int) -> None:
        receipts = self._receipts.get(m.consumer)
        if receipts is None:
            return  # closed meanwhile
        if not isinstance(receipts, TopicReceipts) or m.event.serial <= 0:
            raise FormatError(f"consumer {m.consumer} is not a member of a group")
        if receipts.new_event(m.event.serial):
            self._events.append(Occurred(m.consumer, m.event))

    def _on_browsed(self, m: cw.Browsed, _: int) -> None:
        if m.consumer in self._receipts:
            self._events.append(Complete(m.consumer))

    def _on_consumer_ended(self, m: cw.ConsumerEnded, _: int) -> None:
        # A server that does not know of the consumer yet answers the same.
        asked = self._unanswered.opens(m.consumer)
        if not asked and self.forget(m.consumer):
            self._events.append(Dropped(m.consumer, error_of(m.code, m.text)))

    def _on_pong(self, _: cw.Pong, __: int) -> None:
        pass  # a sign of life, and nothing else
