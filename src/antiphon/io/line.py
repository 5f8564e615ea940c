"""Asking servers without a session: a line to one of them, and an asker that tries one after the
other.

Promises: a call returns the answer of one server, or raises within about `timeout` seconds without
progress: a server's refusal at once; `OutcomeUnknownError` or `ConnectionLostError`, with the fate
of each attempt, when each server was tried and none has made progress.

When another server is tried, and when a call gives up, is decided in `rules/attempts.py`; here are
the connection, the loop and the thread that waits, and nothing that could be simulated without
them.

Needs requests that may be repeated: a server that does not answer is left for another one, which is
asked the same again. A line belongs to one thread at a time; its connection lives on the background
loop, so that it sends pings while its caller is busy.
"""

from __future__ import annotations

import asyncio
import queue
import time
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import TimeoutError as NotInTime
from types import TracebackType
from typing import Any, TypeVar

from antiphon.errors import FormatError, IllegalStateError, MessagesGoneError
from antiphon.formats import protocol as cw
from antiphon.formats.frames import Body
from antiphon.formats.protocol.refusals import error_of
from antiphon.io.background_loop import background_loop
from antiphon.io.client_link import ClientLink, Route
from antiphon.io.rules.attempts import Attempts

PING_S = 2.0
"""How often a line pings its server, however long its caller does nothing with it: servers end a
connection that is silent for 9 seconds."""

PONG = cw.encode(cw.Pong())

Wanted = TypeVar("Wanted", bound=cw.Answer)
Outcome = TypeVar("Outcome")


class Line:
    """A connection to one server, for a caller that asks and waits. The answers arrive on the
    background loop, and are taken by the caller in order."""

    def __init__(self, route: Route, patience: float) -> None:
        """Connect to the route's next server. Raise `OSError`, or an error of the family if no
        attempt can succeed."""
        self.patience = patience  # seconds that each answer may take; `TimeoutError` says it did
        self._at = route.next()
        self._arrived: queue.SimpleQueue[Sequence[Body] | None] = queue.SimpleQueue()
        self._bodies: deque[Body] = deque()
        self._closed = False
        dialling = route.dial(self._at, self._on_bodies, lambda _: self._arrived.put(None))
        try:
            self._link: ClientLink = on_the_loop(dialling, patience)
        except NotInTime:
            raise TimeoutError(f"{self._at}: it does not shake hands") from None
        except ConnectionError as error:
            raise ConnectionError(f"{self._at}: {error}") from None
        background_loop().call_soon_threadsafe(self._ping_later)

    def ask(self, request: cw.Request, kind: type[Wanted]) -> Wanted:
        """Return the answer to this request. Raise `OSError` if the server is gone or takes longer
        than the patience, and the error of a refusal."""
        self.send(request)
        answer = self.receive()
        if not isinstance(answer, kind):
            raise FormatError(f"a server answers with {type(answer).__name__}, not {kind.__name__}")
        return answer

    def send(self, request: cw.Request) -> None:
        """Send this, and do not wait."""
        background_loop().call_soon_threadsafe(self._link.send, [request])

    def receive(self) -> cw.Answer:
        """Return the next answer. Raise as `ask` does."""
        while not self._bodies:
            try:
                bodies = self._arrived.get(timeout=self.patience)
            except queue.Empty:
                raise TimeoutError(f"{self._at}: nothing came for {self.patience:g} s") from None
            if bodies is None:
                raise ConnectionError(f"{self._at}: the connection was lost")
            self._bodies.extend(bodies)
        answer = cw.decode_answer(self._bodies.popleft())
        if isinstance(answer, cw.Refused):
            raise error_of(answer.code or IllegalStateError.__name__, answer.reason)
        return answer

    def close(self) -> None:
        """End the connection."""
        self._closed = True
        background_loop().call_soon_threadsafe(self._link.close)

    def __enter__(self) -> Line:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # -- On the loop ---------------------------------------------------------------------------

    def _on_bodies(self, bodies: Sequence[Body]) -> None:
        answers = [body for body in bodies if body != PONG]
        if answers or not bodies:  # a part of a large answer is a reason to be patient
            self._arrived.put(answers)

    def _ping_later(self) -> None:
        background_loop().call_later(PING_S, self._ping)

    def _ping(self) -> None:
        if not self._closed:
            self._link.send([cw.Ping()])
            self._ping_later()


class Asker:
    """Asks the servers of a route, one after the other, until one answers; keeps the line to that
    one for the next question."""

    def __init__(self, route: Route, servers: int, timeout: float) -> None:
        """`servers`: how many the route has; `timeout`: seconds without progress after which a call
        raises."""
        self._route: Route | None = route
        self._servers = servers
        self._timeout = timeout
        self._line: Line | None = None

    def ask(self, wanted: str, ask: Callable[[Line], Outcome]) -> Outcome:
        """Return what `ask` returns for the first line that serves it. `wanted` is for errors."""
        attempts = self.attempts(wanted)
        while True:
            try:
                if self._line is None:
                    self._line = self.dial(attempts)
                self._line.patience = attempts.patience
                return ask(self._line)
            except (OSError, MessagesGoneError) as error:
                self._hang_up()
                self.failed(attempts, error)

    def attempts(self, wanted: str) -> Attempts:
        """Return the count of attempts for one call."""
        return Attempts(self._timeout, self._servers, wanted)

    def failed(self, attempts: Attempts, error: OSError | MessagesGoneError) -> None:
        """Return when another attempt should be made. Raise if there should be none."""
        if pause_s := attempts.failed(error, time.monotonic()):
            time.sleep(pause_s)

    def dial(self, attempts: Attempts) -> Line:
        """Return a line to the next server, which the caller closes."""
        if self._route is None:
            raise IllegalStateError(f"{attempts.wanted} cannot be asked for: this is closed")
        return Line(self._route, attempts.patience)

    def close(self) -> None:
        """Let go of the servers."""
        self._hang_up()
        if self._route is not None:
            route, self._route = self._route, None
            on_the_loop(route.release(), None)

    def _hang_up(self) -> None:
        if self._line is not None:
            self._line.close()
            self._line = None


def on_the_loop(work: Coroutine[Any, Any, Outcome], timeout: float | None) -> Outcome:
    """Return the outcome of this work on the background loop. Raise `TimeoutError` if it takes
    longer."""
    done = asyncio.run_coroutine_threadsafe(work, background_loop())
    try:
        return done.result(timeout)
    except NotInTime:
        done.cancel()
        raise
