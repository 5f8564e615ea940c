"""The backends of the API suite: a server inside the program, one behind a socket, a cluster."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from typing import Any

from antiphon.api.connection import Options, now_ms
from antiphon.broker.home.settings import HomeSettings
from antiphon.io.background_loop import background_loop
from antiphon.io.transport import format_address, parse_address
from antiphon.journal.disk import RamDisk
from antiphon.log.settings import Settings
from antiphon.server.local_cluster import LocalCluster
from antiphon.server.server import Server

HOST = "127.0.0.1"
_numbers = count(1)


class Backend:
    def __init__(self, url: str) -> None:
        self.url = url

    def name(self, base: str = "d") -> str:
        """A name that no other test uses."""
        return f"{base}{next(_numbers)}"


@contextmanager
def embedded() -> Iterator[Backend]:
    yield Backend(f"embedded:test{next(_numbers)}")


@contextmanager
def one_server(home: HomeSettings | None = None) -> Iterator[Backend]:
    loop = background_loop()

    async def start() -> tuple[Server, str]:
        server = Server(1, {1: (HOST, 0)}, RamDisk(), Settings(volatile=True), None, home)
        address = await server.start((HOST, 0))
        return server, f"antiphon://{format_address(address)}"

    server, url = asyncio.run_coroutine_threadsafe(start(), loop).result()
    try:
        yield Backend(url)
    finally:
        asyncio.run_coroutine_threadsafe(server.close(), loop).result()


@contextmanager
def connections(front: Any, backend: Backend) -> Iterator[Callable[..., Any]]:
    """To this backend, closed in the end."""
    contexts: list[Any] = []

    def connect(**options: Any) -> Any:
        contexts.append(front.connect(backend.url, **options))
        return contexts[-1]

    yield connect
    for context in reversed(contexts):
        context.close()


@contextmanager
def cluster(folder: Path) -> Iterator[Backend]:
    with LocalCluster(3, folder, storage="memory") as servers:
        servers.start()
        yield Backend(servers.url)


HOLD = """
import sys, antiphon
with antiphon.connect(sys.argv[1], connect_timeout=60):
    print("ready", flush=True)
    sys.stdin.read()
"""


@contextmanager
def peers(folder: Path, others: int = 2) -> Iterator[Backend]:
    """A cluster without servers: other processes, which this one joins with its first connection
    and leaves with its last one."""
    url = f"peer:file/{folder}/test"
    command = [sys.executable, "-c", HOLD, url]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with ExitStack() as stack:
        started = [
            stack.enter_context(subprocess.Popen(command, **pipes))  # type: ignore[call-overload]
            for _ in range(others)
        ]
        for process in started:
            assert process.stdout.readline().strip() == b"ready"
        yield Backend(url)
        for process in started:
            process.stdin.close()
            assert process.wait(30) == 0


def lose_connection(context: Any) -> None:
    """As if the wire were cut. The session goes on with another connection."""
    connection = context._core.connection

    def cut() -> None:
        driver = connection.driver
        if driver.link is not None:
            driver.link.close()
            driver.link_ended(driver.attempt, ConnectionError("cut by the test"), now_ms())

    connection._loop.call_soon_threadsafe(cut)


def abandon(context: Any) -> None:
    """As if the program were killed: the connection goes, and does not come back."""
    connection = context._core.connection

    def die() -> None:
        driver = connection.driver
        if driver.link is not None:
            driver.link.close()
        driver.attempt += 1  # whatever comes now is not heard

    connection._loop.call_soon_threadsafe(die)
    connection.options = Options(close_timeout=0.0)


class Gate:
    """Passes bytes on between clients and a server, while it is open."""

    def __init__(self, host: str, port: int) -> None:
        self._address = host, port
        self._open = asyncio.Event()
        self._open.set()
        self.server: asyncio.Server | None = None

    async def start(self) -> str:
        self.server = await asyncio.start_server(self._pass_on, HOST, 0)
        return f"antiphon://{format_address(self.server.sockets[0].getsockname())}"

    def shut(self) -> None:
        asyncio.run_coroutine_threadsafe(_call(self._open.clear), background_loop()).result()

    def open(self) -> None:
        asyncio.run_coroutine_threadsafe(_call(self._open.set), background_loop()).result()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection(*self._address)
        await asyncio.gather(
            self._copy(reader, far_writer), self._copy(far_reader, writer), return_exceptions=True
        )

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(1 << 16):
                await self._open.wait()
                writer.write(data)
                await writer.drain()
        finally:
            writer.close()


async def _call(what: Callable[[], None]) -> None:
    what()


@contextmanager
def gate(backend: Backend) -> Iterator[tuple[str, Gate]]:
    """Another way to a server, which can be shut."""
    one = Gate(*parse_address(backend.url.removeprefix("antiphon://")))
    loop = background_loop()
    url = asyncio.run_coroutine_threadsafe(one.start(), loop).result()
    yield url, one
    assert one.server is not None
    loop.call_soon_threadsafe(one.server.close)
