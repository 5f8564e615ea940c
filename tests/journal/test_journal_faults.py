"""Faults of disks under a journal: torn tails, flipped bits, failed syncs, no room, crashes
anywhere."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest

from antiphon.errors import DiskFullError, JournalDamagedError, SyncFailedError, UnknownVersionError
from antiphon.formats import journal as f
from antiphon.formats import pack
from antiphon.formats.entry import Entry, Kind, SnapshotMeta
from antiphon.formats.journal import MANIFEST, index_name, segment_name
from antiphon.journal import reading
from antiphon.journal.disk import RamDisk
from antiphon.journal.journal import Journal
from antiphon.journal.opening import open_journal
from antiphon.journal.recovery import segment_numbers
from antiphon.log.effects import EntriesStored
from antiphon.log.recovered import Recovered
from antiphon.log.state_machine import PackMachine
from antiphon.sim.cluster.disk import SimDisk
from tests.journal.test_journal import EVERYTHING, donor_of, membership

SEGMENT_BYTES = 300


def entry(index: int, text: str = "", epoch: int = 1) -> Entry:
    body = (text or f"message {index}").encode()
    return Entry(index, epoch, index * 10, Kind.PACK, pack.encode("q", 1, body))


def opened(disk: SimDisk | RamDisk, alone: bool = False) -> tuple[Journal, Recovered]:
    return open_journal(disk, lambda: 77, alone=alone, segment_bytes=SEGMENT_BYTES)


def write(journal: Journal, *records: Entry | f.Promise) -> None:
    journal.append(records, (EntriesStored(0, 0),))
    journal.flush()


def sync(journal: Journal, disk: SimDisk | RamDisk) -> None:
    job = journal.begin_sync()
    assert job is not None
    for name in job.names:
        disk.sync(name)
    journal.end_sync(job)


def finish(work: Iterator[tuple[str, ...]], disk: SimDisk | RamDisk) -> None:
    for names in work:
        for name in names:
            disk.sync(name)


def log_of(journal: Journal) -> tuple[Entry, ...]:
    return journal.entries(journal.base_index + 1, EVERYTHING)


def files_of(disk: SimDisk | RamDisk) -> dict[str, bytes]:
    return {name: disk.read(name, 0, disk.size(name)) for name in disk.names()}


def disk_of(files: dict[str, bytes], seed: int = 0) -> SimDisk:
    """A disk with these files, all of them synced."""
    disk = SimDisk(Random(seed))
    for name, data in files.items():
        disk.write(name, 0, data)
        disk.sync(name)
    disk.sync("")
    return disk


def flipped(data: bytes, at: int, bit: int = 0x10) -> bytes:
    return data[:at] + bytes([data[at] ^ bit]) + data[at + 1 :]


def old_journal(seed: int = 0) -> tuple[SimDisk, Journal, list[Entry]]:
    """Entries in several segments, written one by one, all of them synced and known to be."""
    disk = SimDisk(Random(seed))
    journal, _ = opened(disk)
    entries = [entry(index) for index in range(1, 9)]
    for one in entries:
        write(journal, one)
        sync(journal, disk)
    finish(iter([tuple(disk.names())]), disk)
    return disk, journal, entries


# -- Torn tails ------------------------------------------------------------------------------------


def torn_journals(batches: int) -> Iterator[tuple[dict[str, bytes], list[Entry]]]:
    """A journal whose last segment has so many batches, cut at every byte of the last one."""
    disk, journal, entries = old_journal()
    while True:
        write(journal, entry(len(entries) + 1), f.Promise(7, None))
        files = files_of(disk)
        name = segment_name(segment_numbers(disk)[-1])
        found = [batch for _, batch in f.find_batches(files[name], 0)]
        if len(found) == batches:
            break
        entries.append(entry(len(entries) + 1))
        sync(journal, disk)
    start = len(files[name]) - found[-1].size if batches > 1 else 0
    for cut in range(start, len(files[name])):
        yield files | {name: files[name][:cut]}, entries


@pytest.mark.parametrize("batches", [1, 2])
def test_a_tail_cut_at_any_byte_is_no_damage_and_does_not_come_back(batches: int) -> None:
    torn = list(torn_journals(batches))
    assert len(torn) > f.BATCH_SIZE + f.ENTRY_SIZE
    for files, entries in torn:
        disk = disk_of(files)
        journal, recovered = opened(disk)
        assert (recovered.damage, log_of(journal)) == ("", tuple(entries))
        # What is appended behind the tear is reachable after the next restart, too.
        another = entry(len(entries) + 1, "another")
        write(journal, another)
        sync(journal, disk)
        disk.power_failure()
        journal, recovered = opened(disk)
        assert (recovered.damage, log_of(journal)) == ("", (*entries, another))


@pytest.mark.parametrize("garbage", [bytes(64), b"\xff" * 64, f.BATCH_MAGIC * 16])
def test_garbage_after_the_end_is_a_torn_tail(garbage: bytes) -> None:
    disk, _, entries = old_journal()
    files = files_of(disk)
    name = segment_name(segment_numbers(disk)[-1])
    journal, recovered = opened(disk_of(files | {name: files[name] + garbage}))
    assert (recovered.damage, log_of(journal)) == ("", tuple(entries))


def test_a_batch_of_which_any_sector_is_lost_is_gone_as_a_whole() -> None:
    for seed in range(40):
        disk, journal, entries = old_journal(seed)
        more = [entry(index, "x" * 700) for index in range(9, 12)]
        write(journal, *more)
        disk.power_failure()
        journal, recovered = opened(disk)
        assert recovered.damage == ""
        assert log_of(journal) in (tuple(entries), (*entries, *more))


def test_a_message_that_looks_like_a_batch_is_not_believed() -> None:
    """A journal can be sent through the journal: a torn copy of it says nothing about this one."""
    disk, journal, entries = old_journal()
    alien = f.encode_batch([f.encode_entry(entry(1))], offset=40, synced=1 << 40)
    write(journal, Entry(9, 1, 90, Kind.PACK, pack.encode("backup", 1, alien + bytes(40))))
    files = files_of(disk)
    name = segment_name(segment_numbers(disk)[-1])
    journal, recovered = opened(disk_of(files | {name: files[name][:-20]}))
    assert (recovered.damage, log_of(journal)) == ("", tuple(entries))


def test_a_tail_that_replaces_entries_before_it_is_recovered() -> None:
    """Entry 1 is known to be on disk, 2 is not; then a new leader replaces both."""
    disk = SimDisk(Random(0))
    journal, _ = opened(disk)
    write(journal, entry(1))
    sync(journal, disk)
    write(journal, entry(2))
    write(journal, entry(1, "new", epoch=2))
    journal, recovered = opened(disk)
    assert (recovered.damage, log_of(journal)) == ("", (entry(1, "new", epoch=2),))


# -- Damage ----------------------------------------------------------------------------------------


def proven_bytes() -> Iterator[tuple[dict[str, bytes], str, int]]:
    """Every byte of the log that some batch knows to be synced."""
    disk, _, _ = old_journal()
    files = files_of(disk)
    for number in segment_numbers(disk):
        name = segment_name(number)
        is_last = number == segment_numbers(disk)[-1]
        end = len(files[name]) - (f.BATCH_SIZE if is_last else 0)  # the mark itself is not
        yield from ((files, name, at) for at in range(end))


def test_a_flip_anywhere_in_the_middle_is_damage_and_names_its_place() -> None:
    entries = old_journal()[2]
    for files, name, at in proven_bytes():
        disk = disk_of(files | {name: flipped(files[name], at)})
        journal, recovered = opened(disk)
        assert f"journal file '{name}' is damaged at offset " in recovered.damage, at
        assert int(recovered.damage.split("at offset ")[1].split(":")[0]) <= at
        assert recovered.incarnation == 77
        assert not recovered.fresh
        assert log_of(journal) == tuple(entries[: len(log_of(journal))])


def test_alone_a_damaged_server_refuses_and_touches_nothing() -> None:
    for files, name, at in proven_bytes():
        bad = files | {name: flipped(files[name], at)}
        disk = disk_of(bad)
        with pytest.raises(JournalDamagedError) as caught:
            opened(disk, alone=True)
        assert caught.value.file == name
        assert caught.value.offset <= at
        assert files_of(disk) == bad


def test_damage_is_remembered_over_restarts() -> None:
    disk, _, _ = old_journal()
    files = files_of(disk)
    name = segment_name(1)
    disk = disk_of(files | {name: flipped(files[name], f.SEGMENT_SIZE + 40)})
    assert opened(disk)[1].damage
    _, again = opened(disk)
    assert again.damage == "earlier damage"
    assert not again.fresh


def test_a_batch_written_over_another_is_damage() -> None:
    disk, _, _ = old_journal()
    files = files_of(disk)
    name = segment_name(1)
    batches = [batch for _, batch in f.find_batches(files[name], 0)]
    size = batches[1].size
    assert batches[2].size == size
    at = f.SEGMENT_SIZE + batches[0].size
    data = bytearray(files[name])
    data[at : at + size] = data[at + size : at + 2 * size]
    _, recovered = opened(disk_of(files | {name: bytes(data)}))
    assert f"'{name}' is damaged at offset {at}" in recovered.damage


def test_a_missing_segment_is_damage() -> None:
    disk, _, entries = old_journal()
    for number in segment_numbers(disk)[:-1]:
        files = files_of(disk)
        del files[segment_name(number)]
        journal, recovered = opened(disk_of(files))
        assert f"'{segment_name(number)}' is damaged" in recovered.damage
        assert log_of(journal) == tuple(entries[: len(log_of(journal))])


def test_a_lost_manifest_is_damage_and_nothing_is_thrown_away() -> None:
    disk, _, _ = old_journal()
    files = files_of(disk)
    for bad in [
        {name: data for name, data in files.items() if name != "MANIFEST"},
        *(
            {**files, "MANIFEST": flipped(files["MANIFEST"], at)}
            for at in range(len(files["MANIFEST"]))
        ),
    ]:
        with pytest.raises(JournalDamagedError, match="MANIFEST"):
            opened(disk_of(bad), alone=True)
        disk = disk_of(bad)
        _, recovered = opened(disk)
        assert "'MANIFEST' is damaged" in recovered.damage
        kept = files_of(disk)
        assert all(kept[f"damaged-1-{name}"] == data for name, data in bad.items())


def test_files_of_a_newer_version_are_left_alone() -> None:
    """An older program started by mistake must not set a whole journal aside."""
    files = files_of(with_snapshot()[0])
    for name in ("MANIFEST", segment_name(1), next(n for n in files if n.startswith("snap-"))):
        newer = bytearray(files[name])
        newer[4] += 1
        end = (f.SEGMENT_SIZE if name.startswith("seg-") else f.FILE_SIZE) - 4
        newer[end : end + 4] = f.crc32c(bytes(newer[:end])).to_bytes(4, "little")
        disk = disk_of(files | {name: bytes(newer)})
        with pytest.raises(UnknownVersionError, match="version 2"):
            opened(disk)
        assert files_of(disk) == files | {name: bytes(newer)}


def with_snapshot(seed: int = 0) -> tuple[SimDisk, Journal, PackMachine, SnapshotMeta]:
    disk, journal, entries = old_journal(seed)
    machine = PackMachine()
    meta = snapshot_after(journal, machine, entries)
    finish(journal.store_snapshot(meta, machine.snapshot(), machine.live()), disk)
    return disk, journal, machine, meta


def snapshot_after(journal: Journal, machine: PackMachine, entries: list[Entry]) -> SnapshotMeta:
    for one in entries:
        journal.index(tuple(machine.apply(one)))
    last = entries[-1]
    return SnapshotMeta(last.index, last.epoch, last.stamp, membership(0))


def test_a_flip_anywhere_in_a_snapshot_is_damage() -> None:
    files = files_of(with_snapshot()[0])
    (name,) = (n for n in files if n.startswith("snap-"))
    for at in range(len(files[name])):
        bad = files | {name: flipped(files[name], at)}
        with pytest.raises(JournalDamagedError, match=name):
            opened(disk_of(bad), alone=True)
        _, recovered = opened(disk_of(bad))
        assert f"'{name}' is damaged" in recovered.damage


def test_a_flip_in_the_index_below_a_snapshot_is_damage() -> None:
    files = files_of(with_snapshot()[0])
    name = index_name(1)
    for at in range(len(files[name])):
        with pytest.raises(JournalDamagedError, match=name):
            opened(disk_of(files | {name: flipped(files[name], at)}), alone=True)


def test_damage_under_an_open_journal_is_never_read_as_data() -> None:
    disk, journal, _, _ = with_snapshot()
    name = segment_name(1)
    at = f.SEGMENT_SIZE + f.BATCH_SIZE + f.ENTRY_SIZE + f.RECORD_SIZE + 24 + 35
    disk._files[name].data[at] ^= 1
    with pytest.raises(JournalDamagedError, match=name):
        journal.entries(1, EVERYTHING)
    with pytest.raises(JournalDamagedError, match=name):
        journal.pack(1)
    assert journal.pack(8) is not None


# -- Failed syncs ----------------------------------------------------------------------------------


def test_what_a_failed_sync_left_in_the_cache_is_not_taken_for_stored() -> None:
    """The process restarts and reads what the disk never wrote; then the power fails."""
    for seed in range(20):
        disk, journal, entries = old_journal(seed)
        write(journal, entry(9))
        job = journal.begin_sync()
        disk.fail_next_sync = True
        with pytest.raises(SyncFailedError):
            disk.finish_sync(disk.begin_sync(job.names))
        journal, recovered = opened(disk)
        assert log_of(journal) == (*entries, entry(9))
        assert recovered.last == 9  # and with that it is said to be on disk
        disk.power_failure()
        journal, recovered = opened(disk)
        assert (recovered.damage, log_of(journal)) == ("", (*entries, entry(9)))


# -- Crashes in the middle of longer work ----------------------------------------------------------


def crash_points(work: Iterator[tuple[str, ...]], disk: SimDisk, point: int) -> bool:
    """Work up to a point, counting each sync and each pause; False if it came to its end."""
    for names in work:
        for name in (*names, None):
            if point == 0:
                return True
            point -= 1
            if name is not None:
                disk.sync(name)
    return False


def rows_of(journal: Journal) -> list[tuple[int, int, bytes]]:
    rows = journal.rows(1, EVERYTHING)
    return [(r.index, r.position, pack.body(journal.pack(r.position)[1])) for r in rows]


def test_a_snapshot_is_stored_as_a_whole_or_not_at_all() -> None:
    """And the applied position with it: nothing is applied twice, nothing left out (FAULTS 10)."""
    for point in range(100):
        for seed in range(4):
            disk, journal, machine, old = with_snapshot(seed)
            more = [entry(index) for index in range(9, 14)]
            for one in more:
                write(journal, one)
            new = snapshot_after(journal, machine, more)
            work = journal.store_snapshot(new, machine.snapshot(), ((3, 13),))
            crashed = crash_points(work, disk, point)
            disk.power_failure()
            journal, recovered = opened(disk)
            assert recovered.damage == ""
            assert recovered.snapshot in ((old, new) if crashed else (new,))
            again = PackMachine()
            again.restore(journal.read_snapshot()[1])
            for one in journal.entries(recovered.snapshot.index + 1, EVERYTHING):
                journal.index(tuple(again.apply(one)))
            expected = [(i, i, f"message {i}".encode()) for i in range(1, again.position + 1)]
            gone = len(expected) - len(rows_of(journal))
            assert rows_of(journal) == expected[gone:]
            assert gone <= 2, "a live position was lost"
            if recovered.snapshot == new:
                assert list(again.snapshot()) == list(machine.snapshot())
        if not crashed:
            return
    raise AssertionError("storing a snapshot never ended")


def full_journal(seed: int = 0) -> tuple[SimDisk, Journal, Iterator[tuple[str, ...]]]:
    """A journal with a promise, whose newest segment is full, and the storing of a snapshot that
    stands for all of it, just begun."""
    disk, journal, entries = old_journal(seed)
    write(journal, f.Promise(5, None))
    while disk.size(segment_name(segment_numbers(disk)[-1])) < SEGMENT_BYTES:
        entries.append(entry(len(entries) + 1))
        write(journal, entries[-1])
    sync(journal, disk)
    machine = PackMachine()
    meta = snapshot_after(journal, machine, entries)
    work = journal.store_snapshot(meta, machine.snapshot(), ())
    for name in next(work):
        disk.sync(name)
    return disk, journal, work


def test_a_promise_does_not_go_before_the_next_segment_has_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """There was room for the header of that, and not for what was to be written."""
    disk, journal, work = full_journal()
    newest = segment_name(segment_numbers(disk)[-1] + 1)
    put = disk.write

    def write_if_there_is_room(name: str, offset: int, *data: bytes) -> None:
        if name == newest and offset:
            raise DiskFullError("no room for so much")
        put(name, offset, *data)

    monkeypatch.setattr(disk, "write", write_if_there_is_room)
    with pytest.raises(DiskFullError):
        write(journal, entry(journal.last + 1))
    assert newest in disk.names()
    finish(work, disk)
    monkeypatch.undo()
    journal, recovered = opened(disk)
    assert recovered.promise == f.Promise(5, None)


def test_a_promise_does_not_go_before_the_next_segment_has_it_on_disk() -> None:
    for seed in range(40):
        disk, journal, work = full_journal(seed)
        write(journal, entry(journal.last + 1))
        for names in work:
            for name in names:
                disk.sync(name)
            if names == (MANIFEST + ".new",):
                next(work)  # it has its name, and the folder is not synced
                break
        disk.power_failure()
        journal, recovered = opened(disk, alone=True)
        assert (recovered.promise, recovered.damage) == (f.Promise(5, None), "")


def parts_of(entries: list[Entry], retain: int | None) -> list[tuple[SnapshotMeta, bytes]]:
    donor, live, _ = donor_of(entries, len(entries), retain)
    parts, last = [], False
    while not last:
        meta, data, last = donor.part("us", len(parts), live)
        parts.append((meta, data))
    return parts


def receive(journal: Journal, parts: list[tuple[SnapshotMeta, bytes]]) -> SnapshotMeta:
    for seq, (meta, data) in enumerate(parts):
        journal.receive_part(meta, seq, data)
    return parts[0][0]


def test_an_installation_happens_as_a_whole_or_not_at_all() -> None:
    theirs = [entry(index, epoch=2) for index in range(1, 31)]
    parts = parts_of(theirs, retain=12)
    for point in range(100):
        for seed in range(4):
            disk, journal, _, old = with_snapshot(seed)
            kept = log_of(journal)
            write(journal, f.Promise(5, None))
            sync(journal, disk)
            write(journal, entry(9), f.Promise(6, None))
            new = receive(journal, parts)
            crashed = crash_points(journal.install(new), disk, point)
            disk.power_failure()
            journal, recovered = opened(disk)
            assert recovered.damage == ""
            assert recovered.snapshot in ((old, new) if crashed else (new,))
            assert recovered.promise in (f.Promise(5, None), f.Promise(6, None))
            if recovered.snapshot == old:
                assert log_of(journal) in (kept, (*kept, entry(9)))
                assert [r[1] for r in rows_of(journal)] == list(range(1, 9))
            else:
                assert (journal.base_index, journal.last) == (30, 30)
                assert rows_of(journal) == [(i, i, f"message {i}".encode()) for i in range(19, 31)]
                write(journal, entry(31, epoch=2))
                sync(journal, disk)
                disk.power_failure()
                journal, _ = opened(disk)
                assert log_of(journal) == (entry(31, epoch=2),)
                assert [r[1] for r in rows_of(journal)] == list(range(19, 31))
        if not crashed:
            return
    raise AssertionError("installing a snapshot never ended")


# -- No room ---------------------------------------------------------------------------------------


class FullOnce(SimDisk):
    """Write number `when` fails, after `part` of it was written."""

    def __init__(self, when: int, part: float) -> None:
        super().__init__(Random(when))
        self.writes = -1
        self._when, self._part = when, part

    def write(self, name: str, offset: int, *parts: bytes) -> None:
        data = b"".join(parts)
        self.writes += 1
        if self.writes == self._when:
            super().write(name, offset, data[: int(len(data) * self._part)])
            raise DiskFullError("no room")
        super().write(name, offset, data)


class Driver:
    """Does with a journal what a server does, also when the disk is full."""

    def __init__(self, disk: SimDisk) -> None:
        self.disk = disk
        self.journal, _ = opened(disk)
        self.machine = PackMachine()
        self.parts = parts_of([entry(index) for index in range(1, 15)], retain=None)

    def persist(self, *records: Entry | f.Promise) -> None:
        self.journal.append(records, (EntriesStored(0, 0),))
        self.again(self.journal.flush)
        self.again(lambda: sync(self.journal, self.disk))

    def deliver(self, *entries: Entry) -> None:
        for one in entries:
            accepted = tuple(self.machine.apply(one))
            try:
                self.journal.index(accepted)
            except DiskFullError:
                self.again(lambda: self.journal.index(()))

    def snapshot(self, last: Entry) -> None:
        meta = SnapshotMeta(last.index, last.epoch, last.stamp, membership(0))
        self.again(
            lambda: finish(
                self.journal.store_snapshot(meta, self.machine.snapshot(), ((2, last.index),)),
                self.disk,
            )
        )

    def install(self) -> None:
        self.again(
            lambda: finish(self.journal.install(receive(self.journal, self.parts)), self.disk)
        )
        self.machine = PackMachine()
        self.machine.restore(self.journal.read_snapshot()[1])

    @staticmethod
    def again(work) -> None:
        try:
            work()
        except DiskFullError:
            work()


def session(disk: SimDisk) -> Driver:
    """Some of everything."""
    driver = Driver(disk)
    entries = [entry(index) for index in range(1, 7)]
    driver.persist(*entries[:2])
    driver.persist(entry(3, "to be replaced"), entry(4, "this as well"))
    driver.persist(f.Promise(2, None), *entries[2:4])
    driver.deliver(*entries[:4])
    driver.snapshot(entries[3])
    driver.persist(*entries[4:])
    driver.deliver(*entries[4:])
    driver.snapshot(entries[5])
    driver.install()
    for index in (15, 16, 17):
        driver.persist(entry(index))
        driver.deliver(entry(index))
    driver.snapshot(entry(17))
    driver.persist(entry(18))
    return driver


def outcome(journal: Journal, machine: PackMachine) -> list[object]:
    meta, chunks = journal.read_snapshot()
    rows = [(row[0], row[1]) for row in rows_of(journal)]
    return [meta, b"".join(chunks), log_of(journal)[-1], rows, list(machine.snapshot())]


@pytest.mark.parametrize("part", [0.0, 0.5, 1.0])
def test_no_room_at_any_write_changes_nothing_in_the_end(part: float) -> None:
    reference = session(FullOnce(-1, part))
    expected = outcome(reference.journal, reference.machine)
    assert reference.disk.writes > 30
    for when in range(opening_writes(), reference.disk.writes + 1):
        driver = session(FullOnce(when, part))
        assert outcome(driver.journal, driver.machine) == expected, f"write {when}"
        driver.disk.power_failure()
        journal, recovered = opened(driver.disk)
        assert recovered.damage == "", f"write {when}"
        machine = PackMachine()
        machine.restore(journal.read_snapshot()[1])
        assert outcome(journal, machine) == expected, f"write {when}, then a power failure"


def collected(journal: Journal, disk: SimDisk, *records: Entry | f.Promise) -> None:
    """Records that find the disk full."""
    disk.full = True
    journal.append(records, ())
    with pytest.raises(DiskFullError):
        journal.flush()


def test_no_room_for_a_replacement_leaves_no_row_of_what_it_replaces() -> None:
    disk, journal, _ = old_journal()
    collected(journal, disk, entry(8, "in its place", epoch=2))
    machine = PackMachine()
    accepted = [*machine.apply(entry(8, "in its place", epoch=2))]
    journal.index(tuple(accepted))
    assert journal.pack(1) is None
    disk.full = False
    journal.flush()
    assert pack.body(journal.pack(1)[1]) == b"in its place"


def test_a_snapshot_waits_for_room_for_the_entries_it_stands_for() -> None:
    for when in ("before", "after"):
        disk, journal, machine, old = with_snapshot()
        last = Entry(9, 2, 90, Kind.EPOCH, b"")
        collected(journal, disk, last)
        machine.apply(last)
        new = SnapshotMeta(9, 2, 90, membership(0))
        disk.full = when == "after"
        try:
            work = journal.store_snapshot(new, machine.snapshot(), ())
        except DiskFullError:
            assert disk.full
        else:
            finish(work, disk)
        disk.power_failure()
        disk.full = False
        _, recovered = opened(disk)
        assert (recovered.damage, recovered.snapshot) == ("", old if when == "after" else new)


def opening_writes() -> int:
    disk = FullOnce(-1, 0.0)
    opened(disk)
    return disk.writes + 1


@pytest.mark.parametrize("part", [0.0, 0.5, 1.0])
def test_no_room_while_opening_can_be_tried_again(part: float) -> None:
    files = files_of(with_snapshot()[0])
    expected = [*range(1, 9)]
    for when in range(3):
        disk = FullOnce(-1, part)
        for name, data in files.items():
            disk.write(name, 0, data)
            disk.sync(name)
        disk.sync("")
        disk.writes, disk._when = -1, when
        try:
            opened(disk)
        except DiskFullError:
            disk.power_failure()
        disk._when = -1
        journal, recovered = opened(disk)
        assert recovered.damage == ""
        assert [e.index for e in journal.entries(1, EVERYTHING)] == expected


# -- Bounds ----------------------------------------------------------------------------------------


def test_the_cache_of_packs_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "CACHE_BYTES", 120)
    disk, journal, _, _ = with_snapshot()
    reads = []
    monkeypatch.setattr(disk, "read", counting(disk.read, reads))
    for position in (1, 2, 1, 2, 3, 4, 5, 6, 7, 8, 1):
        payload = journal.pack(position)[1]
        assert pack.body(payload) == f"message {position}".encode()
        assert sum(map(len, journal._cache.values())) == journal._cache_bytes <= 120
    twice = 2  # reads for one entry: its header, and the rest
    assert len(reads) == twice * 9, "1 and 2 were there the second time, 1 had gone the third"


def counting(read, reads: list):
    def wrapped(*arguments):
        reads.append(arguments)
        return read(*arguments)

    return wrapped


def test_a_pack_larger_than_the_cache_is_kept_until_the_next_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reading, "CACHE_BYTES", 10)
    _, journal, _, _ = with_snapshot()
    found = journal.pack(4)[1]
    assert pack.body(found) == b"message 4"
    assert journal.pack(4)[1] is found
    journal.pack(3)
    assert journal._cache_bytes == len(journal.pack(3)[1])


def test_memory_storage_has_a_limit() -> None:
    disk = RamDisk(limit_bytes=1000)
    journal, _ = opened(disk)
    many = (write(journal, entry(index)) for index in range(1, 100))
    with pytest.raises(DiskFullError):
        list(many)
    assert sum(map(len, files_of(disk).values())) <= 1000
    assert log_of(journal) == tuple(entry(index) for index in range(1, journal.last + 1))
