"""Packs that are stored by one entry and accepted by a later one: their rows point back.

The stateful test of the journal (`test_journal.py`) meets them at random; here each case stands by
itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest

from antiphon.cli.journal import examine
from antiphon.errors import DiskFullError
from antiphon.formats import pack
from antiphon.formats.entry import Entry, Kind, SnapshotMeta
from antiphon.formats.journal import Row, segment_name
from antiphon.journal.disk import RamDisk
from antiphon.journal.opening import open_journal
from antiphon.journal.recovery import segment_numbers
from antiphon.log.effects import Accepted
from antiphon.sim.cluster.disk import SimDisk
from tests.journal.test_journal import membership

SEGMENT_BYTES = 200  # one or two entries


def body(index: int) -> bytes:
    return f"message {index}".encode()


class Store:
    """A journal, with entries that are packs of one message."""

    def __init__(self, disk: SimDisk | RamDisk | None = None) -> None:
        self.disk = disk or RamDisk()
        self.open()

    def open(self) -> str:
        """Returns what is damaged."""
        self.journal, recovered = open_journal(self.disk, lambda: 7, segment_bytes=SEGMENT_BYTES)
        return recovered.damage

    def append(self, *indexes: int, epoch: int = 1) -> None:
        """Each in a batch of its own."""
        for index in indexes:
            data = pack.encode("q", 1, body(index))
            self.journal.append((Entry(index, epoch, index * 10, Kind.PACK, data),), ())
            self.journal.flush()
        for name in self.disk.names():
            self.disk.sync(name)

    def accept(self, index: int, position: int, source: int = 0) -> None:
        self.journal.index((Accepted(index, position, 1, index * 10, 0, "q", 0, 0, 0, source),))

    def snapshot(self, index: int, live: tuple[int, ...], parked: tuple[int, ...] = ()) -> None:
        meta = SnapshotMeta(index, 1, index * 10, membership(1))
        spans = tuple((p, p) for p in live)
        self.finish(self.journal.store_snapshot(meta, iter([b"state", b"and more"]), spans, parked))

    def finish(self, work: Iterator[tuple[str, ...]]) -> None:
        for names in work:
            for name in names:
                self.disk.sync(name)

    def take(self, donor: Store, live: tuple[int, ...], parked: tuple[int, ...] = ()) -> None:
        """Install the donor's snapshot, with what is live and parked there."""
        spans = tuple((p, p) for p in live)
        seq, last = 0, False
        while not last:
            meta, data, last = donor.journal.part("us", seq, spans, parked)
            assert meta is not None
            self.journal.receive_part(meta, seq, data)
            seq += 1
        self.finish(self.journal.install(meta))

    def read(self, position: int) -> bytes | None:
        self.journal.forget_packs()
        found = self.journal.pack(position)
        return pack.body(found[1]) if found is not None else None

    def rows(self) -> list[Row]:
        assert self.journal.rows(1, 99) == self.journal.rows_for("q", 1, 99)
        return self.journal.rows(1, 99)

    @property
    def segments(self) -> int:
        return len(segment_numbers(self.disk))


def test_a_late_row_is_read_where_its_pack_is_and_has_the_place_of_its_own_entry() -> None:
    store = Store()
    store.append(1, 2, 3, 4)
    store.accept(2, 1)
    store.accept(4, 2, source=1)
    store.accept(4, 3, source=3)
    assert [store.read(p) for p in (1, 2, 3)] == [body(2), body(1), body(3)]
    assert [(r.index, r.position, r.stamp, r.source) for r in store.rows()] == [
        (2, 1, 20, 0),
        (4, 2, 40, 1),
        (4, 3, 40, 3),
    ]


@pytest.mark.parametrize("covered", [4, 3])
def test_a_late_row_is_there_after_a_restart(covered: int) -> None:
    store = Store()
    store.append(1, 2, 3, 4)
    if covered == 4:
        store.accept(4, 1, source=1)
        store.snapshot(4, live=(1,))
    else:
        store.snapshot(3, live=(), parked=(1,))
    store.append(5)
    assert store.open() == ""
    if covered == 3:  # it is applied again
        store.accept(4, 1, source=1)
    assert store.read(1) == body(1)
    assert [r.source for r in store.rows()] == [1]


def test_the_segment_of_a_pack_that_waits_stays() -> None:
    store = Store()
    store.append(*range(1, 9))
    before = store.segments
    store.snapshot(8, live=(), parked=(1,))
    assert store.segments == before
    store.append(9)
    store.accept(9, 1, source=1)
    store.snapshot(9, live=(1,))
    store.open()
    assert store.read(1) == body(1)
    store.snapshot(9, live=())
    assert store.segments < before


def test_with_its_segment_a_pack_that_nobody_needs_is_gone_and_its_row_is_told_to_nobody() -> None:
    store = Store()
    store.append(*range(1, 9))
    store.accept(7, 1)
    store.accept(8, 2, source=1)
    store.accept(8, 3, source=7)
    store.snapshot(8, live=(1, 3))
    for _ in range(2):
        assert [store.read(p) for p in (1, 2, 3)] == [body(7), None, body(7)]
        assert [r.position for r in store.rows()] == [1, 3]
        assert [r.position for r in store.journal.rows(2, 1)] == [3]
        store.open()


@pytest.mark.parametrize("restarts", [False, True])
def test_a_pack_stays_though_its_index_is_that_of_an_entry_that_goes(restarts: bool) -> None:
    """The base of the log is behind all that an old segment has, also what was replaced since."""
    store = Store()
    store.append(*range(1, 7))
    store.append(*range(2, 9), epoch=2)  # a new leader's
    store.accept(8, 1, source=3)
    store.snapshot(8, live=(1,), parked=(4,))
    assert store.journal.base_index >= 4
    if restarts:
        store.open()
    assert store.read(1) == body(3)
    store.append(9, epoch=2)
    store.accept(9, 2, source=4)
    assert store.read(2) == body(4)


# -- Snapshots for other servers -------------------------------------------------------------------


def test_packs_that_wait_go_along_with_a_snapshot_and_onward() -> None:
    donor, us, third = Store(), Store(), Store()
    donor.append(1, 2, 3)
    donor.accept(2, 1)
    donor.snapshot(3, live=(1,), parked=(1, 3))
    us.take(donor, live=(1,), parked=(1, 3))
    assert (us.journal.base_index, us.read(1)) == (3, body(2))
    us.open()
    us.append(4)
    us.accept(4, 2, source=3)
    assert us.read(2) == body(3)
    us.snapshot(4, live=(1, 2), parked=(1,))
    us.open()
    third.take(us, live=(1, 2), parked=(1,))
    third.append(5)
    third.accept(5, 3, source=1)
    assert [third.read(p) for p in (1, 2, 3)] == [body(2), body(3), body(1)]
    assert [(r.index, r.source) for r in third.rows()] == [(2, 0), (4, 0), (5, 1)]


def test_a_pack_that_was_accepted_since_the_snapshot_goes_along_with_it() -> None:
    donor, us = Store(), Store()
    donor.append(1, 2, 3)
    donor.snapshot(2, live=(), parked=(1, 2))
    donor.accept(3, 1, source=1)
    donor.accept(3, 2, source=2)
    us.take(donor, live=(2,))  # the first one was acknowledged by now
    us.append(3)
    us.accept(3, 1, source=1)
    us.accept(3, 2, source=2)
    assert [us.read(p) for p in (1, 2)] == [None, body(2)]
    assert [r.position for r in us.rows()] == [2]


def test_a_pack_that_goes_while_a_snapshot_is_being_sent_is_left_out() -> None:
    donor, us = Store(), Store()
    donor.append(*range(1, 9))
    donor.accept(8, 1, source=1)
    donor.accept(8, 2, source=8)
    donor.snapshot(8, live=(1, 2))
    for seq in range(3):
        meta, data, last = donor.journal.part("us", seq, ((1, 2),))
        assert meta is not None
        us.journal.receive_part(meta, seq, data)
        if seq == 0:
            donor.snapshot(8, live=(2,))
    assert last
    us.finish(us.journal.install(meta))
    assert [us.read(p) for p in (1, 2)] == [None, body(8)]


def test_the_segment_of_a_pack_that_waits_stays_at_the_server_that_was_sent_it() -> None:
    donor, us = Store(), Store()
    donor.append(1, 2)
    donor.snapshot(2, live=(), parked=(1,))
    us.take(donor, live=(), parked=(1,))
    for index in range(3, 9):
        us.append(index)
    us.snapshot(8, live=(), parked=(1,))
    us.open()
    us.append(9)
    us.accept(9, 1, source=1)
    assert us.read(1) == body(1)
    us.snapshot(9, live=())
    assert (us.read(1), us.journal.parked) == (None, {})


# -- Faults ----------------------------------------------------------------------------------------


def test_damage_in_a_pack_that_waits_is_not_passed_over() -> None:
    donor, us = Store(), Store(SimDisk(Random(1)))
    donor.append(1, 2)
    donor.snapshot(2, live=(), parked=(1,))
    us.take(donor, live=(), parked=(1,))
    us.append(3, 4)
    first = segment_name(segment_numbers(us.disk)[0])
    at = us.disk.read(first, 0, us.disk.size(first)).index(body(1))
    us.disk.write(first, at, b"M")
    us.disk.sync(first)
    assert us.open() != ""
    assert us.journal.last == 0  # it begins again: only a whole snapshot can give it that pack


def test_a_late_row_waits_for_room_with_its_entry() -> None:
    disk = SimDisk(Random(1))
    store = Store(disk)
    store.append(1, 2)
    disk.full = True
    data = pack.encode("q", 1, body(3))
    store.journal.append((Entry(3, 1, 30, Kind.PACK, data),), ())
    with pytest.raises(DiskFullError):
        store.journal.flush()
    store.accept(3, 1, source=1)
    assert store.rows() == []
    disk.full = False
    store.journal.flush()
    assert store.read(1) == body(1)


def test_an_inspected_journal_is_whole_with_late_rows_and_packs_that_wait() -> None:
    donor, us = Store(), Store()
    donor.append(1, 2, 3)
    donor.accept(3, 1, source=1)
    donor.snapshot(3, live=(1,), parked=(2,))
    us.take(donor, live=(1,), parked=(2,))
    us.append(4)
    us.accept(4, 2, source=2)
    for store in (donor, us):
        report = examine(store.disk)
        assert report.damage == ()
        assert sum(segment.rows for segment in report.segments) == len(store.rows())
