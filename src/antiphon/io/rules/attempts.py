"""When a call that asks servers tries another one, and when it gives up.

Promises: a call gives up only when it has tried each server, and none has made progress for the
whole of its time; its error has the fate of each last attempt. Messages count as gone when every
server has said so, one after the other.
"""

from __future__ import annotations

from collections import deque

from antiphon.errors import ConnectionLostError, MessagesGoneError, OutcomeUnknownError

PATIENCE_S, PATIENCE_MAX_S = 3.0, 15.0
"""A server that makes no progress for `PATIENCE_S` is left for another one; the patience doubles
each time, for perhaps all servers are slow, and asking everything again makes that worse."""

REDIAL_S = 0.1
"""The pause after a connection that was refused or lost."""


class Attempts:
    """The attempts of one call."""

    def __init__(self, timeout: float, servers: int, wanted: str) -> None:
        """`timeout`: seconds without progress after which the call raises; `servers`: how many
        there are; `wanted`: for errors."""
        self.wanted = wanted
        self._timeout = timeout
        self._servers = servers
        self._last: deque[str] = deque(maxlen=servers)  # the fate of the last attempts
        self.got_on()

    def got_on(self) -> None:
        """Note that there was progress, and begin to count again."""
        self.patience = min(PATIENCE_S, self._timeout)
        self._gone = 0  # servers in a row that keep less than is wanted
        self._deadline: float | None = None
        if self._last:
            self._last.clear()

    def failed(self, error: OSError | MessagesGoneError, now_s: float) -> float:
        """Return the pause in seconds before the next attempt. Raise if there should be none."""
        if isinstance(error, MessagesGoneError):
            self._gone += 1
            if self._gone >= self._servers:
                raise error
            return 0.0
        self._last.append(str(error))
        if self._deadline is None:
            self._deadline = now_s + self._timeout
        elif now_s > self._deadline and len(self._last) == self._servers:
            kind = OutcomeUnknownError if isinstance(error, TimeoutError) else ConnectionLostError
            raise kind(
                f"{self.wanted}: no server has made progress for {self._timeout:g} s; the last "
                f"attempts: {'; '.join(self._last)}"
            ) from None
        if isinstance(error, TimeoutError):
            self.patience = min(2 * self.patience, PATIENCE_MAX_S)
            return 0.0
        return REDIAL_S
