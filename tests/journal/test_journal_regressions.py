"""Bugs of the journal that the simulator and the chaos tests found, each as small as it can be."""

from itertools import count
from random import Random

from antiphon.formats import pack
from antiphon.formats.entry import ClusterMember, Entry, Kind, Membership, SnapshotMeta
from antiphon.formats.journal import (
    SEGMENT_SIZE,
    Promise,
    Row,
    encode_row,
    encode_segment_header,
    index_name,
    segment_name,
)
from antiphon.journal.journal import Journal
from antiphon.journal.opening import open_journal
from antiphon.journal.recovery import segment_numbers
from antiphon.log.effects import Accepted
from antiphon.sim.cluster.disk import SimDisk

MEMBERS = Membership(7, (ClusterMember(1, 1, True),))


def opened(disk: SimDisk, segment_bytes: int = 200) -> Journal:
    return open_journal(disk, count(1).__next__, segment_bytes=segment_bytes)[0]


def entry(index: int, body: bytes = b"body", epoch: int = 1) -> Entry:
    return Entry(index, epoch, 0, Kind.PACK, pack.encode("q", 1, body))


def store(journal: Journal, disk: SimDisk, *entries: Entry) -> None:
    journal.append((Promise(1, None), *entries), ())
    journal.append((), ())
    journal.flush()
    job = journal.begin_sync()
    assert job is not None
    for name in disk.names():
        disk.sync(name)
    disk.sync("")
    journal.end_sync(job)


def accepted(index: int) -> Accepted:
    return Accepted(index, index, 1, 0, 0, "q", 0, 0)


def test_entries_behind_the_snapshot_stay() -> None:
    disk = SimDisk(Random(1))
    journal = opened(disk)
    for index in range(1, 21):
        store(journal, disk, entry(index))
    assert len(segment_numbers(disk)) > 5
    meta = SnapshotMeta(5, 1, 0, MEMBERS)
    for names in journal.store_snapshot(meta, iter([b"state"]), ()):
        for name in names:
            disk.sync(name)
    assert journal.base_index <= 5
    assert [e.index for e in journal.entries(6, 1 << 20)] == list(range(6, 21))
    assert opened(disk).last == 20


def test_a_large_entry_is_not_read_behind_small_ones() -> None:
    """A server may lack these, and hold its pack already."""
    disk = SimDisk(Random(1))
    journal = opened(disk, segment_bytes=1 << 20)
    for index in (1, 2):
        store(journal, disk, entry(index))
    store(journal, disk, entry(3, bytes(10_000)))
    assert [e.index for e in journal.entries(1, 1000)] == [1, 2]
    assert [e.index for e in journal.entries(3, 1000)] == [3]


def test_a_segment_that_recovery_replaced_does_not_count_when_it_returns() -> None:
    """Its removal was not synced; its base would cut off what was written after recovery."""
    disk = SimDisk(Random(1))
    journal = opened(disk, segment_bytes=1 << 20)
    for index in range(1, 12):
        store(journal, disk, entry(index))
    newest = segment_numbers(disk)[-1]
    inside = journal.segments[-1].size // 2
    disk.write(segment_name(newest + 1), 0, encode_segment_header(newest + 1, inside, 0))
    again = opened(disk)
    assert [e.index for e in again.entries(1, 1 << 20)] == list(range(1, 12))


def test_an_index_that_returns_is_not_taken_for_that_of_a_later_segment() -> None:
    """What an installation left had its number, and is gone; the power fails before that is so on
    the disk, too. Its checkpoint says nothing before a snapshot stands there."""
    for seed in range(20):
        disk = SimDisk(Random(seed))
        journal = opened(disk)
        for index in range(1, 6):
            store(journal, disk, entry(index))
        left = index_name(segment_numbers(disk)[-1] + 1)
        rows = (Row(4, 1, 1, SEGMENT_SIZE + 1, 0, 0, "left"), Row(4, 1, 0, 0, 0, 0, ""))
        disk.write(left, 0, b"".join(map(encode_row, rows)))
        disk.sync(left)
        disk.sync("")
        opened(disk)
        disk.power_failure()
        journal = opened(disk)
        journal.index(tuple(map(accepted, range(1, 6))))
        work = journal.store_snapshot(SnapshotMeta(5, 1, 0, MEMBERS), iter([b"state"]), ((1, 5),))
        for names in work:
            for name in names:
                disk.sync(name)
        assert [row.destination for row in opened(disk).rows(1, 10)] == ["q"] * 5


def test_a_row_never_points_to_an_entry_that_is_about_to_be_replaced() -> None:
    disk = SimDisk(Random(1))
    journal = opened(disk)
    store(journal, disk, entry(1), entry(2, b"stale"))
    journal.append((entry(2, b"fresh", epoch=2),), ())  # collected, not written
    journal.index((accepted(1), accepted(2)))
    journal.flush()
    found = journal.pack(2)
    assert found is not None
    assert pack.body(found[1]) == b"fresh"


def test_a_row_of_an_entry_that_recovery_wrote_again_elsewhere_does_not_count() -> None:
    """It stood before a checkpoint of a snapshot that was not stored, and a later one covers it."""
    disk = SimDisk(Random(1))
    journal = opened(disk, segment_bytes=1 << 20)
    store(journal, disk, entry(1))
    journal.index((accepted(1),))
    store_snapshot(journal, disk, 1)
    journal.append((entry(2),), ())
    journal.flush()
    journal.index((accepted(2),))
    journal.store_snapshot(SnapshotMeta(2, 1, 0, MEMBERS), iter([b"state"]), ((1, 2),))
    for _ in range(2):  # killed before anything came of it
        journal = opened(disk, segment_bytes=1 << 20)
    journal.index((accepted(2),))
    store_snapshot(journal, disk, 2)
    again = opened(disk, segment_bytes=1 << 20)
    assert [row.position for row in again.rows(1, 99)] == [1, 2]


def store_snapshot(journal: Journal, disk: SimDisk, index: int) -> None:
    meta = SnapshotMeta(index, 1, 0, MEMBERS)
    for names in journal.store_snapshot(meta, iter([b"state"]), ((1, index),)):
        for name in names:
            disk.sync(name)
