"""One life of a simulated process that is a server itself: the driver of its channel, its log, and
a program on it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import TYPE_CHECKING

from antiphon.journal.disk import RamDisk
from antiphon.journal.opening import open_journal
from antiphon.log.settings import Settings
from antiphon.model.peer_views import MemberId
from antiphon.peers.channel.conversation import Conversation
from antiphon.peers.channel.driver import ChannelDriver
from antiphon.peers.log.log import PeerLog
from antiphon.sim.cluster.alarm_machine import AlarmMachine
from antiphon.sim.peer_log.ports import ChannelPort, LogPort
from antiphon.sim.peer_log.program import Program
from antiphon.sim.peers.process import Process
from antiphon.sim.peers.stacks import Receipts

if TYPE_CHECKING:
    from antiphon.sim.peer_log.world import LogWorld
    from antiphon.sim.peers.network import Connection

SETTINGS = Settings(volatile=True, snapshot_every_entries=60)
RETAIN = 50
SEGMENT_BYTES = 4096


class LogProcess(Process):
    """One life; its inputs go to the driver of its channel, as `peers/process.py` hands them."""

    world: LogWorld

    def __init__(self, world: LogWorld, name: str, life: int) -> None:
        super().__init__(world, name, life)
        for layer in self.running.layers:
            if isinstance(layer, Receipts):
                layer.take = _nothing
        self.conversation = Conversation(self.me, self.running.view, "sim", "topic:sim")
        port = ChannelPort(self)
        self.driver = ChannelDriver(self.conversation, self.running, nullcontext(), port)
        self.driver.provides_state()
        self.machine = AlarmMachine(RETAIN)
        journal, _ = open_journal(RamDisk(), lambda: 1, segment_bytes=SEGMENT_BYTES)
        log_port = LogPort(self, self._chance)
        self.log = PeerLog(self.me, self.conversation, self.machine, journal, log_port, SETTINGS)
        self.program = Program(self, self._chance)
        self.log.start(self.program)
        self.driver.wake()

    @property
    def is_settled(self) -> bool:
        """Whether all that was proposed here is in the log, and all that was asked is answered."""
        return self.log.follows and not self.program.owed and not self.program.unanswered

    def later(self, wait_us: int, call: Callable[[], None]) -> None:
        """Make a call after some time, if this process lives then."""
        self.world.at(self.world.now_us + wait_us, self.input, call)

    def received(self, link: Connection, sender: MemberId, data: bytes) -> None:
        if self.links.get(sender) is link:
            self.driver.arrived(sender, [data], self.world.now_ms)

    def late(self, sender: MemberId, data: bytes) -> None:
        if sender in self.links:
            self.world.touched(self)
            self.driver.arrived(sender, [data], self.world.now_ms)

    def joined(self, link: Connection, other: Process) -> None:
        if link.broken:
            self.world.network.redial(self, other.name)
            return
        older = self.links.get(other.me)
        self.links[other.me] = link
        if older is None:
            self.world.touched(self)
            self.driver.linked(other.me, other.name, self.world.now_ms)

    def lost(self, link: Connection, other: MemberId, goodbye: bool) -> None:
        if self.links.get(other) is link:
            del self.links[other]
            self.world.touched(self)
            self.driver.unlinked(other, goodbye, self.world.now_ms)
            self.world.network.redial(self, other.name)

    def welcomes(self, other: MemberId) -> bool:
        return self.driver.welcome(other) is None

    def found(self) -> None:
        self.running.found(self.world.now_ms)
        self.driver.wake()

    def leave(self) -> None:
        if not self.world.calm:
            self.leaving = True
            self.driver.do(Conversation.leave)

    def behind(self, is_behind: bool) -> None:
        """The log takes what comes at once."""

    def tick(self) -> None:
        self.driver.timer_fired(self.world.now_ms)

    def send(self) -> None:
        self.program.act()

    def carry_out(self) -> None:
        """The driver has."""


def _nothing(body: bytes) -> None:
    pass
