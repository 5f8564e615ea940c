"""A bare relay: what this machine would move if agreeing cost nothing.

One process passes every byte it receives on to the others, which count bytes and answer with the
count; the sender is told what a majority has counted. No frames, no log, no disk: a yardstick that
makes figures from different machines comparable.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import socket
import struct
import time
from multiprocessing.connection import Connection as Pipe
from typing import cast

HOST = "127.0.0.1"
WINDOW_BYTES = 4 << 20
_COUNT = struct.Struct("<Q")


def bytes_a_second(servers: int, pack: bytes, seconds: float) -> float:
    """How many bytes a sender gets through `servers` relays, a pack at a time."""
    context = multiprocessing.get_context("spawn")
    ports: list[int] = []
    processes = []
    try:
        for number in range(servers):
            ours, theirs = context.Pipe()
            others = tuple(ports) if number == servers - 1 else ()
            process = context.Process(target=_run, args=(others, theirs), daemon=True)
            process.start()
            processes.append(process)
            ports.append(ours.recv())
        with socket.create_connection((HOST, ports[-1])) as relay:
            return _send(relay, pack, seconds)
    finally:
        for process in processes:
            process.kill()
            process.join()


def _send(relay: socket.socket, pack: bytes, seconds: float) -> float:
    counts = _Counts()
    sent = 0
    began = time.monotonic()
    while (elapsed := time.monotonic() - began) < seconds:
        relay.sendall(pack)
        sent += len(pack)
        while sent - counts.newest > WINDOW_BYTES:
            counts.feed(relay.recv(65536))
    return counts.newest / elapsed


class _Counts:
    """Reads a stream of counts, of which only the newest matters."""

    def __init__(self) -> None:
        self.newest = 0
        self._rest = b""

    def feed(self, data: bytes) -> None:
        data = self._rest + data
        whole = len(data) // _COUNT.size * _COUNT.size
        self._rest = data[whole:]
        if whole:
            (self.newest,) = _COUNT.unpack_from(data, whole - _COUNT.size)


class _Head(asyncio.Protocol):
    """Takes bytes from a sender, and answers with the count that a majority has reached."""

    def __init__(self, others: tuple[int, ...]) -> None:
        self._links = [_Link(self) for _ in others]
        self._received = 0
        loop = asyncio.get_running_loop()
        self._dialling = [
            loop.create_task(loop.create_connection(lambda link=link: link, HOST, port))  # type: ignore[misc]
            for link, port in zip(self._links, others, strict=True)
        ]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._sender = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._received += len(data)
        for link in self._links:
            link.send(data)
        self.answer()

    def answer(self) -> None:
        if self._sender.is_closing():
            return
        counts = sorted([self._received, *(link.counts.newest for link in self._links)])
        self._sender.write(_COUNT.pack(counts[(len(counts) - 1) // 2]))


class _Link(asyncio.Protocol):
    """The way to another relay."""

    def __init__(self, head: _Head) -> None:
        self.counts = _Counts()
        self._head = head
        self._early: list[bytes] = []  # came before the connection was made
        self._other: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._other = cast(asyncio.Transport, transport)
        self._other.write(b"".join(self._early))

    def send(self, data: bytes) -> None:
        if self._other is not None:
            self._other.write(data)
        else:
            self._early.append(data)

    def data_received(self, data: bytes) -> None:
        self.counts.feed(data)
        self._head.answer()


def _run(others: tuple[int, ...], pipe: Pipe) -> None:
    import uvloop

    async def serve() -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: _Head(others), HOST, 0)
        pipe.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve())
