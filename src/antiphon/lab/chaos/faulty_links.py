"""Connections that go wrong: listeners that pass bytes on to a server until a fault stops them.

A link that *stalls* takes nothing from its sender and passes nothing on, like a network that loses
every packet: neither end receives bytes, and those that were on their way arrive when the link
flows again. One that is *cut* ends its connections and takes no new ones.
"""

from __future__ import annotations

import asyncio
import contextlib
from types import TracebackType

from antiphon.io.background_loop import background_loop
from antiphon.io.transport import Address
from antiphon.server.local_cluster import HOST, free_port

CHUNK_BYTES = 64 << 10


class Link:
    """One way in to one server. Its methods may be called from any thread."""

    def __init__(self, target: Address) -> None:
        self.address: Address = (HOST, free_port())
        self._target = target
        self._loop = background_loop()
        self._flows = asyncio.Event()
        self._flows.set()
        self._is_cut = False
        self._delay_s = 0.0
        self._writers: set[asyncio.StreamWriter] = set()
        self._listener = asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result()

    def stall(self) -> None:
        self._loop.call_soon_threadsafe(self._flows.clear)

    def cut(self) -> None:
        self._loop.call_soon_threadsafe(self._cut)

    def delay(self, seconds: float) -> None:
        self._delay_s = seconds

    def repair(self) -> None:
        self._is_cut = False
        self._delay_s = 0.0
        self._loop.call_soon_threadsafe(self._flows.set)

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result()

    # -- On the loop -----------------------------------------------------------------------------

    async def _listen(self) -> asyncio.Server:
        return await asyncio.start_server(self._accept, *self.address)

    async def _close(self) -> None:
        self._listener.close()
        self._flows.set()
        self._cut()

    def _cut(self) -> None:
        self._is_cut = True
        for writer in self._writers:
            writer.transport.abort()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            if not self._is_cut:
                await self._pass_on(reader, writer)
        except OSError:
            pass  # the server is not there, or one end has closed the connection
        finally:
            self._writers.discard(writer)
            writer.transport.abort()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        onward_reader, onward = await asyncio.open_connection(*self._target)
        self._writers.add(onward)
        try:
            ways = [
                asyncio.ensure_future(self._pump(reader, onward)),
                asyncio.ensure_future(self._pump(onward_reader, writer)),
            ]
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            for way in ways:
                way.cancel()
            await asyncio.wait(ways)
        finally:
            self._writers.discard(onward)
            onward.transport.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(CHUNK_BYTES):
                if self._delay_s:
                    await asyncio.sleep(self._delay_s)
                await self._flows.wait()
                writer.write(data)
                await writer.drain()


class Links:
    """All links of a run: between each two servers, one for each way, and to each server for the
    programs."""

    def __init__(self, servers: dict[int, Address]) -> None:
        self.between: dict[tuple[int, int], Link] = {}
        self.to_programs: dict[int, Link] = {}
        try:
            for node, address in servers.items():
                self.to_programs[node] = Link(address)
                for other in servers:
                    if other != node:
                        self.between[other, node] = Link(address)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Links:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        for link in self.all():
            link.close()

    def all(self) -> list[Link]:
        return [*self.between.values(), *self.to_programs.values()]

    def around(self, node: int) -> list[Link]:
        """Return the links between this server and the others, both ways."""
        return [link for pair, link in self.between.items() if node in pair]
