"""A simulated client: one pack after the other, resent to any server until it is acknowledged."""

from __future__ import annotations

from typing import TYPE_CHECKING

from antiphon.formats import pack
from antiphon.sim.cluster.alarm_machine import ALARM
from antiphon.sim.cluster.observer import Message
from antiphon.sim.plan import LARGE_BYTES
from antiphon.sim.seeds import stream

if TYPE_CHECKING:
    from antiphon.sim.cluster.world import World

RETRY_US = 400_000


class SimClient:
    """A client of the log alone: proposes, asks again, and reads."""

    lives = 1  # these do not die

    def __init__(self, world: World, number: int) -> None:
        self.world = world
        self.number = number
        self.session = number
        self.sequence = 1  # of the pack that waits
        self.done = 0
        self.operations = world.plan.operations
        self._random = stream(world.seed, "client", number)
        self._pack = b""
        self._next_sequence = 1

    @property
    def finished(self) -> bool:
        return self.done >= self.operations

    def begin(self) -> None:
        if self.finished:
            return
        count = self._random.randrange(1, 4)
        destination = ALARM if self._random.random() < 0.1 else f"orders.{self.number}"
        body = bytes(self._random.randrange(5, 120))
        if self.world.plan.large and self._random.random() < self.world.plan.large:
            body = bytes(LARGE_BYTES)
        self.sequence = self._next_sequence
        self._next_sequence += count
        self._pack = pack.encode(destination, count, body, self.session, self.sequence)
        self.world.observer.sends(self, Message(self.session, self.sequence))
        self.attempt(self.done)

    def attempt(self, operation: int) -> None:
        """Send the pack, and check later whether it was accepted."""
        if operation != self.done or self.finished or not self.sequence:
            return
        server = self.world.some_server(self._random)
        if server is not None:
            self.world.client_sends(self, server, self._pack)
        self.world.at(RETRY_US + self._random.randrange(RETRY_US), self.attempt, operation)

    def acknowledged(self, sequence: int) -> None:
        if sequence == self.sequence and not self.finished:
            self.world.oracle.acknowledge(self.session, sequence)
            self.world.observer.sent(self, Message(self.session, self.sequence))
            self.done += 1
            self.sequence = 0  # no pack waits until the next one
            pause = self._random.choice((100, 10_000, 200_000))
            self.world.at(pause, self.begin)
