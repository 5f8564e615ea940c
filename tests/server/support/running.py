"""A server on this loop, on a disk that does as it is told, and a client that does so, too."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from antiphon.broker.home.settings import HomeSettings
from antiphon.broker.machine.sessions.servers import REPLICATED
from antiphon.errors import DiskFullError, SyncFailedError
from antiphon.formats import columns, frames, pack
from antiphon.formats import protocol as cw
from antiphon.formats.columns import Outgoing
from antiphon.formats.entry import ReplicaId
from antiphon.journal.disk import RamDisk
from antiphon.log.settings import Settings
from antiphon.server.server import Server

HOST = "127.0.0.1"
SESSION = 77


class Disk(RamDisk):
    """Memory that behaves like a disk: it is synced, and can be full or fail."""

    volatile = False

    def __init__(self) -> None:
        super().__init__()
        self.full = False
        self.refused = 0  # writes
        self.sync_fails = False
        self.may_sync = threading.Event()
        self.may_sync.set()
        self.syncing = threading.Event()
        self.synced: set[str] = set()

    def write(self, name: str, offset: int, *data: bytes) -> None:
        if self.full:
            self.refused += 1
            raise DiskFullError("no room, says the test")
        super().write(name, offset, *data)

    def sync(self, name: str) -> None:
        self.syncing.set()
        self.may_sync.wait(10)
        if self.sync_fails:
            raise SyncFailedError("not synced, says the test")
        self.synced.add(name)


class RawClient:
    """Says exactly what it is told to."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.writer = writer

    def send(self, *requests: cw.Request) -> None:
        self.writer.write(b"".join(frames.frame(cw.encode(request)) for request in requests))

    async def receive(self) -> cw.Answer:
        async with asyncio.timeout(10):
            return cw.decode_answer(await self._frame())

    async def published(self, sequence: int) -> None:
        while await self.receive() != cw.Published(0, sequence):
            pass

    async def attach(self, session: int = SESSION, attempt: int = 1) -> cw.Attached:
        self.send(attach(session, attempt))
        answer = await self.receive()
        assert isinstance(answer, cw.Attached)
        return answer

    async def ask(self, number: int, body: cw.Body) -> cw.Result:
        self.send(cw.Control(number, body))
        while not isinstance(answer := await self.receive(), cw.Result):
            pass
        return answer

    async def delivered(self) -> cw.Deliver:
        while not isinstance(answer := await self.receive(), cw.Deliver):
            pass
        return answer

    async def ended(self) -> bool:
        async with asyncio.timeout(10):
            return await self._reader.read() == b""

    async def ended_after_hello(self) -> bool:
        await self._frame()
        return await self.ended()

    async def shake_hands(self) -> None:
        own = frames.Hello(frames.MAGIC, frames.OLDEST, frames.NEWEST, "client", ReplicaId(0, 0))
        self.writer.write(frames.frame(frames.encode_hello(own)))
        frames.decode_hello(await self._frame())

    async def _frame(self) -> bytes:
        length, _ = frames.PREFIX.unpack_from(await self._reader.readexactly(frames.PREFIX_SIZE))
        return await self._reader.readexactly(length)


@asynccontextmanager
async def running(
    disk: RamDisk,
    servers: int = 1,
    settings: Settings | None = None,
    home: HomeSettings | None = None,
    contexts: str = REPLICATED,
) -> AsyncIterator[tuple[Server, RawClient]]:
    """A server, and a client of it; alone it leads, and the client has a session; with others
    listed it has no leader."""
    listed = dict.fromkeys(range(1, servers + 1), (HOST, 0))
    chosen = settings or Settings(volatile=disk.volatile)
    server = Server(1, listed, disk, chosen, None, home, contexts)
    address = await server.start((HOST, 0))
    try:
        client = await connected(address)
        if servers == 1:
            await server.serves
            await client.attach()
        yield server, client
        client.writer.close()
    finally:
        if isinstance(disk, Disk):
            disk.may_sync.set()  # closing waits for it
        await server.close()


async def connected(address: tuple[str, int]) -> RawClient:
    client = RawClient(*await asyncio.open_connection(*address))
    await client.shake_hands()
    return client


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(test)


async def eventually(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110  what is waited for sets no event
            await asyncio.sleep(0.005)


def attach(session: int = SESSION, attempt: int = 1) -> cw.Attach:
    return cw.Attach(session, bytes(16), attempt > 1, attempt, "", 60_000, ((0, 1),), ())


def publish(
    sequence: int,
    count: int = 1,
    body: bytes = b"body",
    session: int = SESSION,
    destination: str = "topic:x",
) -> cw.Publish:
    messages = [Outgoing(columns.BYTES, body, b"", 0)] * count
    data, flags = columns.encode(messages)
    return cw.Publish(pack.encode(destination, count, data, session, sequence, flags=flags))
