"""Many idle clients in one process: each attaches once, and then sends only heartbeats.

`python -m antiphon.lab.bench.idle_clients HOST:PORT COUNT` prints `attached COUNT` once all are, a
line for each that is lost, and ends when its input does. Raw connections rather than contexts: the
server is measured, not the client.
"""

from __future__ import annotations

import asyncio
import contextlib
import resource
import secrets
import sys
from collections.abc import Callable

from antiphon.errors import FormatError
from antiphon.formats import frames
from antiphon.formats import protocol as cw
from antiphon.formats.entry import ReplicaId
from antiphon.io.frame_reader import FrameReader
from antiphon.io.transport import Address, parse_address
from antiphon.terminal.lines import say

DIALLING_MAX = 16
LEASE_MS = 30_000
REDIAL_S = 0.1
BEATS = 50
"""Groups of connections that send their heartbeats one after the other, as if independent."""


class IdleClient(asyncio.BufferedProtocol):
    def __init__(self, lost: Callable[[str], None]) -> None:
        self._reader = FrameReader(frames.FRAME_MAX)
        self._told_lost = lost
        self._shaken = False
        self.attached: asyncio.Future[cw.Attached] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        hello = frames.Hello(frames.MAGIC, frames.OLDEST, frames.NEWEST, "client", ReplicaId(0, 0))
        transport.write(frames.frame(frames.encode_hello(hello)))

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._reader.room()

    def buffer_updated(self, nbytes: int) -> None:
        try:
            for body in self._reader.arrived(nbytes):
                self._take(body)
        except FormatError as error:
            self._lost(str(error))
            self._transport.abort()

    def _take(self, body: frames.Body) -> None:
        if not self._shaken:
            frames.decode_hello(body)
            self._shaken = True
            session, token = secrets.randbits(62) + 1, secrets.token_bytes(16)
            self._say(cw.Attach(session, token, False, 1, "", LEASE_MS, ((0, 1),), ()))
            return
        answer = cw.decode_answer(body)
        if isinstance(answer, cw.Attached):
            self.attached.set_result(answer)
        elif not isinstance(answer, cw.Pong):
            self._lost(str(answer))

    def ping(self) -> None:
        self._say(cw.Ping())

    def _say(self, request: cw.Request) -> None:
        self._transport.write(frames.frame(cw.encode(request)))

    def connection_lost(self, error: Exception | None) -> None:
        self._lost(f"the connection ended: {error}")

    def _lost(self, why: str) -> None:
        if self.attached.done():
            self._told_lost(why)
        else:
            self.attached.set_exception(ConnectionError(why))


async def _attach(address: Address, room: asyncio.Semaphore) -> IdleClient:
    """Again and again: a server may turn some away that come all at once."""
    loop = asyncio.get_running_loop()
    while True:
        async with room:
            with contextlib.suppress(OSError):
                _, client = await loop.create_connection(lambda: IdleClient(_tell), *address)
                await client.attached
                return client
        await asyncio.sleep(REDIAL_S)


def _tell(line: str) -> None:
    say(line, flush=True)


async def _stay(clients: list[IdleClient], ended: asyncio.Future[bytes]) -> None:
    heartbeat_s = clients[0].attached.result().heartbeat_ms / 1000
    beat = 0
    while not ended.done():
        for client in clients[beat % BEATS :: BEATS]:
            client.ping()
        beat += 1
        await asyncio.wait({ended}, timeout=heartbeat_s / BEATS)


async def run(address: Address, count: int) -> None:
    loop = asyncio.get_running_loop()
    room = asyncio.Semaphore(DIALLING_MAX)
    clients = await asyncio.gather(*(_attach(address, room) for _ in range(count)))
    _tell(f"attached {len(clients)}")
    await _stay(clients, loop.run_in_executor(None, sys.stdin.buffer.read))


if __name__ == "__main__":
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    asyncio.run(run(parse_address(sys.argv[1]), int(sys.argv[2])))
