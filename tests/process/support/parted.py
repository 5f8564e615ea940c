"""Processes of toolkits that have groups; behind gates, which a test parts and joins."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from antiphon.io.transport import format_address
from antiphon.lab.chaos.channels.links import Network, Pair
from antiphon.lab.chaos.channels.run import judged, read_traces
from antiphon.server.local_cluster import HOST, free_port
from tests.process.support.peer_processes import Peer, Peers, peers_in

PROGRAM = "tests.process.support.toolkit_program"


def story(peer: Peer) -> list[str]:
    """Return what a process was given: bodies, `[a b]` for views, `<a b>` for transitional ones."""
    lines = []
    for event in peer.events:
        if "got" in event:
            lines.append(event["got"])
        elif "view" in event:
            lines.append(f"[{' '.join(event['view'])}]")
        elif "passing" in event:
            lines.append(f"<{' '.join(event['passing'])}>")
    return lines


def join_in_turn(*peers: Peer) -> None:
    """Have processes join the group g, one after the other."""
    for at, peer in enumerate(peers):
        peer.ask(join="g")
        for member in peers[: at + 1]:
            member.wait_view(*(one.name for one in peers[: at + 1]))


class Parted:
    """The processes by name, and the network between them."""

    def __init__(self, peers: Peers, network: Network, names: Sequence[str]) -> None:
        self.peers: dict[str, Peer] = {}
        self._network = network
        self._all = peers
        self._names = names

    def part(self, names: str) -> None:
        """Cut these off from all others."""
        for one in names:
            for other in set(self._names) - set(names):
                self._network.cut(one, other)

    def delay(self, source: str, target: str, seconds: float) -> None:
        """Have everything that one sends to the other take so long."""
        self._network.delay([Pair(source, target)], seconds)

    def heal(self) -> None:
        self._network.mend_all()


@contextmanager
def processes_of(toolkit: str, folder: Path) -> Iterator[Peers]:
    """Processes of a toolkit, in one cluster, whose traces are judged in the end."""
    traces = folder / "traces"
    traces.mkdir()
    with peers_in(folder, program=PROGRAM, toolkit=toolkit, trace=str(traces)) as peers:
        yield peers
    events = read_traces(traces)
    assert events
    assert judged(events, complete=False) == []


@contextmanager
def parted(folder: Path, toolkit: str, names: str) -> Iterator[Parted]:
    """Processes of a toolkit that found their cluster together."""
    targets = {name: (HOST, free_port()) for name in names}
    with Network(targets) as network, processes_of(toolkit, folder) as peers:
        gates = ",".join(format_address(gate) for gate in network.gates.values())
        parted = Parted(peers, network, names)
        for name in names:
            listen, address = map(format_address, (targets[name], network.gates[name]))
            url = f"peer://{gates}/c?listen={listen}&address={address}"
            parted.peers[name] = peers.begin(name, url=url)
        for peer in parted.peers.values():
            peer.said("connected")
        yield parted
