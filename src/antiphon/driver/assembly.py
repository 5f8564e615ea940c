"""The parts of one server, put together.

Promise: how the parts of a server hang together is written here and nowhere else. The server that
runs, the simulated ones, the scenarios and the drivers' tests call these two functions, each with
the disk, the port and the chance that it has.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import NamedTuple

from antiphon.broker.home.effects import Effect as HomeEffect
from antiphon.broker.home.home import Home
from antiphon.broker.home.local_acks import OwnJournal
from antiphon.broker.home.settings import HomeSettings
from antiphon.broker.machine.machine import Broker
from antiphon.driver.clients import Clients, Desk, Log
from antiphon.driver.log import LogDriver
from antiphon.driver.ports import Port
from antiphon.journal.disk import Disk
from antiphon.journal.journal import Journal
from antiphon.journal.opening import open_journal
from antiphon.journal.segments import SEGMENT_BYTES
from antiphon.log.effects import Effect, Tail
from antiphon.log.node import Node
from antiphon.log.recovered import Recovered
from antiphon.log.settings import Settings
from antiphon.log.state_machine import Machine

BARRIER_BITS = 14
"""So many low bits of a life's number are left for its barriers to count in."""


class OpenLog(NamedTuple):
    """One server's log, opened and put together; `LogDriver.start` lets it take part."""

    journal: Journal
    recovered: Recovered
    node: Node
    driver: LogDriver


def open_log(
    number: int,
    listed: dict[int, str],
    disk: Disk,
    machine: Machine,
    settings: Settings,
    port: Port,
    new_number: Callable[[], int],
    chance: Random,
    *,
    segment_bytes: int = SEGMENT_BYTES,
    watch: Callable[[Effect | Tail], None] | None = None,
    kind: type[LogDriver] = LogDriver,
) -> OpenLog:
    """Open the journal on this disk, restore the machine from its snapshot, and put the log of
    server `number` on them. Raise what `open_journal` raises.

    `new_number`: a number that no other life draws; `chance`: of the elections. `watch`, `kind`:
    for those that look on while effects are carried out (`LogDriver`)."""
    alone = len(listed) == 1
    journal, recovered = open_journal(disk, new_number, alone=alone, segment_bytes=segment_bytes)
    if recovered.snapshot is not None:
        machine.restore(journal.read_snapshot()[1])
    node = Node(number, listed, recovered, machine, settings, chance, port.now_ms())
    return OpenLog(journal, recovered, node, kind(node, journal, port, disk.volatile, watch))


def clients_on(
    log: Log,
    journal: Journal,
    broker: Broker,
    desk: Desk,
    number: int,
    life: int,
    settings: HomeSettings,
    own: OwnJournal | None = None,
    *,
    watch: Callable[[HomeEffect], None] | None = None,
    kind: type[Clients] = Clients,
) -> Clients:
    """Return the clients of server `number` on its log. `life`: a number that no other life of a
    server draws; `own`: with local contexts, what its journal has kept."""
    home = Home(number, life, broker, journal, settings, desk.now_ms(), own)
    journal.repeat(home.kept)
    return kind(log, home, broker, journal, desk, life >> BARRIER_BITS, watch)
