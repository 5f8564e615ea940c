"""Connections between simulated processes: in order while they live, and then what was under way is
lost."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from crc32c import crc32c

from antiphon.model.peer_views import MemberId
from antiphon.sim.seeds import stream

if TYPE_CHECKING:
    from antiphon.sim.peers.process import Process
    from antiphon.sim.peers.world import World

DIAL_US = 300
NOTICE_US = 20_000
"""An end learns within this time that its connection is broken."""


class Connection:
    """A connection of two processes. `last_us`: by receiver, when the last frame arrives; `held`:
    by receiver, what waits for the network to let it pass."""

    __slots__ = ("broken", "ends", "held", "last_us")

    def __init__(self, one: Process, other: Process) -> None:
        self.ends = {one.me: one, other.me: other}
        self.broken = False
        self.last_us = {one.me: 0, other.me: 0}
        self.held: dict[MemberId, list[bytes]] = {one.me: [], other.me: []}


class Trap(NamedTuple):
    """Strikes when a header of this kind is sent for the `skip`th time from now on. `victims`: the
    sender, which does not send it any more; the receiver, once it has it; or all who have it, with
    the sender, who are killed or, for `apart_ms`, kept apart from the others."""

    header: bytes
    skip: int
    victims: str
    restart_ms: int | None
    until_us: int
    apart_ms: int = 0
    reached: tuple[str, ...] = ()


class Network:
    """All connections of a world.

    Promise: frames of one connection arrive in order; while the way from one process to another is
    dark they wait, and no connection can be opened; between processes that are kept apart there is
    no connection at all.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.digest = 0
        self.frames = 0
        self.dark: Counter[tuple[str, str]] = Counter()
        self.apart: Counter[frozenset[str]] = Counter()
        self.slow_us: Counter[str] = Counter()
        self.trap: Trap | None = None
        self._open: dict[frozenset[MemberId], Connection] = {}
        self._delays = stream(world.plan.seed, "delays")
        self._chance = stream(world.plan.seed, "network")

    # -- Frames --------------------------------------------------------------------------------

    def transmit(self, source: Process, target: MemberId, data: bytes) -> None:
        """Send a frame, if there is a connection."""
        link = source.links.get(target)
        if link is None or link.broken:
            return
        receiver = link.ends[target]
        if self.trap is not None and self._springs(self.trap, source, receiver, data):
            return
        self.frames += 1
        if self.dark and self.dark[source.name, receiver.name]:
            link.held[target].append(data)
            return
        self._carry(link, source, receiver, data)

    def _carry(self, link: Connection, source: Process, receiver: Process, data: bytes) -> None:
        world = self.world
        at_us = self._in_order(link, receiver, self._delay_us(source, receiver))
        world.at(at_us, receiver.input, receiver.received, link, source.me, data)
        self.digest = crc32c(data, self.digest ^ at_us & 0xFFFFFFFF)
        if world.plan.late and not world.calm and self._chance.random() < world.plan.late:
            late_us = world.now_us + self._chance.choice((5_000, 100_000, 3_000_000))
            world.at(late_us, receiver.input, receiver.late, source.me, data)

    def _in_order(self, link: Connection, receiver: Process, delay_us: int) -> int:
        at_us = max(self.world.now_us + delay_us, link.last_us[receiver.me] + 1)
        link.last_us[receiver.me] = at_us
        return at_us

    def _delay_us(self, source: Process, receiver: Process) -> int:
        plan = self.world.plan
        low, high = plan.delay_us
        delay_us = low + int(self._delays.random() * (high - low))
        if plan.straggle and self._delays.random() < plan.straggle:
            delay_us *= 20
        if self.slow_us:
            delay_us += self.slow_us[source.name] + self.slow_us[receiver.name]
        return delay_us

    # -- Opening -------------------------------------------------------------------------------

    def dial(self, source: Process, name: str, again: bool) -> None:
        """Try to connect a process to the one with this name; `again`: and again after a
        failure."""
        self.world.at(self.world.now_us + DIAL_US, self._connect, source, name, again)

    def _connect(self, source: Process, name: str, again: bool) -> None:
        target = self.world.processes.get(name)
        if not source.alive or target is None or not target.alive or target is source:
            return
        ends = frozenset((source.me, target.me))
        if target.me in source.links or ends in self._open:
            return
        if self._may_open(source, target):
            link = self._open[ends] = Connection(source, target)
            for end, other in ((target, source), (source, target)):
                at_us = self._in_order(link, end, self._chance.randint(0, DIAL_US))
                self.world.at(at_us, end.input, end.joined, link, other)
        elif again:
            self.redial(source, name)

    def redial(self, source: Process, name: str) -> None:
        """Try it some time later."""
        pause_ms = self._chance.randint(5, self.world.plan.redial_ms)
        self.world.at(self.world.now_us + pause_ms * 1000, self._connect, source, name, True)

    def _may_open(self, one: Process, other: Process) -> bool:
        names = one.name, other.name
        if one.paused or other.paused or self.apart[frozenset(names)]:
            return False
        if self.dark[names] or self.dark[names[::-1]]:
            return False
        return one.welcomes(other.me) and other.welcomes(one.me)

    # -- Breaking ------------------------------------------------------------------------------

    def break_(self, link: Connection) -> None:
        """Break a connection: both ends learn it some time later."""
        if not link.broken:
            self._close(link)
            for end in link.ends.values():
                self._lose_later(end, link, False)

    def _close(self, link: Connection) -> None:
        link.broken = True
        del self._open[frozenset(link.ends)]

    def end(self, source: Process, goodbye: bool) -> None:
        """Close all connections of a process that has ended; what it has sent still arrives, if it
        said goodbye, and may arrive otherwise."""
        for ends, link in list(self._open.items()):
            if source.me in ends:
                self._close(link)
                other = next(one for one in link.ends.values() if one is not source)
                self._lose_later(other, link, goodbye)
        source.links.clear()

    def _lose_later(self, end: Process, link: Connection, goodbye: bool) -> None:
        other = next(one for one in link.ends if one != end.me)
        if goodbye or self._chance.random() < 0.5:
            at_us = self._in_order(link, end, self._chance.randint(0, NOTICE_US))
        else:
            at_us = self.world.now_us + self._chance.randint(0, NOTICE_US)
        self.world.at(at_us, end.input, end.lost, link, other, goodbye)

    def keep_apart(self, one: str, other: str, is_apart: bool) -> None:
        """Break the connection of two processes and let none open; or no more."""
        self.apart[frozenset((one, other))] += 1 if is_apart else -1
        if is_apart and (link := self.link(one, other)) is not None:
            self.break_(link)

    def darken(self, one: str, other: str, is_dark: bool) -> None:
        """Let nothing pass from one process to another, though their connection stays; or let it
        pass again."""
        self.dark[one, other] += 1 if is_dark else -1
        if self.dark[one, other]:
            return
        del self.dark[one, other]
        link = self.link(one, other)
        if link is None:
            return
        source, receiver = self.world.processes[one], self.world.processes[other]
        frames, link.held[receiver.me] = link.held[receiver.me], []
        for data in frames:
            self._carry(link, source, receiver, data)

    def link(self, one: str, other: str) -> Connection | None:
        """Return the connection of two processes, if it is not broken."""
        source, target = self.world.processes.get(one), self.world.processes.get(other)
        if source is None or target is None:
            return None
        return self._open.get(frozenset((source.me, target.me)))

    # -- Traps ---------------------------------------------------------------------------------

    def _springs(self, trap: Trap, source: Process, receiver: Process, data: bytes) -> bool:
        """Whether a frame is not sent, because a trap has killed its sender."""
        if self.world.now_us > trap.until_us:
            self.trap = None
        if self.trap is None or trap.header not in data:
            return False
        if trap.skip:
            reached = (*trap.reached, receiver.name)
            self.trap = trap._replace(skip=trap.skip - 1, reached=reached)
            return False
        self.trap = None
        self.world.faults["trap sprung"] += 1
        self.world.note(source, f"springs a trap for {trap.header[1:].decode()}")
        if trap.victims == "receiver":
            self._strike(trap, receiver.name)
            return False
        names = {source.name, *(trap.reached if trap.victims == "all" else ())}
        if trap.apart_ms and trap.victims == "all":
            self._keep_all_apart(names, True)
            later_us = self.world.now_us + trap.apart_ms * 1000
            self.world.at(later_us, self._keep_all_apart, names, False)
            return True
        for name in sorted(names - {source.name}):
            self._strike(trap, name)
        self.world.crash(source, silent=False)
        self._restart(trap, source.name)
        return True

    def _strike(self, trap: Trap, name: str) -> None:
        """Kill a process as soon as it has what was sent to it."""
        process = self.world.processes[name]
        latest_us = max((link.last_us[process.me] for link in self._open_to(process)), default=0)
        self.world.at(max(latest_us, self.world.now_us) + 1, self._crash, process)
        self._restart(trap, name)

    def _crash(self, process: Process) -> None:
        """End a process as a part of a fault; none happens once the faults are over."""
        if not self.world.calm:
            self.world.crash(process, silent=False)

    def _open_to(self, process: Process) -> list[Connection]:
        return [link for ends, link in self._open.items() if process.me in ends]

    def _restart(self, trap: Trap, name: str) -> None:
        if trap.restart_ms is not None:
            at_us = self.world.now_us + 30_000 + trap.restart_ms * 1000
            self.world.at(at_us, self.world.restart, name)

    def _keep_all_apart(self, names: set[str], is_apart: bool) -> None:
        if not self.world.calm:
            for one in sorted(names):
                for other in self.world.plan.names:
                    if other not in names:
                        self.keep_apart(one, other, is_apart)
