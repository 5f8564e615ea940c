"""A journal whose end is gone: below what was synced that is damage, above it a torn tail."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest

from antiphon.cli import journal as inspect
from antiphon.errors import DiskFullError, JournalDamagedError
from antiphon.formats import journal as f
from antiphon.formats.journal import MANIFEST, index_name, segment_name
from antiphon.formats.notes import REACHED, note_at
from antiphon.journal.journal import Journal
from antiphon.journal.opening import open_journal
from antiphon.journal.reached import notes_on
from antiphon.journal.recovery import read_manifest, segment_numbers
from antiphon.sim.cluster.disk import SimDisk
from tests.formats.test_journal import fixture_disk
from tests.journal.test_journal_faults import (
    SEGMENT_BYTES,
    disk_of,
    entry,
    files_of,
    finish,
    flipped,
    log_of,
    old_journal,
    opened,
    parts_of,
    receive,
    sync,
    with_snapshot,
    write,
)

KEPT = 8
"""Entries of `old_journal`, all of which were acknowledged."""


def spoilt(disk: SimDisk) -> Iterator[tuple[dict[str, bytes], str, int, bool]]:
    """The newest segment that has something synced, cut and zeroed from every byte on: the files,
    the segment's name, where, and whether that takes away what was acknowledged."""
    files = files_of(disk)
    (note,) = (n for n in notes_on(disk) if n.number == max(n.number for n in notes_on(disk)))
    name = segment_name(note.segment)
    data, synced = files[name], note.offset - note.base
    for at in range(len(data)):
        yield files | {name: data[:at]}, name, at, at < synced
        zeroed = data[:at] + bytes(len(data) - at)
        if zeroed[:synced] == data[:synced]:
            yield files | {name: zeroed}, name, at, False
        else:
            yield files | {name: zeroed}, name, at, True


@pytest.mark.parametrize("unsynced", [0, 1, 2])
@pytest.mark.parametrize("snapshot", [False, True])
def test_every_cut_and_zeroed_end_is_told_from_a_torn_tail(unsynced: int, snapshot: bool) -> None:
    disk, journal, *_ = with_snapshot() if snapshot else old_journal()
    for more in range(unsynced):
        write(journal, entry(KEPT + 1 + more))
    damaged = 0
    for files, name, at, lost in spoilt(disk):
        bad = disk_of(files)
        if not lost:
            journal, recovered = opened(bad)
            assert (recovered.damage, recovered.incarnation) == ("", 77)
            assert log_of(journal)[-1].index >= KEPT
            opened(bad, alone=True)
            continue
        damaged += 1
        with pytest.raises(JournalDamagedError, match="Restore a backup") as caught:
            opened(bad, alone=True)
        assert caught.value.file == name
        assert caught.value.offset <= at
        assert files_of(bad) == files
        assert inspect.examine(bad).damage[0].file == name
        _, recovered = opened(bad)
        assert f"journal file {name!r} is damaged at offset" in recovered.damage
    assert damaged > f.SEGMENT_SIZE + f.BATCH_SIZE


def without(files: dict[str, bytes], *names: str) -> dict[str, bytes]:
    return {name: data for name, data in files.items() if name not in names}


@pytest.mark.parametrize("snapshot", [False, True])
@pytest.mark.parametrize("index_too", [False, True])
def test_every_deleted_and_emptied_segment_is_damage(snapshot: bool, index_too: bool) -> None:
    disk = (with_snapshot() if snapshot else old_journal())[0]
    files = files_of(disk)
    assert len(segment_numbers(disk)) >= 3
    for number in segment_numbers(disk):
        name = segment_name(number)
        gone = (name, index_name(number)) if index_too else (name,)
        for bad in (without(files, *gone), without(files, *gone) | {name: b""}):
            with pytest.raises(JournalDamagedError) as caught:
                opened(disk_of(bad), alone=True)
            assert caught.value.file == name
            journal, recovered = opened(disk_of(bad))
            assert f"journal file {name!r} is damaged at offset 0" in recovered.damage
            assert journal.last < KEPT


def test_several_segments_deleted_at_the_end_are_damage() -> None:
    disk = old_journal()[0]
    numbers = segment_numbers(disk)
    for first in numbers:
        names = [segment_name(number) for number in numbers if number >= first]
        with pytest.raises(JournalDamagedError) as caught:
            opened(disk_of(without(files_of(disk), *names)), alone=True)
        assert caught.value.file == names[0]


def test_the_file_that_lost_its_end_is_named_although_another_was_begun_behind_it() -> None:
    files = files_of(old_journal()[0])
    newest = max(name for name in files if name.endswith(".log"))
    begun = segment_name(int(newest[4:-4]) + 1)
    for head in (b"", bytes(10)):  # of a segment that was never synced
        lost = files | {newest: files[newest][: f.SEGMENT_SIZE], begun: head}
        with pytest.raises(JournalDamagedError, match="the file ends here") as caught:
            opened(disk_of(lost), alone=True)
        assert caught.value.file == newest


def copies(seed: int = 0) -> tuple[SimDisk, list[dict[str, bytes]]]:
    """A journal that was opened several times, and its files after each sync."""
    disk, journal, _ = old_journal(seed)
    earlier = []
    for index in range(KEPT + 1, KEPT + 13):
        write(journal, entry(index))
        sync(journal, disk)
        earlier.append(files_of(disk))
        if index % 3 == 0:
            write(journal, entry(index + 1, "unsynced"))
            journal, recovered = opened(disk)
            assert recovered.damage == ""
    return disk, earlier


def test_an_older_copy_of_any_segment_is_damage() -> None:
    disk, earlier = copies()
    files = files_of(disk)
    names = [segment_name(number) for number in segment_numbers(disk)]
    bases = [f.decode_segment_header(files[name]).base for name in names]
    ends = [*bases[1:], bases[-1] + len(files[names[-1]])]
    found = 0
    for name, base, end in zip(names, bases, ends, strict=True):
        counts = files[name][: end - base]  # behind it a recovery has cut something off
        for copy in (copy.get(name, b"") for copy in earlier):
            bad = disk_of(files | {name: copy})
            if copy[: len(counts)] == counts:
                opened(bad, alone=True)
                continue
            found += 1
            with pytest.raises(JournalDamagedError):
                opened(bad, alone=True)
    assert found > 10


def one_segment(disk: SimDisk) -> Journal:
    return open_journal(disk, lambda: 77)[0]


def written_anew(acknowledged: int) -> tuple[SimDisk, dict[str, bytes]]:
    """A journal of which so many entries were acknowledged when it was killed, with more that was
    not: recovery wrote that again, and shorter, since most of it was replaced. Then one more was
    acknowledged. And the files as recovery found them."""
    disk = SimDisk(Random(0))
    journal = one_segment(disk)
    for index in range(1, acknowledged + 1):
        write(journal, entry(index))
        sync(journal, disk)
    for epoch in range(2, 8):
        write(journal, entry(acknowledged + 1, "one after the other", epoch))
    found = files_of(disk)
    journal = one_segment(disk)
    write(journal, entry(acknowledged + 2, "acknowledged", 8))
    sync(journal, disk)
    return disk, found


def test_what_a_recovery_cut_off_does_not_stand_in_for_the_segment_that_replaced_it() -> None:
    """It is whole, it stands at the right offsets, and there is more of it."""
    disk, _ = written_anew(acknowledged=2)
    first, second = map(segment_name, segment_numbers(disk))
    files = files_of(disk)
    assert len(files[first]) > max(notes_on(disk)).offset
    with pytest.raises(JournalDamagedError) as caught:
        open_journal(disk_of(without(files, second)), lambda: 77, alone=True)
    assert caught.value.file == second


def test_an_older_file_of_the_same_number_is_not_the_segment() -> None:
    disk, found = written_anew(acknowledged=0)
    (name,) = map(segment_name, segment_numbers(disk))
    files = files_of(disk)
    assert len(found[name]) > len(files[name])
    with pytest.raises(JournalDamagedError, match="an older file") as caught:
        open_journal(disk_of(files | {name: found[name]}), lambda: 77, alone=True)
    assert caught.value.file == name


def test_a_file_of_a_journal_that_was_set_aside_is_not_the_segment() -> None:
    """It has the name, it begins at the same offset, it is whole, and there is more of it."""
    disk = old_journal()[0]
    earlier = files_of(disk)
    for openings in range(3):
        files = files_of(disk) | {MANIFEST: b""}
        journal, recovered = open_journal(disk_of(files), lambda: 88, segment_bytes=SEGMENT_BYTES)
        assert recovered.damage
        disk = journal._disk
        assert isinstance(disk, SimDisk)
        write(journal, entry(1, "another"))
        sync(journal, disk)
        (name,) = map(segment_name, segment_numbers(disk))
        opened(disk_of(files_of(disk)), alone=True)
        for copy in (earlier[name], files[name]):
            for reached in (files_of(disk), files_of(disk) | {f"damaged-1-{REACHED}": b""}):
                with pytest.raises(JournalDamagedError, match="an older file") as caught:
                    opened(disk_of(reached | {name: copy}), alone=True)
                assert caught.value.file == name, openings
        opened(disk)


def test_all_segments_and_the_manifest_deleted_are_damage() -> None:
    files = files_of(old_journal()[0])
    with pytest.raises(JournalDamagedError, match="a journal was here"):
        opened(disk_of({REACHED: files[REACHED]}), alone=True)
    assert opened(disk_of({REACHED: files[REACHED]}))[1].damage


# -- The note itself -------------------------------------------------------------------------------


def test_without_its_note_a_journal_is_damaged() -> None:
    files = files_of(old_journal()[0])
    both = flipped(flipped(files[REACHED], note_at(0) + 20), note_at(1) + 20)
    for bad in (without(files, REACHED), files | {REACHED: b""}, files | {REACHED: both}):
        with pytest.raises(JournalDamagedError, match=REACHED):
            opened(disk_of(bad), alone=True)
        report = inspect.examine(disk_of(bad))
        assert [damage.file for damage in report.damage] == [REACHED]
        assert f"'{REACHED}' is damaged" in opened(disk_of(bad))[1].damage


def test_one_bad_note_of_two_is_a_torn_write() -> None:
    disk = old_journal()[0]
    files = files_of(disk)
    for place in (0, 1):
        for at in range(note_at(place), note_at(place) + 60):
            bad = files | {REACHED: flipped(files[REACHED], at)}
            assert opened(disk_of(bad))[1].damage == ""


def test_a_power_failure_takes_back_notes_and_that_is_no_damage() -> None:
    for seed in range(30):
        disk, journal, entries = old_journal(seed)
        finish(iter([journal.begin_note_sync()]), disk)
        assert journal.begin_note_sync() == ()
        for index in range(KEPT + 1, KEPT + 6):
            entries.append(entry(index))
            write(journal, entries[-1])
            sync(journal, disk)
            if index == KEPT + 3:
                finish(iter([journal.begin_note_sync()]), disk)
        write(journal, entry(KEPT + 6))
        disk.power_failure()
        assert max(note.offset for note in notes_on(disk)) >= entries_end(disk, KEPT + 3)
        journal, recovered = opened(disk)
        assert recovered.damage == ""
        assert log_of(journal)[: len(entries)] == tuple(entries)


def entries_end(disk: SimDisk, index: int) -> int:
    """Where the batch of an entry ends, counted over all segments."""
    for number in segment_numbers(disk):
        data = files_of(disk)[segment_name(number)]
        for _, batch in f.find_batches(data, 0):
            for kind, _, payload in batch.records:
                if kind == f.ENTRY and f.decode_entry(payload).index == index:
                    return batch.offset + batch.size
    raise AssertionError(f"entry {index} is not there")


def test_a_sync_that_did_not_end_is_not_noted() -> None:
    for seed in range(20):
        disk, journal, entries = old_journal(seed)
        finish(iter([journal.begin_note_sync()]), disk)
        for index in range(KEPT + 1, KEPT + 4):  # into a new segment
            write(journal, entry(index))
        assert journal.begin_sync() is not None
        disk.power_failure()
        journal, recovered = opened(disk)
        assert recovered.damage == ""
        assert log_of(journal)[:KEPT] == tuple(entries)


def test_what_is_written_during_a_sync_is_not_noted_by_it() -> None:
    for seed in range(20):
        disk, journal, entries = old_journal(seed)
        write(journal, entry(KEPT + 1))
        job = journal.begin_sync()
        assert job is not None
        token = disk.begin_sync(job.names)
        write(journal, entry(KEPT + 2))
        disk.finish_sync(token)
        journal.end_sync(job)
        finish(iter([journal.begin_note_sync()]), disk)
        disk.power_failure()
        journal, recovered = opened(disk)
        assert recovered.damage == ""
        assert log_of(journal)[: KEPT + 1] == (*entries, entry(KEPT + 1))


def test_nothing_is_released_that_could_not_be_noted() -> None:
    disk, journal, _ = old_journal()
    write(journal, entry(KEPT + 1))
    job = journal.begin_sync()
    assert job is not None
    for name in job.names:
        disk.sync(name)
    disk.full = True
    with pytest.raises(DiskFullError):
        journal.end_sync(job)
    disk.full = False
    job = journal.begin_sync()
    assert job is not None
    assert len(journal.end_sync(job)) == 1


def test_a_journal_in_memory_has_no_note() -> None:
    disk = fixture_disk()
    journal, _ = opened(disk)
    write(journal, entry(7))
    sync(journal, disk)
    assert REACHED not in disk.names()
    assert journal.begin_note_sync() == ()


# -- With what else happens to a journal -----------------------------------------------------------


def installed() -> tuple[SimDisk, Journal]:
    """A journal behind a snapshot that came from another server, with live packs below it."""
    disk, journal, _, _ = with_snapshot()
    parts = parts_of([entry(index, epoch=2) for index in range(1, 31)], retain=12)
    finish(journal.install(receive(journal, parts)), disk)
    return disk, journal


def test_the_end_of_an_installed_journal_is_missed() -> None:
    disk, journal = installed()
    numbers = segment_numbers(disk)
    assert len(numbers) > 1
    assert journal.base_index == 30
    for number in numbers:
        for gone in ((segment_name(number),), (segment_name(number), index_name(number))):
            journal, recovered = opened(disk_of(without(files_of(disk), *gone)))
            assert f"'{segment_name(number)}' is damaged" in recovered.damage
            assert recovered.snapshot is None, "live packs are gone that the snapshot stands for"


def test_an_installation_that_could_not_be_noted_is_noted_by_the_next_sync() -> None:
    disk, journal, _, _ = with_snapshot()
    parts = parts_of([entry(index, epoch=2) for index in range(1, 31)], retain=12)
    work = journal.install(receive(journal, parts))
    for names in work:
        for name in names:
            disk.sync(name)
        manifest = read_manifest(disk)
        disk.full = manifest is not None and manifest.base_index == 30  # all but the note is done
    disk.full = False
    assert max(notes_on(disk)).last == KEPT
    write(journal)  # nothing; but somebody waits for all before it
    sync(journal, disk)
    assert max(notes_on(disk)).last == 30


def test_what_a_new_leader_replaces_is_no_lost_end() -> None:
    """The log becomes shorter, and the journal does not."""
    disk, journal, entries = old_journal()
    write(journal, entry(4, "instead", epoch=2))
    sync(journal, disk)
    journal, recovered = opened(disk)
    assert recovered.damage == ""
    assert log_of(journal) == (*entries[:3], entry(4, "instead", epoch=2))


def test_who_starts_over_founds_nothing_whenever_it_dies_meanwhile() -> None:
    files = files_of(old_journal()[0])
    lost = files | {MANIFEST: b""}
    for point in range(40):
        disk = Dying(lost, point)
        try:
            opened(disk)
        except Dying.DiedError:
            died = True
        else:
            died = False
        disk.writes_left = -1
        disk.power_failure()
        for _ in range(2):
            recovered = opened(disk)[1]
            assert (bool(recovered.damage), recovered.fresh) == (True, False), point
        if not died:
            return
    raise AssertionError("opening never ended")


def test_who_lost_its_end_becomes_somebody_new_whenever_it_dies_meanwhile() -> None:
    """The note of who it was counts until it is somebody new, and not against that one."""
    files = files_of(old_journal()[0])
    lost = without(files, max(name for name in files if name.endswith(".log")))
    for point in range(40):
        disk = Dying(lost, point)
        try:
            open_journal(disk, lambda: 88, segment_bytes=SEGMENT_BYTES)
        except Dying.DiedError:
            died = True
        else:
            died = False
        disk.writes_left = -1
        disk.power_failure()
        journal, recovered = open_journal(disk, lambda: 88, segment_bytes=SEGMENT_BYTES)
        assert (recovered.incarnation, recovered.fresh) == (88, False)
        write(journal, entry(journal.last + 1))
        sync(journal, disk)
        name = segment_name(segment_numbers(disk)[-1])
        with pytest.raises(JournalDamagedError):
            opened(disk_of(files_of(disk) | {name: b""}), alone=True)
        if not died:
            return
    raise AssertionError("opening never ended")


class Dying(SimDisk):
    """A process that dies at its n-th change of the disk."""

    class DiedError(Exception):
        pass

    def __init__(self, files: dict[str, bytes], writes: int) -> None:
        super().__init__(Random(writes))
        self.writes_left = -1
        self.put_all(files)
        self.writes_left = writes

    def _count(self) -> None:
        if self.writes_left == 0:
            raise self.DiedError
        self.writes_left -= 1

    def write(self, name: str, offset: int, *parts: bytes) -> None:
        self._count()
        super().write(name, offset, *parts)

    def rename(self, old: str, new: str) -> None:
        self._count()
        super().rename(old, new)

    def sync(self, name: str) -> None:
        self._count()
        super().sync(name)


# -- Journals of 0.1, which noted nothing ----------------------------------------------------------


def of_version_0_1(files: dict[str, bytes]) -> dict[str, bytes]:
    manifest = f.decode_manifest(files[MANIFEST])
    old = f.Manifest(*(getattr(manifest, name) for name in manifest.__struct_fields__[:-1]))
    return without(files, REACHED) | {MANIFEST: f.encode_manifest(old)}


def test_a_journal_without_notes_opens_and_has_them_from_then_on() -> None:
    for point in range(40):
        disk = Dying(of_version_0_1(files_of(old_journal()[0])), point)
        try:
            opened(disk)
        except Dying.DiedError:
            disk.writes_left = -1
            disk.power_failure()
            assert opened(disk)[1].damage == ""
            continue
        name = segment_name(segment_numbers(disk)[-1])
        assert f.decode_manifest(files_of(disk)[MANIFEST]).reached
        with pytest.raises(JournalDamagedError):
            opened(disk_of(without(files_of(disk), name)), alone=True)
        return
    raise AssertionError("opening never ended")


def test_what_version_0_1_did_with_a_noted_journal_is_no_damage() -> None:
    """It wrote the end again that it did not know to be synced, shorter, and noted nothing."""
    disk, _, entries = old_journal()
    files = files_of(disk)
    noted = notes_on(disk)
    older = disk_of(of_version_0_1(files))
    opened(older)
    assert len(files_of(older)) > 0
    again = files_of(older) | {REACHED: files[REACHED], MANIFEST: files[MANIFEST]}
    journal, recovered = opened(disk_of(again))
    assert recovered.damage == ""
    assert log_of(journal) == tuple(entries)
    assert max(noted).offset > 0
