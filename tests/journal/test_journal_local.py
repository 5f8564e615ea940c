"""Acknowledgements that a server alone knows, in its journal: they are there after any crash, for
as long as the server needs it, whatever happens to the segments that they were in."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest

from antiphon.cli import journal as inspect
from antiphon.formats.entry import Entry, SnapshotMeta
from antiphon.formats.journal import Local, segment_name
from antiphon.journal.opening import open_journal
from antiphon.journal.recovery import segment_numbers
from antiphon.log.effects import LocalStored
from antiphon.log.state_machine import PackMachine
from antiphon.sim.cluster.disk import SimDisk
from tests.journal.test_journal import donor_of, membership
from tests.journal.test_journal_faults import SEGMENT_BYTES, disk_of, entry, files_of, flipped


class Keeper:
    """Keeps numbers in a journal, and lets go of them."""

    def __init__(self, seed: int = 0) -> None:
        self.disk = SimDisk(Random(seed))
        self.last = 0
        self.committed: list[Entry] = []
        self.open()
        self.append()  # who has nothing in its log becomes somebody new
        self.sync()

    def open(self) -> None:
        """Goes on with what the journal has."""
        self.journal, self.recovered = open_journal(
            self.disk, lambda: 77, segment_bytes=SEGMENT_BYTES
        )
        self.needed = {int(n) for data in self.journal.found_local for n in data.split()}
        self.stored = set(self.needed)
        self.journal.repeat(self.all)
        self.machine = PackMachine(0)
        if self.recovered.snapshot is not None:
            self.machine.restore(self.journal.read_snapshot()[1])
        del self.committed[self.journal.last :]

    def all(self) -> tuple[Local, ...]:
        numbers = sorted(self.needed)
        halves = [numbers[:2], numbers[2:]]
        data = [b" ".join(b"%d" % n for n in half) for half in halves]
        return tuple(Local(whole=at == 0, data=some) for at, some in enumerate(data))

    def keep(self) -> None:
        self.last += 1
        self.needed.add(self.last)
        record = Local(whole=False, data=b"%d" % self.last)
        self.journal.append((record,), (LocalStored(self.last),))

    def let_go(self) -> None:
        if self.needed:
            self.needed.discard(min(self.needed))

    def append(self) -> None:
        one = entry(len(self.committed) + 1)
        self.committed.append(one)
        self.journal.append((one,), ())

    def write(self) -> None:
        self.journal.flush()

    def sync(self) -> None:
        self.journal.flush()
        job = self.journal.begin_sync()
        if job is not None:
            for name in job.names:
                self.disk.sync(name)
            self.stored |= {t.batch for t in self.journal.end_sync(job)}  # type: ignore[union-attr]

    def snapshot(self) -> None:
        """Nothing of what came before is needed any more."""
        self.sync()
        at = self.recovered.snapshot.index if self.recovered.snapshot is not None else 0
        if not self.committed[max(at, self.journal.base_index) :]:
            return
        for one in self.committed[self.machine.position :]:
            self.journal.index(tuple(self.machine.apply(one)))
        last = self.committed[-1]
        meta = SnapshotMeta(last.index, last.epoch, last.stamp, membership(1))
        self.do(self.journal.store_snapshot(meta, self.machine.snapshot(), ()))

    def install(self) -> None:
        """Another server's snapshot."""
        for _ in range(3):
            self.committed.append(entry(len(self.committed) + 1))
        donor, live, _ = donor_of(self.committed, len(self.committed), 0)
        seq, last = 0, False
        while not last:
            meta, data, last = donor.part("us", seq, live)
            assert meta is not None
            self.journal.receive_part(meta, seq, data)
            seq += 1
        self.do(self.journal.install(meta))
        self.machine.restore(self.journal.read_snapshot()[1])

    def do(self, work: Iterator[tuple[str, ...]]) -> None:
        for names in work:
            for name in names:
                self.disk.sync(name)

    def crash(self, power: bool) -> None:
        """What it needs, and knew to be stored, is there."""
        promised = self.needed & self.stored
        if power:
            self.disk.power_failure()
        self.open()
        assert not self.recovered.damage
        assert self.needed >= promised

    def kill(self) -> None:
        self.crash(power=False)

    def power_failure(self) -> None:
        self.crash(power=True)


STEPS = {
    "keep": 8,
    "let_go": 6,
    "append": 6,
    "write": 3,
    "sync": 4,
    "snapshot": 2,
    "install": 1,
    "kill": 1,
    "power_failure": 1,
}


@pytest.mark.parametrize("first", range(0, 200, 50))
def test_what_is_stored_and_needed_survives_everything(first: int) -> None:
    for seed in range(first, first + 50):
        random, keeper = Random(seed), Keeper(seed)
        for step in random.choices([*STEPS], [*STEPS.values()], k=120):
            getattr(keeper, step)()


def test_it_is_repeated_in_each_segment() -> None:
    keeper = Keeper()
    keeper.keep()
    keeper.sync()
    while len(segment_numbers(keeper.disk)) < 4:
        keeper.append()
        keeper.sync()
    keeper.snapshot()
    assert len(segment_numbers(keeper.disk)) == 1
    keeper.kill()
    assert keeper.needed == {1}


def test_it_outlives_a_snapshot_that_is_taken_over() -> None:
    keeper = Keeper()
    keeper.keep()
    keeper.sync()
    keeper.install()
    keeper.power_failure()
    assert keeper.needed == {1}


def test_what_is_not_needed_any_more_does_not_come_back_for_ever() -> None:
    keeper = Keeper()
    for _ in range(50):
        keeper.keep()
        keeper.append()
        keeper.sync()
        keeper.let_go()
    keeper.kill()
    assert 0 < len(keeper.needed) < 10
    again = len(keeper.journal.found_local)
    keeper.kill()
    assert len(keeper.journal.found_local) <= again


def test_each_opening_has_a_greater_number() -> None:
    keeper = Keeper()
    numbers = [keeper.journal.opening]
    for _ in range(3):
        keeper.append()
        keeper.sync()
        keeper.power_failure()
        numbers.append(keeper.journal.opening)
    keeper.install()
    keeper.kill()
    numbers.append(keeper.journal.opening)
    assert numbers == sorted(set(numbers))


def test_who_has_lost_some_of_it_has_nothing() -> None:
    """A damaged server is somebody new: what it alone knew counts no more."""
    keeper = Keeper()
    keeper.keep()
    while len(segment_numbers(keeper.disk)) < 3:
        keeper.append()
        keeper.sync()
    files = files_of(keeper.disk)
    name = segment_name(segment_numbers(keeper.disk)[1])
    damaged = disk_of(files | {name: flipped(files[name], len(files[name]) - 20)})
    journal, recovered = open_journal(damaged, lambda: 78, segment_bytes=SEGMENT_BYTES)
    assert recovered.damage
    assert recovered.incarnation == 78
    assert journal.found_local == []


def test_an_inspection_counts_it() -> None:
    keeper = Keeper()
    keeper.keep()
    keeper.keep()
    for _ in range(2):
        keeper.append()
        keeper.sync()
    report = inspect.examine(keeper.disk)
    assert [(s.local, s.live) for s in report.segments] == [(2 + 2, 0), (2, 0)]
    assert report.damage == ()
