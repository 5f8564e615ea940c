"""The bare star: how fast this machine would be if a channel's promises cost nothing.

The same packs take the same way over plain sockets: the peer that sends packs single messages with
`formats/`, and hands them to the peer in the middle; that one passes the bytes on to all others,
and all hand out one object for each message. There are no views, no acknowledgements, no checks, no
order but that of the middle, nothing that could be lost or asked for again. Channels' figures are
stated as a part of the star's.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from typing import cast

from antiphon.formats import columns, pack
from antiphon.formats.columns import BYTES, Columns
from antiphon.io.background_loop import background_loop
from antiphon.io.malloc import keep_freed_memory
from antiphon.lab.bench.channels.peers import Peer
from antiphon.lab.bench.processes import PATIENCE_S

HOST = "127.0.0.1"
DESTINATION = "topic:bench"
RECEIVE_BYTES = 256 << 10
HERE = b"!"
"""The first bytes from the middle, by which a peer knows that it will get everything."""

_LENGTH = struct.Struct("<I")


@contextmanager
def open_peer(place: int, address: str) -> Iterator[tuple[str, Callable[[], Peer]]]:
    """Be the middle if there is no address yet, else one of those around it."""
    keep_freed_memory()
    if not address:
        middle = Middle()
        asyncio.run_coroutine_threadsafe(middle.listen(), background_loop()).result(PATIENCE_S)
        yield str(middle.port), lambda: Peer(Nobody(), _bodies_of(middle.chunks), _no_packs)
        return
    with socket.create_connection((HOST, int(address))) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if sock.recv(len(HERE)) != HERE:
            raise ConnectionError("the middle of the star has hung up")
        yield "", lambda: Peer(StarSender(sock), _bodies(sock), _no_packs)


def _no_packs() -> int:
    """Return 0: packs are not counted here, for their size is given to the sender."""
    return 0


class Nobody:
    """The sender of a peer that sends nothing."""

    per_pack = 0

    def send(self, body: bytes) -> None:
        raise AssertionError("the middle of the star does not send")

    def flush(self, last: object) -> None:
        pass


class StarSender:
    """A sender that packs messages, `per_pack` at a time."""

    def __init__(self, sock: socket.socket) -> None:
        self.per_pack = 1
        self._socket = sock
        self._bodies: list[bytes] = []
        self._times: list[int] = []  # when they were sent, ms
        self._messages = 0

    def send(self, body: bytes) -> None:
        self._bodies.append(body)
        self._times.append(time.time_ns() // 1_000_000)
        if len(self._bodies) >= self.per_pack:
            self.flush(None)

    def flush(self, last: None) -> None:
        """Send the gathered messages."""
        if not self._bodies:
            return
        count = len(self._bodies)
        body, flags = columns.encode_columns(bytes((BYTES,)) * count, self._bodies, self._times)
        self._bodies, self._times = [], []
        one = pack.encode(DESTINATION, count, body, 1, self._messages + 1, 0, flags)
        self._messages += count
        self._socket.sendall(_LENGTH.pack(len(one)) + one)


def _bodies(sock: socket.socket) -> Iterator[bytes]:
    with sock.makefile("rb", RECEIVE_BYTES) as stream:  # a large pack is copied once
        while head := stream.read(_LENGTH.size):
            yield from _of(stream.read(*_LENGTH.unpack(head)))


def _bodies_of(chunks: SimpleQueue[bytes]) -> Iterator[bytes]:
    """Return the bodies of packs that come in chunks of any size."""
    data = b""
    while True:
        parts, size = [data], len(data)
        wanted = _end(data) if size >= _LENGTH.size else _LENGTH.size
        while size < wanted:
            parts.append(chunks.get())
            size += len(parts[-1])
        data = b"".join(parts)
        at = 0
        while at + _LENGTH.size <= len(data) and (end := at + _end(data, at)) <= len(data):
            yield from _of(data[at + _LENGTH.size : end])
            at = end
        data = data[at:]


def _end(data: bytes, at: int = 0) -> int:
    return _LENGTH.size + cast(int, _LENGTH.unpack_from(data, at)[0])


def _of(one: bytes) -> Iterator[bytes]:
    found = Columns(one)
    return map(found.body, range(found.count))


class Middle:
    """The peer in the middle, which passes all packs on; it receives them itself, too."""

    def __init__(self) -> None:
        self.port = 0
        self.chunks: SimpleQueue[bytes] = SimpleQueue()
        self._others: list[asyncio.Transport] = []
        self._server: asyncio.Server | None = None

    async def listen(self) -> None:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: Incoming(self), HOST, 0)
        self.port = self._server.sockets[0].getsockname()[1]

    def add(self, transport: asyncio.Transport) -> None:
        self._others.append(transport)
        transport.write(HERE)

    def take(self, data: bytes) -> None:
        """Pass on bytes of the sender."""
        for other in self._others:
            other.write(data)
        self.chunks.put(data)


class Incoming(asyncio.Protocol):
    """A connection to the middle."""

    def __init__(self, middle: Middle) -> None:
        self._middle = middle

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._middle.add(cast(asyncio.Transport, transport))

    def data_received(self, data: bytes) -> None:
        self._middle.take(data)
