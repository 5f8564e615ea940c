"""Processes that send and receive, as the members of a channel do: each has the loops of
`lab/bench/processes.py`, the one that receives in its main thread, and one of them the one that
sends in a second thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, suppress
from multiprocessing.connection import Connection as Pipe
from typing import Any, NamedTuple

from antiphon.lab.bench.processes import (
    PATIENCE_S,
    Board,
    Flood,
    Job,
    Load,
    Part,
    Sender,
    Slice,
    hear,
    receive,
    send,
    start,
)


class Peer(NamedTuple):
    """One process of a system that is measured."""

    sender: Sender
    bodies: Iterator[bytes]
    """The bodies of the messages that arrive, without an end; the process's own are among them."""

    packs: Callable[[], int]
    """How many packs have been ordered, as far as this system counts them."""


OpenPeer = Callable[..., AbstractContextManager[tuple[str, Callable[[], Peer]]]]
"""Opens a peer: where it is, for those that come after it, and what waits until all are there."""


class Done(NamedTuple):
    """The work of one process in a slice; only the last process sends."""

    received: Part
    sent: Part | None
    packs: int


def attend(
    pipe: Pipe, board: Board, load: Load, place: int, sends: bool, open_peer: OpenPeer, *args: Any
) -> None:
    """Be a peer: work on request, until the pipe is closed."""
    with ExitStack() as stack, suppress(EOFError):
        address, meet = stack.enter_context(open_peer(*args))
        second = stack.enter_context(ThreadPoolExecutor(1))
        pipe.send(address)
        pipe.recv()
        peer = meet()
        pipe.send("all are here")
        while True:
            job: Job = pipe.recv()
            pipe.send(_work(job, peer, second if sends else None, board, load, place))


def _work(
    job: Job, peer: Peer, second: ThreadPoolExecutor | None, board: Board, load: Load, place: int
) -> Done:
    packs, cpu = peer.packs(), time.process_time()
    sending = second.submit(send, job, peer.sender, load, board, 0) if second else None
    received = receive(job, peer.bodies, load.block, board, place)
    sent = sending.result() if sending is not None else None
    # The processor time of a process is not divided among its threads.
    received = received._replace(cpu_s=time.process_time() - cpu)
    return Done(received, sent and sent._replace(cpu_s=0.0), peer.packs() - packs)


class Peers:
    """`count` processes of one system, ready to work; all end with the `stack`. The first one
    leads, in the sense of the system, and the last one sends."""

    def __init__(
        self, stack: ExitStack, load: Load, count: int, open_peer: OpenPeer, *args: Any
    ) -> None:
        """`open_peer` gets a process's place and the first one's address before `args`."""
        self._board = Board(count)
        self._pipes: list[Pipe] = []
        address = ""
        for place in range(count):
            where = (place, place == count - 1, open_peer, place, address, *args)
            pipe, process = start(attend, self._board, load, *where)
            stack.callback(process.join)
            stack.callback(process.kill)
            stack.callback(pipe.close)
            self._pipes.append(pipe)
            said = hear(pipe, PATIENCE_S)
            address = address or said
        for pipe in self._pipes:
            pipe.send("meet")
        for pipe in self._pipes:
            hear(pipe, PATIENCE_S)

    def work(self, job: Job) -> Slice:
        """Have all of them work, and return what they did."""
        self._board.begin()
        for pipe in self._pipes:
            pipe.send(job)
        seconds = job.seconds if isinstance(job, Flood) else job.messages / job.per_second
        done: Sequence[Done] = [hear(pipe, seconds + PATIENCE_S) for pipe in self._pipes]
        sent = [one.sent for one in done if one.sent is not None]
        return Slice(sent, [one.received for one in done], packs=done[0].packs)
