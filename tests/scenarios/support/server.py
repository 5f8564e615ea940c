"""One server of a scenario: a pure node, a real journal, and a disk that forgets what it may."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from random import Random

from antiphon.formats.entry import (
    ClusterMember,
    Entry,
    Kind,
    Membership,
    ReplicaId,
    encode_membership,
)
from antiphon.formats.journal import Promise
from antiphon.journal.opening import open_journal
from antiphon.log.effects import Tail
from antiphon.log.node import Node
from antiphon.log.recovered import Recovered
from antiphon.log.replica import FOUNDING_EPOCH
from antiphon.log.roles.transitions import Role
from antiphon.log.settings import Settings
from antiphon.sim.cluster.alarm_machine import AlarmMachine
from antiphon.sim.cluster.disk import SimDisk
from tests.scenarios.support.tell import tell_id


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


class Server:
    """One server: a disk, and while it is up a journal and a node."""

    def __init__(
        self, number: int, listed: Iterable[int], settings: Settings, segment_bytes: int
    ) -> None:
        self.number = number
        self.listed = {n: address_of(n) for n in sorted({*listed, number})}
        self.up = False
        self.disk = SimDisk(Draws(), settings.volatile)
        self.wall_offset_ms = 0
        self.chores: list[Iterator[tuple[str, ...]]] = []
        self._settings = settings
        self._segment_bytes = segment_bytes
        self._incarnations = 0

    @property
    def name(self) -> str:
        return tell_id(self.node.replica.id)

    def new_incarnation(self) -> int:
        self._incarnations += 1
        return self._incarnations

    def start(self, draws: Random, now_ms: int) -> Recovered:
        self.journal, recovered = open_journal(
            self.disk,
            self.new_incarnation,
            alone=len(self.listed) == 1,
            segment_bytes=self._segment_bytes,
        )
        machine = AlarmMachine(retain=0)
        if recovered.snapshot is not None:
            machine.restore(self.journal.read_snapshot()[1])
        self.chores = []
        self.node = Node(
            self.number, self.listed, recovered, machine, self._settings, draws, now_ms
        )
        self.node.set_wall_offset(self.wall_offset_ms)
        self.up = True
        return recovered

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
        self.sync()

    def sync(self) -> list[Tail]:
        """All that was written is on disk now."""
        job = self.journal.begin_sync()
        if job is None:
            return []
        for name in job.names:
            self.disk.sync(name)
        return self.journal.end_sync(job)

    def standing(self) -> tuple[Role, int, ReplicaId | None]:
        replica = self.node.replica
        return replica.role, replica.epoch, replica.leader_id
