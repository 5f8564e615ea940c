"""JBora's promises with real processes: prefix delivery over faulty links, and requests that
clients send again to another server."""

import json
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import permutations
from pathlib import Path
from random import Random
from typing import Any

import pytest

from antiphon.io.transport import format_address
from antiphon.lab.chaos.channels.links import Network, Pair
from antiphon.lab.chaos.channels.run import judged, read_traces
from antiphon.server.local_cluster import HOST, free_port
from tests.process.support.peer_processes import Peer, Peers, peers_in, wait_until
from tests.process.support.prefix import check, stays

pytestmark = [pytest.mark.process, pytest.mark.timeout(150)]

NAMES = ("a", "b", "c", "d", "e")


@contextmanager
def behind_gates(folder: Path, *names: str) -> Iterator[tuple[list[Peer], Network]]:
    """Processes in one view, and the links between them."""
    targets = {name: (HOST, free_port()) for name in names}
    with Network(targets) as network:
        gates = ",".join(map(format_address, network.gates.values()))
        options = {"program": "jbora_program", "exchanges": False, "trace": str(folder)}
        with peers_in(folder, **options) as peers:
            for name in names:
                own = format_address(targets[name]), format_address(network.gates[name])
                peers.begin(name, url=f"peer://{gates}/c?listen={own[0]}&address={own[1]}")
            for peer in peers.all:
                peer.wait_view(*names, primary=True)
            yield peers.all, network


def part(network: Network, few: tuple[str, ...], silently: bool) -> None:
    """Cut some off from the others: connections break, or nothing passes any more."""
    many = [name for name in NAMES if name not in few]
    if silently:
        ways = [Pair(one, other) for one, other in permutations(NAMES, 2)]
        network.stall(way for way in ways if (way.source in few) != (way.target in few))
    else:
        for one in few:
            for other in many:
                network.cut(one, other)


@pytest.mark.in_turn
def test_who_leaves_the_primary_view_was_given_a_prefix(tmp_path: Path) -> None:
    random = Random(1)
    with behind_gates(tmp_path, *NAMES) as (peers, network):
        for peer in peers:
            assert peer.ask(chatter=True)
        for turn in range(3):
            leader = next(view for view in reversed(peers[0].events) if "view" in view)["view"][0]
            others = [name for name in NAMES if name != leader]
            few = (leader, random.choice(others)) if turn else tuple(random.sample(others, 2))
            part(network, few, silently=turn == 2)
            for peer in peers:
                side = few if peer.name in few else [name for name in NAMES if name not in few]
                peer.wait_view(*side, primary=peer.name not in few)
            network.mend_all()
            for peer in peers:
                peer.wait_view(*NAMES, primary=True)
        for peer in peers:
            assert peer.ask(chatter=False)
        histories = {peer.name: stays(peer.events) for peer in peers}
    events = read_traces(tmp_path)
    assert len({event.life for event in events}) == len(NAMES)
    assert judged(events, complete=False) == []  # the checks of all orders
    finding = check(histories)
    assert finding.violations == []
    assert finding.parted >= 3 * 2 * 3
    assert finding.shorter > 0


class Client:
    """A client, which is not a member; it talks to one server at a time."""

    def __init__(self, peers: Peers) -> None:
        self._peers = peers

    def ask(self, server: str, request_id: str, add: int = 1) -> Any:
        """Send a request to a server; return the answer, or None if the connection ends first."""
        peer = next(peer for peer in reversed(self._peers.all) if peer.name == server)
        address = peer.said("clients")["clients"]
        with socket.create_connection(tuple(address), timeout=30) as connection:
            connection.sendall(json.dumps({"id": request_id, "add": add}).encode() + b"\n")
            line = connection.makefile().readline()
        return json.loads(line) if line else None


def carried_out(peer: Peer) -> list[str]:
    return [event["carried_out"] for event in peer.events if "carried_out" in event]


@pytest.mark.in_turn
def test_a_request_that_comes_again_elsewhere_counts_once(tmp_path: Path) -> None:
    with peers_in(tmp_path, program="tests.process.support.jbora_program") as peers:
        a, b, c = peers.group("a", "b", "c")
        client = Client(peers)
        assert client.ask("a", "r1") == {"answer": 1}
        assert b.ask(doom="r2")
        assert client.ask("b", "r2") is None  # carried out, and killed before the reply
        b.process.wait()
        assert carried_out(b) == ["r1", "r2"]
        assert client.ask("c", "r2") == {"answer": 2}
        assert client.ask("a", "r2") == {"answer": 2}
        assert client.ask("a", "r3") == {"answer": 3}
        fresh = peers.join("b")  # another life, which takes the state over
        for peer in (a, c, fresh):
            peer.wait_view("a", "b", "c", primary=True)
        assert client.ask("b", "r2") == {"answer": 2}
        assert client.ask("b", "r4", add=10) == {"answer": 13}
        for peer in (a, c):
            peer.wait(lambda events: {"carried_out": "r4", "total": 13} in events, "r4")
            assert carried_out(peer) == ["r1", "r2", "r3", "r4"]
        assert carried_out(fresh) == ["r4"]


@pytest.mark.in_turn
def test_fifty_clients_are_served_while_servers_come_and_go(tmp_path: Path) -> None:
    with peers_in(tmp_path, program="tests.process.support.jbora_program") as peers:
        a, b, c = peers.group("a", "b", "c")
        client = Client(peers)

        def ask(number: int) -> list[int]:
            return [client.ask("a", f"{number} {turn}")["answer"] for turn in range(6)]

        with ThreadPoolExecutor(50) as clients:
            asking = [clients.submit(ask, number) for number in range(50)]
            a.wait(lambda events: any("carried_out" in event for event in events), "a request")
            c.kill()
            d = peers.join("d")
            sums = [one for each in asking for one in each.result()]
        assert sorted(sums) == [*range(1, 301)]
        for peer in (a, b):
            peer.wait_view("a", "b", "d", primary=True)
            peer.wait(lambda events: any(e.get("total") == 300 for e in events), "all requests")
        assert client.ask("d", "0 0", add=1000) == {"answer": client.ask("b", "0 0")["answer"]}
        assert a.ask(put=-7) == -7
        for peer in (a, b, d):
            wait_until(lambda peer=peer: peer.ask(get="a") == -7, "the number of a")  # type: ignore[misc]
