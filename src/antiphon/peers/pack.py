"""The messages of a pack on their way to the program: one by one, or lent to a loop.

A loop over thousands of messages would pay with each of them for a lock and for a look at what has
changed meanwhile. So it is lent all that are left of a pack, and takes them without either.
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import length_hint

from antiphon.api.messages.arriving import arrived_together
from antiphon.api.messages.message import Arrival, Message


class Pack:
    """The messages of one pack, each handed out once, in their order.

    Promise: whoever asks for more gets what the loop has not taken, and the loop gets no more of
    it: of two threads that take from one iterator, each gets what the other does not. Need: a lock
    around all methods; what was lent is taken without.
    """

    __slots__ = ("_arrival", "_count", "_indexes", "_is_lent", "_messages")

    def __init__(self, arrival: Arrival, count: int) -> None:
        self._arrival = arrival
        self._count = count
        self._begin(0)

    def next(self) -> Message | None:
        """Return the next message; None: all are handed out."""
        self.call_in()
        return next(self._messages, None)

    def lend(self) -> Iterator[Message] | None:
        """Return what is left, for a loop; None: all are handed out."""
        self.call_in()
        if not length_hint(self._indexes):
            return None
        self._is_lent = True
        return self._messages

    def call_in(self) -> None:
        """Take back what a loop has not taken."""
        if self._is_lent:
            self._begin(next(iter(list(self._indexes)), self._count))

    def _begin(self, first: int) -> None:
        self._is_lent = False
        self._indexes: Iterator[int] = iter(range(first, self._count))
        self._messages: Iterator[Message] = arrived_together(
            self._arrival, first, self._count, self._indexes
        )
