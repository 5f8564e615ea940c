"""One life of a simulated process: its running stack, its connections, and its program."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from antiphon.model.peer_views import Level, MemberId, PeerView
from antiphon.peers.layers.layer import Dial
from antiphon.peers.membership.membership import Left, Membership
from antiphon.peers.membership.phases import Phase
from antiphon.peers.stack.running import Delivered, Output, Running, Shown, Transmit
from antiphon.peers.whiteboard.whiteboard import Numbers, Whiteboard
from antiphon.sim.peers.stacks import Receipts
from antiphon.sim.seeds import stream

if TYPE_CHECKING:
    from antiphon.sim.peers.network import Connection
    from antiphon.sim.peers.world import World

WAITING_MAX = 20
"""A program stops sending while this many of its sends wait."""


class Process:
    """One life. Whatever happens to it comes through `input`: later, while it is paused, and not at
    all once it is dead."""

    def __init__(self, world: World, name: str, life: int) -> None:
        seed = world.plan.seed
        self.world = world
        self.name = name
        self.me = MemberId(name, 1 + stream(seed, "life", name, life).getrandbits(24))
        self.alive = True
        self.paused = False
        self.leaving = False
        self.links: dict[MemberId, Connection] = {}
        self.sent = 0
        self.written = 0
        self.numbers: Mapping[MemberId, int] = {}  # on the whiteboard, as its program reads them
        self._inputs: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        self._tick_us: int | None = None
        self._chance = stream(seed, "program", name, life)
        self.running = Running(
            world.stack, self.me, lambda layer: stream(seed, name, life, layer), world.now_ms
        )
        for layer in self.running.layers:
            if isinstance(layer, Receipts):
                layer.take = self._received_body
            elif isinstance(layer, Membership):
                self._membership = layer
            elif isinstance(layer, Whiteboard):
                self._whiteboard = layer

    def __str__(self) -> str:
        return self.name

    @property
    def formed(self) -> PeerView:
        """The last view that was formed with this process; it may be hidden."""
        return self._membership.formed

    @property
    def is_settled(self) -> bool:
        """Whether it is in a view, and has nothing more to say; or waits for a primary view."""
        if self.world.plan.hides and not self.formed.primary:
            return bool(self._membership.status()["phase"] == Phase.WAITING.value)
        return not self.running.frozen and not self.running.waiting

    # -- Inputs --------------------------------------------------------------------------------

    def input(self, method: Callable[..., None], *arguments: Any) -> None:
        """Give this process an input, and carry out what it answers."""
        if not self.alive:
            return
        if self.paused:
            self._inputs.append((method, arguments))
            return
        method(*arguments)
        self.carry_out()

    def pause(self) -> None:
        self.paused = True

    def wake(self, time_first: bool) -> None:
        """Go on, with all that has come meanwhile. `time_first`: the timer comes before it."""
        if not self.paused:
            return
        self.paused = False
        inputs, self._inputs = self._inputs, []
        inputs.insert(0 if time_first else len(inputs), (self.tick, ()))
        for method, arguments in inputs:
            self.input(method, *arguments)

    def received(self, link: Connection, sender: MemberId, data: bytes) -> None:
        """A frame has come over a connection."""
        if self.links.get(sender) is link:
            self.running.received(sender, data, self.world.now_ms)

    def late(self, sender: MemberId, data: bytes) -> None:
        """A copy of a frame has come, some time after it."""
        if sender in self.links:
            self.world.touched(self)
            self.running.received(sender, data, self.world.now_ms)

    def joined(self, link: Connection, other: Process) -> None:
        """A connection is open; an older one, of which this end does not know yet that it is
        broken, is forgotten without a word."""
        if link.broken:
            self.world.network.redial(self, other.name)
            return
        older = self.links.get(other.me)
        self.links[other.me] = link
        if older is None:
            self.world.touched(self)
            self.running.linked(other.me, other.name, self.world.now_ms)

    def lost(self, link: Connection, other: MemberId, goodbye: bool) -> None:
        """A connection is gone."""
        if self.links.get(other) is link:
            del self.links[other]
            self.world.touched(self)
            self.running.unlinked(other, goodbye, self.world.now_ms)
            self.world.network.redial(self, other.name)

    def welcomes(self, other: MemberId) -> bool:
        """Whether it accepts a connection, as `ChannelDriver.welcome` says it."""
        return all(member.name != other.name or member == other for member in self.formed.members)

    def tick(self) -> None:
        self._tick_us = None
        self.running.tick(self.world.now_ms)

    def _tick_at(self, at_us: int) -> None:
        if at_us == self._tick_us:
            self.input(self.tick)

    def found(self) -> None:
        self.running.found(self.world.now_ms)

    def leave(self) -> None:
        if self.world.calm:
            return
        self.leaving = True
        self.world.judge.leavers.add(self.me)
        self.running.leave(self.world.now_ms)

    def behind(self, is_behind: bool) -> None:
        self.running.behind(is_behind, self.world.now_ms)

    # -- The program ---------------------------------------------------------------------------

    def send_now_and_then(self) -> None:
        """Send something, and come back."""
        plan = self.world.plan
        if not self.alive or not plan.sends_ms or self.world.calm:
            return
        if not self.paused and not self.leaving and self.running.waiting < WAITING_MAX:
            self.input(self.send)
            if plan.layers.whiteboard:
                self.input(self.write)
        pause_us = 1 + int(self._chance.expovariate(1 / plan.sends_ms) * 1000)
        self.world.at(self.world.now_us + pause_us, self.send_now_and_then)

    def send(self) -> None:
        """Send a message to all, or to some."""
        plan, chance = self.world.plan, self._chance
        level = Level(chance.choice(plan.levels))
        to = None
        if plan.some and chance.random() < plan.some:
            members = self.running.view.members
            to = tuple(chance.sample(members, chance.randint(1, len(members))))
        self.sent += 1
        padding = b"." * chance.randint(0, plan.padding) if plan.padding else b""
        body = b"%s %d %d %s" % (self.name.encode(), self.me.incarnation, self.sent, padding)
        self.world.judge.sends(self, self.sent, level, to)
        self.running.send(body, self.world.now_ms, to, level)

    def write(self) -> None:
        """Write the next number on the whiteboard."""
        self.written += 1
        now_ms = self.world.now_ms
        self.running.act(self._whiteboard, self._whiteboard.write(self.written, now_ms), now_ms)

    def _read(self, numbers: Mapping[MemberId, int]) -> None:
        self.world.judge.reads(self, numbers)
        self.numbers = numbers

    def _received_body(self, body: bytes) -> None:
        self.world.judge.received(self, *message(body))

    # -- Outputs -------------------------------------------------------------------------------

    def carry_out(self) -> None:
        """Carry out what the stack wants, and look when it is due next."""
        for output in self.running.take():
            if not self.alive:
                return
            self._carry_out(output)
        if self.alive:
            self._look_at_clock()

    def _carry_out(self, output: Output) -> None:
        world = self.world
        match output:
            case Transmit():
                data = output.data
                for target in output.to:
                    if self.alive:  # a trap may kill it while it sends
                        world.network.transmit(self, target, data)
            case Delivered():
                world.judge.delivered(self, output, *message(bytes(output.body)))
            case Shown(view):
                world.note(self, f"shows {view}")
                world.judge.shown(self, output)
            case Numbers(numbers):
                self._read(numbers)
            case Dial(address):
                world.network.dial(self, address, again=False)
            case Left():
                world.leaves(self)

    def _look_at_clock(self) -> None:
        due_ms = self.running.next_deadline_ms()
        if due_ms is not None:
            due_us = max(due_ms * 1000, self.world.now_us)
            if self._tick_us is None or due_us < self._tick_us:
                self._tick_us = due_us
                self.world.at(due_us, self._tick_at, due_us)


def message(body: bytes) -> tuple[MemberId, int]:
    """Return whose message a body is, and its number."""
    name, incarnation, number, _ = body.split(b" ", 3)
    return MemberId(name.decode(), int(incarnation)), int(number)
