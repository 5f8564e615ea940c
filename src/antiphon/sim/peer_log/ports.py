"""What a simulated process is to the driver of its channel, and to its log."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import TYPE_CHECKING, TypeVar

from antiphon.formats.frames import Body
from antiphon.formats.peer_wire import Refused
from antiphon.model.peer_views import MemberId
from antiphon.peers.channel.conversation import Conversation
from antiphon.sim.violations import ViolationError

if TYPE_CHECKING:
    from antiphon.sim.peer_log.process import LogProcess

Result = TypeVar("Result")

WALL_MS = 1_700_000_000_000
SKEW_MS = 3_600_000
"""Wall clocks differ by up to so much."""


class Alarm:
    """One timer of a process: the time that was set last counts."""

    def __init__(self, process: LogProcess, call: Callable[[], None]) -> None:
        self._process = process
        self._call = call
        self._at_us = -1

    def set(self, at_us: int) -> None:
        world = self._process.world
        self._at_us = max(at_us, world.now_us)
        world.at(self._at_us, self._ring, self._at_us)

    def _ring(self, at_us: int) -> None:
        if at_us == self._at_us:
            self._at_us = -1
            self._process.input(self._call)


class ChannelPort:
    """Is `peers/channel/driver.py: Port`."""

    def __init__(self, process: LogProcess) -> None:
        self._process = process
        self._alarm = Alarm(process, process.tick)

    def wake(self) -> None:
        process = self._process
        process.later(0, lambda: process.driver.pump(process.world.now_ms))

    def transmit(self, to: Sequence[MemberId], head: bytes, body: Body) -> None:
        process = self._process
        for target in to:
            if process.alive:  # a trap may kill it while it sends
                process.world.network.transmit(process, target, head + bytes(body))

    def flush(self) -> None:
        """All has left."""

    def dial(self, address: str) -> None:
        self._process.world.network.dial(self._process, address, again=False)

    def refuse(self, process: MemberId, refused: Refused) -> None:
        if (link := self._process.links.get(process)) is not None:
            self._process.world.network.break_(link)

    def set_timer(self, due_ms: int, now_ms: int) -> None:
        self._alarm.set(due_ms * 1000)

    def over(self) -> None:
        if self._process.alive:
            self._process.world.leaves(self._process)


class LogPort:
    """Is `peers/log/log.py: Port`."""

    def __init__(self, process: LogProcess, chance: Random) -> None:
        self._process = process
        self._clock_ms = chance.randrange(1 << 30)
        self._wall_ms = WALL_MS + chance.randint(-SKEW_MS, SKEW_MS)
        self._alarm = Alarm(process, lambda: process.log.tick())

    def now_ms(self) -> int:
        return self._process.world.now_ms + self._clock_ms

    def wall_ms(self) -> int:
        return self._process.world.now_ms + self._wall_ms

    def do(self, what: Callable[[Conversation], Result]) -> Result:
        return self._process.driver.do(what)

    def is_primary(self) -> bool:
        return self._process.running.formed.primary

    def turn_soon(self) -> None:
        self._process.later(0, self._process.log.settle)

    def soon(self, call: Callable[[], None]) -> None:
        self._process.later(0, call)

    def later(self, wait_s: float, call: Callable[[], None]) -> None:
        self._process.later(int(wait_s * 1e6), call)

    def set_timer(self, due_ms: int) -> None:
        self._alarm.set((due_ms - self._clock_ms) * 1000)

    def failed(self, error: Exception) -> None:
        self._process.log.close()
        if not (self._process.leaving or self._process.conversation.over):
            raise ViolationError(f"{self._process.me} has failed: {error!r}")

    def impaired(self, reason: str) -> None:
        raise ViolationError(f"{self._process.me} has no room: {reason}")

    def recovered(self) -> None:
        """There was room all the time."""
