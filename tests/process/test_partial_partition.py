"""Real servers of which two do not reach each other, and both reach the third."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from antiphon.cli.cluster import _ask
from antiphon.formats import protocol as cw
from antiphon.io.transport import format_address
from antiphon.lab.chaos.faulty_links import Link
from tests.process.support.cluster import DESTINATION, WAIT_S, Cluster
from tests.process.support.log_client import LogClient

pytestmark = pytest.mark.process

MESSAGES = 200


class Linked(Cluster):
    """Each server reaches each other one through a link of its own."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.links = {
            (a, b): Link(other.address)
            for a in self.servers
            for b, other in self.servers.items()
            if a != b
        }
        for node, server in self.servers.items():
            ways = {
                n: s.address if n == node else self.links[node, n].address
                for n, s in self.servers.items()
            }
            listed = ",".join(f"{n}={format_address(at)}" for n, at in ways.items())
            server.start(listed, self.storage)
        for server in self.servers.values():
            server.wait_ready()

    def status(self, node: int) -> cw.Status:
        """Said by this one server."""
        status = _ask(format_address(self.servers[node].address))
        assert status is not None
        return status


@pytest.fixture
def linked(tmp_path: Path) -> Iterator[Linked]:
    with Linked(tmp_path) as cluster:
        yield cluster
        for link in cluster.links.values():
            link.close()


@pytest.mark.parametrize("fault", ["cut", "the leader is not heard", "the follower is not heard"])
def test_a_follower_is_served_through_the_third(linked: Linked, fault: str) -> None:
    leader = next(n for n in linked.servers if linked.status(n).role == "leader")
    follower = next(n for n in linked.servers if n != leader)
    epoch = linked.status(leader).epoch
    forth, back = linked.links[leader, follower], linked.links[follower, leader]
    if fault == "cut":
        forth.cut()
        back.cut()
    elif fault == "the leader is not heard":
        forth.stall()
    else:
        back.stall()
    with LogClient(linked.servers[follower].url, timeout=WAIT_S) as client:
        for number in range(MESSAGES):
            client.publish(DESTINATION, f"message {number}".encode())
    log = linked.servers[leader].said()
    assert fault == "the follower is not heard" or f"reaches {follower} through" in log
    assert {linked.status(n).epoch for n in linked.servers} == {epoch}
    forth.repair()
    back.repair()
    linked.wait_until(lambda: is_level(linked), "all have the same state")


def is_level(linked: Linked) -> bool:
    return len({(s.applied, s.digest) for s in map(linked.status, linked.servers)}) == 1
