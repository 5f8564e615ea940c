"""Steps that the tests of blocks have in common."""

from __future__ import annotations

import threading
from contextlib import suppress
from queue import SimpleQueue
from typing import Any

import antiphon
from antiphon.errors import OutcomeUnknownError
from tests.api.support.fronts import PATIENCE_S


class Held:
    """A handler that waits inside until it is let go."""

    def __init__(self, patience_s: float = PATIENCE_S) -> None:
        self.entered: SimpleQueue[Any] = SimpleQueue()
        self.forgotten = False  # nobody let it go
        self._free = threading.Event()
        self._patience_s = patience_s

    def __call__(self, body: Any = None) -> Any:
        self.entered.put(body)
        self.forgotten = not self._free.wait(self._patience_s)
        return "late"

    def wait_until_entered(self) -> None:
        self.entered.get(timeout=PATIENCE_S)

    def let_go(self) -> None:
        self._free.set()


def remove(ctx: antiphon.Context, group: str, *names: str) -> None:
    """Remove members, as a program outside the group does it in plain JMS."""
    properties = {"JMS_remove": " ".join(names)}
    ctx.create_producer().send(ctx.create_topic(group), "", properties=properties)


def buried(ctx: antiphon.Context) -> None:
    """Close what was abandoned: nobody answers it."""
    with suppress(OutcomeUnknownError):
        ctx.close()
