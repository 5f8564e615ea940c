"""One server of a scenario: the driver that ships, a real journal, a disk that forgets what it may.

The port of the driver does nothing by itself: a command (`cluster.py`) says when.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from random import Random
from typing import Any, Protocol

from antiphon.driver.assembly import open_log
from antiphon.driver.log import DEFER_S, RETRY_S, LogDriver
from antiphon.driver.ports import Done
from antiphon.formats.entry import (
    ClusterMember,
    Entry,
    Kind,
    Membership,
    ReplicaId,
    SnapshotMeta,
    encode_membership,
)
from antiphon.formats.journal import Promise
from antiphon.formats.server_messages import Message
from antiphon.journal.opening import open_journal
from antiphon.log.effects import Effect, Tail
from antiphon.log.recovered import Recovered
from antiphon.log.replica import FOUNDING_EPOCH
from antiphon.log.roles.transitions import Role
from antiphon.log.settings import Settings
from antiphon.sim.cluster.alarm_machine import AlarmMachine
from antiphon.sim.cluster.disk import SimDisk
from antiphon.sim.cluster.server import Nobody
from tests.scenarios.support.wording import tell_id


def address_of(number: int) -> str:
    return f"host-{number}"


class Draws(Random):
    """Chance without surprise: the least wait, the worst crash, and nonces that count up."""

    def __init__(self) -> None:
        super().__init__(0)
        self._bits = 0

    def randrange(self, start: int, stop: int | None = None, step: int = 1) -> int:
        return 0 if stop is None else start

    def choice(self, seq: Sequence[float]) -> float:
        return seq[0]

    def getrandbits(self, k: int, /) -> int:
        self._bits += 1
        return self._bits - 1


class Control(Protocol):
    """Who decides what happens, and tells it."""

    now_ms: int

    def sent(self, server: Server, to: ReplicaId, message: Message) -> None: ...
    def carries_out(self, server: Server, effect: Effect | Tail) -> None: ...
    def has_decided(self, server: Server) -> None:
        """Its node has; what it asks for is carried out after that."""

    def tell(self, sentence: str) -> None: ...


class ToldDriver(LogDriver):
    control: Control
    server: Server

    def carry_out(self, effects: list[Effect]) -> None:
        self.control.has_decided(self.server)
        super().carry_out(effects)


class Server:
    """One server: a disk, and while it is up a journal and a node."""

    def __init__(
        self,
        control: Control,
        number: int,
        listed: Iterable[int],
        settings: Settings,
        segment_bytes: int,
    ) -> None:
        self._control = control
        self.number = number
        self.listed = {n: address_of(n) for n in sorted({*listed, number})}
        self.up = False
        self.disk = SimDisk(Draws(), settings.volatile)
        self.wall_offset_ms = 0
        self._settings = settings
        self._segment_bytes = segment_bytes
        self._incarnations = 0

    @property
    def name(self) -> str:
        return tell_id(self.node.replica.id)

    def new_incarnation(self) -> int:
        self._incarnations += 1
        return self._incarnations

    def start(self, draws: Random) -> Recovered:
        opened = open_log(
            self.number,
            self.listed,
            self.disk,
            AlarmMachine(retain=0),
            self._settings,
            self,
            self.new_incarnation,
            draws,
            segment_bytes=self._segment_bytes,
            watch=partial(self._control.carries_out, self),
            kind=ToldDriver,
        )
        self.journal, recovered, self.node, self.log = opened
        assert isinstance(self.log, ToldDriver)
        self.log.control, self.log.server = self._control, self
        self.node.set_wall_offset(self.wall_offset_ms)
        self.up = True
        self.told = self.standing()
        self.told_members = self.node.replica.memberships.current
        self._turn_due = False
        self._soon: list[Callable[[], None]] = []
        self._later: list[tuple[float, Callable[[], None]]] = []
        self._syncs: list[tuple[tuple[str, ...], Done]] = []
        self.do(self.log.start, Nobody())
        return recovered

    # -- What commands have it do --------------------------------------------------------------

    def do(self, call: Callable[..., None], *args: Any) -> None:
        """Make an input, and all turns that come of it."""
        call(*args)
        while self._turn_due or self._soon:
            if self._turn_due:
                self._turn_due = False
                self.log.settle()
            else:
                self._soon.pop(0)()

    def tick(self) -> None:
        self.log.tick()
        if self.log.reads_first:
            self.log.tick()

    def synced(self) -> None:
        """The disk has all that was written, a memory journal is written, and a snapshot that is
        being stored is stored."""
        self._pass(DEFER_S)
        # A sync covers what was written before it began. The next one begins when it ends, and
        # then all is synced that was written by now; more is only in a later turn.
        while self._syncs:
            self._sync(self._syncs.pop(0))
        self.do(lambda: None)
        while steps := [sync for sync in self._syncs if sync[1] == self.log._step]:
            self._syncs.remove(steps[0])
            self.do(self._sync, steps[0])

    def _sync(self, sync: tuple[tuple[str, ...], Done]) -> None:
        names, done = sync
        for name in names:
            self.disk.sync(name)
        done(None)

    def has_room(self) -> None:
        self._pass(RETRY_S)

    def _pass(self, wait_s: float) -> None:
        """So much time."""
        due = [call for later_s, call in self._later if later_s == wait_s]
        self._later = [waits for waits in self._later if waits[0] != wait_s]
        for call in due:
            self.do(call)

    @property
    def busy(self) -> bool:
        return self.journal.unsynced or any(done == self.log._step for _, done in self._syncs)

    # -- What the driver asks for (`driver/log.py: Port`) --------------------------------------

    def now_ms(self) -> int:
        return self._control.now_ms

    def send(self, to: ReplicaId, message: Message) -> None:
        self._control.sent(self, to, message)

    def sync(self, names: tuple[str, ...], done: Done) -> None:
        self._syncs.append((names, done))

    def soon(self, call: Callable[..., None], *args: Any) -> None:
        self._soon.append(partial(call, *args))

    def later(self, wait_s: float, call: Callable[..., None], *args: Any) -> None:
        self._later.append((wait_s, partial(call, *args)))

    def set_timer(self, due_ms: int) -> None:
        """A command decides when it looks at its clock."""

    def turn_soon(self) -> None:
        self._turn_due = True

    def failed(self, error: Exception) -> None:
        raise error

    def impaired(self, reason: str) -> None:
        self._control.tell(f"{self.name} has no room, and takes part in nothing")

    def recovered(self) -> None: ...
    def no_room_for_snapshot(self, reason: str) -> None:
        self._control.tell(f"{self.name} has no room for a snapshot")

    def snapshot_stored(self, meta: SnapshotMeta) -> None:
        base = self.journal.base_index
        self._control.tell(
            f"{self.name} has a snapshot at {meta.index}, its log begins after {base}"
        )

    def installed(self, meta: SnapshotMeta) -> None:
        self._control.tell(f"{self.name} installs the snapshot at {meta.index}")

    # -- Before the scenario -------------------------------------------------------------------

    def write_founding(self, founders: list[Server]) -> None:
        """Be one of a cluster that was founded before the scenario begins."""
        self.listed = {s.number: address_of(s.number) for s in founders}
        self.journal, recovered = open_journal(self.disk, self.new_incarnation)
        members = tuple(
            ClusterMember(s.number, recovered.incarnation, True, address_of(s.number))
            for s in founders
        )
        entry = Entry(
            1, FOUNDING_EPOCH, 0, Kind.MEMBERSHIP, encode_membership(Membership(1, members))
        )
        self.journal.append((Promise(FOUNDING_EPOCH, None), entry), ())
        self.journal.flush()
        job = self.journal.begin_sync()
        if job is not None:
            for name in job.names:
                self.disk.sync(name)
            self.journal.end_sync(job)

    def standing(self) -> tuple[Role, int, ReplicaId | None]:
        replica = self.node.replica
        return replica.role, replica.epoch, replica.leader_id
