"""`antiphon demo --peers`: a replicated table without any server.

Three replicas, each a process that is its own server (`peer:`), and this process with two writers.
The oldest replica is killed, and comes back with the table that the others hand it. Then one is cut
off from all others: it waits, and the others go on without it; when the network is whole again, it
takes over what it has missed. The rest is as in `antiphon demo` (`lab/demo/run.py`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from antiphon.io.transport import Address, format_address
from antiphon.lab.chaos.channels.links import Network
from antiphon.lab.demo.run import (
    CALM_S,
    MEMBERS,
    TRACES,
    WRITERS,
    Display,
    Members,
    Writer,
    begin,
    end,
    get_it_back,
    lose_a_member,
)
from antiphon.reports.charts import Mark
from antiphon.server.local_cluster import HOST, free_port
from antiphon.terminal.screen import Table

HERE = "writers"
"""The name of this process."""


def perform(folder: Path) -> tuple[dict[str, Any], list[Mark]]:
    """Run the demo; return its findings, as for `--json`, and what it did."""
    targets: dict[str, Address] = {name: (HOST, free_port()) for name in (*MEMBERS, HERE)}
    with Network(targets) as network:

        def url_of(name: str) -> str:
            gates = ",".join(format_address(network.gates[member]) for member in MEMBERS)
            listen, address = map(format_address, (targets[name], network.gates[name]))
            return f"peer://{gates}/demo?name={name}&listen={listen}&address={address}"

        with Members(url_of, folder) as members:
            url = url_of(HERE)
            writers = [Writer(url, writer, folder / TRACES) for writer in WRITERS]
            with Display(lambda: members, _drawn, members, writers) as display:
                display.say("three processes, and no server")
                begin(display, members, writers, at_once=True)  # they found it together
                killed = lose_a_member(display, members)
                get_it_back(display, members, killed)
                display.pause(CALM_S)
                _part(display, members, network)
                return end(display, url, writers, folder), display.happened


def _part(display: Display[Members], members: Members, network: Network) -> None:
    """Cut the oldest member off, and join what was parted."""
    name = members.members[0]
    for other in (*MEMBERS, HERE):
        if other != name:
            network.cut(name, other)
    display.did(f"{name} is cut off", f"{name} is cut off; it waits, and the others go on")
    display.watch(lambda _: name not in members.members, f"{name} is removed")
    display.pause(CALM_S)
    network.mend_all()
    display.did(f"{name} is connected", f"{name} is connected again")
    display.watch(lambda _: name in members.members, f"{name} is back")
    display.pause(CALM_S)


def _drawn(members: Members) -> Table:
    table = Table("process", "")
    for name in MEMBERS:
        table.add_row(name, "a member" if name in members.members else "")
    return table
