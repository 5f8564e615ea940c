"""Programs whose servers are killed: they notice nothing but a pause."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import antiphon
from antiphon import SessionMode
from antiphon.server.local_cluster import LocalCluster
from tests.api.support.fronts import PATIENCE_S, Aio, Sync

pytestmark = pytest.mark.process
MESSAGES = 300


@pytest.fixture(params=[Sync, Aio], ids=["sync", "aio"])
def front(request: pytest.FixtureRequest) -> Iterator[Any]:
    front = request.param()
    yield front
    front.close()


@pytest.mark.parametrize("storage", ["durable", "memory"])
def test_killing_one_server_after_the_other(front: Any, tmp_path: Path, storage: str) -> None:
    with LocalCluster(3, tmp_path, storage) as cluster:
        cluster.start()
        sender, reader = front.connect(cluster.url), front.connect(cluster.url, client_id="reader")
        queue, topic = sender.create_queue("q"), sender.create_topic("t")
        consumers = [
            reader.create_consumer(queue),
            reader.create_consumer(topic),
            reader.create_durable_consumer(topic, "box"),
        ]
        seen: list[list[Any]] = [[], [], []]

        def receive(consumer: Any, messages: list[Any]) -> None:
            while len(messages) < MESSAGES:
                message = consumer.receive(PATIENCE_S)
                assert message is not None, f"after {len(messages)} messages"
                messages.append(message)

        threads = [
            threading.Thread(target=receive, args=pair)
            for pair in zip(consumers, seen, strict=True)
        ]
        for thread in threads:
            thread.start()
        producer = sender.create_producer()
        for n in range(MESSAGES):
            producer.send_async(queue, str(n))
            producer.send(topic, str(n))
            if n in (50, 150, 250):
                node = n // 100 + 1
                cluster.servers[node].kill()
                producer.send_async(queue, "not lost")
                producer.send_async(topic, "not lost")
                cluster.start(node)
        for thread in threads:
            thread.join(PATIENCE_S)
        for messages in seen:
            texts = [m.text for m in messages]
            expected = []
            for n in range(MESSAGES):
                expected.append(str(n))
                if n in (50, 150, 250):
                    expected.append("not lost")
            assert texts == expected[:MESSAGES]
            assert not any(m.redelivered for m in messages)
        sender.close()
        reader.close()


def test_what_a_killed_program_had_goes_to_another(tmp_path: Path) -> None:
    """A program that dies has its client id taken over, and its messages come again, flagged."""
    with LocalCluster(1, tmp_path, "memory") as cluster:
        cluster.start()
        with antiphon.connect(cluster.url) as context:
            queue = context.create_queue("q")
            context.create_producer().send_all(queue, ["a", "b"])
            victim = antiphon.connect(
                cluster.url, client_id="me", session_mode=SessionMode.CLIENT_ACKNOWLEDGE
            )
            first = victim.create_consumer(queue).receive(PATIENCE_S)
            assert first is not None
            kill(victim)
            with antiphon.connect(cluster.url, client_id="me") as heir:
                consumer = heir.create_consumer(queue)
                messages = [consumer.receive(PATIENCE_S) for _ in range(2)]
                assert [(m.text, m.redelivered) for m in messages if m is not None] == [
                    ("a", True),
                    ("b", True),
                ]


def kill(context: Any) -> None:
    """Its process dies: the connection ends, and nobody dials again."""
    connection = context._core.connection
    dead = threading.Event()

    def die() -> None:
        driver = connection.driver
        driver.attempt += 1
        driver.link.close()
        driver._port.cancel_timer()
        driver.pump = lambda now_ms: False
        dead.set()

    connection._loop.call_soon_threadsafe(die)
    dead.wait()
