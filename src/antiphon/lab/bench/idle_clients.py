"""Many idle clients in one process: each attaches once, and then only says that it lives.

`python -m antiphon.lab.bench.idle_clients HOST:PORT COUNT` prints `attached COUNT` once all are, a
line for each that is lost, and ends when its input does. Links without conversations rather than
contexts: the server is measured, and contexts would cost this process more than the server.
"""

from __future__ import annotations

import asyncio
import contextlib
import resource
import secrets
import sys
from collections.abc import Callable, Sequence

from antiphon.formats import frames
from antiphon.formats import protocol as cw
from antiphon.io.client_link import ClientLink, dial
from antiphon.io.transport import Address, parse_address
from antiphon.terminal.lines import say

DIALLING_MAX = 16
LEASE_MS = 30_000
REDIAL_S = 0.1
BEATS = 50
"""Groups of connections that send their heartbeats one after the other, as if independent."""


class IdleClient:
    """One client: a connection with a session that has nothing to do. `lost` is called with the
    reason when the connection, or the session, ends."""

    def __init__(self, lost: Callable[[str], None]) -> None:
        self._on_end = lost
        self._link: ClientLink | None = None
        self._attached: asyncio.Future[cw.Attached] = asyncio.get_running_loop().create_future()

    @property
    def heartbeat_s(self) -> float:
        """Return the server's interval of heartbeats."""
        return self._attached.result().heartbeat_ms / 1000

    async def attach(self, address: Address) -> None:
        """Connect, and open a session. Raise `OSError` or `FormatError`."""
        self._link = await dial(address, self._on_bodies, self._on_lost)
        session, token = secrets.randbits(62) + 1, secrets.token_bytes(16)
        self._link.send([cw.Attach(session, token, False, 1, "", LEASE_MS, ((0, 1),), ())])
        await self._attached

    def ping(self) -> None:
        """Send a heartbeat."""
        assert self._link is not None
        self._link.send([cw.Ping()])

    def _on_bodies(self, bodies: Sequence[frames.Body]) -> None:
        for answer in map(cw.decode_answer, bodies):
            if isinstance(answer, cw.Attached):
                self._attached.set_result(answer)
            elif not isinstance(answer, cw.Pong):
                self._end(str(answer))

    def _on_lost(self, error: Exception | None) -> None:
        self._end(f"the connection ended: {error}")

    def _end(self, why: str) -> None:
        if not self._attached.done():
            self._attached.set_exception(ConnectionError(why))
        elif self._attached.exception() is None:
            self._on_end(why)


async def _attach(address: Address, room: asyncio.Semaphore) -> IdleClient:
    """Return a client that is attached. A server may turn some away that come all at once: they
    try again."""
    while True:
        async with room:
            with contextlib.suppress(OSError):
                client = IdleClient(_tell)
                await client.attach(address)
                return client
        await asyncio.sleep(REDIAL_S)


def _tell(line: str) -> None:
    say(line, flush=True)


async def _stay(clients: list[IdleClient], ended: asyncio.Future[bytes]) -> None:
    heartbeat_s = clients[0].heartbeat_s
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
