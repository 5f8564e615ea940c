"""RabbitMQ with pika: three nodes, one quorum queue for each subscriber behind a fanout exchange.

Quorum queues rather than a stream: they sync before they confirm, and a stream does not. The price
is that a message is stored once for each subscriber. The publisher takes confirms as they come, for
which pika has its asyncio connection; a subscriber iterates over `consume`, and acknowledges many
messages at a time. The queues' leaders are spread over the nodes, and each subscriber is at its
queue's leader.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pika
from pika.adapters.asyncio_connection import AsyncioConnection
from pika.adapters.blocking_connection import BlockingChannel

from antiphon.errors import IllegalStateError
from antiphon.lab.bench.rivals.common import (
    OUTSTANDING,
    SERVERS,
    Contender,
    Ends,
    Gathering,
    Peer,
    Processes,
    loop_thread,
)
from antiphon.lab.bench.rivals.programs import Program, find
from antiphon.server.local_cluster import HOST, free_port

EXCHANGE = "bench"
ACKNOWLEDGED_TOGETHER = 100
PERSISTENT = pika.BasicProperties(delivery_mode=pika.DeliveryMode.Persistent)


def contenders(fetch: bool) -> list[Contender]:
    program = find("rabbitmq-server", "rabbitmq-server", fetch)
    return [
        Contender(
            "RabbitMQ, quorum queues",
            "per queue",
            "1 of 3",
            "yes",
            "pika, asynchronous confirms",
            partial(Peer, partial(_start, program)),
        )
    ]


# -- Servers ---------------------------------------------------------------------------------------


def _start(program: Program, servers: Processes) -> Ends:
    names = [f"rabbit{number}@localhost" for number in range(SERVERS)]
    ports = [free_port() for _ in names]
    env = {
        **program.env,
        "HOME": str(servers.folder),  # of the cookie by which nodes know each other
        "ERL_EPMD_ADDRESS": HOST,
        "ERL_EPMD_PORT": str(free_port()),
    }
    servers.start("epmd", ["epmd"], env)  # otherwise the first node starts one that outlives it
    logs: list[Path] = []
    for name, port in zip(names, ports, strict=True):
        more = _node_env(name, port, names, servers.folder)
        logs.append(servers.start(name, [program.path], {**env, **more}))
        # One after the other: the first founds the cluster that the others join.
        servers.wait(lambda: "Server startup complete" in logs[-1].read_text())
    servers.wait(lambda: _has_seen(logs[0], names[1:]))
    for port in ports:
        _declare(port)
    return Ends(partial(open_sender, ports[0]), [partial(open_receiver, port) for port in ports])


def _has_seen(log: Path, others: list[str]) -> bool:
    said = log.read_text()
    return all(f"rabbit on node {name} up" in said for name in others)


def _node_env(name: str, port: int, names: list[str], folder: Path) -> dict[str, str]:
    home = folder / f"{name}.d"
    home.mkdir()
    settings = home / "rabbitmq.conf"
    settings.write_text(_settings(port, names))
    plugins = home / "enabled_plugins"
    plugins.write_text("[].")
    return {
        "RABBITMQ_NODENAME": name,
        "RABBITMQ_DIST_PORT": str(free_port()),
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
        "RABBITMQ_CONF_ENV_FILE": str(home / "none"),
        "RABBITMQ_CONFIG_FILE": str(settings),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(plugins),
        "RABBITMQ_MNESIA_BASE": str(home),
        "RABBITMQ_GENERATED_CONFIG_DIR": str(home),
        "RABBITMQ_LOG_BASE": str(home),
        "RABBITMQ_LOGS": "-",
    }


def _settings(port: int, names: list[str]) -> str:
    backend = "cluster_formation.peer_discovery_backend = classic_config"
    nodes = [
        f"cluster_formation.classic_config.nodes.{number} = {name}"
        for number, name in enumerate(names, 1)
    ]
    return "\n".join([f"listeners.tcp.1 = {HOST}:{port}", backend, *nodes, ""])


def _declare(port: int) -> None:
    """Declare a queue whose leader is at this node."""
    with pika.BlockingConnection(_parameters(port)) as connection:
        channel = connection.channel()
        channel.exchange_declare(EXCHANGE, "fanout", durable=True)
        channel.queue_declare(_queue(port), durable=True, arguments={"x-queue-type": "quorum"})
        channel.queue_bind(_queue(port), EXCHANGE)


def _queue(port: int) -> str:
    return f"bench-{port}"


def _parameters(port: int) -> pika.ConnectionParameters:
    # No heartbeats: a blocking connection would answer none while another system has its turn.
    return pika.ConnectionParameters(HOST, port, heartbeat=0)


# -- Clients ---------------------------------------------------------------------------------------


@contextmanager
def open_sender(port: int) -> Iterator[Gathering]:
    with loop_thread() as loop:
        publisher = loop.run(Publisher.open(port))
        yield Gathering(
            lambda bodies: loop.run(publisher.publish(bodies)),
            lambda: loop.run(publisher.settle()),
        )


class Publisher:
    """Within its event loop."""

    @classmethod
    async def open(cls, port: int) -> Publisher:
        loop = asyncio.get_running_loop()
        connected: asyncio.Future[AsyncioConnection] = loop.create_future()
        AsyncioConnection(
            _parameters(port),
            on_open_callback=connected.set_result,
            on_open_error_callback=lambda _, error: connected.set_exception(error),
        )
        opened: asyncio.Future[Any] = loop.create_future()
        (await connected).channel(on_open_callback=opened.set_result)
        publisher = cls(await opened)
        publisher._channel.confirm_delivery(publisher._hear)
        return publisher

    def __init__(self, channel: Any) -> None:
        self._channel = channel
        self._sent = 0
        self._unconfirmed: set[int] = set()
        self._settled = asyncio.Event()
        self._refused = 0

    async def publish(self, bodies: list[bytes]) -> None:
        self._settled.clear()
        for body in bodies:
            self._sent += 1
            self._unconfirmed.add(self._sent)
            self._channel.basic_publish(EXCHANGE, "", body, PERSISTENT)

    def _hear(self, frame: Any) -> None:
        answer = frame.method
        tag = answer.delivery_tag
        tags = {t for t in self._unconfirmed if t <= tag} if answer.multiple else {tag}
        self._unconfirmed -= tags
        if isinstance(answer, pika.spec.Basic.Nack):
            self._refused += len(tags)
        if not self._unconfirmed:
            self._settled.set()

    async def settle(self) -> None:
        await self._settled.wait()
        if self._refused:
            raise IllegalStateError(f"RabbitMQ has refused {self._refused} messages")


@contextmanager
def open_receiver(port: int) -> Iterator[Iterator[bytes]]:
    with pika.BlockingConnection(_parameters(port)) as connection:
        channel = connection.channel()
        channel.basic_qos(prefetch_count=OUTSTANDING)
        yield _bodies(channel, _queue(port))


def _bodies(channel: BlockingChannel, queue: str) -> Iterator[bytes]:
    for number, (method, _, body) in enumerate(channel.consume(queue), 1):
        yield body
        if number % ACKNOWLEDGED_TOGETHER == 0:
            channel.basic_ack(method.delivery_tag, multiple=True)
    raise IllegalStateError("RabbitMQ has ended the subscription")
