"""Real clusters for tests: processes on this machine, load on them, and a judge.

Nothing here sleeps to synchronise: `wait_until` polls a condition, and says at its deadline what it
waited for, at which ports, and where the logs are.
"""

import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from antiphon.cli.cluster import ClusterStatus, look
from antiphon.errors import JMSError
from antiphon.formats import pack
from antiphon.formats import protocol as cw
from antiphon.server.local_cluster import LocalCluster
from tests.process.support.log_client import LogClient, first_body

DESTINATION = "topic:load"
WAIT_S = 30.0
PAUSE_S = 0.002  # between two messages of a publisher


class Cluster(LocalCluster):
    def __init__(
        self,
        folder: Path,
        servers: int = 3,
        storage: str = "durable",
        trace: str | None = None,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        super().__init__(servers, folder, storage, trace=trace)

    def client(self, timeout: float = WAIT_S) -> LogClient:
        return LogClient(self.url, timeout=timeout)

    def wait_until(self, condition: Callable[[], bool], what: str, timeout: float = WAIT_S) -> None:
        deadline = time.monotonic() + timeout
        while not condition():
            assert time.monotonic() < deadline, f"waited {timeout} s for: {what}\n{self.story()}"
            time.sleep(0.02)

    def look(self) -> ClusterStatus:
        return look(self.url, WAIT_S)

    def leader(self) -> int:
        self.wait_until(lambda: self.look().leader is not None, "a leader")
        leader = self.look().leader
        return leader if leader is not None else self.leader()

    def follower(self) -> int:
        return next(node for node in self.servers if node != self.leader())

    def wait_whole(self, timeout: float = WAIT_S) -> None:
        """All run, all count, and all have the same state."""
        self.wait_until(self._is_whole, "all servers agree", timeout)

    def _is_whole(self) -> bool:
        answers = self.look().answers
        voters = {s.membership.voters for s in answers.values()}
        states = {(s.applied, s.digest) for s in answers.values()}
        running = {s.id for s in answers.values()}
        return (
            len(answers) == len(self.servers)
            and len(voters) == len(states) == 1
            and set(voters.pop()) == running
        )

    def wait_until_votes(self, node: int) -> None:
        """This server counts, under whatever incarnation it has now."""

        def counts() -> bool:
            status = self.status_of(node)
            return status is not None and status.id in status.membership.voters

        self.wait_until(counts, f"node {node} votes")

    def status_of(self, node: int) -> cw.Status | None:
        return self.look().answers.get(node)

    def kill(self, *nodes: int) -> None:
        for node in nodes:
            self.servers[node].kill()

    def pause(self, node: int) -> None:
        self.servers[node].signal(signal.SIGSTOP)

    def resume(self, node: int) -> None:
        self.servers[node].signal(signal.SIGCONT)

    def story(self) -> str:
        """What a failing test needs to say."""
        lines = []
        for server in self.servers.values():
            state = "running" if server.running else "not running"
            lines.append(f"node {server.node} at {server.url}, {state}, log {server.log}:")
            lines += [f"    {line}" for line in server.said().splitlines()[-8:]]
        return "\n".join(lines)


def assert_is_another(before: cw.Status | None, after: cw.Status | None) -> None:
    """The server forgot, and says so by a new incarnation."""
    assert before is not None
    assert after is not None
    assert after.id.node == before.id.node
    assert after.id != before.id


class _Publisher(threading.Thread):
    """Numbered messages, a few of them on their way at a time, some in packs of several."""

    def __init__(self, name: str, url: str) -> None:
        super().__init__(daemon=True)
        self.name_in_body = name
        self._client = LogClient(url, timeout=60, window_packs=8)
        self.stop_asked = threading.Event()
        self.sent = 0
        self.error: JMSError | None = None

    @property
    def accepted(self) -> int:
        return self._client.accepted

    def run(self) -> None:
        try:
            while not self.stop_asked.is_set():
                count = self.sent % 3 + 1
                body = f"{self.name_in_body} {self.sent + 1}".encode()
                self._client.send(DESTINATION, body, count)
                self.sent += count
                time.sleep(PAUSE_S)
            self._client.flush()
        except JMSError as error:
            self.error = error
        finally:
            self._client.close()


class _Reader(threading.Thread):
    """Everything that one server delivers, from the beginning."""

    def __init__(self, url: str) -> None:
        super().__init__(daemon=True)
        self._client = LogClient(url, timeout=120)
        self.url = url
        self.stop_asked = threading.Event()
        self.seen: list[tuple[int, str, int]] = []  # position, body, count
        self.next = 1
        self.error: JMSError | None = None

    def run(self) -> None:
        try:
            for delivered in self._client.tail():
                if delivered is not None:
                    header = pack.read_header(delivered.pack)
                    body = first_body(delivered.pack).decode()
                    self.seen.append((delivered.position, body, header.count))
                    self.next = delivered.position + header.count
                if self.stop_asked.is_set():
                    return
        except JMSError as error:
            self.error = error


class Load:
    """Publishers, and a reader at each server; `finish` is the judge."""

    def __init__(self, cluster: Cluster, readers: bool = True) -> None:
        self._cluster = cluster
        self._publishers = [_Publisher(name, cluster.url) for name in ("p0", "p1")]
        self._readers = [_Reader(s.url) for s in cluster.servers.values()] if readers else []

    def __enter__(self) -> "Load":
        for thread in (*self._publishers, *self._readers):
            thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for thread in (*self._publishers, *self._readers):
            thread.stop_asked.set()

    @property
    def accepted(self) -> int:
        return sum(publisher.accepted for publisher in self._publishers)

    def wait_for_more(self, messages: int = 50, timeout: float = WAIT_S) -> None:
        goal = self.accepted + messages
        self._cluster.wait_until(
            lambda: self.accepted >= goal, f"{goal} messages, now {self.accepted}", timeout
        )

    def finish(self, timeout: float = WAIT_S) -> int:
        """Stop publishing, let every reader see everything, and judge; returns how many."""
        for publisher in self._publishers:
            publisher.stop_asked.set()
        for publisher in self._publishers:
            publisher.join(timeout)
            assert publisher.error is None, f"{publisher.error}\n{self._cluster.story()}"
            assert publisher.accepted == publisher.sent, self._cluster.story()
        total = self.accepted
        self._cluster.wait_until(
            lambda: all(reader.next > total for reader in self._readers),
            f"{total} messages at all readers, now {[r.next - 1 for r in self._readers]}",
            timeout,
        )
        for reader in self._readers:
            first = self._readers[0]
            assert reader.seen == first.seen, _difference(reader, first)
            self._judge(reader.seen)
        return total

    def _judge(self, seen: list[tuple[int, str, int]]) -> None:
        """Positions are dense; each publisher's messages are all there, once and in order."""
        position = 1
        numbers = {publisher.name_in_body: 1 for publisher in self._publishers}
        for at, body, count in seen:
            assert at == position, f"position {at} where {position} should be"
            position += count
            name, number = body.split()
            assert int(number) == numbers[name], f"{body!r}, but {numbers[name]} comes next"
            numbers[name] += count
        for publisher in self._publishers:
            assert numbers[publisher.name_in_body] == publisher.sent + 1


def _difference(a: _Reader, b: _Reader) -> str:
    pairs = enumerate(zip(a.seen, b.seen, strict=False))
    at = next((at for at, (one, other) in pairs if one != other), min(len(a.seen), len(b.seen)))
    return (
        f"reader at {a.url} saw {a.seen[max(0, at - 2) : at + 3]}, "
        f"reader at {b.url} saw {b.seen[max(0, at - 2) : at + 3]}"
    )
