"""NATS JetStream with nats-py: three servers, one stream with three replicas in files.

The publisher uses `publish_async`, at the server that leads the stream; each subscriber is an
ordered consumer, which remembers how far it is. As Antiphon's, the first subscriber is at the
leader, and the others at the followers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from queue import SimpleQueue

import nats
from nats.aio.msg import Msg
from nats.js import JetStreamContext

from antiphon.lab.bench.rivals.common import (
    SERVERS,
    Contender,
    Ends,
    Gathering,
    LoopThread,
    Peer,
    Processes,
    loop_thread,
)
from antiphon.lab.bench.rivals.programs import Program, find
from antiphon.server.local_cluster import HOST, free_port

STREAM = SUBJECT = "bench"
KEPT_BYTES = 256 << 20


def contenders(fetch: bool) -> list[Contender]:
    program = find("nats-server", "nats-server", fetch)
    return [
        Contender(
            "JetStream, 3 replicas",
            "total",
            "1 of 3",
            "no: every 2 minutes",
            "nats-py, publish_async",
            partial(Peer, partial(_start, program)),
        )
    ]


def _start(program: Program, servers: Processes) -> Ends:
    names = [f"n{number}" for number in range(SERVERS)]
    clients = {name: free_port() for name in names}
    routes = {name: free_port() for name in names}
    logs: list[Path] = []
    for name in names:
        file = servers.folder / f"{name}.conf"
        file.write_text(_settings(name, clients[name], routes, servers.folder / name))
        logs.append(servers.start(name, [program.path, "-c", str(file)], program.env))
    servers.wait(lambda: all("Server is ready" in log.read_text() for log in logs))
    servers.wait(lambda: _created(clients[names[0]]))
    leader = asyncio.run(_leader(clients[names[0]]))
    ports = [clients[leader], *(clients[name] for name in names if name != leader)]
    return Ends(partial(open_sender, ports[0]), [partial(open_receiver, port) for port in ports])


def _settings(name: str, port: int, routes: dict[str, int], store: Path) -> str:
    others = ", ".join(f'"nats://{HOST}:{route}"' for route in routes.values())
    return f"""
        server_name: {name}
        listen: "{HOST}:{port}"
        jetstream {{ store_dir: "{store}" }}
        cluster {{ name: bench, listen: "{HOST}:{routes[name]}", routes: [{others}] }}
    """


def _created(port: int) -> bool:
    """Return whether the stream could be created: servers that have just found each other refuse
    for a while."""
    try:
        asyncio.run(_create(port))
    except (OSError, TimeoutError, nats.errors.Error):
        return False
    return True


async def _create(port: int) -> None:
    client = await _connect(port)
    try:
        await client.jetstream().add_stream(
            name=STREAM, subjects=[SUBJECT], num_replicas=SERVERS, max_bytes=KEPT_BYTES
        )
    finally:
        await client.close()


async def _leader(port: int) -> str:
    client = await _connect(port)
    try:
        info = await client.jetstream().stream_info(STREAM)
        return str(info.cluster.leader)
    finally:
        await client.close()


async def _connect(port: int) -> nats.NATS:
    return await nats.connect(f"nats://{HOST}:{port}", allow_reconnect=False)


@contextmanager
def _context(port: int) -> Iterator[tuple[LoopThread, JetStreamContext]]:
    with loop_thread() as loop:
        client = loop.run(_connect(port))
        try:
            yield loop, client.jetstream()
        finally:
            loop.run(client.close())


@contextmanager
def open_sender(port: int) -> Iterator[Gathering]:
    with _context(port) as (loop, context):
        yield Gathering(
            lambda bodies: loop.run(_publish(context, bodies)),
            lambda: loop.run(context.publish_async_completed()),
        )


async def _publish(context: JetStreamContext, bodies: list[bytes]) -> None:
    for body in bodies:
        await context.publish_async(SUBJECT, body)


@contextmanager
def open_receiver(port: int) -> Iterator[Iterator[bytes]]:
    arrived: SimpleQueue[bytes] = SimpleQueue()

    async def take(message: Msg) -> None:
        arrived.put(message.data)

    with _context(port) as (loop, context):
        loop.run(context.subscribe(SUBJECT, cb=take, ordered_consumer=True))
        yield iter(arrived.get, None)
