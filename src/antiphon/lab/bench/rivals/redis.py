"""Redis streams with redis-py: one server, since Redis replicates after it has answered.

The publisher sends pipelines of `XADD`; each subscriber reads with `XREAD` and remembers how far it
is, so nothing is lost if its connection is. The stream is trimmed far behind the subscribers.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from redis import Redis

from antiphon.lab.bench.rivals.common import MEMBERS, Contender, Ends, Gathering, Peer, Processes
from antiphon.lab.bench.rivals.programs import Program, find
from antiphon.server.local_cluster import HOST, free_port

STREAM = "bench"
KEPT = 10_000
READ_MAX = 1000


def contenders(fetch: bool) -> list[Contender]:
    program = find("redis-server", "redis-server", fetch)
    return [_contender(program, "everysec", "every second"), _contender(program, "always", "yes")]


def _contender(program: Program, policy: str, synced: str) -> Contender:
    return Contender(
        f"Redis streams, {policy}",
        "total",
        "none of 1",
        synced,
        "redis-py, pipelines of XADD",
        partial(Peer, partial(_start, program, policy)),
    )


def _start(program: Program, policy: str, servers: Processes) -> Ends:
    port = free_port()
    settings = servers.folder / "redis.conf"
    settings.write_text(_settings(port, policy))
    log = servers.start("redis", [program.path, str(settings)], program.env)
    servers.wait(lambda: "Ready to accept connections" in log.read_text())
    return Ends(partial(open_sender, port), [partial(open_receiver, port)] * MEMBERS)


def _settings(port: int, policy: str) -> str:
    return f"""
        bind {HOST}
        port {port}
        save ""
        appendonly yes
        appendfsync {policy}
    """


@contextmanager
def _connection(port: int) -> Iterator[Redis]:
    # The older protocol: with the newer one answers have another shape.
    with Redis(HOST, port, protocol=2) as client:
        yield client


@contextmanager
def open_sender(port: int) -> Iterator[Gathering]:
    with _connection(port) as client:
        yield Gathering(partial(_add, client), _settled)


def _add(client: Redis, bodies: list[bytes]) -> None:
    pipeline = client.pipeline(transaction=False)
    for body in bodies:
        pipeline.xadd(STREAM, {"body": body}, maxlen=KEPT)
    pipeline.execute()


def _settled() -> None:
    """Do nothing: a pipeline has all its answers when it is done."""


@contextmanager
def open_receiver(port: int) -> Iterator[Iterator[bytes]]:
    with _connection(port) as client:
        yield _bodies(client)


def _bodies(client: Redis) -> Iterator[bytes]:
    last = b"0"
    while True:
        [[_, entries]] = client.xread({STREAM: last}, count=READ_MAX, block=0)
        for _, fields in entries:
            yield fields[b"body"]
        last = entries[-1][0]
