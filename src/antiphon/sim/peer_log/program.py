"""A program on a simulated log: it proposes, reads, and sends to single others."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from antiphon.formats import pack
from antiphon.formats.server_messages import Relay
from antiphon.log.effects import Applied, Decided, ReadReady, Rejected
from antiphon.sim.cluster.alarm_machine import ALARM
from antiphon.sim.violations import ViolationError

if TYPE_CHECKING:
    from antiphon.sim.peer_log.process import LogProcess

OWED_MAX = 20
"""A program proposes nothing more while so many packs are not in the log."""


class Program:
    """Is `Above` to the log of its process."""

    waiting = False
    """Nobody reads the journal here."""

    def __init__(self, process: LogProcess, chance: Random) -> None:
        self.unanswered: dict[int, int] = {}  # reads: the last entry anybody had when they began
        self.owed: dict[int, bytes] = {}  # packs by sequence: proposed, and not seen in the log
        self._process = process
        self._chance = chance
        self._reign: tuple[int, int] | None = None
        self._fresh: list[bytes] = []
        self._sent = self._reads = 0

    def act(self) -> None:
        """Do one thing."""
        process, chance = self._process, self._chance
        log, me = process.log, process.me
        what = chance.random()
        if what < 0.15:
            self._reads += 1
            self.unanswered[self._reads] = len(process.world.oracle.entries)
            log.read(self._reads)
        elif what < 0.3 and log.members:
            other = chance.choice(log.members)
            log.relay(other.incarnation, Relay(other.incarnation, me.incarnation, b"r"))
        elif len(self.owed) < OWED_MAX:
            self._sent += 1
            destination = ALARM if chance.random() < 0.2 else "topic:t"
            body = b"." * chance.choice((0, 10, 2_000))
            one = pack.encode(destination, 1, body, me.incarnation, self._sent)
            self.owed[self._sent] = one
            self._fresh.append(one)
        log.settle_soon()

    def ask_again(self) -> None:
        """Ask for all that was not answered, as `Clients.sweep` does."""
        for request in self.unanswered:
            self._process.log.read(request)

    def propose(self) -> None:
        """Propose what is new; under a new reign all again, as a home does."""
        log = self._process.log
        if log.reign is not None and log.reign != self._reign:
            self._fresh = list(self.owed.values())
        self._reign = log.reign
        if log.reign is not None and self._fresh:
            fresh, self._fresh = tuple(self._fresh), []
            log.propose(fresh)

    def deliver(self) -> None: ...
    def applied(self, effect: Applied) -> None:
        process = self._process
        process.world.oracle.took(process.me, effect, process.world.now_ms)
        self._forget_done()

    def restored(self) -> None:
        process, log = self._process, self._process.log
        process.world.oracle.restored(process.me, log.index, log.machine.digest)
        process.world.note(process, f"takes over the state at {log.index}")
        self._forget_done()

    def _forget_done(self) -> None:
        last = self._process.machine.last_sequence(self._process.me.incarnation)
        self.owed = {sequence: one for sequence, one in self.owed.items() if sequence > last}

    def read_ready(self, effect: ReadReady) -> None:
        asked_at = self.unanswered.pop(effect.request, None)
        if asked_at is not None:
            self._process.world.oracle.read(self._process.me, effect.index, asked_at)

    def relayed(self, message: Relay) -> None:
        if message.session != self._process.me.incarnation:
            raise ViolationError(f"{self._process} gets what was for {message.session}")
        self._process.world.oracle.relays += 1

    def rejected(self, effect: Rejected) -> None: ...
    def decided(self, effect: Decided) -> None: ...
    def stored(self, batch: int) -> None: ...
    def tick(self, now_ms: int) -> None: ...
    def next_deadline_ms(self) -> int | None:
        return None
