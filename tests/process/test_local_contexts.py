"""Servers with local contexts, killed and brought back: their clients wait, and miss nothing."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import antiphon
from antiphon.server.local_cluster import COMMAND, LocalCluster
from tests.process.support.cluster import WAIT_S, Cluster

pytestmark = pytest.mark.process
NEWS = antiphon.Topic("news")


class LocalContexts(Cluster):
    """Three servers."""

    def __init__(self, folder: Path) -> None:
        LocalCluster.__init__(self, 3, folder, contexts="local")

    def url_of(self, node: int) -> str:
        """For a client that is to connect there."""
        return self.servers[node].url

    def held(self) -> int:
        return self.look().answers[self.leader()].counts["broker"]["held"]

    def wait_held(self, sessions: int) -> None:
        self.wait_until(lambda: self.held() == sessions, f"{sessions} sessions are held")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalContexts]:
    with LocalContexts(tmp_path) as cluster:
        cluster.start()
        yield cluster


def send(ctx: antiphon.Context, first: int, end: int) -> None:
    ctx.create_producer().send_all(NEWS, [str(n) for n in range(first, end)])


def receive(consumer: antiphon.Consumer, count: int) -> list[antiphon.Message]:
    messages = []
    for n in range(count):
        message = consumer.receive(WAIT_S)
        assert message is not None, f"after {n} messages"
        messages.append(message)
    return messages


def numbers(messages: list[antiphon.Message]) -> list[int]:
    return [int(m.text) for m in messages]


def test_a_durable_subscriber_waits_for_its_server_and_gets_everything_once(
    cluster: LocalContexts,
) -> None:
    with (
        antiphon.connect(cluster.url_of(2), client_id="anna") as reader,
        antiphon.connect(cluster.url_of(1)) as sender,
    ):
        box = reader.create_durable_consumer(NEWS, "box")
        send(sender, 0, 100)
        got = receive(box, 60)
        cluster.servers[2].kill()
        send(sender, 100, 200)
        cluster.wait_held(1)
        cluster.start(2)
        got += receive(box, 140)
        assert numbers(got) == [*range(200)]
        assert not any(m.redelivered for m in got)
        assert box.receive(0.1) is None


def test_what_was_acknowledged_at_a_server_that_died_does_not_come_again(
    cluster: LocalContexts,
) -> None:
    """Also to another program: the first one is gone when its server is back."""
    mode = antiphon.CLIENT_ACKNOWLEDGE
    reader = antiphon.connect(
        cluster.url_of(2), client_id="anna", session_mode=mode, close_timeout=0.1
    )
    with antiphon.connect(cluster.url_of(1)) as sender:
        box = reader.create_durable_consumer(NEWS, "box")
        send(sender, 0, 50)
        receive(box, 30)
        reader.acknowledge()
        cluster.servers[2].kill()
        reader.close()  # it can tell nobody, and does not come back
        cluster.wait_held(1)
        with pytest.raises(antiphon.ConnectionLostError, match=r"server 2 at .* alone knows"):
            antiphon.connect(cluster.url_of(3), client_id="anna", connect_timeout=0.5)
        cluster.start(2)
        cluster.wait_held(0)
        with antiphon.connect(cluster.url_of(3), client_id="anna") as heir:
            again = receive(heir.create_durable_consumer(NEWS, "box"), 20)
        assert numbers(again) == [*range(30, 50)]


def test_members_of_a_group_wait_for_their_server(cluster: LocalContexts) -> None:
    with (
        antiphon.connect(cluster.url_of(1)) as one,
        antiphon.connect(cluster.url_of(2)) as two,
    ):
        near = one.join(one.create_group("g"), name="near")
        far = two.join(two.create_group("g"), name="far", durable=True)
        for n in range(20):
            near.multicast(str(n))
        seen = told(far, until="19")
        cluster.servers[2].kill()
        for n in range(20, 40):
            near.multicast(str(n))
        assert "suspect far" in told(near, until="suspect far")
        cluster.start(2)
        assert "withdraw far" in told(near, until="withdraw far")
        near.multicast("40")
        seen += told(far, until="40")
        assert [what for what in seen if what.isdigit()] == [str(n) for n in range(41)]
        assert [what for what in seen if what.startswith("view")] == ["view near far"]


def told(member: antiphon.Member, until: str) -> list[str]:
    """What a member is told, up to this."""
    seen: list[str] = []
    while until not in seen:
        event = member.receive(WAIT_S)
        match event:
            case antiphon.ViewMessage(view=view):
                seen.append(f"view {' '.join(view.members)}")
            case antiphon.SuspicionMessage(suspects=suspects, withdrawn=withdrawn):
                seen += [f"suspect {name}" for name in suspects]
                seen += [f"withdraw {name}" for name in withdrawn]
            case antiphon.Message():
                assert not event.redelivered
                seen.append(event.text)
            case None:
                raise AssertionError(f"not told of {until!r}, only of {seen}")
    return seen


def test_nobody_waits_for_a_server_that_was_stopped_in_order(cluster: LocalContexts) -> None:
    with (
        antiphon.connect(cluster.url, client_id="anna") as reader,
        antiphon.connect(cluster.url) as sender,
    ):
        box = reader.create_durable_consumer(NEWS, "box")
        send(sender, 0, 50)
        got = receive(box, 50)
        for server in cluster.servers.values():
            assert server.stop() == 0
            send(sender, len(got), len(got) + 10)
            got += receive(box, 10)
            cluster.start(server.node)
        assert numbers(got) == [*range(80)]
        assert not any(m.redelivered for m in got)


def test_a_server_that_is_removed_is_not_waited_for(cluster: LocalContexts) -> None:
    reader = antiphon.connect(cluster.url_of(2), client_id="anna")
    with antiphon.connect(cluster.url_of(1)) as sender:
        box = reader.create_durable_consumer(NEWS, "box")
        send(sender, 0, 50)
        receive(box, 50)
        cluster.servers[2].kill()
        cluster.wait_held(1)
        subprocess.run(
            [*COMMAND, "cluster", "remove", cluster.url_of(1), "2"], check=True, timeout=WAIT_S
        )
        send(sender, 50, 60)
        with antiphon.connect(cluster.url_of(3), client_id="anna") as heir:
            again = heir.create_durable_consumer(NEWS, "box")
            got = receive(again, 10)
            while numbers(got)[-1] < 59:
                got += receive(again, 1)
        # What came before 50 was acknowledged, and it is not known how much of that the log has.
        assert numbers(got) == [*range(numbers(got)[0], 60)]
        assert numbers(got)[0] <= 50
        assert all(m.redelivered for m in got if int(m.text) < 50)


def test_all_servers_have_the_same_contexts(cluster: LocalContexts) -> None:
    antiphon.connect(cluster.url).close()
    cluster.servers[3].stop()
    cluster.contexts = "replicated"
    cluster.start(3, wait=False)
    server = cluster.servers[3]
    cluster.wait_until(lambda: not server.running, "it ends")
    assert "was started with contexts = replicated, and its cluster has contexts = local" in (
        server.said()
    )
    cluster.contexts = "local"
    cluster.start(3)


def test_they_need_a_disk() -> None:
    wrong = [*COMMAND, "cluster", "up", "1", "--contexts", "local", "--storage", "memory"]
    done = subprocess.run(wrong, capture_output=True, text=True, check=False, timeout=WAIT_S)
    assert done.returncode != 0
    assert "needs storage = durable" in done.stderr
