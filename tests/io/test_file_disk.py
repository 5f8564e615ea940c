"""`FileDisk` on a real folder."""

import errno
import os
import resource
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ClassVar

import pytest

from antiphon.errors import (
    DiskFullError,
    IllegalStateError,
    JournalDamagedError,
    SyncFailedError,
)
from antiphon.formats.entry import Entry, Kind
from antiphon.io import file_disk
from antiphon.io.file_disk import FileDisk
from antiphon.journal.disk import DIRECTORY
from antiphon.journal.opening import open_journal


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[FileDisk]:
    disk = FileDisk(tmp_path / "data")
    yield disk
    disk.close()


def test_what_was_evicted_is_still_there(disk: FileDisk) -> None:
    disk.write("x", 0, b"synced")
    disk.sync("x")
    disk.write("x", 6, b", and not")
    disk.evict("x")
    assert disk.read("x", 0, 99) == b"synced, and not"


def test_a_journal_evicts_all_but_its_two_newest_segments(tmp_path: Path) -> None:
    class Watched(FileDisk):
        evicted: ClassVar[list[str]] = []

        def evict(self, name: str) -> None:
            super().evict(name)
            self.evicted.append(name)

    disk = Watched(tmp_path / "data")
    journal, _ = open_journal(disk, lambda: 7, segment_bytes=1000)
    for index in range(1, 8):
        journal.append((Entry(index, 1, 0, Kind.PACK, bytes(1000)),), ())
        journal.flush()
        segments = [name for name in disk.names() if name.endswith(".log")]
        assert disk.evicted == segments[:-2]
    assert len(disk.evicted) >= 5
    assert [len(e.payload) for e in journal.entries(1, 1 << 20)] == [1000] * 7
    disk.close()


def test_what_was_written_is_read_back_by_the_next_opener(tmp_path: Path) -> None:
    first = FileDisk(tmp_path / "a" / "b")
    first.write("x", 0, b"hello")
    first.write("x", 3, b"p!")
    first.sync("x")
    first.sync(DIRECTORY)
    first.close()
    second = FileDisk(tmp_path / "a" / "b")
    assert second.names() == ["x"]
    assert (second.size("x"), second.read("x", 0, 99)) == (5, b"help!")
    assert second.read("x", 99, 4) == b""
    second.close()


def test_a_second_opener_gets_a_clear_error(tmp_path: Path, disk: FileDisk) -> None:
    with pytest.raises(IllegalStateError, match="in use by another process"):
        FileDisk(tmp_path / "data")


def test_a_closed_folder_can_be_opened_again(tmp_path: Path) -> None:
    for _ in range(2):
        FileDisk(tmp_path / "data").close()


def test_a_missing_file_is_not_found(disk: FileDisk) -> None:
    for call in (
        lambda: disk.read("no", 0, 1),
        lambda: disk.size("no"),
        lambda: disk.remove("no"),
        lambda: disk.truncate("no", 0),
        lambda: disk.rename("no", "yes"),
    ):
        with pytest.raises(FileNotFoundError):
            call()


def test_a_renamed_file_keeps_its_bytes_and_replaces_the_other(disk: FileDisk) -> None:
    disk.write("old", 0, b"1")
    disk.write("new", 0, b"222")
    assert disk.read("new", 0, 9) == b"222"
    disk.rename("old", "new")
    assert disk.names() == ["new"]
    assert disk.read("new", 0, 9) == b"1"
    disk.write("old", 0, b"3")
    assert disk.read("new", 0, 9) == b"1"


def test_a_removed_file_is_gone_and_syncing_it_is_no_error(disk: FileDisk) -> None:
    disk.write("x", 0, b"1")
    disk.remove("x")
    disk.sync("x")
    assert disk.names() == []


def test_truncate(disk: FileDisk) -> None:
    disk.write("x", 0, b"12345")
    disk.truncate("x", 2)
    assert disk.read("x", 0, 9) == b"12"


def test_folders_are_not_files_of_the_journal(disk: FileDisk, tmp_path: Path) -> None:
    (tmp_path / "data" / "lost+found").mkdir()
    assert disk.names() == []


def test_a_limit_on_file_size_is_a_full_disk_until_it_is_raised(disk: FileDisk) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    disk.write("x", 0, b"fits")
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with pytest.raises(DiskFullError, match="cannot write 5000 bytes"):
            disk.write("x", 4, bytes(5000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    disk.write("x", 4, bytes(5000))
    assert disk.size("x") == 5004


def fails_with(number: int) -> object:
    def fail(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    return fail


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (errno.ENOSPC, DiskFullError),
        (errno.EDQUOT, DiskFullError),
        (errno.EFBIG, DiskFullError),
        (errno.EIO, SyncFailedError),
    ],
)
def test_a_failed_write(
    disk: FileDisk, monkeypatch: pytest.MonkeyPatch, number: int, expected: type[Exception]
) -> None:
    monkeypatch.setattr(os, "pwritev", fails_with(number))
    with pytest.raises(expected, match=os.strerror(number)):
        disk.write("x", 0, b"1")


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
def test_a_failed_sync_is_never_a_full_disk(
    disk: FileDisk, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    disk.write("x", 0, b"1")
    monkeypatch.setattr(file_disk, "_sync_data", fails_with(number))
    monkeypatch.setattr(os, "fsync", fails_with(number))
    for name in ("x", DIRECTORY):
        with pytest.raises(SyncFailedError, match="could not be synced"):
            disk.sync(name)


def test_a_sector_that_cannot_be_read_is_damage(
    disk: FileDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk.write("x", 0, b"1")
    monkeypatch.setattr(os, "pread", fails_with(errno.EIO))
    with pytest.raises(JournalDamagedError) as raised:
        disk.read("x", 7, 1)
    assert (raised.value.file, raised.value.offset) == ("x", 7)


def test_short_writes_and_reads_go_on(disk: FileDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    pwrite, pread = os.pwrite, os.pread
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: pwrite(fd, data[:3], at))
    monkeypatch.setattr(os, "pwritev", lambda fd, parts, at: pwrite(fd, parts[0][:2], at))
    monkeypatch.setattr(os, "pread", lambda fd, size, at: pread(fd, min(size, 3), at))
    disk.write("x", 0, b"0123", b"", b"456789")
    assert disk.read("x", 0, 10) == b"0123456789"
    assert disk.read("x", 8, 10) == b"89"


def test_many_parts_are_written_one_after_the_other(disk: FileDisk) -> None:
    parts = [b"%d" % (at % 10) for at in range(3 * file_disk.PARTS_MAX)]
    disk.write("x", 2, *parts)
    assert disk.read("x", 2, 2 + len(parts)) == b"".join(parts)


def test_open_files_are_bounded_but_unsynced_ones_stay_open(disk: FileDisk) -> None:
    names = [f"f{at}" for at in range(3 * file_disk.OPEN_MAX)]
    for name in names[: file_disk.OPEN_MAX + 5]:
        disk.write(name, 0, name.encode())
    assert len(disk._open) == file_disk.OPEN_MAX + 5
    for name in names:
        disk.write(name, 0, name.encode())
        disk.sync(name)
    assert len(disk._open) <= file_disk.OPEN_MAX + 1
    assert all(disk.read(name, 0, 9) == name.encode() for name in names)
    assert len(disk._open) <= file_disk.OPEN_MAX


# -- Large writes ----------------------------------------------------------------------------------

LARGE = bytes(range(256)) * 8192  # above `LATE_BYTES`


@pytest.fixture
def writes(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Offset, and number of the thread, of each that is made."""
    made: list[tuple[int, int]] = []
    write = os.pwritev

    def pwritev(descriptor: int, parts: tuple[bytes, ...], offset: int) -> int:
        made.append((offset, threading.get_ident()))
        return write(descriptor, parts, offset)

    monkeypatch.setattr(os, "pwritev", pwritev)
    return made


def test_a_large_write_is_made_by_who_syncs_it(
    disk: FileDisk, writes: list[tuple[int, int]]
) -> None:
    disk.write("seg", 0, b"head", LARGE)
    disk.write("seg", 4 + len(LARGE), b"tail")
    disk.write("other", 0, b"small")
    here = threading.get_ident()
    assert writes == [(4 + len(LARGE), here), (0, here)]
    syncing = threading.Thread(target=disk.sync, args=("seg",))
    syncing.start()
    syncing.join()
    assert [offset for offset, thread in writes if thread != here] == [0]
    assert disk.read("seg", 0, 9 + len(LARGE)) == b"head" + LARGE + b"tail"


def test_a_large_write_is_read_before_it_is_synced(
    disk: FileDisk, writes: list[tuple[int, int]]
) -> None:
    disk.write("seg", 0, b"begin")
    disk.write("seg", 5, LARGE)
    assert disk.size("seg") == 5 + len(LARGE)
    assert disk.read("seg", 0, 5) == b"begin"
    assert len(writes) == 1
    assert disk.read("seg", 3, 10) == b"in" + LARGE[:8]
    assert len(writes) == 2


def test_what_is_written_over_a_large_write_stays(disk: FileDisk) -> None:
    disk.write("seg", 0, LARGE)
    disk.write("seg", 10, b"new")
    disk.sync("seg")
    assert disk.read("seg", 8, 7) == LARGE[8:10] + b"new" + LARGE[13:15]


def test_a_large_write_goes_with_its_file(disk: FileDisk, writes: list[tuple[int, int]]) -> None:
    disk.write("a", 0, LARGE)
    disk.write("b", 0, LARGE)
    disk.rename("a", "c")
    disk.remove("b")
    disk.sync("b")
    disk.sync("c")
    assert disk.read("c", 0, len(LARGE)) == LARGE
    assert len(writes) == 1


def test_closing_makes_large_writes(tmp_path: Path) -> None:
    disk = FileDisk(tmp_path / "folder")
    disk.write("a", 0, LARGE)
    disk.close()
    assert (tmp_path / "folder" / "a").read_bytes() == LARGE


def test_no_room_for_a_large_write_is_told_at_once(disk: FileDisk) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, hard))
    try:
        with pytest.raises(DiskFullError):
            disk.write("seg", 0, LARGE)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    disk.write("seg", 0, LARGE)
    disk.sync("seg")
    assert disk.read("seg", 0, len(LARGE)) == LARGE


def test_where_no_room_can_be_reserved_large_writes_are_made_at_once(
    disk: FileDisk, writes: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "posix_fallocate", raising(errno.EOPNOTSUPP))
    disk.write("seg", 0, LARGE)
    assert len(writes) == 1


def raising(number: int) -> Callable[..., None]:
    def call(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    return call
