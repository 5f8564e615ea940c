"""The bare relay: how fast this machine would be if Antiphon's promises cost nothing.

The same messages take the same way over plain sockets: publishers pack single messages with
`formats/`, the leader passes the bytes on to its followers, holds them until a majority has them
(durable: has synced them), and then gives them to its members and lets the followers do so to
theirs; members hand out one object for each message. There are no sessions, no log, no checks, no
acknowledgements by members, nothing that could be lost or asked for again: only bytes and counts of
bytes. Antiphon's figures are stated as a part of the relay's.

A connection to a relay begins with a letter: a publisher's, or the leader's to a follower, DATA;
a member's, MEMBER; on a COMMITS connection a leader reports to a follower how much a majority has.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from ctypes import c_uint64
from itertools import cycle, islice
from multiprocessing.connection import Connection as Pipe
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import cast

from antiphon.api.protocol.packing import PACKS_IN_FLIGHT
from antiphon.formats import columns, pack
from antiphon.formats.columns import BYTES, Columns
from antiphon.formats.pack import FULL_BYTES
from antiphon.io.malloc import keep_freed_memory
from antiphon.lab.bench.connections import cpu_s
from antiphon.lab.bench.processes import (
    PATIENCE_S,
    ClientProcesses,
    Job,
    Shape,
    Slice,
    context,
    hear,
    start,
)
from antiphon.lab.bench.servers import peak_mb

HOST = "127.0.0.1"
DATA, MEMBER, COMMITS = b"D", b"M", b"C"
DESTINATION = "topic:bench"
RECEIVE_BYTES = 256 << 10
UNANSWERED_BYTES = PACKS_IN_FLIGHT * FULL_BYTES
"""A publisher sends this much before it reads answers, as Antiphon's does."""

_COUNT = struct.Struct("<Q")
_LENGTH = struct.Struct("<I")


# -- Clients ---------------------------------------------------------------------------------------


@contextmanager
def connection(port: int, letter: bytes) -> Iterator[socket.socket]:
    keep_freed_memory()
    with socket.create_connection((HOST, port)) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.sendall(letter)
        yield sock


@contextmanager
def open_sender(port: int) -> Iterator[RelaySender]:
    with connection(port, DATA) as sock:
        yield RelaySender(sock)


class RelaySender:
    """A publisher of the relay: packs messages, and waits for counts of answered bytes."""

    def __init__(self, sock: socket.socket) -> None:
        self.per_pack = 1
        self._socket = sock
        self._bodies: list[bytes] = []
        self._times: list[int] = []  # when they were sent, ms
        self._messages = 0
        self._sent = 0  # bytes
        self._counts = Counts()

    def send(self, body: bytes) -> None:
        self._bodies.append(body)
        self._times.append(time.time_ns() // 1_000_000)
        if len(self._bodies) >= self.per_pack:
            self._send_pack()

    def flush(self, last: None) -> None:
        if self._bodies:
            self._send_pack()
        self._hear(0)

    def _send_pack(self) -> None:
        count = len(self._bodies)
        body, flags = columns.encode_columns(bytes((BYTES,)) * count, self._bodies, self._times)
        self._bodies, self._times = [], []
        one = pack.encode(DESTINATION, count, body, 1, self._messages + 1, 0, flags)
        self._messages += count
        self._socket.sendall(_LENGTH.pack(len(one)) + one)
        self._sent += _LENGTH.size + len(one)
        self._hear(UNANSWERED_BYTES)

    def _hear(self, unanswered: int) -> None:
        while self._sent - self._counts.newest > unanswered:
            self._counts.feed(self._socket.recv(RECEIVE_BYTES))


@contextmanager
def open_receiver(port: int) -> Iterator[Iterator[bytes]]:
    with connection(port, MEMBER) as sock:
        yield _bodies(sock)


def _bodies(sock: socket.socket) -> Iterator[bytes]:
    with sock.makefile("rb", RECEIVE_BYTES) as stream:  # a large pack is copied once
        while head := stream.read(_LENGTH.size):
            found = Columns(stream.read(*_LENGTH.unpack(head)))
            yield from map(found.body, range(found.count))


class Counts:
    """Reads a stream of counts, of which only the newest matters."""

    def __init__(self) -> None:
        self.newest = 0
        self._rest = b""

    def feed(self, data: bytes) -> None:
        data = self._rest + data
        whole = len(data) // _COUNT.size * _COUNT.size
        self._rest = data[whole:]
        if whole:
            (self.newest,) = _COUNT.unpack_from(data, whole - _COUNT.size)


# -- Servers ---------------------------------------------------------------------------------------


class Source:
    """A publisher's connection to the leader, or the leader's to a follower. Received bytes are
    answered by counts of the connection's own bytes."""

    def __init__(self, write: Callable[[bytes], None]) -> None:
        self._write = write
        self._received = 0
        self._unanswered: deque[tuple[int, int]] = deque()  # ends: among all bytes, and its own
        self._rest = b""

    def took(self, length: int, end: int) -> None:
        self._received += length
        self._unanswered.append((end, self._received))

    def answer(self, upto: int) -> None:
        own = 0
        while self._unanswered and self._unanswered[0][0] <= upto:
            own = self._unanswered.popleft()[1]
        if own:
            self._write(_COUNT.pack(own))

    def whole_packs(self, data: bytes) -> bytes:
        """Return the bytes up to the end of the last whole pack, so that another pack may
        follow."""
        data = self._rest + data
        at = end = 0
        while end <= len(data):
            at = end
            if len(data) - at < _LENGTH.size:
                break
            end = at + _LENGTH.size + _LENGTH.unpack_from(data, at)[0]
        self._rest = data[at:]
        return data[:at]


class Relay:
    """One server. Counts are of bytes since the beginning."""

    def __init__(self, file: Path | None, syncs: c_uint64) -> None:
        """It counts its `syncs` there."""
        self._file = None if file is None else os.open(file, os.O_WRONLY | os.O_CREAT, 0o600)
        self._syncs = syncs
        self._syncing = False
        self._received = 0
        self._stored = 0
        self._unstored: list[bytes] = []
        self._committed = 0
        self._held: deque[tuple[int, bytes]] = deque()  # not committed: where it ends, and it
        self._followers: list[Follower] = []
        self._commits: list[asyncio.Transport] = []
        self._members: list[asyncio.Transport] = []
        self._sources: list[Source] = []  # the publishers, or this one's leader
        self._leads = False

    async def lead(self, followers: list[int]) -> None:
        loop = asyncio.get_running_loop()
        self._leads = True
        for port in followers:
            data, follower = await loop.create_connection(lambda: Follower(self), HOST, port)
            data.write(DATA)
            commits, _ = await loop.create_connection(asyncio.Protocol, HOST, port)
            commits.write(COMMITS)
            self._followers.append(follower)
            self._commits.append(commits)

    def add_member(self, transport: asyncio.Transport) -> None:
        self._members.append(transport)

    def add_source(self, transport: asyncio.Transport) -> Source:
        self._sources.append(Source(transport.write))
        return self._sources[-1]

    def take(self, data: bytes, source: Source) -> None:
        if len(self._sources) > 1:
            data = source.whole_packs(data)
        if data:
            self._take(data, source)

    def _take(self, data: bytes, source: Source) -> None:
        self._received += len(data)
        source.took(len(data), self._received)
        self._held.append((self._received, data))
        for follower in self._followers:
            follower.write(data)
        self._hand_out()  # a majority may have it before this one does
        if self._file is None:
            self._has(self._received)
        else:
            self._unstored.append(data)
            self._sync()

    def _sync(self) -> None:
        """Write and sync together all bytes that have come since the last sync began."""
        if not self._unstored or self._syncing:
            return
        assert self._file is not None
        os.write(self._file, b"".join(self._unstored))
        self._unstored = []
        self._syncing = True
        upto = self._received
        done = asyncio.get_running_loop().run_in_executor(None, os.fdatasync, self._file)
        done.add_done_callback(lambda _: self._synced(upto))

    def _synced(self, upto: int) -> None:
        self._syncing = False
        self._syncs.value += 1
        self._has(upto)
        self._sync()

    def _has(self, upto: int) -> None:
        self._stored = upto
        if self._leads:
            self.count()
        else:
            self._answer(upto)

    def _answer(self, upto: int) -> None:
        for source in self._sources:
            source.answer(upto)

    def count(self) -> None:
        """Commit everything that a majority has."""
        counts = sorted([self._stored, *(f.counts.newest for f in self._followers)])
        committed = counts[(len(counts) - 1) // 2]
        if committed > self._committed:
            for commits in self._commits:
                commits.write(_COUNT.pack(committed))
            self._answer(committed)
            self.commit(committed)

    def commit(self, upto: int) -> None:
        self._committed = upto
        self._hand_out()

    def _hand_out(self) -> None:
        ready = []
        while self._held and self._held[0][0] <= self._committed:
            ready.append(self._held.popleft()[1])
        if ready:
            data = b"".join(ready)
            for member in self._members:
                member.write(data)


class Follower(asyncio.Protocol):
    """A leader's connection to a follower, which answers with the number of bytes that it has."""

    def __init__(self, relay: Relay) -> None:
        self.counts = Counts()
        self._relay = relay

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.write = cast(asyncio.Transport, transport).write

    def data_received(self, data: bytes) -> None:
        self.counts.feed(data)
        self._relay.count()


class Incoming(asyncio.Protocol):
    """A connection that came to a relay."""

    def __init__(self, relay: Relay) -> None:
        self._relay = relay
        self._letter = b""
        self._source: Source | None = None
        self._counts = Counts()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if not self._letter:
            self._letter, data = data[:1], data[1:]
            self._join()
        if data and self._source is not None:
            self._relay.take(data, self._source)
        elif data:
            self._counts.feed(data)
            self._relay.commit(self._counts.newest)

    def _join(self) -> None:
        if self._letter == MEMBER:
            self._relay.add_member(self._transport)
        elif self._letter == DATA:
            self._source = self._relay.add_source(self._transport)


def _serve(pipe: Pipe, followers: list[int] | None, file: Path | None, syncs: c_uint64) -> None:
    keep_freed_memory()
    import uvloop

    async def serve() -> None:
        relay = Relay(file, syncs)
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: Incoming(relay), HOST, 0)
        if followers is not None:
            await relay.lead(followers)
        pipe.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve())


class BareRelay:
    """Relays, publishers and members, ready to work."""

    def __init__(self, stack: ExitStack, shape: Shape, folder: Path | None) -> None:
        """Durable if there is a `folder`. All ends with the `stack`."""
        self._processes: list[BaseProcess] = []
        self._syncs = [context.RawValue(c_uint64, 0) for _ in range(shape.servers)]
        stack.callback(self._end)
        ports: list[int] = []
        for number in range(shape.servers):
            leads = number == shape.servers - 1
            file = None if folder is None else folder / f"relay-{number}"
            pipe, process = start(_serve, list(ports) if leads else None, file, self._syncs[number])
            self._processes.append(process)
            with pipe:
                ports.append(hear(pipe, PATIENCE_S))
        self._clients = stack.enter_context(
            ClientProcesses(shape.load, shape.members, shape.publishers)
        )
        for port in islice(cycle(reversed(ports)), shape.members):
            self._clients.add_member(open_receiver, port)
        for _ in range(shape.publishers):
            self._clients.add_publisher(open_sender, ports[-1])

    def _end(self) -> None:
        for process in self._processes:
            process.kill()
            process.join()

    def work(self, job: Job) -> Slice:
        leaders = self._syncs[-1]
        before, syncs = self._cpu_s(), leaders.value
        done = self._clients.work(job)
        *followers, leader = (now - then for now, then in zip(self._cpu_s(), before, strict=True))
        return done._replace(
            leader_cpu_s=leader,
            followers_cpu_s=sum(followers),
            syncs=leaders.value - syncs,
        )

    def peak_mb(self) -> float:
        """The most memory that one of the relays ever had."""
        return peak_mb(self._pids())

    def _cpu_s(self) -> list[float]:
        return [cpu_s(pid) for pid in self._pids()]

    def _pids(self) -> list[int]:
        return [process.pid for process in self._processes if process.pid is not None]
