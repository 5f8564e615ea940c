"""The one flow of events of a server: what its group delivers, and the calls of its own threads."""

from __future__ import annotations

import threading
from collections import deque
from typing import Any

from antiphon.errors import IllegalStateError, JMSError, OutcomeUnknownError
from antiphon.toolkits.jbora.pure.events import LocalCall

ROOM = 64
"""This many events of the group wait here; more wait in the channel, which then holds up those who
send. Local calls need no room: each has a thread that waits."""


class Flow:
    """Events in one order, until it ends; any thread may call any method.

    Promise: events of the group keep their order. Each local call gets one response, or an error
    once it is certain that there will be none.
    """

    def __init__(self) -> None:
        self._news = threading.Condition()
        self._events: deque[Any] = deque()
        self._open: dict[LocalCall, _Response] = {}
        self._waiting = 0  # events of the group among them
        self._end: JMSError | None = None
        self.has_left = False  # the program wanted the end

    # -- Events ----------------------------------------------------------------------------------

    def put(self, event: Any) -> bool:
        """Add an event of the group; wait while there is no room. Return whether the flow goes
        on."""
        with self._news:
            self._news.wait_for(lambda: self._waiting < ROOM or self._end is not None)
            if self._end is None:
                self._waiting += 1
                self._events.append(event)
                self._news.notify_all()
            return self._end is None

    def take(self, timeout: float | None) -> Any:
        """Return the next event; None if none came in time, or the program has left meanwhile.
        Raise why the group is lost, after everything that came before."""
        with self._news:
            self._news.wait_for(lambda: self._events or self._end is not None, timeout)
            if self._events:
                event = self._events.popleft()
                if not isinstance(event, LocalCall):
                    self._waiting -= 1
                    self._news.notify_all()
                return event
            if self._end is not None and not self.has_left:
                raise _again(self._end)
            return None

    def lose(self, why: JMSError) -> None:
        """End the flow behind the last event, and all calls."""
        with self._news:
            self._finish(why)

    def leave(self, why: JMSError) -> None:
        """End the flow at once, and all calls."""
        with self._news:
            self.has_left = True
            self._events.clear()
            self._finish(why)

    def _finish(self, why: JMSError) -> None:
        """Caller holds the lock."""
        if self._end is None:
            self._end = why
        for response in self._open.values():
            response.settle(error=self._end)
        self._open.clear()
        self._news.notify_all()

    # -- Local calls -----------------------------------------------------------------------------

    def call(self, call: LocalCall, timeout: float | None) -> Any:
        """Add a call, and wait for the response."""
        response = _Response()
        with self._news:
            if self._end is not None:
                raise _again(self._end)
            self._open[call] = response
            self._events.append(call)
            self._news.notify_all()
        response.settled.wait(timeout)
        with self._news:
            if self._open.pop(call, None) is not None:
                raise self._late(call, timeout)
        if response.error is not None:
            raise _again(response.error)
        return response.value

    def _late(self, call: LocalCall, timeout: float | None) -> OutcomeUnknownError:
        """Return the error of a call that had no response in time. Caller holds the lock."""
        received = call not in self._events
        if not received:
            self._events.remove(call)
        return OutcomeUnknownError(
            f"{call!r} had no response within {timeout:g} s: it was "
            + ("received, and may still have an effect" if received else "not received"),
            happened="unknown" if received else "no",
        )

    def respond(self, call: LocalCall, value: Any) -> None:
        """Give a call its response; nothing happens if its caller waits no more."""
        with self._news:
            if call.responded:
                raise IllegalStateError(f"{call!r} has a response already")
            call.responded = True
            if (response := self._open.pop(call, None)) is not None:
                response.settle(value)


class _Response:
    """What a local call comes to."""

    def __init__(self) -> None:
        self.settled = threading.Event()
        self.value: Any = None
        self.error: JMSError | None = None

    def settle(self, value: Any = None, error: JMSError | None = None) -> None:
        self.value, self.error = value, error
        self.settled.set()


def _again(error: JMSError) -> JMSError:
    """Return an error of its own for each thread that raises it."""
    return type(error)(*error.args, happened=error.happened)
