"""`antiphon serve --trace`: the traces of the servers show whether groups kept their promises.

The programs here write no traces.
"""

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

import antiphon
from antiphon.checkers import groups
from antiphon.cli.cluster import known_groups
from antiphon.formats.trace import TraceEvent, encode_event, encode_header
from antiphon.lab.chaos.recorder import read_traces
from antiphon.server.local_cluster import COMMAND
from tests import quick_java
from tests.process.support.cluster import Cluster

pytestmark = pytest.mark.process

GROUP = "accounts"
DIES = """
import sys, antiphon
with antiphon.connect(sys.argv[1]) as ctx:
    member = ctx.join(ctx.create_group("accounts"), name="dies")
    for event in member:
        print(event, flush=True)
"""


class Member(threading.Thread):
    """Takes everything, until it is told to end."""

    def __init__(self, url: str, name: str) -> None:
        super().__init__(daemon=True)
        self.seen: list[str] = []
        self._context = antiphon.connect(url)
        group = self._context.create_group(GROUP, remove_after=1.0)
        self.member = self._context.join(group, name, state_provider=lambda: b"state")
        self.start()

    def run(self) -> None:
        for event in self.member:
            if event.body is not None:
                self.seen.append(event.body)

    def close(self) -> None:
        self._context.close()
        self.join(20)


class Traced(Cluster):
    """Servers that write traces."""

    def __init__(self, folder: Path) -> None:
        self.traces = folder / "traces"
        super().__init__(folder, trace=str(self.traces))

    def url_from(self, node: int) -> str:
        """Of all servers, this one first."""
        addresses = [s.url.removeprefix("antiphon://") for s in self.servers.values()]
        return "antiphon://" + ",".join(addresses[node - 1 :] + addresses[: node - 1])


@contextmanager
def dying(url: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-c", DIES, url], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline()
            yield process
        finally:
            process.kill()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Traces of three servers, with a member that dies, one that leaves, and a server that is
    killed with the members that it serves."""
    with Traced(tmp_path_factory.mktemp("traced")) as cluster, ExitStack() as stack:
        cluster.start()
        members = [Member(cluster.url_from(n), f"m{n}") for n in cluster.servers]
        for member in members:
            stack.callback(member.close)
        sent = 0

        def send(count: int) -> None:
            nonlocal sent
            for _ in range(count):
                members[sent % 3].member.multicast(f"{sent}")
                sent += 1

        def seen(*those: Member) -> Callable[[], bool]:
            return lambda: all(str(sent - 1) in member.seen for member in those)

        send(30)
        with dying(cluster.url) as process:
            send(30)
            process.kill()
        cluster.wait_until(lambda: "dies" not in members[0].member.view.members, "its removal")
        (group,) = known_groups(cluster.look())
        victim = next(member.node for member in group.members if member.name == "m1")
        cluster.servers[victim].kill()
        send(30)
        cluster.start(victim)
        send(30)
        cluster.wait_until(seen(*members), "all have everything")
        members[2].member.leave()
        send_after = members[0].member.multicast
        send_after("the end")
        cluster.wait_until(
            lambda: all("the end" in member.seen for member in members[:2]), "the last message"
        )
    return cluster.traces


def test_the_traces_of_the_servers_keep_the_promises(folder: Path) -> None:
    events = read_traces(folder)
    assert len(list(folder.glob("traces-node-*.trace"))) == 4  # one was started twice
    assert {e.run for e in events} == {"traces.servers"}
    assert max(e.incarnation for e in events if e.kind == "join") > 1  # of the killed server's
    kinds = {"send", "sent", "deliver", "acknowledge", "view", "join", "leave", "remove", "crash"}
    assert kinds | {"group", "state", "suspect"} <= {e.kind for e in events}
    delivered = {e.message for e in events if e.kind == "deliver"}
    assert {e.message for e in events if e.kind == "sent"} <= delivered
    assert len(delivered) >= 121
    assert groups.check(events) == []


def _lost(events: list[TraceEvent]) -> list[TraceEvent]:
    """A member was not sent a message."""
    last = [e for e in events if e.kind == "deliver" and e.process.startswith("m1@")][-10]
    return [e for e in events if e is not last]


def _twice(events: list[TraceEvent]) -> list[TraceEvent]:
    """And one was sent another one twice."""
    one = [e for e in events if e.kind == "deliver" and not e.redelivered][5]
    return [*events, one]


def _from_nowhere(events: list[TraceEvent]) -> list[TraceEvent]:
    message = next(e.message for e in events if e.kind == "deliver")
    return [e for e in events if e.message != message or e.kind == "deliver"]


@pytest.mark.parametrize(("plant", "rule"), [(_lost, "P2"), (_twice, "P3"), (_from_nowhere, "P3")])
def test_what_a_server_did_wrong_is_found(
    plant: Callable[[list[TraceEvent]], list[TraceEvent]], rule: str, folder: Path
) -> None:
    found = groups.check(plant(read_traces(folder)))
    assert rule in {violation.rule for violation in found}


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_the_audit_finds_the_same(folder: Path, tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    shutil.copytree(folder, whole)
    assert audited(whole) == 0
    wrong = tmp_path / "wrong"
    wrong.mkdir()
    records = map(encode_event, _lost(read_traces(folder)))
    (wrong / "wrong.trace").write_bytes(encode_header() + b"".join(records))
    assert audited(wrong) == 1


def audited(folder: Path) -> int:
    """Return how the command ends, in a process of its own: here it would stop the tests' Spark."""
    command = [*COMMAND, "audit", str(folder), "--master", "local[1]"]
    return subprocess.run(command, env={**os.environ, **quick_java.ENVIRONMENT}).returncode


def test_a_folder_that_cannot_be_written_to(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    options = ["--listen", "127.0.0.1:0", "--storage", "memory", "--trace", tmp_path / "file"]
    done = subprocess.run([*COMMAND, "serve", *options], capture_output=True, text=True, timeout=50)
    assert done.returncode == 2
    assert f"no trace can be written to {tmp_path / 'file'}" in done.stderr
    assert "Traceback" not in done.stderr
