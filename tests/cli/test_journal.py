"""`antiphon journal inspect` on journals that are whole, torn and damaged."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from antiphon import cli
from antiphon.cli.journal import ReadOnlyDisk, examine
from antiphon.formats import pack
from antiphon.formats.entry import ClusterMember, Entry, Kind, Membership, SnapshotMeta
from antiphon.io.file_disk import FileDisk
from antiphon.journal.journal import Journal
from antiphon.journal.opening import open_journal
from antiphon.log.effects import Accepted

MEMBERS = Membership(1, (ClusterMember(1, 5, True, "127.0.0.1:7470"),))


def written(folder: Path, entries: int = 20, snapshot_at: int = 0) -> Path:
    """A journal of packs, one a batch, all synced; perhaps with a snapshot."""
    disk = FileDisk(folder)
    journal, _ = open_journal(disk, lambda: 5)
    for index in range(1, entries + 1):
        payload = pack.encode("topic", 2, b"body " * index)
        journal.append((Entry(index, 1, 1000 + index, Kind.PACK, payload),), ())
        journal.flush()
        journal.index((Accepted(index, 2 * index - 1, 2, 1000 + index, 0, "topic", 0, 0),))
        if index == snapshot_at:
            store_snapshot(disk, journal, index)
    sync(disk, journal)
    disk.close()
    return folder


def store_snapshot(disk: FileDisk, journal: Journal, index: int) -> None:
    meta = SnapshotMeta(index, 1, 1000 + index, MEMBERS)
    for names in journal.store_snapshot(meta, iter([b"state", b"more"]), ((1, 2 * index),)):
        for name in names:
            disk.sync(name)


def sync(disk: FileDisk, journal: Journal) -> None:
    journal.append((), (object(),))  # type: ignore[arg-type]
    journal.flush()
    job = journal.begin_sync()
    assert job is not None
    for name in job.names:
        disk.sync(name)
    journal.end_sync(job)


def inspect(folder: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, Any]]:
    """Exit code and JSON; whatever it finds, it must leave everything as it is."""
    before = contents(folder)
    code = cli.main(["journal", "inspect", str(folder), "--json"])
    report = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert cli.main(["journal", "inspect", str(folder)]) == code
    capsys.readouterr()
    assert contents(folder) == before
    return code, report


def contents(folder: Path) -> dict[str, tuple[bytes, int]]:
    return {p.name: (p.read_bytes(), p.stat().st_mtime_ns) for p in folder.iterdir()}


def test_a_whole_journal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, report = inspect(written(tmp_path / "j"), capsys)
    assert code == 0
    assert report["manifest"]["incarnation"] == 5
    (segment,) = report["segments"]
    assert segment["file"] == "seg-00000001.log"
    assert (segment["entries"], segment["indexes"]) == (20, [1, 20])
    assert (segment["rows"], segment["positions"]) == (20, [1, 40])
    assert segment["batches"] == 20
    assert report["synced"] == report["end"] == segment["bytes"]
    assert (report["reached"]["offset"], report["reached"]["last"]) == (report["end"], 20)
    assert (report["snapshot"], report["torn"], report["damage"]) == (None, None, [])


def test_a_snapshot(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, report = inspect(written(tmp_path / "j", snapshot_at=10), capsys)
    assert code == 0
    assert report["snapshot"]["index"] == 10
    assert report["snapshot"]["chunks"] == 2
    assert report["snapshot"]["members"] == ["1.5"]


def test_a_torn_tail_is_no_damage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = written(tmp_path / "j")
    segment = folder / "seg-00000001.log"
    segment.write_bytes(segment.read_bytes() + b"BTCH and half a batch")
    code, report = inspect(folder, capsys)
    assert code == 0
    assert report["torn"]["file"] == segment.name
    assert report["torn"]["offset"] == segment.stat().st_size - len(b"BTCH and half a batch")


def flip(name: str, at: Callable[[int], int]) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        (path,) = folder.glob(name)
        data = bytearray(path.read_bytes())
        data[at(len(data))] ^= 1
        path.write_bytes(data)

    return spoil


@pytest.mark.parametrize(
    ("spoil", "file"),
    [
        (flip("seg-*.log", lambda size: size // 2), "seg-00000001.log"),
        (flip("seg-*.log", lambda _: 9), "seg-00000001.log"),
        (flip("seg-*.idx", lambda _: 9), "seg-00000001.idx"),
        (flip("snap-*", lambda size: size - 20), "snap-00000000000000000010.snap"),
        (flip("MANIFEST", lambda size: size - 1), "MANIFEST"),
        (lambda folder: (folder / "MANIFEST").unlink(), "MANIFEST"),
        (lambda folder: (folder / "seg-00000001.log").unlink(), "seg-00000001.log"),
    ],
)
def test_damage_is_named_by_file_and_offset(
    spoil: Callable[[Path], None], file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = written(tmp_path / "j", snapshot_at=10)
    spoil(folder)
    code, report = inspect(folder, capsys)
    assert code == 1
    assert file in [damage["file"] for damage in report["damage"]]


def test_every_byte_of_a_synced_segment_matters(tmp_path: Path) -> None:
    folder = written(tmp_path / "j", entries=3)
    (segment,) = folder.glob("seg-*.log")
    good = segment.read_bytes()
    for at in range(examine(ReadOnlyDisk(folder)).synced):
        data = bytearray(good)
        data[at] ^= 0x40
        segment.write_bytes(data)
        assert examine(ReadOnlyDisk(folder)).damage, f"a flip at {at} was not noticed"


def test_a_running_servers_folder_may_be_looked_at(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    disk = FileDisk(written(tmp_path / "j"))
    assert inspect(tmp_path / "j", capsys)[0] == 0
    disk.close()


def test_what_is_no_journal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["journal", "inspect", str(tmp_path)]) == 0
    assert "there is no journal" in capsys.readouterr().out
    assert cli.main(["journal", "inspect", str(tmp_path / "nowhere")]) == 2
    assert "there is no folder" in capsys.readouterr().err
