"""One publisher and many members, of which several may share a process.

In `processes.py` every member is a process. That is some 40 MB for each, and a thousand would not
fit into most machines: here at most `PROCESSES_MAX` processes have the members, each of which has a
connection and a thread of its own. So up to that number a member still is a process."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from functools import partial
from multiprocessing.connection import Connection as Pipe
from typing import Any

from antiphon.lab.bench.processes import (
    PATIENCE_S,
    Board,
    Flood,
    Job,
    Load,
    OpenReceiver,
    OpenSender,
    Paced,
    Part,
    Slice,
    hear,
    publish,
    receive,
    start,
)

PROCESSES_MAX = 30
"""The largest group of the thesis: up to there the curve is of processes, as its curves are."""

JOIN_S = 600.0
GREETING = Paced(1, 1)
"""The first message, which all members wait for."""


def attend(
    pipe: Pipe, board: Board, load: Load, places: Sequence[int], openers: Sequence[OpenReceiver]
) -> None:
    """Run members in this process; `places` are theirs on the board."""
    with suppress(EOFError), ExitStack() as stack:
        pipe.send("here")
        pipe.recv()
        receivers = [stack.enter_context(open_receiver()) for open_receiver in openers]
        pipe.send("joined")
        threads = stack.enter_context(ThreadPoolExecutor(len(receivers)))
        while True:
            job: Job = pipe.recv()
            cpu = time.process_time()
            work = partial(receive, job, block=load.block, board=board)
            futures = [
                threads.submit(work, bodies, place=place)
                for place, bodies in zip(places, receivers, strict=True)
            ]
            parts = [future.result()._replace(cpu_s=0.0) for future in futures]
            # The processor time of a process cannot be divided among its members.
            parts[0] = parts[0]._replace(cpu_s=time.process_time() - cpu)
            pipe.send(parts)


class Many:
    """All ends with the `stack`."""

    def __init__(self, stack: ExitStack, load: Load, openers: Sequence[OpenReceiver]) -> None:
        """Start the processes, without any member yet. `openers`: of the members."""
        self._stack = stack
        self._load = load
        self._board = Board(len(openers))
        self._members: list[Pipe] = []
        for first in range(min(PROCESSES_MAX, len(openers))):
            places = range(first, len(openers), PROCESSES_MAX)
            some = [openers[place] for place in places]
            self._members.append(self._start(attend, self._board, load, places, some))
        for pipe in self._members:
            hear(pipe, PATIENCE_S)

    def join(self) -> None:
        """Let all members join, one after the other: a large group has much to do for each new
        one."""
        for pipe in self._members:
            pipe.send("join")
            hear(pipe, JOIN_S)
            pipe.send(GREETING)  # so it listens: views of later members do not pile up

    def add_publisher(self, open_sender: OpenSender, *args: Any) -> None:
        """Add a publisher; call it after all members have joined."""
        self._publisher = self._start(publish, self._board, self._load, 0, open_sender, *args)
        hear(self._publisher, PATIENCE_S)
        self._publisher.send(GREETING)
        for pipe in (*self._members, self._publisher):
            hear(pipe, JOIN_S)

    def work(self, job: Job) -> Slice:
        self._board.begin()
        for pipe in (*self._members, self._publisher):
            pipe.send(job)
        seconds = job.seconds if isinstance(job, Flood) else job.messages / job.per_second
        parts: list[Part] = []
        for pipe in self._members:
            parts += hear(pipe, seconds + PATIENCE_S)
        return Slice([hear(self._publisher, PATIENCE_S)], parts)

    def _start(self, target: Callable[..., None], *args: Any) -> Pipe:
        pipe, process = start(target, *args)

        def end() -> None:
            pipe.close()
            process.kill()
            process.join()

        self._stack.callback(end)
        return pipe
