"""Scripts: operations that wait, written once for both fronts.

A script is a generator that yields a `Pause` for each wait, and receives whether its ticket was
settled in time. The blocking front runs it by blocking (`api/waiting/threads.py`), the other one by
awaiting (`api/waiting/tasks.py`). A script that is abandoned (an interrupt, a cancelled task) is
closed, so its `finally` runs.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import NamedTuple, TypeAlias, TypeVar

from antiphon.api import arguments
from antiphon.api.protocol.ticket import Ticket

Outcome = TypeVar("Outcome")


class Pause(NamedTuple):
    """The ticket that a script waits for, and how long at most."""

    ticket: Ticket
    timeout: float | None = None  # seconds; None: as long as it takes


Script: TypeAlias = Generator[Pause, bool, Outcome]


class Deadline:
    """The end of a time limit in seconds; None, or infinity: there is none. Raise `TypeError` or
    `ValueError` for a limit that is not a number of seconds."""

    def __init__(self, seconds: float | None) -> None:
        limit = None if seconds is None else arguments.timeout("a timeout", seconds)
        self._end = None if limit is None else time.monotonic() + limit

    def left(self) -> float | None:
        """Return the seconds that are left; None: there is no limit."""
        return None if self._end is None else max(0.0, self._end - time.monotonic())


def ring(bells: set[Ticket]) -> None:
    """Settle all bells. Others may hang up bells, or take them down, meanwhile."""
    while bells:
        try:
            bell = bells.pop()
        except KeyError:
            return
        bell.settle()
        bell.tell()
