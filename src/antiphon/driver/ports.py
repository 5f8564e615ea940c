"""The two sides of the log's driver: the process around it, and the layer above the log."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from antiphon.formats.entry import ReplicaId, SnapshotMeta
from antiphon.formats.server_messages import Message, Relay
from antiphon.log.effects import Applied, Decided, ReadReady, Rejected

Done = Callable[[Exception | None], None]


class Port(Protocol):
    """The process around the driver, as the driver needs it. No method may call the driver back
    before it returns."""

    def now_ms(self) -> int:
        """Return the monotonic clock's time."""

    def send(self, to: ReplicaId, message: Message) -> None:
        """Hand a message to the network, which may lose it."""

    def sync(self, names: tuple[str, ...], done: Done) -> None:
        """Sync these files, then call `done`, with the error if it failed."""

    def soon(self, call: Callable[..., None], *args: Any) -> None:
        """Make this call in a later turn."""

    def later(self, wait_s: float, call: Callable[..., None], *args: Any) -> None:
        """Make this call after `wait_s` seconds."""

    def set_timer(self, due_ms: int) -> None:
        """Call `LogDriver.tick` at `due_ms`; this replaces the timer that was set before."""

    def turn_soon(self) -> None:
        """Call `LogDriver.settle` when the inputs of this turn are in."""

    def failed(self, error: Exception) -> None:
        """The server must end: only a restart knows what is really on the disk."""

    # For operators, and for the judges of a simulated server:

    def impaired(self, reason: str) -> None:
        """There is no room on the disk."""

    def recovered(self) -> None:
        """There is room again."""

    def no_room_for_snapshot(self, reason: str) -> None:
        """There is no room for a snapshot; the server goes on without it."""

    def snapshot_stored(self, meta: SnapshotMeta) -> None: ...
    def installed(self, meta: SnapshotMeta) -> None:
        """The state machine was restored from the leader's snapshot."""


class Above(Protocol):
    """The layer above the log: the clients of this server."""

    @property
    def waiting(self) -> bool:
        """Whether a client needs the journal's rows now."""

    def propose(self) -> None:
        """Propose the requests that came in; collected records are written after that."""

    def deliver(self) -> None:
        """Hand out new messages: the journal has the rows of all accepted packs."""

    def applied(self, effect: Applied) -> None: ...
    def rejected(self, effect: Rejected) -> None: ...
    def read_ready(self, effect: ReadReady) -> None: ...
    def decided(self, effect: Decided) -> None: ...
    def relayed(self, message: Relay) -> None: ...
    def stored(self, batch: int) -> None:
        """Note that a record of this server alone (`LogDriver.store`) is on its disk."""

    def restored(self) -> None:
        """Note that the state machine was restored from a snapshot, and has jumped ahead."""

    def tick(self, now_ms: int) -> None: ...
    def next_deadline_ms(self) -> int | None: ...
