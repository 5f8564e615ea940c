"""A state goes from one process to another, through real servers, while the group goes on."""

import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import antiphon
from tests.process.support.cluster import Cluster
from tests.process.support.state_program import PATTERN

pytestmark = pytest.mark.process

PROGRAM = Path(__file__).parent / "support" / "state_program.py"
MIB = 1 << 20
LARGE = int(os.environ.get("STATE_MIB", "256")) * MIB
SPARE_KIB = 64 << 10
"""What a process may need besides; far less than the state."""


class Running:
    def __init__(self, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(PROGRAM), *arguments], stdout=subprocess.PIPE, text=True
        )
        self.said: list[dict[str, Any]] = []

    def wait_for(self, word: str) -> dict[str, Any]:
        """The next line that has this word in it."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            told: dict[str, Any] = json.loads(line)
            self.said.append(told)
            if word in told:
                return told
        raise AssertionError(f"waited for {word!r}, but it only said {self.said}")


@contextmanager
def program(role: str, url: str, name: str, size: int, stall: int = 0) -> Iterator[Running]:
    """A member that has joined."""
    running = Running(role, url, name, str(size), str(stall))
    with running.process:
        try:
            assert running.wait_for("joined")["error"] == ""
            yield running
        finally:
            running.process.kill()


def digest(size: int) -> str:
    whole, rest = divmod(size, len(PATTERN))
    found = hashlib.blake2b()
    for _ in range(whole):
        found.update(PATTERN)
    found.update(PATTERN[:rest])
    return found.hexdigest()


def peak_kib(pid: int) -> int:
    text = Path(f"/proc/{pid}/status").read_text()
    return int(text.partition("VmHWM:")[2].split()[0])


class Talk(threading.Thread):
    """A member that multicasts all the time, and counts what it gets of it."""

    def __init__(self, url: str) -> None:
        super().__init__(daemon=True)
        self.url = url
        self.got = 0
        self.stop_asked = threading.Event()

    def run(self) -> None:
        with antiphon.connect(self.url) as ctx:
            member = ctx.join(ctx.create_group("state"), name="talker")
            while not self.stop_asked.is_set():
                member.multicast(f"{self.got}")
                while (message := member.receive(timeout=10)) is not None:
                    if message.body == f"{self.got}":
                        self.got += 1
                        break


@pytest.mark.timeout(180)
def test_a_large_state_streams_through_little_memory(memory_cluster: Cluster) -> None:
    cluster = memory_cluster
    urls = [cluster.servers[node].url for node in (1, 2, 3)]
    talk = Talk(urls[2])
    talk.start()
    cluster.wait_until(lambda: talk.got > 10, "the group talks")
    with program("give", urls[0], "giver", LARGE) as giver:
        pids = [server.process.pid for server in cluster.servers.values() if server.process]
        before = [peak_kib(pid) for pid in pids]
        giver_before = peak_kib(giver.process.pid)
        with program("take", urls[1], "taker", 0) as taker:
            began = talk.got
            ready = taker.wait_for("ready")
            during = talk.got - began
        talk.stop_asked.set()
        talk.join(20)
        assert (ready["ready"], ready["digest"]) == (LARGE, digest(LARGE))
        assert ready["began"] == 1
        assert during > 0, "the group stood still"
        # The members hold almost nothing. (A talking group costs the servers something, too.)
        assert taker.said[-1]["rss_kib"] - taker.said[0]["rss_kib"] < SPARE_KIB
        assert peak_kib(giver.process.pid) - giver_before < SPARE_KIB
        growth = [peak_kib(pid) - was for pid, was in zip(pids, before, strict=True)]
        assert max(growth) < SPARE_KIB, growth


def test_a_provider_that_dies_is_replaced(memory_cluster: Cluster) -> None:
    cluster = memory_cluster
    urls = [cluster.servers[node].url for node in (1, 2, 3)]
    with (
        program("give", urls[0], "first", MIB, stall=5) as first,
        program("give", urls[1], "second", MIB) as second,
    ):
        assert second.wait_for("ready")["digest"] == digest(MIB)
        with program("take", urls[2], "third", 0) as third:
            first.wait_for("stalled")
            first.process.kill()
            second.wait_for("asked")
            ready = third.wait_for("ready")
            assert (ready["ready"], ready["digest"], ready["began"]) == (MIB, digest(MIB), 2)


def test_a_provider_that_raises_is_passed_over(memory_cluster: Cluster) -> None:
    cluster = memory_cluster
    urls = [cluster.servers[node].url for node in (1, 2, 3)]
    with (
        program("fail", urls[0], "first", MIB),
        program("give", urls[1], "second", MIB) as second,
    ):
        second.wait_for("missing")  # there was nobody else
        with program("take", urls[2], "third", 0) as third:
            ready = third.wait_for("ready")
            assert (ready["ready"], ready["digest"], ready["began"]) == (MIB, digest(MIB), 2)


def test_a_server_that_dies_does_not_end_it(memory_cluster: Cluster) -> None:
    cluster = memory_cluster
    urls = {node: server.url for node, server in cluster.servers.items()}
    leader = cluster.leader()
    others = [node for node in urls if node != leader]
    home = ",".join((urls[others[0]], urls[leader]))
    with program("give", home, "giver", LARGE) as giver:
        with program("take", urls[others[1]], "taker", 0) as taker:
            giver.wait_for("asked")
            cluster.kill(others[0])
            ready = taker.wait_for("ready")
        assert (ready["ready"], ready["digest"]) == (LARGE, digest(LARGE))
        assert ready["began"] > 1
