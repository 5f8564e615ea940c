"""A simulated program's connection to the servers: the driver that ships, on simulated links.

It does the work of `api/connection.py`: it gives the driver (`api/protocol/driver.py: Port`) links,
a timer and a clock, and decides nothing. Where an event loop calls the driver in a later turn, the
program does so before its turn ends (`step`).
"""

from __future__ import annotations

from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING

from antiphon.api.protocol.conversation import Conversation
from antiphon.api.protocol.driver import ClientDriver
from antiphon.errors import JMSError
from antiphon.sim.cluster.client_links import SimLink
from antiphon.sim.violations import ViolationError

if TYPE_CHECKING:
    from antiphon.sim.programs.program import SimProgram

MS = 1000


class SimConnection:
    """The connection of one life of a simulated program. Once it is `dead`, no input reaches the
    driver any more."""

    def __init__(self, program: SimProgram, conversation: Conversation) -> None:
        self.driver = ClientDriver(conversation, OneAtATime(), self)
        self.dead = False
        self._program = program
        self._world = program.world
        self._pump_asked = False
        self._timer_us: int | None = None

    @property
    def link(self) -> SimLink | None:
        """The present link."""
        link = self.driver.link
        assert link is None or isinstance(link, SimLink)
        return link

    def step(self) -> None:
        """Pump the driver until it has no more to do."""
        self.driver.wake()
        while self._pump_asked and not self.dead:
            self._pump_asked = False
            while self.driver.pump(self._now_ms()) and not self.dead:
                pass

    def die(self, silently: bool) -> None:
        """End the program's life; `silently`: its server does not learn of it."""
        self.dead = True
        link = self.link
        if link is not None and silently:
            link.die()
        elif link is not None:
            link.close()

    # -- Called by links -----------------------------------------------------------------------

    def received(self, link: SimLink, body: bytes) -> None:
        """Take a body that a server sent over this link."""
        if not self.dead:
            self.driver.arrived(link.attempt, [body], self._now_ms())
            self.step()

    def link_lost(self, link: SimLink) -> None:
        """Take the end of this link."""
        if not self.dead:
            error = ConnectionError("the connection was lost")
            self.driver.link_ended(link.attempt, error, self._now_ms())
            self.step()

    def _dialled(self, attempt: int, link: SimLink | None) -> None:
        if self.dead:
            if link is not None:
                link.close()
            return
        if link is None:
            error = ConnectionError("nobody is there")
            self.driver.dial_failed(attempt, error, self._now_ms())
        else:
            link.attempt = attempt
            self.driver.connected(attempt, link, self._now_ms())
        self.step()

    # -- The driver's port ---------------------------------------------------------------------

    def wake(self) -> None:
        """Have the driver pumped when the program's turn ends."""
        self._pump_asked = True

    def dial(self, attempt: int, address: str) -> str:
        """Begin to connect; the world chooses a server if there is no address."""
        self._world.dial(self._program, partial(self._dialled, attempt), address)
        return ""

    def stop_dialling(self) -> None:
        """Do nothing: the driver closes the link if the attempt succeeds."""

    def set_timer(self, due_ms: int, now_ms: int) -> None:
        """Have `_tick` called at `due_ms`, and a millisecond from now at the earliest."""
        due_us = max(self._world.now_us + MS, due_ms * MS)
        self._timer_us = due_us
        self._world.at(due_us - self._world.now_us, self._tick, due_us)

    def cancel_timer(self) -> None:
        """Let the next timer pass."""
        self._timer_us = None

    def _tick(self, due_us: int) -> None:
        if self.dead or self._timer_us != due_us:
            return
        wait_us = self._program.paused_until_us - self._world.now_us
        if wait_us > 0:
            self._timer_us = self._program.paused_until_us
            self._world.at(wait_us, self._tick, self._timer_us)
            return
        self._timer_us = None
        self.driver.timer_fired(self._now_ms())
        self.step()

    def over(self, error: JMSError | None) -> None:
        """Take the end of the session."""
        self._program.over(error)

    def complain(self, error: JMSError) -> None:
        """Raise `ViolationError`: a simulated program reads each error that it gets, so none is
        left for here."""
        if not self.dead:
            raise ViolationError(f"{self._program.name} was not told: {error}")

    def note(self, text: str) -> None:
        """Do nothing: the story has it already."""

    def _now_ms(self) -> int:
        return self._world.now_us // MS


class OneAtATime:
    """The driver's lock, which raises for a second caller: that one would wait forever, for the
    driver has called it under the lock."""

    def __init__(self) -> None:
        self._held = False

    def __enter__(self) -> None:
        if self._held:
            raise ViolationError("the driver calls others under its lock")
        self._held = True

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._held = False
