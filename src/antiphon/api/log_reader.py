"""Reading a part of the log: which messages are kept, where a topic's are, and their packs.

Promises: what is told is accepted, and complete: `packs` yields every pack of a range once and in
order, whatever servers die meanwhile, or raises. Nothing is acknowledged, and nobody gets less for
it: it is not consuming. A server that does not get on is left for another one; when none has got on
for `timeout` seconds, the call raises.
"""

from __future__ import annotations

import asyncio
import queue
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from concurrent.futures import TimeoutError as NotInTime
from datetime import UTC, datetime, timedelta
from functools import partial
from types import TracebackType
from typing import Any, NamedTuple, TypeVar

from antiphon import errors
from antiphon.api.messages.destinations import Topic
from antiphon.api.operations import arguments
from antiphon.api.urls import Route, default_url, route_to
from antiphon.errors import (
    ConnectionLostError,
    FormatError,
    IllegalStateError,
    JMSError,
    MessagesGoneError,
    OutcomeUnknownError,
)
from antiphon.formats import pack as packs
from antiphon.formats import protocol as cw
from antiphon.formats.frames import Body
from antiphon.formats.pack import LogPack as LogPack
from antiphon.io.background_loop import background_loop
from antiphon.io.client_link import ClientLink

CREDIT_BYTES = 8 << 20
"""What a server may send ahead of who reads."""

PATIENCE_S, PATIENCE_MAX_S = 3.0, 15.0
"""A server that does not get on for so long is left for another one; the patience doubles each
time, for perhaps all of them are slow."""

PING_S = 2.0
"""So often it says something, however long its program does nothing with it: servers end a
connection that is silent for 9 seconds."""

PONG = cw.encode(cw.Pong())
REDIAL_S = 0.1
MESSAGES_A_SLICE = 1_000_000

Wanted = TypeVar("Wanted", bound=cw.Answer)
Outcome = TypeVar("Outcome")


class LogBounds(NamedTuple):
    """All messages from `first` to `last` are kept; `last` is `first - 1` if there are none."""

    first: int
    last: int


class LogSlice(NamedTuple):
    """So many messages of one topic, at positions from `first` to `last`, both its own."""

    topic: str
    first: int
    last: int
    messages: int


def open_log(url: str | None = None, *, timeout: float = 30.0) -> LogReader:
    """The log of a running server or cluster. Without a URL: `ANTIPHON_URL`, then `antiphon.toml`.
    `timeout`: seconds that a call goes on without getting anywhere."""
    return LogReader(url or default_url(), arguments.seconds("timeout", timeout))


class LogReader:
    """Reads the log of the servers at `url`, and connects when it is first asked for something.

    One thread at a time may use it. `close`, or the end of its `with` block, ends its connections.
    """

    def __init__(self, url: str, timeout: float) -> None:
        self.url = url
        self._route: Route | None = route_to(url)
        self._servers = url.count(",") + 1
        self._timeout = timeout
        self._line: Line | None = None  # for everything but packs

    def bounds(self) -> LogBounds:
        """What is kept now. Whatever was sent before this call is within the bounds, whichever
        server was asked; servers may keep different parts of the past."""
        found = self._ask("the bounds of the log", partial(_after_a_barrier, stamp=0))
        return LogBounds(found.first, found.last)

    def position_at(self, time: datetime | int) -> int:
        """The first position among those kept that was accepted at this time or later, by the
        clock of the log; behind the last one, if there is none. An int is in ms since 1970."""
        stamp = _milliseconds(time)
        return self._ask(f"the position at {time}", partial(_after_a_barrier, stamp=stamp)).at

    def slices(
        self,
        topics: str | Topic | Iterable[str | Topic],
        first: int,
        last: int,
        most: int = MESSAGES_A_SLICE,
    ) -> list[LogSlice]:
        """Where the messages of these topics, which may have wildcards, are between two positions,
        both included: by topic, then by position, at most about `most` in a slice. Raises
        `MessagesGoneError` if no server has all of that range."""
        names = tuple(_destinations(topics))
        _check_range(first, last)
        if arguments.number("most", most) < 1:
            raise ValueError(f"a slice has at least one message, not {most}")
        found: list[cw.LogSlice] = []
        while first <= last:
            request = cw.AskSlices(names, first, last, most)
            ask = partial(Line.ask, request=request, kind=cw.LogSlices)
            answer = self._ask(f"slices up to {last}", ask)
            found += answer.slices
            first = answer.following
        return _joined(found, most)

    def packs(self, topic: str | Topic, first: int, last: int) -> Iterator[LogPack]:
        """The packs of one topic with messages between two positions, both included, in order. The
        first and the last one may have messages beyond them."""
        (destination,) = _destinations([topic])
        _check_range(first, last)
        return self._packs(destination, first, last)

    def _packs(self, destination: str, first: int, last: int) -> Iterator[LogPack]:
        attempts = Attempts(self._timeout, self._servers, f"messages up to {last}")
        while True:
            try:
                with self._dial(attempts) as line:
                    for one in line.read(destination, first, last):
                        first = one.position + packs.read_header(one.pack).count
                        attempts.got_on()
                        yield one
                    return
            except (OSError, MessagesGoneError) as error:
                attempts.failed(error)

    def close(self) -> None:
        """What is being read can be read no further."""
        self._hang_up()
        if self._route is not None:
            route, self._route = self._route, None
            _on_the_loop(route.release(), None)

    def __enter__(self) -> LogReader:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # -- Connections ---------------------------------------------------------------------------

    def _ask(self, what: str, ask: Callable[[Line], Wanted]) -> Wanted:
        attempts = Attempts(self._timeout, self._servers, what)
        while True:
            try:
                if self._line is None:
                    self._line = self._dial(attempts)
                self._line.patience = attempts.patience
                return ask(self._line)
            except (OSError, MessagesGoneError) as error:
                self._hang_up()
                attempts.failed(error)

    def _dial(self, attempts: Attempts) -> Line:
        """To the next server."""
        if self._route is None:
            raise IllegalStateError("this log is closed")
        return Line(self._route, attempts.patience)

    def _hang_up(self) -> None:
        if self._line is not None:
            self._line.close()
            self._line = None


class Attempts:
    """When to try another server, and when to give up."""

    def __init__(self, timeout: float, servers: int, wanted: str) -> None:
        self._wanted = wanted
        self._timeout = timeout
        self._servers = servers
        self.got_on()

    def got_on(self) -> None:
        self.patience = min(PATIENCE_S, self._timeout)
        self._gone = 0  # servers in a row that no longer have what is wanted
        self._deadline: float | None = None

    def failed(self, error: OSError | MessagesGoneError) -> None:
        """Returns if there is to be another attempt; raises otherwise."""
        if isinstance(error, MessagesGoneError):
            self._gone += 1
            if self._gone >= self._servers:
                raise error
            return
        if self._deadline is None:
            self._deadline = time.monotonic() + self._timeout
        elif time.monotonic() > self._deadline:
            kind = OutcomeUnknownError if isinstance(error, TimeoutError) else ConnectionLostError
            raise kind(
                f"{self._wanted}: no server has got on for {self._timeout:g} s; the last attempt: "
                f"{error}"
            ) from None
        if isinstance(error, TimeoutError):
            self.patience = min(2 * self.patience, PATIENCE_MAX_S)
        else:
            time.sleep(REDIAL_S)


class Line:
    """A connection to one server. Its answers arrive on the event loop, and are taken here."""

    def __init__(self, route: Route, patience: float) -> None:
        """Raises `OSError`, or an error of the family if no attempt will do."""
        self.patience = patience  # seconds that each answer may take; `TimeoutError` says it did
        self._arrived: queue.SimpleQueue[Sequence[Body] | None] = queue.SimpleQueue()
        self._bodies: deque[Body] = deque()
        self._closed = False
        at = route.next()
        dialling = route.dial(at, self._on_bodies, lambda _: self._arrived.put(None))
        try:
            self._link: ClientLink = _on_the_loop(dialling, patience)
        except ConnectionError as error:
            raise ConnectionError(f"{at}: {error}") from None
        background_loop().call_soon_threadsafe(self._ping_later)

    def ask(self, request: cw.Request, kind: type[Wanted]) -> Wanted:
        self._send(request)
        answer = self._receive()
        if not isinstance(answer, kind):
            raise FormatError(f"a server answers with {type(answer).__name__}, not {kind.__name__}")
        return answer

    def read(self, destination: str, first: int, last: int) -> Iterator[LogPack]:
        self._send(cw.ReadLog(destination, first, last, CREDIT_BYTES))
        taken = 0
        while not isinstance(answer := self._receive(), cw.LogEnd):
            if not isinstance(answer, cw.Delivered):
                raise FormatError(f"a server answers with {type(answer).__name__}, not with a pack")
            taken += len(answer.pack)
            yield LogPack(answer.position, answer.stamp, answer.view, answer.pack)
            if taken > CREDIT_BYTES // 2:
                self._send(cw.Credit(taken))
                taken = 0

    def close(self) -> None:
        self._closed = True
        background_loop().call_soon_threadsafe(self._link.close)

    def _on_bodies(self, bodies: Sequence[Body]) -> None:
        answers = [body for body in bodies if body != PONG]
        if answers or not bodies:  # a part of something large is a reason to be patient
            self._arrived.put(answers)

    def _ping_later(self) -> None:
        background_loop().call_later(PING_S, self._ping)

    def _ping(self) -> None:
        if not self._closed:
            self._link.send([cw.Ping()])
            self._ping_later()

    def __enter__(self) -> Line:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _send(self, request: cw.Request) -> None:
        background_loop().call_soon_threadsafe(self._link.send, [request])

    def _receive(self) -> cw.Answer:
        """Raises `TimeoutError`, `OSError` if the server is gone, and what the server refuses."""
        while not self._bodies:
            try:
                bodies = self._arrived.get(timeout=self.patience)
            except queue.Empty:
                raise TimeoutError(f"nothing came for {self.patience:g} s") from None
            if bodies is None:
                raise ConnectionError("the connection was lost")
            self._bodies.extend(bodies)
        answer = cw.decode_answer(self._bodies.popleft())
        if isinstance(answer, cw.Refused):
            raise _error(answer)
        return answer


def _on_the_loop(work: Coroutine[Any, Any, Outcome], timeout: float | None) -> Outcome:
    """Raises `TimeoutError`."""
    done = asyncio.run_coroutine_threadsafe(work, background_loop())
    try:
        return done.result(timeout)
    except NotInTime:
        done.cancel()
        raise TimeoutError("a server does not shake hands") from None


def _after_a_barrier(line: Line, stamp: int) -> cw.LogBounds:
    """What a server has when it has all that was accepted before."""
    line.ask(cw.AskBarrier(1), cw.Barrier)
    return line.ask(cw.AskLog(stamp), cw.LogBounds)


def _error(refused: cw.Refused) -> JMSError:
    kind = getattr(errors, refused.code, None) if refused.code else None
    if not (isinstance(kind, type) and issubclass(kind, JMSError)):
        kind = IllegalStateError
    return kind(refused.reason)


def _destinations(topics: str | Topic | Iterable[str | Topic]) -> Iterator[str]:
    for topic in [topics] if isinstance(topics, str | Topic) else topics:
        yield (topic if isinstance(topic, Topic) else Topic(topic)).text


def _check_range(first: int, last: int) -> None:
    arguments.number("last", last)
    if arguments.number("first", first) < 1:
        raise ValueError(f"positions begin with 1, not {first}")


def _milliseconds(time: datetime | int) -> int:
    if not isinstance(time, datetime):
        return max(0, arguments.number("a time", time))
    if time.tzinfo is None:
        raise ValueError(f"{time} may be in any time zone: add one, for instance timezone.utc")
    since = time - datetime(1970, 1, 1, tzinfo=UTC)
    # Rounded up: what was accepted before this time must not be among what is found.
    return max(0, -(-since // timedelta(milliseconds=1)))


def _joined(slices: Sequence[cw.LogSlice], most: int) -> list[LogSlice]:
    """Neighbours that make no more than `most` together, by topic, then by position."""
    found: list[LogSlice] = []
    for each in sorted(slices, key=lambda s: (s.destination, s.first)):
        topic = each.destination.partition(":")[2]
        one = LogSlice(topic, each.first, each.last, each.messages)
        before = found[-1] if found else one
        if found and before.topic == topic and before.messages + one.messages <= most:
            found[-1] = before._replace(last=one.last, messages=before.messages + one.messages)
        else:
            found.append(one)
    return found
