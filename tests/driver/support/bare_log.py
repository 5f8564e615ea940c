"""A driver of the log on a port that does nothing by itself: a test makes every turn, ends every
sync and lets all time pass."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

from antiphon.driver.assembly import open_log
from antiphon.driver.log import LogDriver
from antiphon.driver.ports import Done
from antiphon.errors import DiskFullError
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
from antiphon.formats.server_messages import (
    Append,
    Appended,
    Envelope,
    Message,
    RequestVote,
    Vote,
)
from antiphon.journal.disk import RamDisk
from antiphon.journal.opening import open_journal
from antiphon.journal.segments import Record
from antiphon.log.effects import Applied
from antiphon.log.settings import Settings
from antiphon.sim.cluster.alarm_machine import AlarmMachine
from antiphon.sim.cluster.server import Nobody

ME = ReplicaId(1, 11)
LEADER = ReplicaId(2, 12)
OTHER = ReplicaId(3, 13)
FOUNDED = tuple(ClusterMember(i.node, i.incarnation, True, "") for i in (ME, LEADER, OTHER))
EPOCH = 2
"""Of the leader; that of the founding is 1."""


class Disk(RamDisk):
    """It can be full, and counts what is written."""

    def __init__(self, volatile: bool) -> None:
        super().__init__()
        self.volatile = volatile
        self.full = False
        self.batches = 0  # written to the log

    def write(self, name: str, offset: int, *data: bytes) -> None:
        if self.full:
            raise DiskFullError("no room, says the test")
        super().write(name, offset, *data)
        self.batches += name.startswith("seg-") and name.endswith(".log")


class Above(Nobody):
    """Who stands on the log, and remembers what was heard from it."""

    def __init__(self) -> None:
        self.waiting = False
        self.proposals: list[bytes] = []  # to be made in the next turn
        self.log: LogDriver
        self.told: list[object] = []
        self.delivered = 0
        self.due_ms: int | None = None

    def propose(self) -> None:
        packs, self.proposals = self.proposals, []
        if packs:
            self.log.propose((*packs,))

    def deliver(self) -> None:
        self.delivered += 1

    def applied(self, effect: Applied) -> None:
        self.told.append(effect)

    def stored(self, batch: int) -> None:
        self.told.append(batch)

    def restored(self) -> None:
        self.told.append("restored")

    def tick(self, now_ms: int) -> None:
        self.told.append("tick")

    def next_deadline_ms(self) -> int | None:
        return self.due_ms


class Port:
    """Is a `driver/log.py: Port` on which nothing happens by itself."""

    def __init__(self, disk: Disk) -> None:
        self.disk = disk
        self.time_ms = 0
        self.sent: list[Message] = []
        self.syncs: list[tuple[tuple[str, ...], Done]] = []  # that have not ended
        self.turns: list[Callable[[], None]] = []
        self.waits: list[tuple[float, Callable[[], None]]] = []
        self.timers: list[int] = []  # as they were set
        self.settles = 0  # asked for
        self.news: list[str] = []
        self.failure: Exception | None = None

    def turn(self) -> None:
        """Have the driver carry out what the inputs of this turn lead to."""
        raise NotImplementedError

    # -- What a test does ----------------------------------------------------------------------

    def settle(self) -> None:
        """End this turn, and those that it asks for."""
        asked, self.settles = self.settles, 0
        if asked:
            self.turn()
        while self.turns:
            self.turns.pop(0)()
        if self.settles:
            self.settle()

    def end_sync(self, error: Exception | None = None) -> None:
        """The oldest one."""
        names, done = self.syncs.pop(0)
        for name in names:
            self.disk.sync(name)
        done(error)

    def end_all_syncs(self) -> None:
        while self.syncs:
            self.end_sync()
            self.settle()

    def wait(self, wait_s: float) -> int:
        """Make the calls that were asked for after this time; returns how many."""
        due = [call for later_s, call in self.waits if later_s == wait_s]
        self.waits = [waits for waits in self.waits if waits[0] != wait_s]
        for call in due:
            call()
        return len(due)

    # -- The port (`driver/log.py: Port`) ------------------------------------------------------

    def now_ms(self) -> int:
        return self.time_ms

    def send(self, to: ReplicaId, message: Message) -> None:
        self.sent.append(message)

    def sync(self, names: tuple[str, ...], done: Done) -> None:
        self.syncs.append((names, done))

    def soon(self, call: Callable[..., None], *args: Any) -> None:
        self.turns.append(partial(call, *args))

    def later(self, wait_s: float, call: Callable[..., None], *args: Any) -> None:
        self.waits.append((wait_s, partial(call, *args)))

    def set_timer(self, due_ms: int) -> None:
        self.timers.append(due_ms)

    def turn_soon(self) -> None:
        self.settles += 1

    def failed(self, error: Exception) -> None:
        self.failure = error

    def impaired(self, reason: str) -> None:
        self.news.append("impaired")

    def recovered(self) -> None:
        self.news.append("recovered")

    def no_room_for_snapshot(self, reason: str) -> None:
        self.news.append(f"no snapshot: {reason}")

    def snapshot_stored(self, meta: SnapshotMeta) -> None:
        self.news.append(f"snapshot {meta.index}")

    def installed(self, meta: SnapshotMeta) -> None:
        self.news.append(f"installed {meta.index}")


def found(disk: Disk, *records: Record) -> None:
    """Put the founding of the three servers on this disk, and these records."""
    journal, _ = open_journal(disk, lambda: ME.incarnation)
    founding = encode_membership(Membership(1, FOUNDED))
    entry = Entry(1, 1, 0, Kind.MEMBERSHIP, founding)
    journal.append((Promise(1, None), entry, *records), ())
    journal.flush()
    if job := journal.begin_sync():
        journal.end_sync(job)


class BareLog(Port):
    """One of three servers that were founded together; server 2 is the leader it hears of."""

    def __init__(self, volatile: bool = False, **settings: int) -> None:
        super().__init__(Disk(volatile))
        self.above = Above()
        found(self.disk)
        chosen = Settings(volatile=volatile, **settings)
        self.journal, _, self.node, self.log = open_log(
            ME.node,
            {1: "", 2: "", 3: ""},
            self.disk,
            AlarmMachine(),
            chosen,
            self,
            lambda: ME.incarnation,
            Random(1),
            segment_bytes=500,
        )
        self.above.log = self.log
        self.log.start(self.above)
        self.settle()
        self.end_all_syncs()
        self.sent.clear()
        self.disk.batches = 0

    def turn(self) -> None:
        self.log.settle()

    # -- What a test does ----------------------------------------------------------------------

    def hears(self, sender: ReplicaId, message: Message) -> None:
        """A message arrives; the turn goes on."""
        self.log.receive(Envelope(sender, ME, message))

    def appends(self, first: int, last: int, commit: int = 0, payload: bytes = b"") -> None:
        """The leader sends these entries; the first of its epoch is 2."""
        entries = tuple(Entry(i, EPOCH, 0, Kind.EPOCH, payload) for i in range(first, last + 1))
        before = 1 if first == 2 else EPOCH
        self.hears(LEADER, Append(EPOCH, first - 1, before, entries, commit, first))

    def is_asked_for_a_vote(self) -> None:
        """By server 3, in a later epoch, when the leader has been silent for long."""
        self.hears(OTHER, RequestVote(EPOCH + 1, 9, EPOCH, pre=False, forced=True))

    def votes(self) -> list[Vote]:
        return [m for m in self.sent if isinstance(m, Vote) and m.granted and not m.pre]

    def acknowledged(self) -> int:
        """How far, of the log."""
        return max((m.match for m in self.sent if isinstance(m, Appended)), default=0)
