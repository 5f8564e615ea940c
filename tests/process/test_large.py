"""Large messages from several clients at once, at real servers: nobody is elected again, others go
on meanwhile, and memory is bounded."""

import threading
import time
from pathlib import Path

import pytest

import antiphon
from antiphon.broker.home.connections import TURNS
from tests.process.support.cluster import Cluster

pytestmark = pytest.mark.process

SENDERS = 6
LARGE = 24 << 20
ROOM = 160 << 20
"""What a server may need besides the packs themselves: its caches, and what is on its way."""


def epochs(cluster: Cluster) -> set[int]:
    return {status.epoch for status in cluster.look().answers.values()}


def most_memory(cluster: Cluster) -> int:
    found = []
    for server in cluster.servers.values():
        assert server.process is not None
        text = Path(f"/proc/{server.process.pid}/status").read_text()
        found.append(int(text.partition("VmHWM:")[2].split()[0]) << 10)
    return max(found)


def send_large(url: str, go: threading.Barrier, done: list[int]) -> None:
    with antiphon.connect(url) as ctx:
        go.wait()
        ctx.create_producer().send(antiphon.Topic("large"), bytes(LARGE))
        done.append(LARGE)


@pytest.mark.timeout(180)
@pytest.mark.parametrize("storage", ["durable", "memory"])
def test_large_messages_stall_nobody(tmp_path: Path, storage: str) -> None:
    with Cluster(tmp_path, storage=storage) as cluster:
        cluster.start()
        cluster.wait_whole()
        before, memory = epochs(cluster), most_memory(cluster)
        go, done = threading.Barrier(SENDERS + 1), list[int]()
        senders = [
            threading.Thread(target=send_large, args=(cluster.url, go, done), daemon=True)
            for _ in range(SENDERS)
        ]
        for sender in senders:
            sender.start()
        with antiphon.connect(cluster.url) as ctx:
            producer, topic = ctx.create_producer(), antiphon.Topic("small")
            producer.send(topic, b"before")
            go.wait(60)
            meanwhile = 0
            while any(sender.is_alive() for sender in senders):
                producer.send(topic, b"meanwhile")
                meanwhile += 1
                time.sleep(0.005)
        assert len(done) == SENDERS, cluster.story()
        # They wait behind one large message at a time, and not behind all of them.
        assert meanwhile >= SENDERS // 2
        assert epochs(cluster) == before, cluster.story()
        kept = SENDERS * LARGE if storage == "memory" else 0
        assert most_memory(cluster) - memory < TURNS * LARGE + ROOM + kept
