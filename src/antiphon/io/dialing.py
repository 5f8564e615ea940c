"""A client's connection to one server over TCP: frames both ways, with the handshake done.

Promises: what arrives is whole frames, handed on as they come, many at a time; a connection that
ends, or brings what is no frame, is reported once (`on_lost`), unless this side closed it.

The event loop's thread serves it. Once it is shared (`share`), other threads may send
(`send_here`) and, while it is lent to them, read (`read`), one at a time: who calls sees to that.
"""

from __future__ import annotations

import asyncio
import os
import select
import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Protocol, cast

from antiphon.errors import FormatError
from antiphon.formats import client_wire as cw
from antiphon.formats import wire
from antiphon.formats.entry import ReplicaId
from antiphon.io.frames import FrameReader
from antiphon.io.memory import keep_freed_memory
from antiphon.io.transport import JOIN_BYTES, Address, write_parts

OnBodies = Callable[[Sequence[wire.Body]], None]
OnLost = Callable[[Exception | None], None]


class ClientLink(Protocol):
    """A connection to a server, over a socket or within the process."""

    def send(self, requests: list[cw.Request]) -> None:
        """After the end of the connection, nothing happens."""

    def close(self) -> None:
        """Nothing more is said or heard, and `on_lost` is not called."""

    @property
    def waiting_bytes(self) -> int:
        """What was sent and has not left."""


class Descriptor:
    """A second name of a socket. It is closed when nobody has it any more: who waits for something
    to arrive there cannot find another socket under this number."""

    def __init__(self, number: int) -> None:
        self.socket = socket.socket(fileno=os.dup(number))
        self.number = self.socket.fileno()

    def end(self) -> None:
        """The first name is gone. The other side is to know, and who waits here."""
        with suppress(OSError):  # it may know already
            self.socket.shutdown(socket.SHUT_RDWR)

    def __del__(self) -> None:
        self.socket.close()


async def dial(address: Address, on_bodies: OnBodies, on_lost: OnLost) -> ClientLink:
    """Raises `OSError` or `FormatError`. How long it may take is the caller's affair."""
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
    def __init__(self, on_bodies: OnBodies, on_lost: OnLost) -> None:
        self._on_bodies = on_bodies
        self._on_lost = on_lost
        self._reader = FrameReader(wire.FRAME_MAX)
        self._own = wire.Hello(wire.MAGIC, wire.OLDEST, wire.NEWEST, "client", ReplicaId(0, 0))
        self._socket: asyncio.Transport | None = None
        self._closed = False
        self._loop = asyncio.get_running_loop()
        self._descriptor: Descriptor | None = None  # for other threads
        self._lent = False
        self.came = 0  # bytes with the last read, or of the frames that it completed
        self._writing = threading.Lock()
        self._rest: list[bytes] = []  # of what other threads sent: the loop writes it
        self.ready: asyncio.Future[None] = self._loop.create_future()
        """Done when hands are shaken."""

    # -- Called by the event loop --------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but its class
        self._socket = transport
        sock = transport.get_extra_info("socket")
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        transport.write(wire.frame(wire.encode_hello(self._own)))

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._reader.room()

    def buffer_updated(self, nbytes: int) -> None:
        try:
            bodies = self._arrived(nbytes)
            if bodies and not self.ready.done():
                wire.agree(self._own, wire.decode_hello(bodies.pop(0)))
                self.ready.set_result(None)
        except FormatError as error:
            self._end(error)
            return
        if bodies and not self._closed:
            self._on_bodies(bodies)

    def connection_lost(self, error: Exception | None) -> None:
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            descriptor.end()
        self._end(error)

    # -- Called by the client ------------------------------------------------------------------

    def send(self, requests: list[cw.Request]) -> None:
        if self._socket is not None and not self._closed:
            parts = _framed(requests)
            with self._writing:
                if self._rest:
                    self._write_rest()
                write_parts(self._socket, parts, sum(map(len, parts)))

    def close(self) -> None:
        self._closed = True
        self._lent = False
        if self._socket is not None:
            self._socket.close()

    # -- For other threads ---------------------------------------------------------------------

    def share(self) -> bool:
        """Called on the loop. False: this system has not what it takes."""
        if self._socket is None or self._closed or not hasattr(select, "poll"):
            return False
        self._descriptor = Descriptor(self._socket.get_extra_info("socket").fileno())
        return True

    def send_here(self, requests: list[cw.Request]) -> None:
        """Straight into the socket. What it does not take is left to the loop, and what is large,
        which would have to be copied for that."""
        rest = _framed(requests)
        with self._writing:
            descriptor, transport = self._descriptor, self._socket
            if self._closed or descriptor is None or transport is None:
                return
            idle = not self._rest and transport.get_write_buffer_size() == 0
            if idle and sum(map(len, rest)) <= JOIN_BYTES:
                data = b"".join(rest)
                with suppress(OSError):  # a full socket takes it later; a dead one tells the loop
                    data = data[descriptor.socket.send(data) :]
                if not data:
                    return
                rest = [data]
            self._rest += rest
        self._loop.call_soon_threadsafe(self._send_rest)

    def _send_rest(self) -> None:
        with self._writing:
            self._write_rest()

    def _write_rest(self) -> None:
        rest, self._rest = self._rest, []
        if rest and self._socket is not None and not self._socket.is_closing():
            write_parts(self._socket, rest, sum(map(len, rest)))

    def lend(self) -> Descriptor | None:
        """Called on the loop, which reads nothing from now on; None: it is closed."""
        if self._closed or self._socket is None:
            return None
        self._socket.pause_reading()
        self._lent = True
        return self._descriptor

    def read(self) -> list[wire.Body]:
        """What has arrived, while it is lent. Raises `OSError`, also at the end of the stream, and
        `FormatError`."""
        if self._closed:
            raise ConnectionResetError("it is closed")
        if not self._lent or self._descriptor is None:
            return []
        try:
            count = self._descriptor.socket.recv_into(self._reader.room())
        except BlockingIOError:
            return []
        if not count:
            raise ConnectionResetError("it hung up")
        return self._arrived(count)

    def take_back(self) -> None:
        """Called on the loop, which reads again."""
        if self._lent and self._socket is not None:
            self._lent = False
            self._socket.resume_reading()

    def fail(self, error: Exception) -> None:
        """Called on the loop: it brought what is no frame."""
        self._end(error)

    @property
    def waiting_bytes(self) -> int:
        return self._socket.get_write_buffer_size() if self._socket is not None else 0

    def _arrived(self, count: int) -> list[wire.Body]:
        bodies = list(self._reader.arrived(count))
        self.came = max(count, sum(map(len, bodies)))
        return bodies

    def _end(self, error: Exception | None) -> None:
        if not self.ready.done():
            self.ready.set_exception(error or ConnectionError("it hung up during the handshake"))
            self._closed = True
        if not self._closed:
            self.close()
            self._on_lost(error)


def _framed(requests: list[cw.Request]) -> list[bytes]:
    bodies = map(cw.encode_parts, requests)
    return [part for body in bodies for part in (wire.frame_head(*body), *body)]
