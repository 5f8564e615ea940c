"""Servers inside the program that uses them: `embedded:`, `embedded:NAME`, `embedded:///PATH`.

The same server as behind a socket, with bodies handed over instead of frames. It runs on the
background loop (`io/background_loop.py`), whatever loop or thread its clients are on. `embedded:`
is private to its connection; `embedded:NAME` is shared by the process until the last connection
lets go of it; `embedded:///PATH` keeps a journal in a folder, which one connection at a time may
hold.

A connection does `embedded = acquire(url)`, `await embedded.connect(...)` as often as it needs to,
and `await embedded.release()` in the end.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, Protocol, TypeVar

from antiphon.driver.clients import Clients
from antiphon.errors import ConfigurationError, FormatError, IllegalStateError
from antiphon.formats import protocol as cw
from antiphon.io.background_loop import background_loop
from antiphon.io.client_link import OnBodies, OnLost
from antiphon.io.file_disk import FileDisk
from antiphon.journal.disk import RamDisk
from antiphon.log.settings import Settings
from antiphon.server.server import Server

SCHEME = "embedded:"
NODE = 1
NOWHERE = ("embedded", 0)
LOW_BYTES = 128 << 10
"""With no more than this on its way to a client, more is sent."""


Outcome = TypeVar("Outcome")

_shared: dict[str, Embedded] = {}
_lock = threading.Lock()


class Inside(Protocol):
    """A server inside this process, as its clients use it; all on the server's loop."""

    clients: Clients
    ended: asyncio.Future[None]

    def guarded(self, call: Callable[..., None], *args: Any) -> None:
        """Make a call: an error in it ends the server."""

    def trouble(self) -> str:
        """Return why it serves nobody just now, for people; empty if it does."""

    async def close(self) -> None:
        """End in order, and release all resources."""


def acquire(url: str) -> Embedded:
    """Return the server of this URL, which starts with the first connection; raise
    `ConfigurationError` if it is not the URL of one."""
    name = url.removeprefix(SCHEME)
    if not url.startswith(SCHEME) or name.startswith("/") != name.startswith("///"):
        raise ConfigurationError(
            f"{url!r} is not an embedded server: write embedded:, embedded:NAME or embedded:///PATH"
        )
    path = name.removeprefix("//")
    if not name or path.startswith("/"):
        return Embedded("", partial(_begin, path))
    return shared(url, partial(_begin, ""))


def shared(url: str, begin: Callable[[], Awaitable[Inside]]) -> Embedded:
    """Return the server that all connections of this process to this URL share."""
    with _lock:
        embedded = _shared.setdefault(url, Embedded(url, begin))
        embedded.users += 1
        return embedded


async def _begin(path: str) -> Inside:
    """Start a server whose journal is in this folder; "": in memory."""
    disk = FileDisk(path) if path else RamDisk()
    try:
        server = Server(NODE, {NODE: NOWHERE}, disk, Settings(volatile=disk.volatile), retain=0)
        await server.start(None)
    except BaseException:
        _close_disk(disk)
        raise
    return _WithDisk(server, disk)


class _WithDisk:
    """A server that has its disk for itself; is `Inside`."""

    def __init__(self, server: Server, disk: FileDisk | RamDisk) -> None:
        self.clients = server.clients
        self.ended = server.ended
        self.guarded = server.guarded
        self._server = server
        self._disk = disk

    def trouble(self) -> str:
        """Return nothing: it needs no others."""
        return ""

    async def close(self) -> None:
        await self._server.close()
        _close_disk(self._disk)


def _close_disk(disk: FileDisk | RamDisk) -> None:
    if isinstance(disk, FileDisk):
        disk.close()


class Embedded:
    """One server, and the connections that use it. `begin` starts it, with the first one."""

    def __init__(self, url: str, begin: Callable[[], Awaitable[Inside]]) -> None:
        self.users = 0  # of a shared one
        self._url = url
        self._begin = begin
        self._server_loop = background_loop()
        self._starting = asyncio.Lock()
        self._server: Inside | None = None

    async def connect(self, on_bodies: OnBodies, on_lost: OnLost) -> EmbeddedLink:
        """Return a connection, with both callbacks made on the caller's loop: `on_bodies` with
        answers of the server (`formats/protocol/`), `on_lost` once, when the server ends the
        connection. Raise the error of a server that cannot start."""
        link = EmbeddedLink(asyncio.get_running_loop(), self._server_loop, on_bodies, on_lost)
        await self._there(self._serve(link.far))
        return link

    async def release(self) -> None:
        """Let go of the server; the last one to do so ends it. Return when it has ended."""
        with _lock:
            self.users -= 1
            if self.users > 0:
                return
            if _shared.get(self._url) is self:
                del _shared[self._url]
        await self._there(self._stop())

    async def _there(self, work: Coroutine[Any, Any, Outcome]) -> Outcome:
        """Run this on the server's loop."""
        done = asyncio.run_coroutine_threadsafe(work, self._server_loop)
        return await asyncio.wrap_future(done)

    # -- On the server's loop ------------------------------------------------------------------

    async def _serve(self, far: FarEnd) -> None:
        async with self._starting:
            if self._server is None:
                self._server = server = await self._begin()
                server.ended.add_done_callback(lambda _: server.clients.close())
        if self._server.ended.done():
            error = self._server.ended.exception()
            if isinstance(error, ConfigurationError):
                raise error
            raise IllegalStateError(f"the embedded server has failed: {error}")
        far.serve(self._server)

    async def _stop(self) -> None:
        async with self._starting:
            server, self._server = self._server, None
            if server is not None:
                await server.close()


class EmbeddedLink:
    """The client's end of a connection; used on the client's loop."""

    def __init__(
        self,
        near: asyncio.AbstractEventLoop,
        far: asyncio.AbstractEventLoop,
        on_bodies: OnBodies,
        on_lost: OnLost,
    ) -> None:
        self._far_loop = far
        self._on_bodies = on_bodies
        self._on_lost = on_lost
        self._closed = False
        self.waiting_bytes = 0  # sent, and not taken by the server yet
        self.far = FarEnd(self, near)

    def send(self, requests: list[cw.Request]) -> None:
        if not self._closed:
            bodies = [*map(cw.encode, requests)]
            self.waiting_bytes += sum(map(len, bodies))
            _post(self._far_loop, self.far.take, bodies)

    def close(self) -> None:
        """End the connection: nothing more is sent or received, and `on_lost` is not called."""
        if not self._closed:
            self._closed = True
            _post(self._far_loop, self.far.closed)

    # -- Called from the server's end, on this loop --------------------------------------------

    def taken(self, size: int) -> None:
        self.waiting_bytes -= size

    def arrived(self, bodies: list[bytes]) -> None:
        if not self._closed:
            self._on_bodies(bodies)
            _post(self._far_loop, self.far.written, sum(map(len, bodies)))

    def lost(self, reason: str) -> None:
        if not self._closed:
            self._closed = True
            self._on_lost(ConnectionError(reason) if reason else None)


class FarEnd:
    """The server's end, in place of a TCP connection."""

    name = "an embedded client"

    def __init__(self, link: EmbeddedLink, near: asyncio.AbstractEventLoop) -> None:
        self.ended = False
        self.waiting_bytes = 0  # sent, and not taken by the client yet
        self._link = link
        self._near = near
        self._inbox: list[bytes] = []
        self._outbox: list[bytes] = []
        self._held = False

    def serve(self, server: Inside) -> None:
        self._server = server
        self._client = server.clients.connect(self)

    # -- Called by the server ------------------------------------------------------------------

    def send_body(self, *parts: bytes) -> None:
        if not self._outbox:
            asyncio.get_running_loop().call_soon(self._flush)
        body = b"".join(parts)
        self._outbox.append(body)
        self.waiting_bytes += len(body)

    def attached(self, frame_max: int) -> None:
        """Do nothing: there are no strangers in the same process, and no frames to limit."""

    def hold(self, hold: bool) -> None:
        self._held = hold
        if not hold:
            asyncio.get_running_loop().call_soon(self._work)

    def end(self, reason: str = "") -> None:
        if not self.ended:
            self._flush()
            if reason and (trouble := self._server.trouble()):
                reason = f"{reason}: {trouble}"
            self._tell(self._link.lost, reason)
            self._end()

    # -- Called from the client's end, on the server's loop ------------------------------------

    def take(self, bodies: list[bytes]) -> None:
        self._inbox += bodies
        self._work()

    def written(self, size: int) -> None:
        self.waiting_bytes -= size
        if not self.ended and self.waiting_bytes <= LOW_BYTES:
            self._server.guarded(self._client.writable)

    def closed(self) -> None:
        self._server.guarded(self._end)

    # -- Inside --------------------------------------------------------------------------------

    def _end(self) -> None:
        if not self.ended:
            self.ended = True
            self._client.closed()

    def _work(self) -> None:
        self._server.guarded(self._take_inbox)

    def _take_inbox(self) -> None:
        done = size = 0
        for body in self._inbox:
            if self._held or self.ended:
                break
            done += 1
            size += len(body)
            try:
                self._client.take(body)
            except FormatError as error:
                self.end(str(error))
        del self._inbox[:done]
        self._tell(self._link.taken, size)

    def _flush(self) -> None:
        bodies, self._outbox = self._outbox, []
        if bodies:
            self._tell(self._link.arrived, bodies)

    def _tell(self, what: Callable[..., None], *args: object) -> None:
        try:
            _post(self._near, what, *args)
        except RuntimeError:  # the client's loop is closed, and the client with it
            self._end()


def _post(loop: asyncio.AbstractEventLoop, what: Callable[..., None], *args: object) -> None:
    """Make a call on a loop, which may be the one that runs here."""
    if asyncio._get_running_loop() is loop:
        loop.call_soon(what, *args)
    else:
        loop.call_soon_threadsafe(what, *args)
