"""The processes of a chaos run: servers that reach each other through links, and programs.

Leaving the `with` block ends every process, whatever happened inside.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent import futures
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, Protocol, TypeVar, cast

import msgspec

from antiphon.errors import JMSError
from antiphon.formats import protocol as cw
from antiphon.formats.trace import TraceEvent
from antiphon.io.transport import format_address
from antiphon.lab.chaos.faulty_links import Links
from antiphon.lab.chaos.recorder import read_traces
from antiphon.log.quorum import majority
from antiphon.server.admin_client import AdminClient
from antiphon.server.local_cluster import LocalCluster, LocalServer, undisturbed

STATUS_S = 0.5
END_S = 60.0
CONFIG = """\
[limits]  # so small that snapshots, deletions and transfers of state happen all the time
retain = 1000
snapshot_every_entries = 300
"""


class Servers(LocalCluster):
    """Each one listens at an address that only links know."""

    def __init__(self, servers: int, folder: Path, storage: str, contexts: str) -> None:
        super().__init__(servers, folder, storage, contexts)
        self._config = folder / "chaos.toml"
        self._config.write_text(CONFIG)
        self._links: Links | None = None
        self._pool = futures.ThreadPoolExecutor(8 * servers)

    def connect_by(self, links: Links) -> None:
        self._links = links

    def start(self, *nodes: int, wait: bool = True) -> None:
        assert self._links is not None
        chosen = [self.servers[node] for node in nodes or self.servers]
        for server in chosen:
            addresses = {
                other: link.address
                for (node, other), link in self._links.between.items()
                if node == server.node
            }
            addresses[server.node] = server.address
            listed = ",".join(f"{n}={format_address(a)}" for n, a in sorted(addresses.items()))
            options = ("--contexts", self.contexts, "--config", str(self._config))
            server.start(listed, self.storage, *options)
        for server in chosen if wait else []:
            server.wait_ready()

    def statuses(self) -> dict[int, cw.Status]:
        """Return the status of each server that answers at once. (The others may hang.)"""
        asked = [self._pool.submit(_status, server) for server in self.servers.values()]
        answered, _ = futures.wait(asked, STATUS_S)
        found = [status for one in answered if (status := one.result()) is not None]
        return {status.id.node: status for status in found}

    def leader(self) -> int | None:
        leading = [s for s in self.statuses().values() if s.role == "leader"]
        return max(leading, key=lambda s: s.epoch).id.node if leading else None

    def may_forget(self, node: int) -> bool:
        """Return whether enough others remember, if this server loses its data."""
        statuses = self.statuses().values()
        voters = max(statuses, key=lambda s: s.applied).membership.voters if statuses else ()
        intact = [s for s in statuses if s.id in voters]
        others = [s for s in intact if s.id.node != node]
        # Not while another one is on its way back: it has forgotten too.
        return len(intact) >= len(self.servers) - 1 and len(others) >= majority(voters)

    def agree(self) -> bool:
        """Return whether all servers run, all are voters, and all have the same state."""
        statuses = self.statuses().values()
        states = {(s.applied, s.digest, s.membership.voters) for s in statuses}
        return (
            len(statuses) == len(self.servers)
            and len(states) == 1
            and {s.id for s in statuses} == set(states.pop()[2])
        )

    def counted(self, component: str, *names: str) -> int:
        """Return the sum of these counts over all servers; -1: not all of them answer."""
        statuses = self.statuses().values()
        if len(statuses) < len(self.servers):
            return -1
        return sum(status.counts[component][name] for status in statuses for name in names)


def _status(server: LocalServer) -> cw.Status | None:
    if not server.running:
        return None
    try:
        return AdminClient(server.url, timeout=STATUS_S).status()
    except JMSError:
        return None


class ProgramSpec(Protocol):
    """The part of a program's specification that `Programs` needs."""

    @property
    def name(self) -> str: ...

    @property
    def incarnation(self) -> int: ...


AnySpec = TypeVar("AnySpec", bound=ProgramSpec)


class Programs(Generic[AnySpec]):
    """They are started again under their old names, as new incarnations."""

    def __init__(
        self, specs: Sequence[AnySpec], folder: Path, module: str = "antiphon.lab.chaos.program"
    ) -> None:
        """`module`: what is run, with a spec as JSON."""
        self.specs = {spec.name: spec for spec in specs}
        self._folder = folder
        self._module = module
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._started: dict[str, float] = {}  # when, the last time

    def __enter__(self) -> Programs[AnySpec]:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for process in self._processes.values():
            process.kill()
            process.wait()

    def running(self, name: str) -> bool:
        process = self._processes.get(name)
        return process is not None and process.poll() is None

    def start(self, name: str) -> None:
        assert not self.running(name)
        spec = self.specs[name]
        next_life = msgspec.structs.replace(cast(Any, spec), incarnation=spec.incarnation + 1)
        self.specs[name] = cast(AnySpec, next_life)
        self._started[name] = time.monotonic()
        with undisturbed(), (self._folder / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                [sys.executable, "-m", self._module, msgspec.json.encode(spec)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for this process, which ends them all
            )

    def signal(self, name: str, number: signal.Signals) -> None:
        if self.running(name):
            self._processes[name].send_signal(number)

    def kill(self, name: str) -> None:
        self._processes[name].kill()
        self._processes[name].wait()

    def end(self, *names: str) -> list[str]:
        """End programs in order; return complaints."""
        for name in names:
            self.signal(name, signal.SIGTERM)
        return [complaint for name in names if (complaint := self._ended(name))]

    def _ended(self, name: str) -> str:
        try:
            code = self._processes[name].wait(END_S)
        except subprocess.TimeoutExpired:
            return f"{name} does not end"
        if code == 0:
            return ""
        said = (self._folder / f"{name}.log").read_text().splitlines()
        return f"{name} ended with {code}: {said[-1] if said else ''}"

    def at_work(self, *names: str) -> bool:
        """Return whether these have sent or subscribed since they were started last."""
        # By the clock: one that is killed before it begins leaves no trace to count.
        last = {e.process: e.at for e in sorted(self.events(), key=lambda e: e.at)}
        return all(last.get(name, 0.0) >= self._started[name] for name in names)

    def events(self) -> list[TraceEvent]:
        return read_traces(self._folder)
