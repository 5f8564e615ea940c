"""A group of members and a publisher, each a process, that work run by run.

Every process notes the time when it sent or received a message, in memory: to write the trace of
`connect(trace=...)` costs a member many times more than receiving, and would be measured instead.
All of them read `time.monotonic()`, which is one clock for all processes of a machine.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from ctypes import c_uint64
from functools import partial
from multiprocessing.connection import Connection as Pipe
from multiprocessing.process import BaseProcess
from typing import Any, NamedTuple

import antiphon
from antiphon.lab.bench.processes import PATIENCE_S, context, hear, start
from antiphon.lab.bench.servers import Place
from antiphon.lab.experiments.load_sources import Source, emit, number_of

GROUP = "experiment"
MEMBERS_MAX = 30
NAP_S = 0.0002
LOOK_S = 0.25
"""Between two looks at how many packs there were."""


class Run(NamedTuple):
    """The work of one run."""

    name: str
    source: Source
    seconds: float
    blocking: bool = False  # each `send` waits for its answer
    watched: bool = False  # the size of packs is noted every `LOOK_S`


class Sent(NamedTuple):
    """The publisher's notes of a run."""

    times: array[float]  # of message 0, 1, 2 ...
    cpu_s: float


class Delivered(NamedTuple):
    """One member's notes of a run."""

    member: str
    view_id: int
    numbers: array[int]
    positions: array[int]
    times: array[float]
    cpu_s: float


class Look(NamedTuple):
    """The numbers of messages and packs at one moment."""

    at: float
    messages: int  # that all members have
    packs: int


class Done(NamedTuple):
    """A run with the notes of all its processes."""

    run: Run
    sent: Sent
    delivered: list[Delivered]
    leader_cpu_s: float
    followers_cpu_s: float
    packs: int
    looks: list[Look]

    @property
    def cpu_s(self) -> float:
        """The processor time of all processes."""
        servers = self.leader_cpu_s + self.followers_cpu_s
        return self.sent.cpu_s + servers + sum(one.cpu_s for one in self.delivered)


# -- In the publisher's process --------------------------------------------------------------------


def publish(pipe: Pipe, counts: Any, url: str, packing: str) -> None:
    with (
        suppress(EOFError),
        antiphon.connect(url, packing=packing, connect_timeout=PATIENCE_S) as ctx,
    ):
        group, producer = ctx.create_group(GROUP), ctx.create_producer()
        pipe.send("ready")
        while True:
            run, members = pipe.recv()
            cpu = time.process_time()
            send = partial(producer.send if run.blocking else producer.send_async, group)
            times = emit(run.source, run.seconds, send, partial(_wait, counts, members))
            send(b"")
            pipe.send(Sent(times, time.process_time() - cpu))


def _wait(counts: Any, members: int, sent: int, ahead: int) -> None:
    while sent - min(counts[:members]) > ahead:
        time.sleep(NAP_S)


# -- In a member's process -------------------------------------------------------------------------


def consume(pipe: Pipe, counts: Any, place: int, url: str) -> None:
    with antiphon.connect(url, connect_timeout=PATIENCE_S) as ctx:
        member = ctx.join(ctx.create_group(GROUP), f"member-{place + 1:02}")
        pipe.send("ready")
        for delivered in _runs(member, counts, place):
            pipe.send(delivered)


def _runs(member: antiphon.Member, counts: Any, place: int) -> Iterator[Delivered]:
    numbers, positions, times = array("q"), array("q"), array("d")
    clock, cpu = time.monotonic, time.process_time()
    for message in member:
        now = clock()
        if not isinstance(message, antiphon.BytesMessage):
            continue  # a view
        body = message.body
        if body:
            number = number_of(body)
            numbers.append(number)
            positions.append(message.position)
            times.append(now)
            counts[place] = number + 1
            continue
        view_id = message.view.id if message.view else 0
        cpu, before = time.process_time(), cpu
        yield Delivered(member.name, view_id, numbers, positions, times, cpu - before)
        numbers, positions, times = array("q"), array("q"), array("d")


# -- In the process that measures ------------------------------------------------------------------


class ClientProcesses:
    """The members and publishers at these servers; all end with the `stack`."""

    def __init__(self, stack: ExitStack, servers: Place) -> None:
        self._stack = stack
        self._servers = servers
        self._places = servers.places(MEMBERS_MAX)
        self._counts = context.RawArray(c_uint64, MEMBERS_MAX)
        self._members: list[Pipe] = []

    def grow(self, members: int) -> None:
        """Let members join until there are `members`, spread over the servers."""
        joining = []
        for place in range(len(self._members), members):
            joining.append(self._start(consume, self._counts, place, self._places[place])[0])
        for pipe in joining:
            hear(pipe, PATIENCE_S)
        self._members += joining

    @contextmanager
    def publisher(self, packing: str = "adaptive") -> Iterator[Callable[[Run], Done]]:
        """Start a publisher; yield the function that gives it a run."""
        pipe, process = self._start(publish, self._counts, self._places[0], packing)
        hear(pipe, PATIENCE_S)
        try:
            yield lambda run: self._work(pipe, run)
        finally:
            _end(pipe, process)

    def _start(self, target: Callable[..., None], *args: Any) -> tuple[Pipe, BaseProcess]:
        pipe, process = start(target, *args)
        self._stack.callback(_end, pipe, process)
        return pipe, process

    def _work(self, publisher: Pipe, run: Run) -> Done:
        for place in range(len(self._members)):
            self._counts[place] = 0
        before = self._servers.spent()
        publisher.send((run, len(self._members)))
        looks = self._watch(publisher, run.seconds) if run.watched else []
        sent: Sent = hear(publisher, run.seconds + PATIENCE_S)
        delivered: list[Delivered] = [hear(pipe, PATIENCE_S) for pipe in self._members]
        spent = self._servers.spent().since(before)
        servers = spent.leader_cpu_s, spent.followers_cpu_s
        return Done(run, sent, delivered, *servers, spent.published, looks)

    def _watch(self, publisher: Pipe, seconds: float) -> list[Look]:
        looks = []
        until = time.monotonic() + seconds
        while not publisher.poll(LOOK_S) and time.monotonic() < until:
            packs = self._servers.spent().published
            messages = min(self._counts[: len(self._members)])
            looks.append(Look(time.monotonic(), messages, packs))
        return looks


def _end(pipe: Pipe, process: BaseProcess) -> None:
    pipe.close()
    process.kill()
    process.join()
