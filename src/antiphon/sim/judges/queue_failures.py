"""Messages of queues that could not be handled, judged at each assignment.

A failed message comes again, to any consumer, with the next count: not before its wait is over by
the log's time, and from then on it is held no longer. A report about an earlier delivery changes
nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from antiphon.broker.machine import events as ev
from antiphon.formats import protocol as cw
from antiphon.sim.violations import ViolationError

Reader = tuple[int, int]  # session and consumer


class Failure(NamedTuple):
    """A delivery that failed, and when the next one is due."""

    due: int  # a stamp
    deliveries: int


class Failures:
    """Judges when messages come again that could not be handled."""

    def __init__(
        self, name_of: Callable[[Reader], str], has_let_go: Callable[[Reader], bool]
    ) -> None:
        self._name_of = name_of
        self._has_let_go = has_let_go
        self._with: dict[tuple[str, int], tuple[Reader, int]] = {}  # its consumer, which delivery
        self._failed: dict[tuple[str, int], Failure] = {}

    def failed(self, reader: Reader, row: cw.AckRow, stamp: int) -> None:
        """Note a failure that its consumer reports, with the entry of this stamp."""
        name = self._name_of(reader)
        for position in range(row.first, row.last + 1):
            holder, deliveries = self._with.get((name, position), (reader, row.deliveries + 1))
            if holder == reader and deliveries <= row.deliveries and not self._has_let_go(reader):
                del self._with[name, position]
                self._failed[name, position] = Failure(stamp + row.wait, row.deliveries)

    def assigned(self, event: ev.Assigned, stamp: int) -> None:
        reader = (event.session, event.consumer)
        name = self._name_of(reader)
        for position in range(event.first, event.last + 1):
            self._with[name, position] = (reader, event.deliveries)
            failure = self._failed.pop((name, position), None)
            if failure is None:
                continue
            if stamp < failure.due:
                raise ViolationError(
                    f"{name} gave {position} to {reader} at {stamp}, and it was to wait until "
                    f"{failure.due}"
                )
            if event.deliveries != failure.deliveries + 1:
                raise ViolationError(
                    f"{name} counts {event.deliveries} deliveries of {position}, and the one that "
                    f"failed was {failure.deliveries}"
                )

    def is_held(self, where: str, until: int, stamp: int) -> None:
        """Judge that the queue of this name holds messages, after an entry, until this stamp."""
        if until <= stamp:
            raise ViolationError(f"{where} holds at {stamp} what was to wait until {until}")
