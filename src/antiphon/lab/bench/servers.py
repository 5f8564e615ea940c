"""Servers as processes, or processes that are their own servers (`peer:`), and the resources that
they have used so far, for all measurements."""

from __future__ import annotations

import secrets
import shutil
import tempfile
from collections.abc import Iterable
from contextlib import ExitStack
from itertools import cycle, islice
from pathlib import Path
from typing import NamedTuple, Protocol

from antiphon.cli import cluster, peers
from antiphon.errors import IllegalStateError
from antiphon.formats import protocol as cw
from antiphon.lab.bench.connections import peak_bytes
from antiphon.lab.bench.processes import PATIENCE_S
from antiphon.peers.discovery.local import runtime_folder
from antiphon.server.local_cluster import LocalCluster, LocalServer


class Spent(NamedTuple):
    """By all servers together, where nothing else is said."""

    leader_cpu_s: float
    followers_cpu_s: float
    published: int  # packs
    delivered: int  # packs, once for each consumer
    syncs: int  # the leader's

    @property
    def cpu_s(self) -> float:
        return self.leader_cpu_s + self.followers_cpu_s

    def since(self, before: Spent) -> Spent:
        return Spent(
            self.leader_cpu_s - before.leader_cpu_s,
            self.followers_cpu_s - before.followers_cpu_s,
            self.published - before.published,
            self.delivered - before.delivered,
            self.syncs - before.syncs,
        )


class Place(Protocol):
    """What the clients of a measurement connect to: servers, or each other."""

    def places(self, clients: int) -> list[str]:
        """Return the URLs for `clients` clients, the first one at the leader."""

    def spent(self) -> Spent:
        """Return what has been spent so far."""

    def peak_mb(self) -> float:
        """The most memory that one of the servers ever had."""


class Servers:
    """A local cluster; it and its data are gone with the `stack`."""

    def __init__(
        self, stack: ExitStack, count: int, storage: str, contexts: str = "replicated"
    ) -> None:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory("-antiphon-bench")))
        self._cluster = stack.enter_context(LocalCluster(count, folder, storage, contexts))
        self._cluster.start()
        leader = cluster.look(self._cluster.url).leader
        if leader is None:
            raise IllegalStateError("the servers have no leader")
        self.leader: LocalServer = self._cluster.servers[leader]
        self._all = [self.leader, *(s for s in self._cluster.servers.values() if s.node != leader)]

    def places(self, clients: int) -> list[str]:
        """Return the URLs of the servers for `clients` clients, the first one at the leader."""
        return [server.url for server in islice(cycle(self._all), clients)]

    def spent(self) -> Spent:
        found = cluster.look(self._cluster.url, PATIENCE_S).answers
        if len(found) < len(self._all):
            raise IllegalStateError("a server does not answer during the measurement")
        leader = found[self.leader.node]
        return Spent(
            leader.cpu_s,
            sum(status.cpu_s for status in found.values()) - leader.cpu_s,
            sum(status.counts["session"]["published"] for status in found.values()),
            sum(status.counts["dispatcher"]["delivered_packs"] for status in found.values()),
            leader.counts["journal"]["syncs"],
        )

    def peak_mb(self) -> float:
        """The most memory that one of them ever had."""
        return peak_mb(server.process.pid for server in self._all if server.process is not None)


class Serverless:
    """A cluster that nobody is in yet: whoever connects to its URL is one of its servers. What its
    processes leave behind is gone with the `stack`, which has to end them first."""

    def __init__(self, stack: ExitStack) -> None:
        name = f"bench-{secrets.token_hex(4)}"
        self.url = f"peer:{name}"
        stack.callback(shutil.rmtree, runtime_folder() / name, ignore_errors=True)

    def places(self, clients: int) -> list[str]:
        """Return the URLs for `clients` clients. The first one to connect founds the cluster."""
        return [self.url] * clients

    def spent(self) -> Spent:
        """Return the packs that were published. What a server spends is its process's own time."""
        counts = [status.counts["session"]["published"] for status in self.statuses()]
        return Spent(0.0, 0.0, sum(counts), 0, 0)

    def peak_mb(self) -> float:
        """The most memory that one of the processes ever had."""
        return peak_mb(status.pid for status in self.statuses())

    def statuses(self) -> list[cw.Status]:
        """Ask all processes."""
        found, silent = peers.servers(self.url)
        if silent:
            raise IllegalStateError("a process does not answer during the measurement")
        return found


def peak_mb(pids: Iterable[int]) -> float:
    """The most memory that one of these processes ever had."""
    return round(max(map(peak_bytes, pids)) / 1e6, 1)
