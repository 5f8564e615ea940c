"""Real servers with more behind them than a log should replay."""

from collections.abc import Iterator

import pytest

from antiphon.formats import pack
from tests.process.support.cluster import DESTINATION, Cluster, Load
from tests.process.support.log_client import LogClient

pytestmark = pytest.mark.process


def publish(cluster: Cluster, packs: int, body: bytes, count: int = 1) -> None:
    with cluster.client() as client:
        for _ in range(packs):
            client.send(DESTINATION, body, count)
        client.flush()


def positions(url: str, first: int, last: int) -> Iterator[int]:
    """Positions of the packs that a server delivers from `first` to `last`."""
    for delivered in LogClient(url).tail(first):
        if delivered is not None:
            yield delivered.position
            if delivered.position + pack.read_header(delivered.pack).count > last:
                return


def snapshots(cluster: Cluster, node: int) -> list[str]:
    return sorted(path.name for path in cluster.servers[node].data.glob("snap-*.snap"))


def test_a_restart_goes_on_from_a_snapshot(cluster: Cluster) -> None:
    publish(cluster, 25_000, b"small")
    cluster.wait_until(
        lambda: all(snapshots(cluster, node) for node in cluster.servers), "snapshots"
    )
    cluster.kill(*cluster.servers)
    cluster.start()
    publish(cluster, 100, b"after")
    cluster.wait_whole()
    for server in cluster.servers.values():
        assert list(positions(server.url, 1, 25_100)) == list(range(1, 25_101))


def test_a_server_that_lost_all_is_sent_the_state_under_load(memory_cluster: Cluster) -> None:
    """The log's beginning is gone everywhere, so entries alone cannot bring it up to date."""
    cluster = memory_cluster
    packs, count = 3000, 1000
    publish(cluster, packs, bytes(64 << 10), count)
    node = cluster.follower()
    cluster.kill(node)
    with Load(cluster, readers=False) as load:
        load.wait_for_more()
        cluster.start(node)
        cluster.wait_until_votes(node)
        load.wait_for_more()
        load.finish()
    cluster.wait_whole()
    assert "took over the state" in cluster.servers[node].said()
    last = LogClient(cluster.url).barrier()
    kept = [list(positions(s.url, last - 500, last)) for s in cluster.servers.values()]
    assert kept[0] == kept[1] == kept[2]
