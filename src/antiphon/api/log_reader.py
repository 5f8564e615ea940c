"""Reading a part of the log: the bounds of the kept messages, the places of a topic's, and their
packs.

Promises: every returned pack was accepted, and none is missing: `packs` yields every pack of a
range once and in order, even if servers die meanwhile, or raises. Reading is not consuming: nothing
is acknowledged, and no consumer gets less. If a server makes no progress, another one is tried;
when none has made progress for `timeout` seconds, the call raises (`io/line.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from types import TracebackType
from typing import NamedTuple

from antiphon.api import arguments
from antiphon.api.messages.destinations import Topic
from antiphon.api.signatures import made_by
from antiphon.api.urls import default_url, route_to
from antiphon.errors import FormatError, MessagesGoneError
from antiphon.formats import pack as packs
from antiphon.formats import protocol as cw
from antiphon.formats.pack import LogPack as LogPack
from antiphon.io.line import Asker, Line

CREDIT_BYTES = 8 << 20
"""Bytes that a server may send ahead of the caller that reads."""

MESSAGES_A_SLICE = 1_000_000


class LogBounds(NamedTuple):
    """All messages from `first` to `last` are kept; `last` is `first - 1` if there are none."""

    first: int
    last: int


class LogSlice(NamedTuple):
    """A number of messages of one topic, the first at position `first`, the last at `last`."""

    topic: str
    first: int
    last: int
    messages: int


def open_log(url: str | None = None, *, timeout: float = 30.0) -> LogReader:
    """Return a reader of the log of a running server or cluster. Without a URL, it uses the one in
    the environment variable `ANTIPHON_URL`, or else in `antiphon.toml`. `timeout`: a call raises
    after this many seconds without progress.

    It connects with the first call. Raise `ConfigurationError` for a URL that makes no sense."""
    return LogReader(url or default_url(), arguments.seconds("timeout", timeout))


class LogReader:
    """A reader of the log of the servers at `url` (`open_log`), which connects with its first call.
    It keeps one connection for questions, and one for each running `packs`.

    Any call tries the servers in turn. It raises `ConnectionLostError` when none has made progress
    for `timeout` seconds, `OutcomeUnknownError` if the last one was connected and did not answer,
    and `IllegalStateError` when the reader is closed.

    One thread at a time may use it. `close`, or the end of its `with` block, ends its connections.
    """

    @made_by("`open_log`")
    def __init__(self, url: str, timeout: float) -> None:
        self.url = url
        self._asker = Asker(route_to(url), url.count(",") + 1, timeout)

    def bounds(self) -> LogBounds:
        """Return the bounds of the messages that a server keeps now. `last` covers all messages
        that were sent before this call, whichever server answers; servers may keep different parts
        of the past. Raise `ConnectionLostError` or `OutcomeUnknownError` if no server has answered
        in time."""
        found = self._asker.ask("the bounds of the log", partial(_after_a_barrier, stamp=0))
        return LogBounds(found.first, found.last)

    def position_at(self, time: datetime | int) -> int:
        """Return the position of the first kept message that was accepted at this time or later, by
        the clock of the log; the one behind the last message, if there is none. An int is in ms
        since 1970. Raise `ValueError` for a time without its zone, and `ConnectionLostError` or
        `OutcomeUnknownError` if no server has answered in time."""
        stamp = _milliseconds(time)
        return self._asker.ask(f"the position at {time}", partial(_after_a_barrier, stamp=stamp)).at

    def slices(
        self,
        topics: str | Topic | Iterable[str | Topic],
        first: int,
        last: int,
        most: int = MESSAGES_A_SLICE,
    ) -> list[LogSlice]:
        """Return the places of the messages of these topics, which may have wildcards, between two
        positions, both included: by topic, then by position, about `most` messages in a slice at
        most. Raise `MessagesGoneError` if no server has all of that range, and
        `ConnectionLostError` or `OutcomeUnknownError` if none has made progress in time."""
        names = tuple(_destinations(topics))
        _check_range(first, last)
        if arguments.number("most", most) < 1:
            raise ValueError(f"a slice has at least one message, not {most}")
        found: list[cw.LogSlice] = []
        while first <= last:
            request = cw.AskSlices(names, first, last, most)
            ask = partial(Line.ask, request=request, kind=cw.LogSlices)
            answer = self._asker.ask(f"slices up to {last}", ask)
            found += answer.slices
            first = answer.following
        return _joined(found, most)

    def packs(self, topic: str | Topic, first: int, last: int) -> Iterator[LogPack]:
        """Yield the packs of one topic with messages between two positions, both included, in
        order. The first and the last one may have messages beyond them.

        Raise `MessagesGoneError`, even between two packs, if no server has the next one any more,
        and `ConnectionLostError` or `OutcomeUnknownError` if none has made progress in time."""
        (destination,) = _destinations([topic])
        _check_range(first, last)
        return self._packs(destination, first, last)

    def _packs(self, destination: str, first: int, last: int) -> Iterator[LogPack]:
        attempts = self._asker.attempts(f"messages up to {last}")
        while True:
            try:
                with self._asker.dial(attempts) as line:
                    for one in _read(line, destination, first, last):
                        first = one.position + packs.read_header(one.pack).count
                        attempts.got_on()
                        yield one
                    return
            except (OSError, MessagesGoneError) as error:
                self._asker.failed(attempts, error)

    def close(self) -> None:
        """Close the connections: running `packs` and later calls raise `IllegalStateError`. Closing
        twice is no error."""
        self._asker.close()

    def __enter__(self) -> LogReader:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _read(line: Line, destination: str, first: int, last: int) -> Iterator[LogPack]:
    line.send(cw.ReadLog(destination, first, last, CREDIT_BYTES))
    taken = 0
    while not isinstance(answer := line.receive(), cw.LogEnd):
        if not isinstance(answer, cw.Delivered):
            raise FormatError(f"a server answers with {type(answer).__name__}, not with a pack")
        taken += len(answer.pack)
        yield LogPack(answer.position, answer.stamp, answer.view, answer.pack)
        if taken > CREDIT_BYTES // 2:
            line.send(cw.Credit(taken))
            taken = 0


def _after_a_barrier(line: Line, stamp: int) -> cw.LogBounds:
    """Return the bounds of a server's messages, once it has all that were accepted before."""
    line.ask(cw.AskBarrier(1), cw.Barrier)
    return line.ask(cw.AskLog(stamp), cw.LogBounds)


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
    # Rounded up: messages that were accepted before this time must not be found.
    return max(0, -(-since // timedelta(milliseconds=1)))


def _joined(slices: Sequence[cw.LogSlice], most: int) -> list[LogSlice]:
    """Return the slices by topic, then by position, with neighbours joined that have no more than
    `most` messages together."""
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
