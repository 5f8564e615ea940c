"""When a server is dialled again, and which of its failures are news.

Promises: a server that is away is tried ever less often, and at least once in 1.5 times
`REDIAL_MAX_S`; servers that lost each other together do not dial in step.
"""

from __future__ import annotations

from collections.abc import Callable

REDIAL_MIN_S, REDIAL_MAX_S = 0.05, 1.0
"""The pause after a first failure, and the longest one; each is twice the one before it."""

JITTER = (0.5, 1.5)


class Redial:
    """The attempts to be connected to one server, each of which ends with a pause."""

    def __init__(self, uniform: Callable[[float, float], float]) -> None:
        """`uniform`: draws a number between two."""
        self._uniform = uniform
        self._pause_s = REDIAL_MIN_S
        self._began_s = 0.0
        self.complaint = ""  # of the last attempt

    def began(self, now_s: float) -> None:
        """Note that an attempt begins."""
        self._began_s = now_s

    def connected(self) -> None:
        """Note that it has succeeded: the next failure is news."""
        self.complaint = ""

    def pause_s(self, now_s: float) -> float:
        """Return how long to wait: the attempt has failed, or its connection was lost."""
        if now_s - self._began_s > REDIAL_MAX_S:
            self._pause_s = REDIAL_MIN_S  # it had worked for a while
        pause_s = self._pause_s * self._uniform(*JITTER)
        self._pause_s = min(2 * self._pause_s, REDIAL_MAX_S)
        return pause_s

    def is_news(self, complaint: str) -> bool:
        """Return whether the last attempt failed otherwise."""
        is_new = complaint != self.complaint
        self.complaint = complaint
        return is_new
