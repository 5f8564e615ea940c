"""What a conversation asks its servers for, until it is answered: requests and acknowledgements.

Promise: a request leaves only after the acknowledgements before it are certain, and after all packs
of its transaction have left; one that no server could read is refused here.
"""

from __future__ import annotations

from antiphon.api.protocol.ticket import Ticket
from antiphon.api.protocol.transaction import Transaction
from antiphon.errors import FormatError
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
        self.redelivery = Redelivery()  # what its queue was asked for with
        self.wait_ms = 0  # before the consumer that was asked for hands anything out

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
        self.patient = patient  # nobody waits for it


def check_readable(body: cw.Body) -> None:
    """Raise `TypeError` if a server could not read this: it ends the connection of a client that
    sends it such a thing."""
    try:
        cw.decode_request(cw.encode(cw.Control(1, body)))
    except (TypeError, ValueError, OverflowError, FormatError) as error:
        raise TypeError(f"an argument cannot be sent to a server: {error}") from None
