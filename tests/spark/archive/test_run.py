"""An archive has what its journal has, once, whatever happened to those who wrote it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from antiphon import LogBounds, LogSlice, cli
from antiphon.errors import (
    ConfigurationError,
    FormatError,
    IllegalStateError,
    MessagesGoneError,
    UnknownVersionError,
)
from antiphon.spark.archive import files as archive_files
from antiphon.spark.archive import run as archiving
from antiphon.spark.archive.files import ArchiveFiles, File, quoted
from antiphon.spark.archive.log import ArchiveLog, Joined
from antiphon.spark.archive.run import Report, archive, on_spark, write_all
from antiphon.spark.logs.journal_log import JournalLog
from tests.spark.support import archive_killer, archive_together
from tests.spark.support.journals import NOW, Book, everything, told

DAY_MS = 86_400_000


@pytest.fixture
def book(tmp_path: Path) -> Iterator[Book]:
    book = Book(tmp_path / "journal")
    yield book
    book.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "archive"


def fill(book: Book, packs: int = 60, topics: tuple[str, ...] = ("a.b", "c")) -> None:
    """Messages of several topics, over some days."""
    for n in range(packs):
        book.stamp += DAY_MS // 20
        book.send(topics[n % len(topics)], *(f"{n}.{i}" for i in range(1 + n % 4)))


def run(book: Book, folder: Path) -> Report:
    return archive(JournalLog(book.folder), folder, write_all)


def unnamed(folder: Path) -> set[Path]:
    """Files that no manifest names."""
    named = {folder / file.path for m in ArchiveFiles(folder).manifests() for file in m.files}
    return set(folder.glob("topic=*/**/*.parquet")) - named


def sealed(book: Book) -> int:
    return JournalLog(book.folder).sealed()


# -- What is there --------------------------------------------------------------------------------


def test_what_is_finished_is_archived_and_the_rest_stays_in_the_journal(
    book: Book, folder: Path
) -> None:
    fill(book)
    end = sealed(book)
    assert 1 < end < book.position
    report = run(book, folder)
    assert (report.first, report.last) == ArchiveLog(folder).bounds() == LogBounds(1, end)
    assert told(ArchiveLog(folder)) == [m for m in book.messages if m[0] <= end]
    assert report.messages == end
    joined = Joined(ArchiveLog(folder), JournalLog(book.folder))
    assert told(joined) == book.messages
    assert joined.bounds() == LogBounds(1, book.position)


def test_every_column_is_as_in_the_journal(book: Book, folder: Path) -> None:
    fill(book)
    run(book, folder)
    joined = Joined(ArchiveLog(folder), JournalLog(book.folder))
    assert everything(joined) == everything(JournalLog(book.folder))


def test_messages_of_queues_are_not_archived(book: Book, folder: Path) -> None:
    fill(book)
    book.accept(book.store("queue:q", "for a queue"), "queue:q", ["for a queue"])
    fill(book)
    run(book, folder)
    assert told(Joined(ArchiveLog(folder), JournalLog(book.folder))) == book.messages


def test_files_are_by_topic_and_day_and_sorted(book: Book, folder: Path) -> None:
    fill(book)
    run(book, folder)
    (manifest,) = ArchiveFiles(folder).manifests()
    for file in manifest.files:
        table = pq.read_table(folder / file.path, partitioning=None)
        positions = table["position"].to_pylist()
        assert positions == sorted(positions)
        assert (positions[0], positions[-1], len(positions)) == (file.first, file.last, file.rows)
        assert set(table["topic"].to_pylist()) == {file.topic}
        days = {f"{stamp:%Y-%m-%d}" for stamp in table["stamp"].to_pylist()}
        assert Path(file.path).parts[:2] == (f"topic={file.topic}", f"day={days.pop()}")
        assert not days
        assert (folder / file.path).stat().st_size == file.bytes
        column = pq.ParquetFile(folder / file.path).metadata.row_group(0).column(0)
        assert column.compression == "ZSTD"
    assert len({Path(file.path).parts[1] for file in manifest.files}) > 2


def test_a_text_is_stored_once(book: Book, folder: Path) -> None:
    fill(book)
    run(book, folder)
    file = ArchiveFiles(folder).manifests()[0].files[0]
    table = pq.read_table(folder / file.path, columns=["body", "text"], partitioning=None)
    assert table["body"].null_count == table.num_rows
    assert table["text"].null_count == 0


@pytest.mark.parametrize("topic", ["a=b/c", "50%", "ü.ö", "x" * 1000, "é" * 500, "-", "a:b?*'\""])
def test_odd_topics_survive(book: Book, folder: Path, topic: str) -> None:
    fill(book, topics=(topic, "other"))
    run(book, folder)
    log = ArchiveLog(folder)
    assert told(log, [topic]) == [m for m in book.of(topic) if m[0] <= sealed(book)]
    assert {path.parent for path in folder.glob("topic=*")} == {folder}


def test_folders_of_topics_have_names_that_spark_reads_back() -> None:
    assert quoted("a.b-c_d") == "a.b-c_d"
    assert quoted("a=b/c:50%") == "a%3Db%2Fc%3A50%25"
    assert quoted("ü") == "ü"
    assert quoted("x" * 1000) != quoted("x" * 999)


# -- Again and again ------------------------------------------------------------------------------


def test_two_in_a_row_write_nothing_new(book: Book, folder: Path) -> None:
    fill(book)
    run(book, folder)
    before = sorted(folder.rglob("*"))
    second = run(book, folder)
    assert (second.manifests, second.files, second.last) == (0, 0, sealed(book))
    assert second.first == second.last + 1
    assert sorted(folder.rglob("*")) == before


def test_it_goes_on_where_it_was(book: Book, folder: Path) -> None:
    ends = []
    for _ in range(3):
        fill(book, 30)
        book.sync()
        book.restart()
        run(book, folder)
        ends.append(sealed(book))
    manifests = ArchiveFiles(folder).manifests()
    assert [m.last for m in manifests] == ends
    assert told(ArchiveLog(folder)) == [m for m in book.messages if m[0] <= ends[-1]]


def test_much_is_archived_in_steps(
    book: Book, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archiving, "STEP_POSITIONS", 25)
    fill(book)
    report = run(book, folder)
    assert report.manifests == len(ArchiveFiles(folder).manifests()) > 3
    assert told(ArchiveLog(folder)) == [m for m in book.messages if m[0] <= sealed(book)]


def test_a_restarted_server_that_is_idle_has_its_messages_archived(
    book: Book, folder: Path
) -> None:
    fill(book)
    book.sync()
    book.snapshot(((1, book.position),))
    book.restart()
    assert sealed(book) == book.position
    run(book, folder)
    assert told(ArchiveLog(folder)) == book.messages


def test_without_a_journal_nothing_is_made(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(IllegalStateError, match="there is no journal"):
        archive(JournalLog(tmp_path), folder, write_all)
    assert not folder.exists()
    assert cli.main(["archive", str(tmp_path / "nowhere"), str(folder)]) == 2


# -- What the journal has let go of ---------------------------------------------------------------


@pytest.mark.parametrize("place", ["", "archive", "deep/archive", "../journal", "..", "../link"])
def test_an_archive_is_not_made_inside_the_journal_or_around_it(
    book: Book, place: str, tmp_path: Path
) -> None:
    fill(book)
    (tmp_path / "link").symlink_to(book.folder)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(ConfigurationError, match="are in each other: give the archive a folder"):
        run(book, book.folder / place)
    assert sorted(tmp_path.rglob("*")) == before


def test_an_archive_beside_the_journal_may_begin_like_it(book: Book, tmp_path: Path) -> None:
    fill(book)
    assert run(book, tmp_path / "journal-archive").messages
    odd = tmp_path / "a [1]{b,c}*? 100%: d"
    archived = run(book, odd).messages
    assert told(ArchiveLog(odd)) == book.messages[:archived]


def test_positions_that_are_gone_are_told(book: Book, folder: Path) -> None:
    fill(book)
    run(book, folder)
    archived = sealed(book)
    fill(book)
    book.sync()
    book.snapshot(((book.position - 3, book.position),))
    first = JournalLog(book.folder).bounds().first
    assert first > archived + 1
    joined = Joined(ArchiveLog(folder), JournalLog(book.folder))
    with pytest.raises(MessagesGoneError, match=f"more: {archived + 1} to {first - 1}\\."):
        joined.slices([">"], 1, book.position, 100)
    assert joined.missing(1, book.position) == [LogBounds(archived + 1, first - 1)]
    assert told(joined, last=archived) == [m for m in book.messages if m[0] <= archived]
    fill(book)
    report = run(book, folder)
    assert report.missing == [(archived + 1, first - 1)]
    assert ArchiveFiles(folder).manifests()[1].missing == ((archived + 1, first - 1),)
    assert told(joined) == [m for m in book.messages if not archived < m[0] < first]
    assert joined.missing(1, book.position) == [LogBounds(archived + 1, first - 1)]
    assert joined.missing(1, archived + 2) == [LogBounds(archived + 1, archived + 2)]


def test_a_journal_that_lets_go_while_it_is_read_is_no_silent_loss(book: Book) -> None:
    fill(book)
    log = JournalLog(book.folder)
    piece = log.slices(["c"], 1, 40, 1000)[0]
    book.sync()
    book.snapshot(((book.position, book.position),))
    with pytest.raises(MessagesGoneError, match=r"has let go of messages while .* topic 'c'"):
        list(log.read(piece, ["position"]))


# -- As of a position, as of a time ---------------------------------------------------------------


def test_a_topic_as_of_any_position(book: Book, folder: Path) -> None:
    fill(book)
    run(book, folder)
    joined = Joined(ArchiveLog(folder), JournalLog(book.folder))
    for position in range(book.position + 1):
        assert told(joined, ["c"], last=position) == [m for m in book.of("c") if m[0] <= position]


def test_a_topic_as_of_any_time(book: Book, folder: Path) -> None:
    fill(book)
    run(book, folder)
    journal = JournalLog(book.folder)
    joined = Joined(ArchiveLog(folder), journal)
    for stamp in range(NOW, book.stamp + 2 * DAY_MS // 20, DAY_MS // 40):
        assert joined.position_at(stamp) == journal.position_at(stamp)
    assert journal.position_at(book.stamp + 1) == book.position + 1


def test_a_slice_that_was_archived_since_is_read_once(book: Book, folder: Path) -> None:
    fill(book, 20)
    run(book, folder)
    fill(book, 40)
    joined = Joined(ArchiveLog(folder), JournalLog(book.folder))
    pieces = joined.slices(["c"], 1, book.position, 1000)
    run(book, folder)
    columns = ("position", "topic", "text")
    rows = [
        tuple(r.values()) for p in pieces for b in joined.read(p, columns) for r in b.to_pylist()
    ]
    assert rows == book.of("c")


def test_an_empty_archive_is_no_obstacle(book: Book, folder: Path) -> None:
    fill(book, 3)
    assert run(book, folder).manifests == 0
    joined = Joined(ArchiveLog(folder), JournalLog(book.folder))
    assert joined.bounds() == LogBounds(1, book.position)
    assert told(joined) == book.messages
    assert joined.position_at(NOW) == 1


# -- Killed ---------------------------------------------------------------------------------------


def test_killed_at_any_step_nothing_is_lost_or_doubled(book: Book, tmp_path: Path) -> None:
    """`kill -9` before every step by which an archiver changes a file or a folder."""
    fill(book, 24)
    expected = [m for m in book.messages if m[0] <= sealed(book)]
    command = [sys.executable, archive_killer.__file__, str(book.folder), str(tmp_path / "killed")]
    subprocess.run(command, check=True, timeout=120)
    folders = sorted(tmp_path.glob("killed*"))
    assert len(folders) > 30
    for folder in folders:
        assert told(ArchiveLog(folder)) in ([], expected), folder
        run(book, folder)
        assert told(ArchiveLog(folder)) == expected, folder
        assert unnamed(folder) == set()
        assert not list((folder / "manifests").glob(".*"))
        assert not list((folder / "runs").glob("[!.]*"))


def test_what_a_manifest_names_is_on_the_disk_before_it(
    book: Book, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(book, 24)
    synced: set[int] = set()
    links: list[set[int]] = []
    fsync, link = os.fsync, os.link

    def note(descriptor: int) -> None:
        fsync(descriptor)
        synced.add(os.fstat(descriptor).st_ino)

    def linked(source: Path, target: Path) -> None:
        links.append(set(synced))
        link(source, target)

    monkeypatch.setattr(os, "fsync", note)
    monkeypatch.setattr(os, "link", linked)
    run(book, folder)
    files = [folder / file.path for file in ArchiveFiles(folder).manifests()[0].files]
    manifest = folder / "manifests" / "00000001.json"
    needed = {manifest, folder, *files, *(f.parent for f in files), *(f.parents[1] for f in files)}
    (before,) = links
    assert {path.stat().st_ino for path in needed} <= before
    assert (folder / "manifests").stat().st_ino in synced - before


# -- Two at once ----------------------------------------------------------------------------------


def test_of_two_runs_one_counts(book: Book, folder: Path) -> None:
    fill(book)
    expected = [m for m in book.messages if m[0] <= sealed(book)]
    other: list[Report] = []

    def overtaken(journal: JournalLog, pieces: list[LogSlice], root: Path, name: str) -> list[File]:
        files = write_all(journal, pieces, root, name)
        other.append(run(book, folder))  # all of it, between our writing and our publishing
        return files

    report = archive(JournalLog(book.folder), folder, overtaken)
    assert (report.manifests, other[0].manifests, other[0].swept) == (0, 1, 0)
    assert len(ArchiveFiles(folder).manifests()) == 1
    assert told(ArchiveLog(folder)) == expected
    assert unnamed(folder) == set()


def test_several_at_the_same_time_do_no_harm(book: Book, folder: Path) -> None:
    fill(book)
    program = archive_together.__file__
    command = [sys.executable, program, str(book.folder), str(folder), "4"]
    subprocess.run(command, check=True, timeout=50)
    assert told(ArchiveLog(folder)) == [m for m in book.messages if m[0] <= sealed(book)]
    assert len(ArchiveFiles(folder).manifests()) > 10
    run(book, folder)
    assert unnamed(folder) == set()


def test_files_of_a_run_that_goes_on_are_not_swept(book: Book, folder: Path) -> None:
    fill(book)
    with ArchiveFiles(folder).run() as name:
        pieces = JournalLog(book.folder).slices([">"], 1, 40, 100)
        files = write_all(JournalLog(book.folder), pieces, folder, name)
        assert ArchiveFiles(folder).sweep() == 0
        assert unnamed(folder) == {folder / file.path for file in files}
    assert ArchiveFiles(folder).sweep() == len(files)
    assert unnamed(folder) == set()
    assert not list((folder / "runs").iterdir())


# -- Damage ---------------------------------------------------------------------------------------


def test_a_file_that_is_gone_or_cut_is_named(book: Book, folder: Path) -> None:
    fill(book)
    run(book, folder)
    path = folder / ArchiveFiles(folder).manifests()[0].files[0].path
    data = path.read_bytes()
    for bad in (data[:-20], None):
        path.unlink() if bad is None else path.write_bytes(bad)
        with pytest.raises(FormatError, match=f"archive file '{path}' is not as its manifest"):
            told(ArchiveLog(folder))


def test_manifests_that_do_not_follow_each_other_are_refused(book: Book, folder: Path) -> None:
    fill(book)
    run(book, folder)
    manifest = folder / "manifests" / "00000001.json"
    shutil.copy(manifest, folder / "manifests" / "00000002.json")
    with pytest.raises(FormatError, match="begins with position 1, and the manifest before it"):
        ArchiveLog(folder).bounds()
    manifest.write_text("{}")
    with pytest.raises(FormatError, match="is not a manifest"):
        ArchiveLog(folder).bounds()
    manifest.write_text(f'{{"version": {archive_files.VERSION + 1}}}')
    with pytest.raises(UnknownVersionError, match="this program reads"):
        ArchiveLog(folder).bounds()


# -- On Spark -------------------------------------------------------------------------------------


@pytest.mark.spark
@pytest.mark.timeout(180)
def test_spark_writes_the_same(book: Book, folder: Path, spark: SparkSession) -> None:
    fill(book, 200, ("a.b", "c", "50%"))
    report = archive(JournalLog(book.folder), folder, on_spark(spark))
    assert (report.last, report.messages) == (sealed(book), sealed(book))
    joined = Joined(ArchiveLog(folder), JournalLog(book.folder))
    assert told(joined, most=1000) == book.messages
    assert unnamed(folder) == set()


@pytest.mark.spark
@pytest.mark.timeout(180)
def test_the_command_says_what_it_did(
    book: Book, folder: Path, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(book)
    command = ["archive", str(book.folder), str(folder), "--master", "local[2]"]
    assert cli.main([*command, "--json"]) == 0
    said = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (said["first"], said["last"], said["missing"]) == (1, sealed(book), [])
    assert cli.main(command) == 0
    assert "nothing new" in capsys.readouterr().out


def test_nothing_new_needs_no_spark(
    book: Book, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(book)
    run(book, folder)
    monkeypatch.setattr(archiving.session, "start", lambda *_: pytest.fail("Spark was started"))
    assert cli.main(["archive", str(book.folder), str(folder)]) == 0


def test_what_is_gone_is_an_error_of_the_command(
    book: Book, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(book)
    run(book, folder)
    fill(book)
    book.sync()
    book.snapshot(((book.position - 3, book.position),))
    fill(book)
    monkeypatch.setattr(archiving, "_LazySpark", lambda _: write_all)
    archived = ArchiveLog(folder).bounds().last
    assert cli.main(["archive", str(book.folder), str(folder)]) == 1
    assert f"positions {archived + 1} to " in capsys.readouterr().err
    assert cli.main(["archive", str(book.folder), str(folder)]) == 0
