"""Connections between servers, and from clients: one port for both.

Promises: what arrives is whole and from the peer that its handshake names, or the connection is
closed with a logged reason, and only that one; nobody can make this process hold more than the
limits here and in `rules`. What is sent to a peer arrives once and in order, or not at all: while a
peer cannot be reached or does not keep up, messages for it are dropped, which the log's protocol is
made for.

Each server dials every other one and sends on the connection it dialled; to somebody whom it cannot
dial it answers on the connection that came in. A lost connection is dialled again after a pause
that doubles, and at once when the peer shows by dialling in that it is back.

Which connections are taken and kept, and when to dial again, is decided in `rules`. Here are the
sockets, what waits to be sent on each, and the time that each has for its handshake.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import socket
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar, cast

from antiphon.errors import ConfigurationError, FormatError
from antiphon.formats import frames as wire
from antiphon.formats.entry import ReplicaId
from antiphon.formats.server_messages import Envelope, Message
from antiphon.io.frame_reader import SHARED_BYTES, FrameReader
from antiphon.io.rules.incoming import Incoming
from antiphon.io.rules.redial import Redial
from antiphon.io.rules.servers import Servers

logger = logging.getLogger("antiphon.io.transport")

Address = tuple[str, int]
Outcome = TypeVar("Outcome")

SCHEME = "antiphon://"
HELLO_MAX = 1024
HANDSHAKE_S = 5.0
"""Within this time a connection says who it is, and a client what it wants, or it is closed. As
long has each later frame of a client without a session to arrive whole."""

STRANGER_READ_BYTES = 128
"""Read at once from a connection without a session: that may be many small requests, and the other
connections have their turn before the next ones."""

PART_S = 0.01
"""Arriving parts of a message are reported at most this often."""

QUEUE_BYTES = 96 << 20
"""The bytes that may wait to be sent to one other server: more than the largest frame, and more
than a full window of appends, so that replication drops nothing as long as a peer keeps up at all.
At the limit the newest message to a peer is dropped. (For clients: `HomeSettings.unread_bytes`.)"""

WRITE_BUFFER_BYTES = 256 << 10
"""The bytes that the event loop may hold ahead of the socket; the rest waits here, where it is
counted."""

JOIN_BYTES = 64 << 10
"""Up to here, joining frames costs less than handing them over one by one."""

LINGER_S = 1.0
"""The time that queued messages have to leave when their connection ends."""

UNACKNOWLEDGED_MS = 5000
"""A link whose bytes the peer does not take for this long is given up, rather than waiting for
TCP's own patience of many minutes. Not so with clients: those may be slow."""


class ClientHandler(Protocol):
    """The server's part of one client's connection."""

    def take(self, body: wire.Body) -> None:
        """A message; raises `FormatError` on one that no honest client sends."""

    def begun(self, size: int) -> None:
        """More of a message of this size has arrived, but not all of it."""

    def writable(self) -> None:
        """All that was sent has left."""

    def closed(self) -> None: ...


class Connection(asyncio.BufferedProtocol):
    """One TCP connection: frames both ways, none before a good handshake."""

    def __init__(self, hub: Transport, dialled: int | None = None) -> None:
        """`dialled`: the node number that should be at the other end; None: it came to us."""
        self.dialled = dialled
        self._hub = hub
        self._reader = FrameReader(HELLO_MAX, STRANGER_READ_BYTES)
        self._loop = asyncio.get_running_loop()
        self._socket: asyncio.Transport | None = None
        self._queue: list[bytes] = []
        self.waiting_bytes = 0  # sent, and not with the event loop yet
        self._full = False  # the event loop holds enough; what comes now waits in the queue
        self._writing = False  # a joined write is due
        self._timer: asyncio.TimerHandle | None = None  # ends it
        self._partial = False  # a frame has begun, and has not arrived whole
        self._part_s = 0.0  # when such a part was last reported
        self.spoke = True  # bytes have arrived since this was set to False
        self.peer: wire.Hello | None = None
        self.version = 0
        self.client: ClientHandler | None = None
        self.dropped = 0  # messages that found the queue full
        self.identified: asyncio.Future[bool] = self._loop.create_future()
        self.lost: asyncio.Future[None] = self._loop.create_future()
        self.name = "?"

    # -- Called by the event loop --------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but its class
        self._socket = transport
        self.name = _name(transport.get_extra_info("peername"))
        transport.set_write_buffer_limits(WRITE_BUFFER_BYTES)
        _set_options(transport.get_extra_info("socket"), dialled=self.dialled is not None)
        self._hub.arrived(self)
        self._end_later(f"it has not said what it wants within {HANDSHAKE_S:g} s")
        if self.dialled is not None:
            self.send(wire.frame(self._hub.hello))

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._reader.room()

    def buffer_updated(self, nbytes: int) -> None:
        self.spoke = True
        try:
            for body in self._reader.arrived(nbytes):
                if self.ended:
                    return
                self._take(body)
        except FormatError as error:
            self.end(str(error))
            return
        if self._partial or self._reader.room_kept:
            self._look_at_partial()

    def pause_writing(self) -> None:
        self._full = True

    def resume_writing(self) -> None:
        self._full = False
        self._write()

    def connection_lost(self, error: Exception | None) -> None:
        self._stop_timer()
        self._queue.clear()
        settle(self.identified, False)
        settle(self.lost, None)
        self._hub.left(self)
        if self.client is not None:
            self.client.closed()

    # -- Called by the server ------------------------------------------------------------------

    @property
    def ended(self) -> bool:
        return self._socket is None or self._socket.is_closing()

    def send(self, *frame: bytes) -> None:
        """Queue a frame; without room it is dropped."""
        # Its parts are not joined here: a large one would be copied for it.
        size = sum(map(len, frame))
        if self.waiting_bytes + size > QUEUE_BYTES:
            self.dropped += 1
        else:
            self._enqueue(frame, size)

    def send_body(self, *parts: bytes) -> None:
        """Queue a message for a client, which nobody drops: the handler looks at what waits."""
        frame = wire.frame_head(*parts), *parts
        self._enqueue(frame, sum(map(len, frame)))

    def hold(self, hold: bool) -> None:
        """Stop reading, so that the sender has to wait; or go on."""
        if self._socket is not None and not self._socket.is_closing():
            if hold:
                self._socket.pause_reading()
            else:
                self._socket.resume_reading()

    def end(self, reason: str = "") -> None:
        """Close, after the queued bytes have been handed on; with a reason, the other end is to
        blame."""
        if self._socket is None or self._socket.is_closing():
            return
        if reason:
            logger.warning("closing the connection with %s: %s", self.name, reason)
        self._full = False
        self._write()
        self._socket.close()
        self._loop.call_later(LINGER_S, self._socket.abort)

    def abort(self) -> None:
        if self._socket is not None:
            self._socket.abort()

    # -- Inside --------------------------------------------------------------------------------

    def _enqueue(self, frame: tuple[bytes, ...], size: int) -> None:
        """All that is sent in this turn of the loop leaves in one write."""
        self._queue += frame
        self.waiting_bytes += size
        if not self._writing and not self._full:
            self._writing = True
            self._loop.call_soon(self._write)

    def _write(self) -> None:
        self._writing = False
        if self._queue and not self._full and self._socket is not None:
            frames, size = self._queue, self.waiting_bytes
            self._queue, self.waiting_bytes = [], 0
            write_parts(self._socket, frames, size)
        if self.client is not None and not self._full:
            self.client.writable()

    def _take(self, body: wire.Body) -> None:
        if self.peer is None:
            self._greet(wire.decode_hello(body))
        elif self.client is not None:
            if self._timer is not None:
                self._stop_timer()
                self._hub.incoming.identified(self)
            self.client.take(body)
        else:
            envelope = wire.decode_envelope(body)
            if envelope.sender != self.peer.sender or envelope.to.node != self._hub.own.sender.node:
                raise FormatError(
                    f"{self.peer.sender} sent a message from {envelope.sender} to {envelope.to}"
                )
            self._hub.on_envelope(envelope)

    def _greet(self, hello: wire.Hello) -> None:
        if self.dialled is None:
            # Before anything is refused: so the other side can tell its operator why.
            self.send(wire.frame(self._hub.hello))
        elif hello.sender.node != self.dialled or hello.role != "server":
            raise FormatError(
                f"node {self.dialled} should be there, but {hello.role} {hello.sender} answered"
            )
        self.version = wire.agree(self._hub.own, hello)
        self.peer = hello
        self._hub.greeted(self, hello)
        settle(self.identified, True)

    def serve(self, client: ClientHandler, frame_max: int) -> None:
        self.client = client
        self._reader.limit = frame_max

    def attached(self, frame_max: int) -> None:
        """This client has a session: it may send packs."""
        self._reader.limit = frame_max
        self._reader.at_once = SHARED_BYTES
        self._stop_timer()
        self._hub.incoming.attached(self)

    def trust_as_server(self) -> None:
        self._stop_timer()
        self._hub.incoming.identified(self)
        self._reader.limit = wire.FRAME_MAX
        self._reader.at_once = SHARED_BYTES

    def _look_at_partial(self) -> None:
        """A frame has begun, or more of it has arrived, or it is whole now."""
        size = self._reader.room_kept
        self._partial = size > 0
        if not self._partial:
            self._hub.incoming.whole(self)
            return
        if self._hub.is_stranger(self):
            self._hub.incoming.begun(self, size)
            if self.client is not None and self._timer is None:
                self._end_later(f"a message has not arrived whole within {HANDSHAKE_S:g} s")
        now_s = self._loop.time()
        if now_s - self._part_s < PART_S:
            return
        self._part_s = now_s
        if self.client is not None:
            self.client.begun(self._reader.announced)
        elif self.peer is not None:
            self._hub.on_part(self.peer.sender)

    def _end_later(self, reason: str) -> None:
        self._timer = self._loop.call_later(HANDSHAKE_S, self.end, reason)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class Link:
    """The way to one peer: dialled, and dialled again."""

    def __init__(self, hub: Transport, node: int, address: Address) -> None:
        self.address = address
        self.connection: Connection | None = None
        self._hub = hub
        self._node = node
        self._redial = Redial(random.uniform)
        self._wake = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(self._keep())

    def wake(self) -> None:
        """The peer is there: do not wait out the pause."""
        self._wake.set()

    def close(self) -> None:
        self._task.cancel()

    async def _keep(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            self._redial.began(loop.time())
            try:
                await self._hold_one()
                self._complain("the connection was lost")
            except (OSError, FormatError) as error:
                self._complain(str(error) or type(error).__name__)
                refused = isinstance(error, ConnectionRefusedError)
                if refused and not self._hub.servers.is_here(self._node):
                    self._hub.on_gone(self._node)
            self._wake.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), self._redial.pause_s(loop.time()))

    async def _hold_one(self) -> None:
        """Dial, and return when the connection is lost."""
        connection = await self._hub.dial(self._node, self.address)
        try:
            self.connection = connection
            self._redial.connected()
            self._hub.connected += 1
            logger.info("connected to node %d at %s", self._node, connection.name)
            await connection.lost
        finally:
            self.connection = None
            connection.abort()

    def _complain(self, complaint: str) -> None:
        if self._redial.is_news(complaint):
            where = format_address(self.address)
            logger.info("no connection to node %d at %s: %s", self._node, where, complaint)


class Transport:
    """All connections of one server: to the other servers, and from clients."""

    def __init__(
        self,
        me: ReplicaId,
        on_envelope: Callable[[Envelope], None],
        on_client: Callable[[Connection], ClientHandler],
        on_gone: Callable[[int], None],
        on_part: Callable[[ReplicaId], None],
        first_frame_max: int,
    ) -> None:
        """`on_gone`: nobody listens at the address of this node, its host says, and it has no
        connection to us. `on_part`: a part
        of a message has come from this server. `first_frame_max`: bytes in a frame of a client,
        until it is `attached`."""
        self.own = wire.Hello(wire.MAGIC, wire.OLDEST, wire.NEWEST, "server", me)
        self.hello = wire.encode_hello(self.own)
        self.on_envelope = on_envelope
        self._on_client = on_client
        self.on_gone = on_gone
        self.on_part = on_part
        self._first_frame_max = first_frame_max
        self._me = me
        self._links: dict[int, Link] = {}
        self.connected = 0  # how often a link had a connection
        self.servers: Servers[Connection] = Servers(self._links.keys())
        self._came_in = self.servers.newest
        self.incoming: Incoming[Connection] = Incoming()
        self._listener: asyncio.Server | None = None
        self._encoded: tuple[Message | None, int, tuple[bytes, ...]] = (None, 0, ())  # the last

    async def listen(self, host: str, port: int) -> Address:
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(lambda: Connection(self), host, port)
        name = self._listener.sockets[0].getsockname()
        return name[0], name[1]

    async def close(self) -> None:
        if self._listener is not None:
            self._listener.close()
        self.set_peers({})
        open_ = {*self.incoming.unidentified, *self._came_in.values(), *self.incoming.clients}
        for connection in open_:
            connection.end()
        await asyncio.gather(*(connection.lost for connection in open_))

    def set_peers(self, addresses: dict[int, Address]) -> None:
        """Set the servers to dial; this server is not counted."""
        for node in [n for n, link in self._links.items() if addresses.get(n) != link.address]:
            self._links.pop(node).close()
        for node, address in addresses.items():
            if node not in self._links and node != self._me.node:
                self._links[node] = Link(self, node, address)

    def send(self, to: ReplicaId, message: Message) -> None:
        """Send if there is a way and room, and the peer knows such messages; otherwise the message
        is lost."""
        link = self._links.get(to.node)
        connection = link.connection if link is not None else None
        if connection is None:
            connection = self._came_in.get(to.node)
        if connection is None or connection.ended:
            return
        if not wire.is_known(message, connection.version):
            return
        head = wire.envelope_head(self._me, to)
        parts = self._encode(message, connection.version)
        connection.send(wire.frame_head(*parts, envelope=head), head, *parts)

    def _encode(self, message: Message, version: int) -> tuple[bytes, ...]:
        """Encode a message; one that a leader sends to all servers is encoded once."""
        last, last_version, parts = self._encoded
        if message is not last or version != last_version:
            parts = wire.message_parts(message, version)
            self._encoded = (message, version, parts)
        return parts

    def counts(self) -> dict[str, int]:
        links = [link.connection for link in self._links.values() if link.connection is not None]
        return {
            "clients": len(self.incoming.clients),
            "servers": len(links),
            "connected": self.connected,
            "unidentified": len(self.incoming.unidentified),
            "queued_bytes": sum(c.waiting_bytes for c in (*links, *self.incoming.clients)),
            "dropped": sum(c.dropped for c in links),
        }

    def sweep(self) -> None:
        """End the connections of servers that are not listed and say nothing. Call it now and
        then."""
        self.servers.sweep(asyncio.get_running_loop().time())

    async def dial(self, node: int, address: Address) -> Connection:
        """A connection that has shaken hands; raises `OSError` or `FormatError`."""
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(HANDSHAKE_S):
            _, connection = await loop.create_connection(lambda: Connection(self, node), *address)
            try:
                if not await connection.identified:
                    raise ConnectionError("it hung up during the handshake")
            except BaseException:
                connection.abort()
                raise
        return connection

    # -- Called by connections -----------------------------------------------------------------

    def arrived(self, connection: Connection) -> None:
        if connection.dialled is None:
            self.incoming.arrived(connection)

    def greeted(self, connection: Connection, hello: wire.Hello) -> None:
        if hello.role == "client":
            self.incoming.is_client(connection)
            connection.serve(self._on_client(connection), self._first_frame_max)
        else:
            connection.trust_as_server()
            if connection.dialled is None:
                self._came(connection, hello.sender.node)

    def is_stranger(self, connection: Connection) -> bool:
        """A client without a session, or a server that is not listed."""
        if connection.client is None and connection.peer is not None:
            return connection.peer.sender.node not in self._links
        return connection in self.incoming.unattached

    def left(self, connection: Connection) -> None:
        self.incoming.left(connection)
        self.servers.left(connection)

    def _came(self, connection: Connection, node: int) -> None:
        self.servers.came(node, connection)
        if (link := self._links.get(node)) is not None:
            link.wake()


def write_parts(transport: asyncio.Transport, parts: Sequence[wire.Body], size: int) -> None:
    """Small ones are joined; large ones are not copied for it, with uvloop. The built-in loop does
    not, in some releases of Python 3.12 and 3.13, pause who has written more parts than the other
    side reads (CVE-2024-12254)."""
    if size > JOIN_BYTES and type(transport).__module__.startswith("uvloop"):
        transport.writelines(parts)
    else:
        transport.write(b"".join(parts))


def parse_url(url: str) -> list[Address]:
    """`antiphon://host:port[,host:port...]`; raises `ConfigurationError`."""
    if not url.startswith(SCHEME):
        raise ConfigurationError(
            f"{url!r} is not an address of a server: write {SCHEME}HOST:PORT[,HOST:PORT...]"
        )
    if "@" in url:
        raise ConfigurationError(
            f"a URL has no user and no password: write {SCHEME}HOST:PORT, without what is before "
            "the @. Servers of this version keep no users"
        )
    try:
        addresses = [parse_address(part) for part in url.removeprefix(SCHEME).split(",")]
    except FormatError as error:
        raise ConfigurationError(f"{url!r}: {error}") from None
    if any(port == 0 for _, port in addresses):
        raise ConfigurationError(f"{url!r}: nobody can be reached at port 0")
    return addresses


def parse_address(text: str) -> Address:
    """`127.0.0.1:7470` or `[::1]:7470`; raises `FormatError`."""
    host, _, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    known = host and "[" not in host and "]" not in host and _can_be_looked_up(host)
    if not (known and port.isascii() and port.isdecimal() and int(port) < 65536):
        raise FormatError(f"{text!r} is not HOST:PORT")
    return host, int(port)


def _can_be_looked_up(host: str) -> bool:
    try:
        host.encode("idna")
    except UnicodeError:
        return False
    return True


def format_address(address: Address) -> str:
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _name(address: object) -> str:
    return format_address(address[:2]) if isinstance(address, tuple) else str(address)


def _set_options(sock: socket.socket, *, dialled: bool) -> None:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if dialled and hasattr(socket, "TCP_USER_TIMEOUT"):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNACKNOWLEDGED_MS)


def settle(future: asyncio.Future[Outcome], outcome: Outcome) -> None:
    """Set the outcome, unless it is set: the waiting task may have been cancelled."""
    if not future.done():
        future.set_result(outcome)
