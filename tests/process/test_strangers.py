"""Connections that never say what they want, at a real server: what they cost it, and whom."""

import socket
import struct
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from antiphon.formats import frames
from antiphon.formats.entry import ReplicaId
from antiphon.server.local_cluster import LocalCluster, LocalServer
from tests.process.support.log_client import LogClient

pytestmark = pytest.mark.process

CONNECTIONS = 40
ANNOUNCED = 64 << 20
SENT = 4 << 20
"""Of each frame: a server keeps room for many times what has arrived."""

A_LITTLE_S = 1.0


def hello(role: str, node: int = 0) -> bytes:
    who = frames.Hello(frames.MAGIC, frames.OLDEST, frames.NEWEST, role, ReplicaId(node, node))  # type: ignore[arg-type]
    return frames.frame(frames.encode_hello(who))


@contextmanager
def strangers(server: LocalServer, *greetings: bytes) -> Iterator[list[socket.socket]]:
    """Each says this, and begins a large frame that it does not end."""
    with ExitStack() as stack:
        found = []
        for greeting in greetings:
            found.append(stack.enter_context(socket.create_connection(server.address)))
            found[-1].settimeout(A_LITTLE_S)
            found[-1].sendall(greeting)
        for one in found:
            begin_a_frame(one)
        yield found


def begin_a_frame(one: socket.socket) -> None:
    try:
        one.sendall(struct.pack("<II", ANNOUNCED, 0))
        for _ in range(SENT >> 16):
            one.sendall(bytes(1 << 16))
    except OSError:
        pass  # the server has hung up


def has_ended(one: socket.socket) -> bool:
    """Waits a little for it."""
    try:
        while one.recv(1 << 16):
            pass
    except TimeoutError:
        return False
    except ConnectionError:
        pass
    return True


def most_memory(server: LocalServer) -> int:
    assert server.process is not None
    text = Path(f"/proc/{server.process.pid}/status").read_text()
    return int(text.partition("VmHWM:")[2].split()[0]) << 10


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    with LocalCluster(1, tmp_path) as cluster:
        cluster.start()
        yield cluster


@pytest.mark.parametrize(
    ("greetings", "costs"),
    [
        ([b""] * CONNECTIONS, 16 << 20),
        ([hello("client")] * CONNECTIONS, 16 << 20),
        # One that is not listed may lead, and have something large to send.
        ([hello("server", 100 + n) for n in range(CONNECTIONS)], 160 << 20),
    ],
    ids=["nobody", "clients", "servers"],
)
def test_begun_frames_of_strangers_cost_little_and_end(
    cluster: LocalCluster, greetings: list[bytes], costs: int
) -> None:
    server = cluster.servers[1]
    with LogClient(cluster.url) as client:
        client.publish("topic:news", b"before")
        before = most_memory(server)
        with strangers(server, *greetings) as found:
            for one in found:
                while not has_ended(one):
                    client.publish("topic:news", b"meanwhile")
        client.publish("topic:news", b"afterwards")
        assert client.reconnections == 0
    assert most_memory(server) - before < costs
    assert server.running
