"""A ticket: an outcome that is settled once, later; its watchers are called then.

Promise: each watcher is called exactly once, for any order of `watch` and `tell`, from any threads.
To settle and to tell are two steps, since watchers run code that must not be called while a lock is
held.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from antiphon.errors import JMSError


class Ticket:
    """The future outcome of a request: `done`, and then either `error` or `value`. The conversation
    settles it under its lock; its driver calls `tell` without."""

    __slots__ = ("_watchers", "done", "error", "looked_at", "value")

    def __init__(self) -> None:
        self.done = False
        self.error: JMSError | None = None
        self.value = 0
        self.looked_at = False  # the program has asked for the error
        self._watchers: deque[Callable[[], object]] = deque()

    def watch(self, call: Callable[[], object]) -> None:
        """Have `call` called when the ticket is settled; at once, if it is."""
        self._watchers.append(call)
        if self.done:
            self.tell()

    def settle(self, error: JMSError | None = None, value: int = 0) -> None:
        """Set the outcome. No watcher is called yet."""
        self.error = error
        self.value = value
        self.done = True

    def tell(self) -> None:
        """Call the watchers. Call this after `settle`, without holding a lock."""
        while True:
            try:
                call = self._watchers.popleft()
            except IndexError:
                return
            call()

    def outcome(self) -> int:
        """Return the value, or raise the error."""
        self.looked_at = True
        if self.error is not None:
            raise self.error
        return self.value
