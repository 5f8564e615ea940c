"""Blocks among real processes: nothing is lost or doubled, and nobody waits for the dead."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import TracebackType

import pytest

import antiphon
from antiphon.blocks import GroupClient, ServiceClient
from antiphon.server.local_cluster import LocalServer
from tests.api.support.steps import heard, in_thread
from tests.process.support.cluster import WAIT_S, Cluster

pytestmark = pytest.mark.process

PROGRAM = Path(__file__).parent / "support" / "member_program.py"
NAMES = ("one", "two", "three")
REMOVE_AFTER_S = 0.3


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path) as cluster:
        cluster.start()
        yield cluster


class Programs:
    """Members, each a process; what they say goes to files."""

    def __init__(self, cluster: Cluster, folder: Path, role: str) -> None:
        self._cluster, self._folder, self._role = cluster, folder, role
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        with antiphon.connect(cluster.url) as ctx:
            ctx.create_group(role, remove_after=REMOVE_AFTER_S)

    def start(self, name: str) -> None:
        """Returns when it is a member."""
        times = len(self.said(name, "joined"))
        with (self._folder / f"{name}.txt").open("ab") as output:
            self._running[name] = subprocess.Popen(
                [sys.executable, PROGRAM, self._role, self._cluster.url, name],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=self._folder,
            )
        self.wait_for(name, "joined", times + 1)

    def said(self, name: str, what: str) -> list[str]:
        path = self._folder / f"{name}.txt"
        lines = path.read_text().splitlines() if path.exists() else []
        return [line for line in lines if line.startswith(what)]

    def wait_for(self, name: str, what: str, times: int = 1) -> None:
        self._cluster.wait_until(
            lambda: len(self.said(name, what)) >= times,
            f"{name} says {what!r}; it says {self.said(name, '')[-20:]}",
        )

    def kill(self, name: str) -> None:
        process = self._running.pop(name)
        process.kill()
        process.wait()

    def end(self, name: str) -> str:
        """In an orderly way; returns the last line that it said."""
        process = self._running.pop(name)
        process.terminate()
        assert process.wait(WAIT_S) == 0, self.said(name, "")
        return self.said(name, "")[-1]

    def __enter__(self) -> Programs:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for name in list(self._running):
            self.kill(name)


class Caller(threading.Thread):
    """Adds one, again and again, and keeps every result."""

    def __init__(self, url: str) -> None:
        super().__init__(daemon=True)
        self.ctx = antiphon.connect(url)
        self.results: list[int] = []
        self.error: Exception | None = None
        self.stop_asked = threading.Event()

    def run(self) -> None:
        try:
            with self.ctx, ServiceClient(self.ctx, "count") as client:
                while not self.stop_asked.is_set():
                    self.results.append(client.call(("add", 1), timeout=WAIT_S))
        except Exception as error:
            self.error = error

    def server(self, cluster: Cluster) -> LocalServer:
        """The one that it is connected to."""
        link = self.ctx._core.connection.driver.link
        assert link is not None
        port = link._socket.get_extra_info("peername")[1]
        return next(one for one in cluster.servers.values() if one.address[1] == port)


def goes_on(cluster: Cluster, caller: Caller, calls: int = 30) -> None:
    goal = len(caller.results) + calls
    cluster.wait_until(
        lambda: len(caller.results) >= goal or caller.error is not None,
        f"{goal} calls, now {len(caller.results)}",
    )
    assert caller.error is None, f"{caller.error!r}\n{cluster.story()}"


@pytest.mark.timeout(180)
def test_every_call_counts_once_while_replicas_and_servers_are_killed(
    cluster: Cluster, tmp_path: Path
) -> None:
    with Programs(cluster, tmp_path, "count") as programs:
        for name in NAMES:
            programs.start(name)
        caller = Caller(cluster.url)
        caller.start()
        goes_on(cluster, caller)

        programs.kill("one")  # the oldest
        goes_on(cluster, caller)

        home = caller.server(cluster)
        home.kill()
        goes_on(cluster, caller)
        cluster.start(home.node)
        cluster.wait_until_votes(home.node)

        leader = cluster.leader()
        cluster.kill(leader)
        goes_on(cluster, caller)
        programs.start("one")  # with two servers, under its old name
        cluster.start(leader)
        goes_on(cluster, caller)

        caller.stop_asked.set()
        caller.join(WAIT_S)
        assert caller.error is None
        calls = len(caller.results)
        assert caller.results == list(range(1, calls + 1))  # none lost, none doubled
        assert programs.said("one", "joined")[-1] != "joined with 0"
        # Who leaves first must not take the state with it: one after the other.
        assert [programs.end(name) for name in NAMES] == [f"leaves with {calls}"] * 3


def test_a_call_to_all_returns_without_who_is_killed(cluster: Cluster, tmp_path: Path) -> None:
    with (
        Programs(cluster, tmp_path, "echo") as programs,
        antiphon.connect(cluster.url) as ctx,
        GroupClient(ctx, "echo") as outside,
    ):
        for name in NAMES:
            programs.start(name)
        left = set(NAMES)
        assert outside.call("hello", timeout=WAIT_S) == dict.fromkeys(left, "hello")
        for gone in ("three", "one"):  # the youngest, then the oldest
            left.remove(gone)
            waiting = in_thread(lambda body=gone: outside.call(body, timeout=WAIT_S))
            programs.wait_for(gone, "hangs")
            programs.kill(gone)
            assert heard(waiting, 1) == [dict.fromkeys(left, gone)]


def lines_of(book: Path) -> list[list[str]]:
    return [line.split() for line in book.read_text().splitlines()] if book.exists() else []


@pytest.mark.timeout(180)
def test_a_lock_has_one_holder_while_holders_and_servers_are_killed(
    cluster: Cluster, tmp_path: Path
) -> None:
    """Each joins for its `with` block and leaves with it, so that the group is often empty."""
    book = tmp_path / "book"

    def goes_on(programs: Programs, times: int = 40) -> None:
        goal = len(lines_of(book)) + times
        said = [programs.said(name, "")[-5:] for name in NAMES]
        cluster.wait_until(lambda: len(lines_of(book)) >= goal, f"{goal} lines; they say {said}")

    with Programs(cluster, tmp_path, "lock") as programs:
        for name in NAMES:
            programs.start(name)
        goes_on(programs)
        for name in ("one", "two"):
            programs.kill(name)
            goes_on(programs)
            programs.start(name)
        leader = cluster.leader()
        cluster.kill(leader)
        goes_on(programs)
        cluster.start(leader)
        programs.kill("three")
        goes_on(programs)
        for name in ("one", "two"):
            programs.end(name)

    lines = lines_of(book)
    fences = [int(fence) for what, _, fence in lines if what == "in"]
    assert [pair for pair in pairwise(fences) if pair[0] >= pair[1]] == []
    overlapping = [
        (before, after)
        for before, after in pairwise(lines)
        if before[0] == "in" and after != ["out", *before[1:]]
    ]
    assert len(overlapping) <= 3, overlapping  # those who were killed inside
    outs = [line[1:] for line in lines if line[0] == "out"]
    assert all(["in", *out] == lines[lines.index(["out", *out]) - 1] for out in outs)
