"""The messages that a transacted session has sent since its last commit.

Its messages leave like all others, but the servers keep them invisible until they are committed; so
a transaction may be larger than this process, and a commit has little left to do. A request about
them follows when all have left.
"""

from __future__ import annotations

from antiphon.api.protocol.outbox import Batch
from antiphon.api.protocol.ticket import Ticket
from antiphon.formats.protocol import Sent


class Transaction:
    """The batches of one transaction, in the order in which they were sent. It is false while
    there are none."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []  # with no messages of others
        self.committed = Ticket()
        """Settled when all of it is visible; never, if it is not committed."""

    def __bool__(self) -> bool:
        return bool(self.batches)

    def add(self, batch: Batch) -> None:
        """Make this batch a part of the transaction, if it is not yet."""
        if not self.batches or self.batches[-1] is not batch:
            batch.looked_at = True  # the commit reports its errors
            self.batches.append(batch)

    def sent(self) -> tuple[Sent, ...]:
        """Return the ranges of messages, in the order in which they were sent."""
        found: list[Sent] = []
        for batch in self.batches:
            producer = batch.stream.producer
            if found and found[-1][0] == producer and found[-1][2] + 1 == batch.first:
                found[-1] = (producer, found[-1][1], batch.last)
            else:
                found.append((producer, batch.first, batch.last))
        return tuple(found)
