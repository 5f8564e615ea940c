"""One publisher and some members, each a process, at work for a slice of time when told.

The same loops drive Antiphon and the bare relay it is compared with (`compare.py`), so that they
differ only in what is between `send` and the bodies that come out at the members. In a *flood* the
publisher sends as fast as it is let, at most `Load.window` messages ahead of the slowest member;
*paced*, it sends so many a second, and every process notes the times.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from ctypes import c_uint64
from itertools import islice
from multiprocessing.connection import Connection as Pipe
from multiprocessing.process import BaseProcess
from typing import Any, NamedTuple, Protocol

from antiphon.errors import IllegalStateError

PATIENCE_S = 60.0
"""How much longer than it should a process may take."""

NAP_S = 0.0002
BLOCK_MAX, BLOCK_BYTES = 256, 1 << 20
WINDOW_MAX, WINDOW_BYTES = 32_768, 16 << 20

context = multiprocessing.get_context("spawn")


class Load(NamedTuple):
    size: int  # bytes of a message's body
    ahead: int = WINDOW_MAX  # messages that the publisher may be ahead

    @property
    def block(self) -> int:
        """Messages between two looks at the clock and at the others."""
        return max(1, min(BLOCK_MAX, BLOCK_BYTES // self.size, self.ahead // 8))

    @property
    def window(self) -> int:
        """Without it members that are slower than the publisher would read a growing backlog."""
        return max(2 * self.block, min(self.ahead, WINDOW_BYTES // self.size))


class Shape(NamedTuple):
    """What is measured. Members are spread over the servers, the first one at the leader's; the
    publisher is at the leader's too."""

    servers: int
    members: int
    load: Load


class Flood(NamedTuple):
    seconds: float
    per_pack: int = 0  # for who does not find out by itself how much to pack


class Paced(NamedTuple):
    messages: int
    per_second: int
    per_pack: int = 1


Job = Flood | Paced


class Part(NamedTuple):
    """What one process has done in a slice. Times are ns of the clock that all processes share."""

    messages: int
    began: int
    ended: int
    cpu_s: float
    times: list[int]  # paced: of each message


class Slice(NamedTuple):
    publisher: Part
    members: list[Part]
    leader_cpu_s: float = 0.0
    followers_cpu_s: float = 0.0
    packs: int = 0  # 0: nobody counted

    @property
    def seconds(self) -> float:
        """From the first message to the slowest member's last."""
        ended = max(member.ended for member in self.members)
        return (ended - self.publisher.began) / 1e9

    @property
    def per_s(self) -> float:
        return self.publisher.messages / self.seconds

    @property
    def cpu_s(self) -> float:
        """Of all processes."""
        clients = self.publisher.cpu_s + sum(member.cpu_s for member in self.members)
        return clients + self.leader_cpu_s + self.followers_cpu_s

    def delays_ms(self, which: Callable[[tuple[int, ...]], int]) -> list[float]:
        """From the call that published a message to its arrival: `min` is the first member's,
        `max` the last one's."""
        arrivals = zip(*(member.times for member in self.members), strict=True)
        pairs = zip(self.publisher.times, arrivals, strict=True)
        return [(which(arrived) - sent) / 1e6 for sent, arrived in pairs]


class Board:
    """How far everybody is: memory that the processes share."""

    def __init__(self, members: int) -> None:
        self.counts = context.RawArray(c_uint64, members)
        self._target = context.RawValue(c_uint64, 0)

    @property
    def target(self) -> int:
        """With this message the slice ends; 0: that is not known yet."""
        return int(self._target.value)

    @target.setter
    def target(self, value: int) -> None:
        self._target.value = value

    def told(self) -> str:
        counts = ", ".join(f"{count:,}" for count in self.counts)
        sent = f"{self.target:,}" if self.target else "more"
        return f"the members had counted {counts} messages when {sent} had been sent"

    def wait(self, ahead: int, sent: int) -> None:
        """Until the publisher is at most so many messages ahead."""
        while sent - min(self.counts) > ahead:
            time.sleep(NAP_S)


class Sender(Protocol):
    per_pack: int

    def send(self, body: bytes) -> object:
        """A message, on its way."""

    def flush(self, last: Any) -> None:
        """Until the servers have everything; `last` is what the last `send` returned."""


OpenSender = Callable[..., AbstractContextManager[Sender]]
OpenReceiver = Callable[..., AbstractContextManager[Iterator[bytes]]]
"""The bodies of the messages that arrive, for ever; one object for each."""


# -- In the publisher's process --------------------------------------------------------------------


def publish(pipe: Pipe, board: Board, load: Load, open_sender: OpenSender, *args: Any) -> None:
    with suppress(EOFError), open_sender(*args) as sender:
        pipe.send("ready")
        while True:
            job: Job = pipe.recv()
            sender.per_pack = job.per_pack
            began, cpu = time.monotonic_ns(), time.process_time()
            if isinstance(job, Flood):
                messages, times = _flood(sender, load, job.seconds, board), []
            else:
                messages, times = job.messages, _pace(sender, load, job)
            pipe.send(Part(messages, began, time.monotonic_ns(), time.process_time() - cpu, times))


def _flood(sender: Sender, load: Load, seconds: float, board: Board) -> int:
    send, body, block, last = sender.send, bytes(load.size), load.block, None
    before = sent = board.counts[0]
    end = time.monotonic() + seconds
    ended = False
    while not ended:
        board.wait(load.window, sent)
        ended = time.monotonic() >= end
        if ended:
            board.target = sent + block  # known to all before the last block reaches anybody
        for _ in range(block):
            last = send(body)
        sent += block
    sender.flush(last)
    return sent - before


def _pace(sender: Sender, load: Load, job: Paced) -> list[int]:
    body, times, last = bytes(load.size), [], None
    began = time.monotonic()
    for number in range(job.messages):
        wait = began + number / job.per_second - time.monotonic()
        if wait > 0:
            time.sleep(wait)
        times.append(time.monotonic_ns())
        last = sender.send(body)
    sender.flush(last)
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
        times: list[int] = []
        _count(bodies, block, board, place)
    else:
        times = [time.monotonic_ns() for _ in islice(bodies, job.messages)]
        board.counts[place] += job.messages
    messages = board.counts[place] - before
    return Part(messages, began, time.monotonic_ns(), time.process_time() - cpu, times)


def _count(bodies: Iterator[bytes], block: int, board: Board, place: int) -> None:
    counts, ended = board.counts, False
    while not ended:
        for _ in islice(bodies, block):
            pass
        counts[place] += block
        ended = counts[place] == board.target


# -- In the process that measures ------------------------------------------------------------------


class Crew:
    """Leaving the `with` block ends the processes."""

    def __init__(self, load: Load, members: int) -> None:
        self._load = load
        self._board = Board(members)
        self._processes: list[BaseProcess] = []
        self._pipes: list[Pipe] = []  # the publisher's is the last one

    def __enter__(self) -> Crew:
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
        """After all members."""
        self._start(publish, self._board, self._load, open_sender, *args)

    def _start(self, target: Callable[..., None], *args: Any) -> None:
        pipe, process = start(target, *args)
        self._processes.append(process)
        self._pipes.append(pipe)
        hear(pipe, PATIENCE_S)

    def work(self, job: Job) -> Slice:
        self._board.target = 0
        for pipe in self._pipes:
            pipe.send(job)
        seconds = job.seconds if isinstance(job, Flood) else job.messages / job.per_second
        try:
            *members, publisher = [hear(pipe, seconds + PATIENCE_S) for pipe in self._pipes]
        except IllegalStateError as error:
            raise IllegalStateError(f"{error}; {self._board.told()}") from None
        return Slice(publisher, members)


def start(target: Callable[..., None], *args: Any) -> tuple[Pipe, BaseProcess]:
    """A process that has the other end of a pipe as its first argument."""
    ours, theirs = context.Pipe()
    process = context.Process(target=target, args=(theirs, *args), daemon=True)
    process.start()
    theirs.close()  # so that its end is noticed here
    return ours, process


def hear(pipe: Pipe, timeout: float) -> Any:
    if not pipe.poll(timeout):
        raise IllegalStateError(f"a process of the measurement says nothing for {timeout:g} s")
    try:
        return pipe.recv()
    except EOFError:
        raise IllegalStateError("a process of the measurement has ended") from None
