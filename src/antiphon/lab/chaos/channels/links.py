"""The network of a chaos run of channels: one gate before each process, through which all others
reach it.

A gate reads the handshakes that pass (`formats/peer_wire.py`). So it knows who talks to whom, and
each *way*, from one process to another, goes wrong by itself, whoever of the two has dialled. It
also puts the gates' addresses in the place of the processes' own, which therefore nobody learns.

A way that *stalls* passes nothing on, like a network that loses every packet: what was under way
arrives when it flows again. Connections are *reset*: both sides lose them; *cut*: and none comes
about; or reset *late*: the side that was dialled does not see it for some time, and gets what was
on its way meanwhile, when the other side may have dialled again.
"""

from __future__ import annotations

import asyncio
import struct
from collections import defaultdict
from collections.abc import Callable, Iterable
from contextlib import suppress
from types import TracebackType
from typing import Any, NamedTuple

from msgspec.structs import replace

from antiphon.errors import FormatError
from antiphon.formats import peer_wire
from antiphon.formats.frames import frame
from antiphon.formats.peer_wire import HELLO_MAX, PeerHello
from antiphon.io.background_loop import background_loop
from antiphon.io.transport import Address, format_address
from antiphon.server.local_cluster import HOST, free_port

CHUNK_BYTES = 64 << 10
CHUNKS_MAX = 16
"""While a way is slow or stalled, it holds this many chunks, and takes nothing more."""

_HEAD = struct.Struct("<II")  # of a frame: length, checksum


class Pair(NamedTuple):
    """From one process to another, by their names."""

    source: str
    target: str


class Way:
    """The way of bytes from one process to another, which a fault may slow down, stall or cut."""

    def __init__(self) -> None:
        self.flows = asyncio.Event()
        self.flows.set()
        self.delay_s = 0.0


class Network:
    """All gates and ways of a run. Its methods may be called from any thread."""

    def __init__(self, targets: dict[str, Address]) -> None:
        """`targets`: where the processes listen."""
        self.ways: dict[Pair, Way] = defaultdict(Way)
        self.cuts: set[frozenset[str]] = set()
        self.connections: dict[_Connection, None] = {}
        self.gates: dict[str, Address] = {name: (HOST, free_port()) for name in targets}
        self._targets = targets
        self._loop = background_loop()
        self._listeners: list[asyncio.Server] = []

    def __enter__(self) -> Network:
        asyncio.run_coroutine_threadsafe(self._open(), self._loop).result()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._call(self._close)

    def stall(self, pairs: Iterable[Pair]) -> None:
        for pair in pairs:
            self._call(self.ways[pair].flows.clear)

    def delay(self, pairs: Iterable[Pair], seconds: float) -> None:
        for pair in pairs:
            self.ways[pair].delay_s = seconds

    def cut(self, one: str, other: str) -> None:
        self.cuts.add(frozenset((one, other)))
        self.reset(one, other)

    def reset(self, one: str, other: str, late_s: float = 0.0) -> None:
        self._call(lambda: self._reset({one, other}, late_s))

    def mend(self, pairs: Iterable[Pair]) -> None:
        for pair in pairs:
            self.cuts.discard(frozenset(pair))
            self.ways[pair].delay_s = 0.0
            self._call(self.ways[pair].flows.set)

    def mend_all(self) -> None:
        self.cuts.clear()
        self.mend(list(self.ways))

    def _call(self, what: Callable[[], Any]) -> None:
        self._loop.call_soon_threadsafe(what)

    # -- On the loop -----------------------------------------------------------------------------

    async def _open(self) -> None:
        for name, address in self.gates.items():
            accept = _Gate(self, name, self._targets[name]).accept
            self._listeners.append(await asyncio.start_server(accept, *address))

    def _close(self) -> None:
        for listener in self._listeners:
            listener.close()
        for connection in list(self.connections):
            connection.abort()

    def _reset(self, names: set[str], late_s: float) -> None:
        for connection in list(self.connections):
            if {*connection.pair} == names:
                connection.reset(late_s)


class _Gate:
    """The way in to one process."""

    def __init__(self, network: Network, name: str, target: Address) -> None:
        self._network = network
        self._name = name
        self._target = target

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        onward: asyncio.StreamWriter | None = None
        try:
            dials = await _handshake(reader)
            onward_reader, onward = await asyncio.open_connection(*self._target)
            await self._pass_on(dials, (reader, writer), (onward_reader, onward))
        except (OSError, FormatError, asyncio.IncompleteReadError):
            pass  # nobody is there, or somebody hung up
        finally:
            writer.transport.abort()
            if onward is not None:
                onward.transport.abort()

    async def _pass_on(self, dials: PeerHello, near: _Ends, far: _Ends) -> None:
        network = self._network
        there, back = Pair(dials.member.name, self._name), Pair(self._name, dials.member.name)
        connection = _Connection(there, near[1], far[1])
        if frozenset(there) in network.cuts:
            return
        network.connections[connection] = None
        try:
            await network.ways[there].flows.wait()
            far[1].write(self._told(dials))
            answers = await _handshake(far[0])
            await network.ways[back].flows.wait()
            near[1].write(self._told(answers))
            await connection.pass_on(
                _Flow(near[0], far[1], network.ways[there]),
                _Flow(far[0], near[1], network.ways[back]),
            )
        finally:
            del network.connections[connection]

    def _told(self, hello: PeerHello) -> bytes:
        """Return a handshake that has the address of a gate."""
        gate = self._network.gates[hello.member.name]
        return frame(peer_wire.encode_hello(replace(hello, address=format_address(gate))))


_Ends = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def _handshake(reader: asyncio.StreamReader) -> PeerHello:
    length, _ = _HEAD.unpack(await reader.readexactly(_HEAD.size))
    if length > HELLO_MAX:
        raise FormatError("not a handshake")
    return peer_wire.decode_hello(await reader.readexactly(length))


class _Connection:
    """One connection between two processes."""

    def __init__(
        self, pair: Pair, dialled: asyncio.StreamWriter, target: asyncio.StreamWriter
    ) -> None:
        self.pair = pair
        self._dialled = dialled
        self._target = target
        self._there: _Flow | None = None

    def abort(self) -> None:
        self._dialled.transport.abort()
        self._target.transport.abort()

    def reset(self, late_s: float) -> None:
        if self._there is None or not late_s:
            self.abort()
        else:
            self._there.end_late(late_s)
            self._dialled.transport.abort()

    async def pass_on(self, there: _Flow, back: _Flow) -> None:
        """Pass everything on until one side ends."""
        self._there = there
        tasks = [asyncio.ensure_future(flow.run()) for flow in (there, back)]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if there.is_late:
            await asyncio.wait(tasks[:1])
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


class _Flow:
    """The bytes of one connection in one direction, until its source ends."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: Way
    ) -> None:
        self.is_late = False
        self._reader = reader
        self._writer = writer
        self._way = way
        self._late_s = 0.0
        self._chunks: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(CHUNKS_MAX)

    def end_late(self, late_s: float) -> None:
        self.is_late, self._late_s = True, late_s

    async def run(self) -> None:
        reading = asyncio.ensure_future(self._read())
        try:
            with suppress(OSError):
                await self._write()
        finally:
            reading.cancel()
            await asyncio.wait([reading])

    async def _read(self) -> None:
        loop = asyncio.get_running_loop()
        data = b"x"
        while data:
            try:
                data = await self._reader.read(CHUNK_BYTES)
            except OSError:
                data = b""
            await self._chunks.put((loop.time() + self._way.delay_s, data))

    async def _write(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due_s, data = await self._chunks.get()
            await asyncio.sleep(max(0.0, due_s - loop.time()))
            if self.is_late:
                late_s, self._late_s = self._late_s, 0.0
                await asyncio.sleep(late_s)
            await self._way.flows.wait()
            if not data:
                return
            self._writer.write(data)
            await self._writer.drain()
