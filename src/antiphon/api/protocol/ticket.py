"""A ticket: something that is settled once, later; who waits for it is called then.

Promise: each watcher is called exactly once, in whatever order `watch` and `tell` come, from
whatever threads. To settle and to tell are two steps, since watchers run code that must not be
called while a lock is held.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from antiphon.errors import JMSError


class Ticket:
    __slots__ = ("_watchers", "done", "error", "looked_at", "value")

    def __init__(self) -> None:
        self.done = False
        self.error: JMSError | None = None
        self.value = 0
        self.looked_at = False  # somebody knows of the error
        self._watchers: deque[Callable[[], object]] = deque()

    def watch(self, call: Callable[[], object]) -> None:
        """Have this called when all is settled; at once, if it is."""
        self._watchers.append(call)
        if self.done:
            self.tell()

    def settle(self, error: JMSError | None = None, value: int = 0) -> None:
        self.error = error
        self.value = value
        self.done = True

    def tell(self) -> None:
        """Call those who watch. To be called after `settle`, by who holds no lock."""
        while True:
            try:
                call = self._watchers.popleft()
            except IndexError:
                return
            call()

    def outcome(self) -> int:
        """The value, or the error raised."""
        self.looked_at = True
        if self.error is not None:
            raise self.error
        return self.value
