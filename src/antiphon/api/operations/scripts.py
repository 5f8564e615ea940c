"""How the two fronts share everything but waiting.

An operation that waits is written once, as a *script*: a generator that yields what it waits for
and for how long, and is told whether that came in time. The blocking front runs it by blocking
(`sync.py`), the other one by awaiting (`aio.py`). A script that is abandoned (an interrupt, a
cancelled task) is closed, so its `finally` runs.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import NamedTuple, TypeAlias, TypeVar

from antiphon.api.operations import arguments
from antiphon.api.protocol.ticket import Ticket

Outcome = TypeVar("Outcome")


class Pause(NamedTuple):
    ticket: Ticket
    timeout: float | None = None  # seconds; None: as long as it takes


Script: TypeAlias = Generator[Pause, bool, Outcome]


class Deadline:
    """What is left of a time limit; None, or infinity: there is no limit. Raises `TypeError` or
    `ValueError` if a program gave none."""

    def __init__(self, seconds: float | None) -> None:
        limit = None if seconds is None else arguments.timeout("a timeout", seconds)
        self._end = None if limit is None else time.monotonic() + limit

    def left(self) -> float | None:
        return None if self._end is None else max(0.0, self._end - time.monotonic())


def ring(bells: set[Ticket]) -> None:
    """Settle them all. Others may hang up bells, or take them down, meanwhile."""
    while bells:
        try:
            bell = bells.pop()
        except KeyError:
            return
        bell.settle()
        bell.tell()
