"""The driver of one server: its log, the clients on it, and what concerns both.

Promises: a server whose cluster keeps its contexts otherwise than this server was told to does not
start, and one that learns it later ends; what nobody has answered is asked again now and then.

An orderly end (`ServerDriver.end`) has steps, each of which takes a bounded time:

    SERVES -> LETS_GO     with local contexts: clients are cut off, and the log gets what this
                          server alone knows of them, so that they can go on elsewhere
           -> HANDS_OVER  a leader hands leadership to a voter that has the whole log
           -> ENDED       nothing is carried out any more; all clients are cut off; the journal
                          notes how far it is synced

Needs: an opened log and its port; a `Desk` for the clients. The port calls `turn` once after the
inputs of each turn (its `turn_soon`), and then not `LogDriver.settle`.
"""

from __future__ import annotations

import enum
from collections.abc import Callable

from antiphon.broker.home.effects import Effect
from antiphon.broker.home.local_acks import OwnJournal
from antiphon.broker.home.settings import HomeSettings
from antiphon.broker.machine.machine import Broker
from antiphon.broker.machine.sessions.servers import LOCAL
from antiphon.driver.assembly import OpenLog, clients_on
from antiphon.driver.clients import Clients, Desk
from antiphon.driver.ports import Port
from antiphon.errors import IllegalStateError

SWEEP_S = 0.25
"""How often unanswered questions are looked at."""

LET_GO_S = 2.0
"""Seconds that an orderly end waits until the log has the acknowledgements that only this server
knew."""


class Step(enum.Enum):
    """How far a server is on its way to its end."""

    SERVES = enum.auto()
    LETS_GO = enum.auto()
    HANDS_OVER = enum.auto()
    ENDED = enum.auto()


class ServerDriver:
    """One server with clients; `start` lets it take part."""

    def __init__(
        self,
        opened: OpenLog,
        broker: Broker,
        port: Port,
        desk: Desk,
        life: int,
        settings: HomeSettings,
        contexts: str,
        *,
        watch: Callable[[Effect], None] | None = None,
        kind: type[Clients] = Clients,
    ) -> None:
        """`broker`: the machine of the log. `life`: a number that no other life of a server draws.
        `contexts`: where acknowledgements of topics are kept, REPLICATED or LOCAL; raises
        `IllegalStateError` if the cluster does it otherwise. `watch`, `kind`: as in
        `clients_on`."""
        journal, recovered, node, self.log = opened
        self._broker = broker
        self._port = port
        self._contexts = contexts
        self._step = Step.SERVES
        self._ended: Callable[[], None] = _nothing
        self._check_contexts()
        own = OwnJournal(recovered.incarnation, journal.opening, journal.found_local)
        self.clients = clients_on(
            self.log,
            journal,
            broker,
            desk,
            node.replica.id.node,
            life,
            settings,
            own if contexts == LOCAL else None,
            watch=watch,
            kind=kind,
        )

    def start(self) -> None:
        """Begin to take part."""
        self._sweep_later()
        self.log.start(self.clients)

    def turn(self) -> None:
        """Carry out what the inputs of one turn lead to."""
        self._check_contexts()
        self.log.settle()
        if self._step is not Step.SERVES:
            self._go_on()

    def _check_contexts(self) -> None:
        known = self._broker.servers.contexts
        if known not in ("", self._contexts):
            raise IllegalStateError(
                f"this server was started with contexts = {self._contexts}, and its cluster has "
                f"contexts = {known}, which cannot be changed. Start it like the others"
            )

    def _sweep(self) -> None:
        if not self.log.closed:
            self.clients.sweep()
            self._sweep_later()

    def _sweep_later(self) -> None:
        self._port.later(SWEEP_S, self._sweep)

    # -- The end -------------------------------------------------------------------------------

    def end(self, ended: Callable[[], None]) -> None:
        """Begin to end in order. Call `ended` when all is done."""
        self._ended = ended
        if self._contexts == LOCAL:
            self._step = Step.LETS_GO
            self.clients.let_go()
            self._port.later(LET_GO_S, self._hand_over)
        else:
            self._hand_over()

    def _go_on(self) -> None:
        if self._step is Step.LETS_GO and self.clients.home.has_let_go:
            self._hand_over()
        elif self._step is Step.HANDS_OVER and not self.log.hands_over:
            self.close()

    def _hand_over(self) -> None:
        """Hand over, all clients let go or not."""
        if self._step in (Step.SERVES, Step.LETS_GO):
            self._step = Step.HANDS_OVER
            self.log.hand_over()
            self._go_on()

    def close(self) -> None:
        """End at once, as a server does that has failed."""
        if self._step is not Step.ENDED:
            self._step = Step.ENDED
            self.log.close(self._ended)
            self.clients.close()


def _nothing() -> None:
    pass
