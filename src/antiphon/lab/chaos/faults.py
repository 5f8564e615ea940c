"""Breaks real processes, disks and links. Each fault can be undone."""

from __future__ import annotations

import resource
import shutil
import signal
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TypeVar

from antiphon.lab.chaos.faulty_links import Link, Links
from antiphon.lab.chaos.plan import Fault, Undo
from antiphon.lab.chaos.processes import Programs, Servers
from antiphon.lab.chaos.program import Spec
from antiphon.server.local_cluster import LocalServer

DELAY_S = 0.15
"""On a slow link, for each piece that is read from it."""

ROOM_BYTES = 20_000
"""The room that is left on a disk that becomes full."""

Chosen = TypeVar("Chosen")


class FaultInjector:
    """Injects faults into servers, programs and links, and undoes them."""

    def __init__(
        self, servers: Servers, links: Links, programs: Programs[Spec], say: Callable[[str], None]
    ) -> None:
        self.injected: Counter[str] = Counter()
        self._servers = servers
        self._links = links
        self._programs = programs
        self._say = say
        self.kinds: dict[str, Callable[[Fault], Undo | None]] = {
            "server-kill": self._kill_server,
            "server-pause": self._pause_server,
            "server-isolate": self._isolate_server,
            "link-stall": self._stall_link,
            "link-cut": self._cut_link,
            "link-delay": self._delay_link,
            "client-stall": self._stall_clients,
            "client-cut": self._cut_clients,
            "program-kill": self._kill_program,
            "program-pause": self._pause_program,
            "disk-full": self._fill_disk,
            "disk-lost": self._lose_disk,
            "power-cut": self._cut_power,
        }

    def inject(self, fault: Fault) -> Undo | None:
        """Inject a fault; return the function that ends it, or None if it was not possible now."""
        undo = self.kinds[fault.kind](fault)
        if undo is not None:
            self.injected[fault.kind] += 1
        return undo

    def repair(self) -> None:
        """Undo all faults."""
        self._mend_links(self._links.all())
        for server in self._servers.servers.values():
            self._resume(server)
            self._make_room(server)
        self._start_servers()
        for name in self._programs.specs:
            self._programs.signal(name, signal.SIGCONT)
            self._start_program(name)

    # -- Servers ---------------------------------------------------------------------------------

    def _victim(self, fault: Fault) -> tuple[LocalServer, str]:
        """Return a server, and its name in messages."""
        leader = self._servers.leader() if fault.leader else None
        if leader is not None:
            return self._servers.servers[leader], f"node {leader}, the leader,"
        node = _choose(sorted(self._servers.servers), fault)
        return self._servers.servers[node], f"node {node}"

    def _kill_server(self, fault: Fault) -> Undo | None:
        server, name = self._victim(fault)
        forgets = self._servers.storage == "memory"
        if not server.running or (forgets and not self._servers.may_forget(server.node)):
            return None
        server.kill()
        self._say(f"kill -9 {name} for {fault.for_s:.1f} s")
        return self._start_servers

    def _lose_disk(self, fault: Fault) -> Undo | None:
        server, name = self._victim(fault)
        if not server.running or not self._servers.may_forget(server.node):
            return None
        server.kill()
        shutil.rmtree(server.data)
        self._say(f"kill -9 {name} for {fault.for_s:.1f} s, and its disk is lost")
        return self._start_servers

    def _cut_power(self, fault: Fault) -> Undo | None:
        for server in self._servers.servers.values():
            if server.running:
                server.kill()
        self._say(f"kill -9 all servers for {fault.for_s:.1f} s")
        return self._start_servers

    def _start_servers(self) -> None:
        """Start all servers that are down. (One that should stay down for longer comes back
        early.)"""
        for node, server in self._servers.servers.items():
            if not server.running:
                self._servers.start(node, wait=False)

    def _pause_server(self, fault: Fault) -> Undo | None:
        server, name = self._victim(fault)
        if not server.running:
            return None
        server.signal(signal.SIGSTOP)
        self._say(f"pause {name} for {fault.for_s:.1f} s")
        return lambda: self._resume(server)

    def _resume(self, server: LocalServer) -> None:
        if server.running:
            server.signal(signal.SIGCONT)

    def _fill_disk(self, fault: Fault) -> Undo | None:
        server, name = self._victim(fault)
        if not server.running or not hasattr(resource, "prlimit"):  # Linux has it
            return None
        sizes = [path.stat().st_size for path in server.data.glob("seg-*.log")]
        self._limit_files(server, max(sizes, default=0) + ROOM_BYTES)
        self._say(f"the disk of {name} is full for {fault.for_s:.1f} s")
        return lambda: self._make_room(server)

    def _make_room(self, server: LocalServer) -> None:
        if server.running and hasattr(resource, "prlimit"):
            self._limit_files(server, resource.RLIM_INFINITY)

    def _limit_files(self, server: LocalServer, size: int) -> None:
        """Let the server make no larger file: for it the disk is full."""
        assert server.process is not None
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (size, hard))

    # -- Links -----------------------------------------------------------------------------------

    def _isolate_server(self, fault: Fault) -> Undo | None:
        server, name = self._victim(fault)
        links = self._links.around(server.node)
        return self._stall(links, f"between {name} and the others", fault)

    def _stall_link(self, fault: Fault) -> Undo | None:
        way, link = self._way(fault)
        return self._stall([link], way, fault)

    def _stall_clients(self, fault: Fault) -> Undo | None:
        server, name = self._victim(fault)
        links = [self._links.to_programs[server.node]]
        return self._stall(links, f"between programs and {name}", fault)

    def _stall(self, links: list[Link], where: str, fault: Fault) -> Undo:
        for link in links:
            link.stall()
        self._say(f"nothing gets through {where} for {fault.for_s:.1f} s")
        return lambda: self._mend_links(links)

    def _cut_link(self, fault: Fault) -> Undo | None:
        way, link = self._way(fault)
        return self._cut(link, way, fault)

    def _cut_clients(self, fault: Fault) -> Undo | None:
        server, name = self._victim(fault)
        link = self._links.to_programs[server.node]
        return self._cut(link, f"between programs and {name}", fault)

    def _cut(self, link: Link, where: str, fault: Fault) -> Undo:
        link.cut()
        self._say(f"connections {where} are cut, and refused for {fault.for_s:.1f} s")
        return lambda: self._mend_links([link])

    def _delay_link(self, fault: Fault) -> Undo | None:
        way, link = self._way(fault)
        link.delay(DELAY_S)
        self._say(f"everything {way} is slow for {fault.for_s:.1f} s")
        return lambda: self._mend_links([link])

    def _way(self, fault: Fault) -> tuple[str, Link]:
        one, other = _choose(sorted(self._links.between), fault)
        return f"from node {one} to node {other}", self._links.between[one, other]

    def _mend_links(self, links: list[Link]) -> None:
        for link in links:
            link.repair()

    # -- Programs --------------------------------------------------------------------------------

    def _kill_program(self, fault: Fault) -> Undo | None:
        name = _choose(sorted(self._programs.specs), fault)
        if not self._programs.running(name):
            return None
        self._programs.kill(name)
        self._say(f"kill -9 {name} for {fault.for_s:.1f} s")
        return lambda: self._start_program(name)

    def _start_program(self, name: str) -> None:
        if not self._programs.running(name):
            self._programs.start(name)

    def _pause_program(self, fault: Fault) -> Undo | None:
        name = _choose(sorted(self._programs.specs), fault)
        if not self._programs.running(name):
            return None
        self._programs.signal(name, signal.SIGSTOP)
        self._say(f"pause {name} for {fault.for_s:.1f} s")
        return lambda: self._programs.signal(name, signal.SIGCONT)


def _choose(among: Sequence[Chosen], fault: Fault) -> Chosen:
    return among[int(fault.choice * len(among))]
