"""The requests and acknowledgements of a conversation, kept until its servers answer them.

Promises: requests leave one at a time and in order, each only after the acknowledgements before it
are certain and all packs of its transaction have left; after a lost connection all requests without
an answer leave again, under the same numbers; one that no server could read is refused here; an
answer without a request is a `FormatError`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from antiphon.api.protocol.ticket import Ticket
from antiphon.api.protocol.transaction import Transaction
from antiphon.errors import FormatError, Happened, JMSError
from antiphon.formats import protocol as cw
from antiphon.model.redelivery import Redelivery


class Request(Ticket):
    """A control request. Its value and data are those of the server's `Result`."""

    __slots__ = (
        "after_ack",
        "body",
        "data",
        "number",
        "redelivery",
        "sent",
        "transaction",
        "wait_ms",
    )

    def __init__(self, body: cw.Body, number: int, after_ack: int) -> None:
        super().__init__()
        self.body = body
        self.number = number
        self.after_ack = after_ack  # not before this acknowledgement is certain
        self.transaction: Transaction | None = None  # not before all of it has left
        self.sent = False
        self.data = b""
        self.redelivery = Redelivery()  # the terms of its queue
        self.wait_ms = 0  # until the new consumer hands out its first message

    @property
    def may_leave(self) -> bool:
        """Return whether all packs of its transaction have left."""
        return self.transaction is None or all(b.left for b in self.transaction.batches)


class Acknowledgement(Ticket):
    """Rows that were acknowledged together. It is settled when that is certain."""

    __slots__ = ("number", "patient", "rows")

    def __init__(self, number: int, rows: tuple[cw.AckRow, ...], patient: bool) -> None:
        super().__init__()
        self.number = number
        self.rows = rows
        self.patient = patient  # no call waits for it


class Unanswered:
    """The requests and acknowledgements of one session that have no certain answer, in the order in
    which they were made. The session's conversation settles them."""

    def __init__(self) -> None:
        self.requests: deque[Request] = deque()  # the first one may have been sent
        self.acks: deque[Acknowledgement] = deque()  # not known to have arrived
        self.acks_to_send: deque[Acknowledgement] = deque()
        self._request_number = 0
        self._ack_number = 0
        self._acked_number = 0

    def request(self, body: cw.Body) -> Request:
        """Return a new request; raise `TypeError` if a server could not read it."""
        check_readable(body)
        if self.acks and self.acks[-1].patient:
            self.acknowledge((), patient=False)  # this request waits for those before it
        self._request_number += 1
        request = Request(body, self._request_number, self._ack_number)
        self.requests.append(request)
        return request

    def acknowledge(self, rows: Iterable[cw.AckRow], patient: bool) -> Acknowledgement:
        """Return a new acknowledgement of these rows."""
        self._ack_number += 1
        ack = Acknowledgement(self._ack_number, tuple(rows), patient)
        self.acks.append(ack)
        self.acks_to_send.append(ack)
        return ack

    def take_acks(self) -> list[cw.Ack]:
        """Return the acknowledgements that leave now."""
        leaving = [cw.Ack(ack.number, ack.rows, ack.patient) for ack in self.acks_to_send]
        self.acks_to_send.clear()
        return leaving

    def take_request(self) -> cw.Control | None:
        """Return the request that leaves now, behind the packs that have left, if there is one."""
        if not self.requests or self.requests[0].sent:
            return None
        request = self.requests[0]
        if request.after_ack > self._acked_number or not request.may_leave:
            return None
        request.sent = True
        return cw.Control(request.number, request.body)

    def send_again(self) -> None:
        """Let all requests leave again, on another connection."""
        self.acks_to_send = deque(self.acks)
        if self.requests:
            self.requests[0].sent = False

    def answered(self, answer: cw.Result) -> Request | None:
        """Return the request that this answers, which leaves the queue; None: it was answered
        before."""
        if answer.number <= self._request_number - len(self.requests):
            return None
        request = self.requests[0] if self.requests else None
        if request is None or answer.number != request.number or not request.sent:
            raise FormatError(f"an answer to request {answer.number}, which was not made")
        return self.requests.popleft()

    def acked(self, number: int) -> list[Acknowledgement]:
        """Return the acknowledgements that are certain now: those up to this number."""
        if number > self._ack_number:
            raise FormatError(f"acknowledgement {number} was not sent")
        self._acked_number = max(self._acked_number, number)
        certain: list[Acknowledgement] = []
        while self.acks and self.acks[0].number <= number:
            certain.append(self.acks.popleft())
        return certain

    def opens(self, consumer: int) -> bool:
        """Return whether a request to open this consumer has no answer yet."""
        bodies = (request.body for request in self.requests)
        return any(isinstance(body, OPENING) and body.consumer == consumer for body in bodies)

    def fail(
        self, problem: Callable[[Happened], JMSError], sent: Happened, granted: Request | None
    ) -> list[Ticket]:
        """Settle all requests with errors and forget them, since the session is over. `problem`
        makes an error of `happened`, which is `sent` for requests that a server may have received.
        `granted` is settled without an error. Return the tickets that were settled."""
        for request in self.requests:
            if request is granted:
                request.settle()
            else:
                request.settle(problem(sent if request.sent else "no"))
        for ack in self.acks:
            ack.settle(problem(sent))
        failed: list[Ticket] = [*self.requests, *self.acks]
        self.requests.clear()
        self.acks.clear()
        self.acks_to_send.clear()
        return failed


OPENING = (cw.OpenConsumer, cw.Join)
"""The requests that open a consumer."""


def check_readable(body: cw.Body) -> None:
    """Raise `TypeError` if a server could not read this: it would end the connection of its
    client."""
    try:
        cw.decode_request(cw.encode(cw.Control(1, body)))
    except (TypeError, ValueError, OverflowError, FormatError) as error:
        raise TypeError(f"an argument cannot be sent to a server: {error}") from None
