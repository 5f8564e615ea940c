"""A client's connection to one server over TCP: frames both ways, with the handshake done.

Promises: whole frames are handed on as they come, many at a time; a connection that ends, or brings
anything but frames, is reported once (`on_lost`), unless this side closed it.

When to dial, and what an end means, is decided by the client's conversation (`api/protocol`), or
for readers of the log in `rules/attempts.py`; here are a socket and its buffers.
"""

from __future__ import annotations

import asyncio
import os
import random
import socket
from collections.abc import Callable, Sequence
from typing import Protocol, cast

from antiphon.errors import FormatError
from antiphon.formats import frames
from antiphon.formats import protocol as cw
from antiphon.formats.entry import ReplicaId
from antiphon.io.frame_reader import FrameReader
from antiphon.io.malloc import keep_freed_memory
from antiphon.io.rules.rotation import Rotation
from antiphon.io.transport import Address, format_address, parse_address, write_parts

OnBodies = Callable[[Sequence[frames.Body]], None]
"""Called with whole bodies; with none, if a part of a large one has come."""

OnLost = Callable[[Exception | None], None]


class ClientLink(Protocol):
    """A connection to a server, over a socket or within the process."""

    def send(self, requests: list[cw.Request]) -> None:
        """Send these requests; nothing happens after the end of the connection."""

    def close(self) -> None:
        """End the connection: nothing more is sent or handed on, and `on_lost` is not called."""

    @property
    def waiting_bytes(self) -> int:
        """Return how many bytes were sent and have not left."""


class Route(Protocol):
    """The way to the servers of one URL. Used on one event loop."""

    def next(self) -> str:
        """Return the address to try next; empty, if there are no addresses."""

    async def dial(self, at: str, on_bodies: OnBodies, on_lost: OnLost) -> ClientLink:
        """Return a connection to the server at this address. Raise `OSError` if another attempt
        may succeed, and an error of the family if none will."""

    async def release(self) -> None:
        """Let go of the servers: no connection will be asked for any more."""


class Servers:
    """The route to servers at some addresses, tried in turn, from a random one on."""

    def __init__(self, addresses: Sequence[Address]) -> None:
        self._rotation = Rotation(addresses, random.shuffle)

    def next(self) -> str:
        """Return the address to try next."""
        return format_address(self._rotation.next())

    async def dial(self, at: str, on_bodies: OnBodies, on_lost: OnLost) -> ClientLink:
        """Return a connection to the server at this address; raise `ConnectionError`."""
        try:
            return await dial(parse_address(at), on_bodies, on_lost)
        except (OSError, FormatError) as error:
            raise ConnectionError(_why(error)) from None

    async def release(self) -> None:
        """Nothing is kept."""


def _why(error: OSError | FormatError) -> str:
    if isinstance(error, OSError) and error.errno is not None and error.errno > 0:
        return os.strerror(error.errno)  # event loops have words of their own for it
    return str(error)


async def dial(address: Address, on_bodies: OnBodies, on_lost: OnLost) -> ClientLink:
    """Return a connection to this address. Raise `OSError` or `FormatError`. The caller limits the
    time."""
    keep_freed_memory()
    loop = asyncio.get_running_loop()
    _, link = await loop.create_connection(lambda: TcpLink(on_bodies, on_lost), *address)
    try:
        await link.ready
    except BaseException:
        link.close()
        raise
    return link


class TcpLink(asyncio.BufferedProtocol):
    """A connection over TCP. `dial` makes it, and waits until hands are shaken."""

    def __init__(self, on_bodies: OnBodies, on_lost: OnLost) -> None:
        self._on_bodies = on_bodies
        self._on_lost = on_lost
        self._reader = FrameReader(frames.FRAME_MAX)
        self._own = frames.Hello(
            frames.MAGIC, frames.OLDEST, frames.NEWEST, "client", ReplicaId(0, 0)
        )
        self._socket: asyncio.Transport | None = None
        self._closed = False
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when hands are shaken."""

    # -- Called by the event loop --------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but its class
        self._socket = transport
        sock = transport.get_extra_info("socket")
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        transport.write(frames.frame(frames.encode_hello(self._own)))

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._reader.room()

    def buffer_updated(self, nbytes: int) -> None:
        try:
            bodies = list(self._reader.arrived(nbytes))
            if bodies and not self.ready.done():
                frames.agree(self._own, frames.decode_hello(bodies.pop(0)))
                self.ready.set_result(None)
        except FormatError as error:
            self._end(error)
            return
        if (bodies or self._reader.announced) and not self._closed:
            self._on_bodies(bodies)

    def connection_lost(self, error: Exception | None) -> None:
        self._end(error)

    # -- Called by the client ------------------------------------------------------------------

    def send(self, requests: list[cw.Request]) -> None:
        if self._socket is not None and not self._closed:
            bodies = map(cw.encode_parts, requests)
            parts = [part for body in bodies for part in (frames.frame_head(*body), *body)]
            write_parts(self._socket, parts, sum(map(len, parts)))

    def close(self) -> None:
        self._closed = True
        if self._socket is not None:
            self._socket.close()

    @property
    def waiting_bytes(self) -> int:
        return self._socket.get_write_buffer_size() if self._socket is not None else 0

    def _end(self, error: Exception | None) -> None:
        if not self.ready.done():
            self.ready.set_exception(error or ConnectionError("it hung up during the handshake"))
            self._closed = True
        if not self._closed:
            self.close()
            self._on_lost(error)
