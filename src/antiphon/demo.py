"""`antiphon demo`: a replicated log that loses its leader, and nothing else.

Three servers on this machine, a publisher of numbered messages, and a reader at each server. In the
middle the leader is killed as by a crash, later it is started again and catches up. At the end all
readers must have seen the same numbers, none lost, doubled or out of order; otherwise exit code 1.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from antiphon.errors import IllegalStateError
from antiphon.io.client import LogClient, first_body
from antiphon.io.cluster import ClusterStatus, look
from antiphon.io.local import LocalCluster, LocalServer

DESTINATION = "topic:demo"
PAUSE_S = 0.002  # between two messages
CALM_S = 2.5  # before and after the crash, and after the return
WAIT_S = 20.0


class Publisher(threading.Thread):
    """Publishes 1, 2, 3 ... one at a time, until told to stop."""

    def __init__(self, url: str) -> None:
        super().__init__(daemon=True)
        self._url = url
        self._stop_asked = threading.Event()
        self.published = 0
        self.accepted_at = time.monotonic()
        self.longest_gap_s = 0.0

    def run(self) -> None:
        with LogClient(self._url) as client:
            while not self._stop_asked.is_set():
                client.publish(DESTINATION, str(self.published + 1).encode())
                now = time.monotonic()
                self.longest_gap_s = max(self.longest_gap_s, now - self.accepted_at)
                self.published, self.accepted_at = self.published + 1, now
                time.sleep(PAUSE_S)

    def stop(self) -> None:
        self._stop_asked.set()
        self.join()


class Reader(threading.Thread):
    """Reads everything from one server, and only from that one."""

    def __init__(self, server: LocalServer) -> None:
        super().__init__(daemon=True)
        self.node = server.node
        self._url = server.url
        self._stop_asked = threading.Event()
        self.numbers: list[int] = []

    def run(self) -> None:
        for delivered in LogClient(self._url, timeout=2 * WAIT_S).tail():
            if delivered is not None:
                self.numbers.append(int(first_body(delivered.pack)))
            if self._stop_asked.is_set():
                return

    def stop(self) -> None:
        self._stop_asked.set()
        self.join()


class Stage:
    """What is shown: on a terminal a table that lives, elsewhere a line for each event."""

    def __init__(self, cluster: LocalCluster, publisher: Publisher, readers: list[Reader]) -> None:
        self._cluster = cluster
        self._publisher = publisher
        self._readers = {reader.node: reader for reader in readers}
        self._console = Console()
        self._began = time.monotonic()
        self._events: list[str] = []
        self._found: ClusterStatus | None = None
        self._live = Live(console=self._console) if self._console.is_terminal else None

    def __enter__(self) -> Stage:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def say(self, event: str) -> None:
        line = f"{time.monotonic() - self._began:5.1f} s  {event}"
        self._events.append(line)
        if self._live is None:
            self._console.print(line, highlight=False, soft_wrap=True)
        self._refresh()

    def watch(self, until: Callable[[ClusterStatus], bool], what: str) -> ClusterStatus:
        """Show the cluster until the condition holds, which it must in time."""
        deadline = time.monotonic() + WAIT_S
        while time.monotonic() < deadline:
            self._found = found = look(self._cluster.url)
            self._refresh()
            if until(found):
                return found
            time.sleep(0.1)
        raise IllegalStateError(f"waited {WAIT_S:g} s in vain: {what}")

    def pause(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        self.watch(lambda _: time.monotonic() > end, "time passes")

    def _refresh(self) -> None:
        if self._live is not None and self._found is not None:
            self._live.update(Group(self._table(self._found), Text("\n".join(self._events))))

    def _table(self, found: ClusterStatus) -> Table:
        table = Table(title=f"{self._publisher.published} messages accepted")
        for column in ("node", "role", "epoch", "last message", "its reader has"):
            table.add_column(column, justify="right")
        for node, reader in self._readers.items():
            status = found.answers.get(node)
            facts = (status.role, status.epoch, status.position) if status else ("down", "", "")
            table.add_row(str(node), *map(str, facts), str(len(reader.numbers)))
        return table


def run(args: argparse.Namespace) -> int:
    with (
        tempfile.TemporaryDirectory("-antiphon-demo") as folder,
        LocalCluster(3, Path(folder)) as cluster,
    ):
        cluster.start()
        publisher = Publisher(cluster.url)
        readers = [Reader(server) for server in cluster.servers.values()]
        with Stage(cluster, publisher, readers) as stage:
            stage.say(f"three servers run: {cluster.url}")
            for thread in (publisher, *readers):
                thread.start()
            _lose_the_leader(stage, cluster, publisher)
            publisher.stop()
            code = _verdict(stage, publisher.published, readers)
        for reader in readers:
            reader.stop()
        return code


def _lose_the_leader(stage: Stage, cluster: LocalCluster, publisher: Publisher) -> None:
    stage.pause(CALM_S)
    found = stage.watch(lambda found: found.leader is not None, "a leader")
    assert found.leader is not None
    victim = cluster.servers[found.leader]
    published, publisher.longest_gap_s = publisher.published, 0.0
    victim.kill()
    stage.say(f"kill -9 node {victim.node}, the leader, after {published} messages")
    found = stage.watch(lambda found: found.leader not in (None, victim.node), "a new leader")
    stage.say(f"node {found.leader} leads epoch {found.epoch}")
    killed = time.monotonic()
    stage.watch(lambda _: publisher.accepted_at > killed, "messages are accepted again")
    stage.pause(CALM_S)
    stage.say(f"for {publisher.longest_gap_s * 1000:.0f} ms nothing was accepted")
    cluster.start(victim.node)
    stage.say(f"node {victim.node} is back, with its journal")
    _watch_catching_up(stage, victim.node)
    stage.pause(CALM_S)


def _watch_catching_up(stage: Stage, node: int) -> None:
    def caught_up(found: ClusterStatus) -> bool:
        leading = found.leading
        return leading is not None and found.answers[node].position >= leading.position - 100

    found = stage.watch(lambda f: node in f.answers and caught_up(f), f"node {node} catches up")
    stage.say(f"node {node} has caught up: message {found.answers[node].position}")


def _verdict(stage: Stage, published: int, readers: list[Reader]) -> int:
    stage.watch(
        lambda _: all(len(reader.numbers) >= published for reader in readers),
        "every reader gets everything",
    )
    expected = list(range(1, published + 1))
    wrong = [reader.node for reader in readers if reader.numbers != expected]
    if wrong:
        stage.say(f"FAILED: the readers at nodes {wrong} did not see 1 to {published} in order")
        return 1
    stage.say(f"{len(readers)} readers saw 1 to {published}: none lost, doubled or reordered")
    return 0
