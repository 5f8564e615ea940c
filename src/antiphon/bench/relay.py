"""A bare relay: what this machine could move if agreeing cost nothing.

The first process passes every byte it receives on to the others, each of which counts bytes and
answers with the count; the sender hears of what a majority has counted. No frames, no log, no disk:
a yardstick that makes figures from different machines comparable.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import socket
import struct
import time
from multiprocessing.connection import Connection as Pipe

import uvloop

from antiphon.core.quorum import held_by_majority
from antiphon.formats.entry import ReplicaId

HOST = "127.0.0.1"
WINDOW_BYTES = 4 << 20
_COUNT = struct.Struct("<Q")


def bytes_a_second(servers: int, pack: bytes, seconds: float) -> float:
    """How many bytes a sender gets through `servers` relays, sent a pack at a time."""
    context = multiprocessing.get_context("spawn")
    ports: list[int] = []
    processes = []
    try:
        for _ in range(servers):
            ours, theirs = context.Pipe()
            followers = tuple(ports) if len(ports) == servers - 1 else ()
            process = context.Process(target=_relay, args=(followers, theirs), daemon=True)
            process.start()
            processes.append(process)
            ports.append(ours.recv())
        return _send(ports[-1], pack, seconds)
    finally:
        for process in processes:
            process.kill()
            process.join()


def _send(port: int, pack: bytes, seconds: float) -> float:
    with socket.create_connection((HOST, port)) as relay:
        relay.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sent = counted = 0
        began = time.monotonic()
        while (elapsed := time.monotonic() - began) < seconds:
            relay.sendall(pack)
            sent += len(pack)
            while sent - counted > WINDOW_BYTES:
                counted = _newest_count(relay.recv(65536), counted)
        return counted / elapsed


def _newest_count(data: bytes, before: int) -> int:
    """Counts are eight bytes; a read that splits one is not worth waiting for its rest."""
    whole = len(data) - len(data) % _COUNT.size
    counts = [count for (count,) in _COUNT.iter_unpack(data[:whole])]
    return max([before, *counts[-1:]])


class _Counter(asyncio.Protocol):
    """The receiving end: counts, passes on, and answers with what a majority has."""

    def __init__(self, followers: tuple[int, ...]) -> None:
        self._ports = followers
        self._followers: list[asyncio.WriteTransport] = []
        self._held = {ReplicaId(0, 0): 0, **{ReplicaId(port, 0): 0 for port in followers}}
        self._answered = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._sender: asyncio.WriteTransport = transport  # type: ignore[assignment]
