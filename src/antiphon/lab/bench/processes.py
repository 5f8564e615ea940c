"""Publishers and members, each a process, which work for a slice of time on request.

The same loops drive Antiphon and the bare relay it is compared with (`compare.py`), so that they
differ only between `send` and the bodies that arrive at the members. In a *flood* the publishers
send as fast as they can, at most `Load.window` messages ahead of the slowest member, and time is
noted once a block; *paced*, they send `Paced.per_second`, and every process notes the time of every
message. The first byte of a body names its publisher.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from ctypes import c_uint64
from itertools import chain, islice
from multiprocessing.connection import Connection as Pipe
from multiprocessing.process import BaseProcess
from operator import itemgetter
from typing import Any, NamedTuple, Protocol

from antiphon.errors import IllegalStateError

PATIENCE_S = 60.0
"""Seconds that a process may take longer than its slice."""

NAP_S = 0.0002
BLOCK_MAX, BLOCK_BYTES = 256, 1 << 20
WINDOW_MAX, WINDOW_BYTES = 32_768, 16 << 20
PUBLISHERS_MAX = 100
"""One byte names them, and each of them has a message to send when they are paced."""

context = multiprocessing.get_context("spawn")


class Load(NamedTuple):
    """The messages of a measurement, and how far publishers may be ahead of members."""

    size: int  # bytes of a message's body
    ahead: int = WINDOW_MAX  # messages that the publishers may be ahead

    @property
    def block(self) -> int:
        """Messages between two looks at the clock and at the others."""
        return max(1, min(BLOCK_MAX, BLOCK_BYTES // self.size, self.ahead // 8))

    @property
    def window(self) -> int:
        """The messages that publishers may be ahead of the slowest member. Without a limit slow
        members would read a growing backlog."""
        return max(2 * self.block, min(self.ahead, WINDOW_BYTES // self.size))


class Shape(NamedTuple):
    """The setup of a measurement. Members are spread over the servers, the first one at the leader;
    the publishers are all at the leader."""

    servers: int
    members: int
    load: Load
    publishers: int = 1


class Flood(NamedTuple):
    """A slice in which publishers send as fast as they can."""

    seconds: float
    per_pack: int = 0  # for the relay, which does not find out by itself how much to pack


class Paced(NamedTuple):
    """Messages of all publishers together: they take turns."""

    messages: int
    per_second: int
    per_pack: int = 1


Job = Flood | Paced


class Part(NamedTuple):
    """The work of one process in a slice. Times are ns of the clock that all processes share."""

    messages: int
    began: int
    ended: int
    cpu_s: float
    times: list[int]
    """The times of each message, or in a flood of the last one of each block; one publisher's after
    the other's. (Whose the blocks of a flood are is known only if there is one publisher.)"""


class Slice(NamedTuple):
    """The work of all processes in one slice."""

    publishers: list[Part]
    members: list[Part]
    leader_cpu_s: float = 0.0
    followers_cpu_s: float = 0.0
    packs: int = 0  # 0: not counted
    syncs: int = 0  # the leader's

    @property
    def messages(self) -> int:
        return sum(publisher.messages for publisher in self.publishers)

    @property
    def seconds(self) -> float:
        """The seconds from the first message to the slowest member's last one."""
        began = min(publisher.began for publisher in self.publishers)
        return (max(member.ended for member in self.members) - began) / 1e9

    @property
    def per_s(self) -> float:
        return self.messages / self.seconds

    @property
    def clients_cpu_s(self) -> float:
        return sum(client.cpu_s for client in (*self.publishers, *self.members))

    @property
    def cpu_s(self) -> float:
        """The processor time of all processes."""
        return self.clients_cpu_s + self.leader_cpu_s + self.followers_cpu_s

    @property
    def cpu_s_per_million(self) -> float:
        return self.cpu_s / self.messages * 1e6

    def delays_ms(self, which: Callable[[tuple[int, ...]], int]) -> list[float]:
        """Return the times from the call that published a message to its arrival: `min` at the
        first member, `max` at the last one."""
        sends = chain.from_iterable(publisher.times for publisher in self.publishers)
        arrivals = zip(*(member.times for member in self.members), strict=True)
        pairs = zip(sends, arrivals, strict=True)
        return [(which(arrived) - sent) / 1e6 for sent, arrived in pairs]


class Board:
    """The counts of all publishers and members, in memory that the processes share. They are of all
    slices."""

    def __init__(self, members: int, publishers: int = 1) -> None:
        self.counts = context.RawArray(c_uint64, members)
        self.sent = context.RawArray(c_uint64, publishers)
        self._ends = context.RawArray(c_uint64, publishers)

    def begin(self) -> None:
        """Begin a slice, whose end is not known yet."""
        for place in range(len(self._ends)):
            self._ends[place] = 0

    def end(self, place: int, sent: int) -> None:
        """Note that a publisher will have sent this many messages when it stops."""
        self._ends[place] = sent

    @property
    def target(self) -> int:
        """Return the last message of the slice; 0: it is not known yet."""
        ends = list(self._ends)
        return sum(ends) if all(ends) else 0

    def told(self) -> str:
        counts = ", ".join(f"{count:,}" for count in self.counts)
        sent = f"{self.target:,}" if self.target else "more"
        return f"the members had counted {counts} messages when {sent} had been sent"

    def wait(self, ahead: int) -> None:
        """Wait until the publishers together are at most `ahead` messages ahead."""
        while sum(self.sent) - min(self.counts) > ahead:
            time.sleep(NAP_S)


class Sender(Protocol):
    """A publisher of either system."""

    per_pack: int

    def send(self, body: bytes) -> object:
        """Send a message, without waiting for an answer."""

    def flush(self, last: Any) -> None:
        """Wait until the servers have everything; `last` is the result of the last `send`."""


OpenSender = Callable[..., AbstractContextManager[Sender]]
OpenReceiver = Callable[..., AbstractContextManager[Iterator[bytes]]]
"""The bodies of the messages that arrive, without an end; one object for each."""


# -- In a publisher's process ----------------------------------------------------------------------


def publish(
    pipe: Pipe, board: Board, load: Load, place: int, open_sender: OpenSender, *args: Any
) -> None:
    with suppress(EOFError), open_sender(*args) as sender:
        pipe.send("ready")
        while True:
            pipe.send(send(pipe.recv(), sender, load, board, place))


def send(job: Job, sender: Sender, load: Load, board: Board, place: int) -> Part:
    body = bytes((place,)) + bytes(load.size - 1)
    sender.per_pack = job.per_pack
    began, cpu, before = time.monotonic_ns(), time.process_time(), board.sent[place]
    if isinstance(job, Flood):
        times = _flood(sender, body, load, job.seconds, board, place)
    else:
        times = _pace(sender, body, job, board, place)
    messages = board.sent[place] - before
    return Part(messages, began, time.monotonic_ns(), time.process_time() - cpu, times)


def _flood(
    sender: Sender, body: bytes, load: Load, seconds: float, board: Board, place: int
) -> list[int]:
    send, block, times = sender.send, load.block, []
    end = time.monotonic() + seconds
    ended = False
    while not ended:
        board.wait(load.window)
        ended = time.monotonic() >= end
        if ended:  # known to all before the last block arrives
            board.end(place, board.sent[place] + block)
        for _ in range(block - 1):
            send(body)
        times.append(time.monotonic_ns())
        last = send(body)
        board.sent[place] += block
    sender.flush(last)
    return times


def _pace(sender: Sender, body: bytes, job: Paced, board: Board, place: int) -> list[int]:
    times, last = [], None
    began = time.monotonic()
    for number in range(place, job.messages, len(board.sent)):
        wait = began + number / job.per_second - time.monotonic()
        if wait > 0:
            time.sleep(wait)
        times.append(time.monotonic_ns())
        last = sender.send(body)
    sender.flush(last)
    board.sent[place] += len(times)
    return times


# -- In a member's process -------------------------------------------------------------------------


def consume(
    pipe: Pipe, board: Board, load: Load, place: int, open_receiver: OpenReceiver, *args: Any
) -> None:
    with suppress(EOFError), open_receiver(*args) as bodies:
        pipe.send("ready")
        while True:
            pipe.send(receive(pipe.recv(), bodies, load.block, board, place))


def receive(job: Job, bodies: Iterator[bytes], block: int, board: Board, place: int) -> Part:
    began, cpu, before = time.monotonic_ns(), time.process_time(), board.counts[place]
    if isinstance(job, Flood):
        times = _count(bodies, block, board, place)
    else:
        times = _note(bodies, job.messages)
        board.counts[place] += job.messages
    messages = board.counts[place] - before
    return Part(messages, began, time.monotonic_ns(), time.process_time() - cpu, times)


def _count(bodies: Iterator[bytes], block: int, board: Board, place: int) -> list[int]:
    counts, times, ended = board.counts, [], False
    while not ended:
        for _ in islice(bodies, block):
            pass
        times.append(time.monotonic_ns())
        counts[place] += block
        ended = counts[place] == board.target
    return times


def _note(bodies: Iterator[bytes], messages: int) -> list[int]:
    """Return the times of arrival, sorted by publisher: a publisher's messages arrive in the order
    in which they were sent."""
    noted = [(body[0], time.monotonic_ns()) for body in islice(bodies, messages)]
    noted.sort(key=itemgetter(0))
    return [at for _, at in noted]


# -- In the process that measures ------------------------------------------------------------------


class ClientProcesses:
    """Leaving the `with` block ends the processes."""

    def __init__(self, load: Load, members: int, publishers: int = 1) -> None:
        if publishers > PUBLISHERS_MAX:
            raise IllegalStateError(f"a measurement has at most {PUBLISHERS_MAX} publishers")
        self._load = load
        self._members = members
        self._board = Board(members, publishers)
        self._processes: list[BaseProcess] = []
        self._pipes: list[Pipe] = []  # the publishers' are the last ones

    def __enter__(self) -> ClientProcesses:
        return self

    def __exit__(self, *_: object) -> None:
        for pipe in self._pipes:
            pipe.close()
        for process in self._processes:
            process.kill()
            process.join()

    def add_member(self, open_receiver: OpenReceiver, *args: Any) -> None:
        place = len(self._processes)
        self._start(consume, self._board, self._load, place, open_receiver, *args)

    def add_publisher(self, open_sender: OpenSender, *args: Any) -> None:
        """Add a publisher; call it after all members were added."""
        place = len(self._processes) - self._members
        self._start(publish, self._board, self._load, place, open_sender, *args)

    def _start(self, target: Callable[..., None], *args: Any) -> None:
        pipe, process = start(target, *args)
        self._processes.append(process)
        self._pipes.append(pipe)
        hear(pipe, PATIENCE_S)

    def work(self, job: Job) -> Slice:
        self._board.begin()
        for pipe in self._pipes:
            pipe.send(job)
        seconds = job.seconds if isinstance(job, Flood) else job.messages / job.per_second
        try:
            parts: list[Part] = [hear(pipe, seconds + PATIENCE_S) for pipe in self._pipes]
        except IllegalStateError as error:
            raise IllegalStateError(f"{error}; {self._board.told()}") from None
        return Slice(parts[self._members :], parts[: self._members])


def start(target: Callable[..., None], *args: Any) -> tuple[Pipe, BaseProcess]:
    """Start a process with the other end of a pipe as its first argument."""
    ours, theirs = context.Pipe()
    process = context.Process(target=target, args=(theirs, *args), daemon=True)
    process.start()
    theirs.close()  # so that its end is noticed here
    return ours, process


def hear(pipe: Pipe, timeout: float) -> Any:
    if not pipe.poll(timeout):
        raise IllegalStateError(f"a process of the measurement is silent for {timeout:g} s")
    try:
        return pipe.recv()
    except EOFError:
        raise IllegalStateError("a process of the measurement has ended") from None
