"""The whiteboard of a channel, between its program and the layer."""

from __future__ import annotations

from collections.abc import Mapping

from antiphon.model.peer_views import MemberId


class Board:
    """The newest number of each process, and one that the layer has still to take.

    Promise: a program reads what it has written itself at once. Threads: `put` and `take_written`
    are called with the channel's lock; everything else needs none.
    """

    def __init__(self, me: MemberId) -> None:
        self._me = me
        self._own: int | None = None
        self._others: Mapping[MemberId, int] = {}
        self.has_unwritten = False

    # -- For the program -------------------------------------------------------------------------

    def put(self, value: int) -> None:
        """Write a number of this process."""
        self._own = value
        self.has_unwritten = True

    def number_of(self, process: MemberId) -> int | None:
        """Return the newest number of a process that has arrived; None: it has written none."""
        return self._own if process == self._me else self._others.get(process)

    # -- For the driver --------------------------------------------------------------------------

    def take_written(self) -> int:
        """Return the number to write; the program may have written others before, which nobody
        needs. Only if `has_unwritten`."""
        assert self._own is not None
        self.has_unwritten = False
        return self._own

    def took(self, numbers: Mapping[MemberId, int]) -> None:
        """Take what the layer knows of all. It may not know yet what the program wrote last."""
        self._others = numbers
