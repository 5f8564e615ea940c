"""Thousands of idle clients at one server: real sockets, from processes of their own.

`antiphon bench connections` has ten thousand; a slow machine beside other tests cannot wake so many
in time.
"""

import resource
import time
from pathlib import Path

import pytest

from antiphon.lab.bench.connections import SPARE_FILES, Crowd, measure
from antiphon.server.local_cluster import LocalCluster

pytestmark = pytest.mark.process

CLIENTS = 3_000


def possible_clients() -> int:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    return CLIENTS if most == resource.RLIM_INFINITY else min(CLIENTS, most - SPARE_FILES)


@pytest.mark.timeout(300)
def test_thousands_of_idle_connections_cost_little(tmp_path: Path) -> None:
    with LocalCluster(1, tmp_path) as cluster:
        cluster.start()
        server = cluster.servers[1]
        found = measure(server, possible_clients(), seconds=15)  # several heartbeats
        assert found["lost"] == [], server.said()[-2000:]
        assert found["bytes_a_connection"] < 30_000
        # Of the median: on a busy machine some message is late whatever the server does.
        assert found["latency_ms"]["p50"] < 1000
        assert server.running


def test_a_client_that_is_lost_is_noticed(tmp_path: Path) -> None:
    with LocalCluster(1, tmp_path) as cluster:
        cluster.start()
        with Crowd(cluster.servers[1], 10) as crowd:
            crowd.wait(30)
            assert crowd.lost == []
            cluster.servers[1].kill()
            while len(crowd.lost) < 10:
                time.sleep(0.01)
