"""Real servers whose disk is full or damaged."""

import resource
from pathlib import Path

import pytest

from antiphon import cli
from antiphon.server.local_cluster import LocalServer
from tests.process.support.cluster import DESTINATION, Cluster, Load, assert_is_another

pytestmark = pytest.mark.process


# -- Full ------------------------------------------------------------------------------------------


def limit_file_size(server: LocalServer, limit: int) -> None:
    """From now on this process cannot make any file larger than that: a full disk, for it."""
    assert server.process is not None
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (limit, hard))


def largest_segment(server: LocalServer) -> int:
    return max(path.stat().st_size for path in server.data.glob("seg-*.log"))


def fill(server: LocalServer) -> None:
    limit_file_size(server, largest_segment(server) + 20_000)


def make_room(server: LocalServer) -> None:
    limit_file_size(server, resource.RLIM_INFINITY)


def is_full(cluster: Cluster, node: int) -> bool:
    status = cluster.status_of(node)
    return status is not None and any("disk full" in line for line in status.trouble)


@pytest.mark.parametrize("which", ["follower", "leader"])
def test_a_server_without_room_steps_aside_and_returns(cluster: Cluster, which: str) -> None:
    with Load(cluster) as load:
        load.wait_for_more()
        node = cluster.leader() if which == "leader" else cluster.follower()
        fill(cluster.servers[node])
        cluster.wait_until(lambda: is_full(cluster, node), f"node {node} is full")
        load.wait_for_more(300)
        assert cluster.leader() != node
        make_room(cluster.servers[node])
        cluster.wait_until(lambda: not is_full(cluster, node), f"node {node} has room")
        load.wait_for_more(300)
        load.finish()
    cluster.wait_whole()
    assert "there is room again" in cluster.servers[node].said()


def test_all_without_room_wait_and_lose_nothing(cluster: Cluster) -> None:
    with Load(cluster) as load:
        load.wait_for_more()
        for server in cluster.servers.values():
            fill(server)
        cluster.wait_until(
            lambda: sum(is_full(cluster, node) for node in cluster.servers) >= 2, "two are full"
        )
        for server in cluster.servers.values():
            make_room(server)
        load.wait_for_more(300)
        load.finish()
    cluster.wait_whole()


def test_a_full_server_that_is_killed_comes_back(cluster: Cluster) -> None:
    with Load(cluster) as load:
        load.wait_for_more()
        node = cluster.follower()
        fill(cluster.servers[node])
        cluster.wait_until(lambda: is_full(cluster, node), f"node {node} is full")
        cluster.kill(node)
        cluster.start(node)
        load.wait_for_more()
        load.finish()
    cluster.wait_whole()


# -- Damaged ---------------------------------------------------------------------------------------


def flip_in_the_middle(server: LocalServer) -> tuple[Path, int]:
    """A byte of the largest segment, half-way: far below what is known to be synced."""
    segment = max(server.data.glob("seg-*.log"), key=lambda path: path.stat().st_size)
    data = bytearray(segment.read_bytes())
    at = len(data) // 2
    data[at] ^= 0x10
    segment.write_bytes(data)
    return segment, at


def test_a_damaged_server_says_where_and_is_repaired_by_the_others(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    with Load(cluster) as load:
        load.wait_for_more(500)
        node = cluster.follower()
        before = cluster.status_of(node)
        cluster.kill(node)
        server = cluster.servers[node]
        segment, _ = flip_in_the_middle(server)
        assert cli.main(["journal", "inspect", str(server.data)]) == 1
        assert f"{segment.name!r} is damaged at offset" in capsys.readouterr().out
        cluster.start(node)
        assert f"{segment.name!r} is damaged at offset" in server.said()
        cluster.wait_until_votes(node)
        assert_is_another(before, cluster.status_of(node))
        load.finish()
    cluster.wait_whole()


@pytest.mark.parametrize("name", ["MANIFEST", "seg-00000001.log"])
def test_a_server_with_a_missing_file_does_not_trust_itself(cluster: Cluster, name: str) -> None:
    with Load(cluster) as load:
        load.wait_for_more(200)
        node = cluster.follower()
        before = cluster.status_of(node)
        cluster.kill(node)
        (cluster.servers[node].data / name).unlink()
        cluster.start(node)
        cluster.wait_until_votes(node)
        assert_is_another(before, cluster.status_of(node))
        load.finish()
    cluster.wait_whole()


def test_alone_a_damaged_server_refuses_to_start_and_changes_nothing(tmp_path: Path) -> None:
    with Cluster(tmp_path, servers=1) as cluster:
        cluster.start()
        with cluster.client() as client:
            for number in range(50):
                client.publish(DESTINATION, f"message {number}".encode())
        server = cluster.servers[1]
        cluster.kill(1)
        segment, _ = flip_in_the_middle(server)
        before = {path.name: path.read_bytes() for path in server.data.iterdir()}
        server.start(cluster.listed, cluster.storage)
        assert server.process is not None
        assert server.process.wait(20) == 1
        assert f"JournalDamagedError: journal file {segment.name!r}" in server.said()
        assert {path.name: path.read_bytes() for path in server.data.iterdir()} == before
