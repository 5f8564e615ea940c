"""A journal's folder as a log: what receivers got, and nothing else."""

from __future__ import annotations

import json
import pickle
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from antiphon import LogBounds, LogSlice
from antiphon.errors import IllegalStateError, InvalidDestinationError, JournalDamagedError
from antiphon.formats import journal as f
from antiphon.formats.entry import Kind
from antiphon.spark.archive.log import ArchiveLog, Joined
from antiphon.spark.archive.run import archive, write_all
from antiphon.spark.logs.journal_files import JournalFiles, Segment
from antiphon.spark.logs.journal_log import JournalLog
from tests.formats.support.values import with_flipped_bit
from tests.spark.support import journal_program
from tests.spark.support.journals import NOW, Book, everything, told


@pytest.fixture
def book(tmp_path: Path) -> Iterator[Book]:
    book = Book(tmp_path / "journal")
    yield book
    book.close()


def fill(book: Book, packs: int = 40) -> None:
    for n in range(packs):
        book.stamp += 100
        book.send(("a.b", "a.c", "d")[n % 3], *(f"{n}.{i}" for i in range(1 + n % 4)))


# -- The truth ------------------------------------------------------------------------------------


@pytest.mark.process
def test_the_folder_of_killed_servers_tells_what_was_received(tmp_path: Path) -> None:
    """Topics, a group, transactions, delays, snapshots that let go of segments; `kill -9` at the
    end of each life. An archive is made after each, and has with the journal everything."""
    folder = tmp_path / "journal"
    received: list[list[Any]] = []
    for life in range(1, 5):
        received = sorted(received + live(folder, life))
        first, last = JournalLog(folder).bounds()
        rows = [
            [row[name] for name in ("position", "topic", "text", "message_id", "view_id")]
            for row in everything(JournalLog(folder))
        ]
        assert rows == [message for message in received if message[0] >= first]
        assert last >= received[-1][0]
        assert not archive(JournalLog(folder), tmp_path / "archive", write_all).missing
        joined = Joined(ArchiveLog(tmp_path / "archive"), JournalLog(folder))
        assert told(joined) == [tuple(message[:3]) for message in received]
    assert first > 1, "nothing was let go of, so this was too easy"
    assert ArchiveLog(tmp_path / "archive").bounds().first == 1


def live(folder: Path, life: int) -> list[list[Any]]:
    command = [sys.executable, journal_program.__file__, str(folder), str(life)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=50, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


# -- Slices ---------------------------------------------------------------------------------------


def test_slices_are_by_topic_and_position(book: Book) -> None:
    fill(book)
    log = JournalLog(book.folder)
    pieces = log.slices([">"], 1, book.position, 10)
    assert [(p.topic, p.first) for p in pieces] == sorted((p.topic, p.first) for p in pieces)
    assert sum(p.messages for p in pieces) == book.position
    assert max(p.messages for p in pieces) < 14
    for piece in pieces:
        rows = [n for b in log.read(piece, ["position"]) for n in b["position"].to_pylist()]
        assert (rows[0], rows[-1], len(rows)) == (piece.first, piece.last, piece.messages)


def test_topics_may_be_several_and_patterns(book: Book) -> None:
    fill(book)
    log = JournalLog(book.folder)
    assert told(log, ["a.*"]) == sorted(book.of("a.b") + book.of("a.c"))
    assert told(log, ["d", "a.b", "d"]) == sorted(book.of("a.b") + book.of("d"))
    assert told(log, ["a"]) == told(log, ["nobody"]) == []
    with pytest.raises(InvalidDestinationError):
        log.slices(["a..b"], 1, 10, 10)


def test_a_pack_is_cut_where_the_range_ends(book: Book) -> None:
    book.send("a", "1", "2", "3", "4")
    log = JournalLog(book.folder)
    assert log.slices(["a"], 2, 3, 100) == [LogSlice("a", 2, 3, 2)]
    assert told(log, first=2, last=3) == [(2, "a", "2"), (3, "a", "3")]


def test_times_are_found_in_the_index(book: Book) -> None:
    fill(book)
    log = JournalLog(book.folder)
    rows = everything(log)
    for stamp in range(NOW, book.stamp + 200, 50):
        later = [r["position"] for r in rows if r["stamp"].timestamp() * 1000 >= stamp]
        assert log.position_at(stamp) == (later[0] if later else book.position + 1)


def test_it_is_handed_to_tasks_as_the_name_of_a_folder(book: Book) -> None:
    fill(book)
    log = JournalLog(book.folder)
    log.bounds()
    assert len(pickle.dumps(log)) < 500
    assert told(pickle.loads(pickle.dumps(log))) == book.messages


def test_what_comes_while_it_is_read_is_seen_next_time(book: Book) -> None:
    log = JournalLog(book.folder)
    assert log.bounds() == LogBounds(1, 0)
    for _ in range(3):
        fill(book, 5)
        assert log.bounds() == LogBounds(1, book.position)
        assert told(log) == book.messages


def test_what_comes_between_two_indexes_leaves_no_gap(
    book: Book, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server goes on while the indexes are read one after the other. Packs that were written
    before are accepted, so that older indexes grow too."""
    fill(book)
    stored = {book.store("topic:d", f"stored {n}"): f"stored {n}" for n in range(60)}
    segment_of = {entry: book.journal._place(entry)[0].number for entry in stored}
    read_one = JournalFiles._segment

    def read_and_go_on(files: JournalFiles, header: f.SegmentHeader, *rest: Any) -> Segment:
        """What is in this segment is accepted as soon as it was read, and one of the next."""
        segment = read_one(files, header, *rest)
        while stored and segment_of[min(stored)] <= header.number + 1:
            entry = min(stored)
            book.accept(entry, "topic:d", [stored.pop(entry)])
            if segment_of[entry] > header.number:
                break
        return segment

    monkeypatch.setattr(JournalFiles, "_segment", read_and_go_on)
    while stored:
        sight = JournalFiles(book.folder).look()
        assert sight.missing(1, sight.last) == []


# -- Late packs, restarts -------------------------------------------------------------------------


def test_a_pack_that_was_accepted_later_is_where_it_was_accepted(book: Book) -> None:
    stored = book.store("topic:late", "one", "two")
    never = book.store("topic:never", "rolled back")
    fill(book)
    book.accept(stored, "topic:late", ["one", "two"], late=True)
    fill(book)
    assert never
    assert told(JournalLog(book.folder)) == book.messages
    (first, _, _), *_ = book.of("late")
    assert first > 40


def test_a_late_pack_that_is_gone_is_not_told_of(book: Book) -> None:
    stored = book.store("topic:late", "one")
    fill(book)
    book.accept(stored, "topic:late", ["one"], late=True)
    late = book.position
    fill(book, 3)
    book.sync()
    book.snapshot(((late - 1, late - 1), (late + 1, book.position)))
    log = JournalLog(book.folder)
    assert log.missing(log.bounds().first, book.position) == [LogBounds(late, late)]
    assert told(log) == [m for m in book.messages if m[0] >= log.bounds().first and m[0] != late]


def test_entries_that_a_restart_writes_again_are_told_once(book: Book) -> None:
    for synced in (True, False, False):
        fill(book)
        if synced:
            book.sync()
        book.restart()
        assert told(JournalLog(book.folder)) == book.messages


def test_an_entry_that_was_not_accepted_is_not_told(book: Book) -> None:
    fill(book)
    book.store("topic:a.b", "not committed")
    book._write(Kind.PACK, b"garbage")
    assert told(JournalLog(book.folder)) == book.messages


# -- Damage ---------------------------------------------------------------------------------------


def test_a_flipped_bit_in_a_message_names_file_and_offset(book: Book) -> None:
    book.send("a", "x" * 300)
    fill(book)
    path = book.folder / f.segment_name(1)
    data = path.read_bytes()
    at = data.index(b"x" * 300)
    path.write_bytes(with_flipped_bit(data, 8 * at))
    with pytest.raises(JournalDamagedError, match="checksum") as caught:
        told(JournalLog(book.folder))
    assert caught.value.file == path.name
    assert 0 < caught.value.offset < at


@pytest.mark.parametrize("segment", [1, -1])
def test_a_flipped_bit_in_an_index_is_no_silent_loss(book: Book, segment: int) -> None:
    """In the middle of it; the very last row may be one that is just being written."""
    fill(book)
    path = sorted(book.folder.glob("*.idx"))[segment]
    data = path.read_bytes()
    whole = told(JournalLog(book.folder))
    for bit in range(0, 8 * len(data) // 2, 61):
        path.write_bytes(with_flipped_bit(data, bit))
        found, damaged = whole, ""
        try:
            found = told(JournalLog(book.folder))
        except JournalDamagedError as error:
            damaged = error.file
        # In the last one a length that grew cannot be told from a row that is being written.
        assert damaged == path.name or segment == -1
        assert found == whole[: len(found)]


def test_a_segment_that_is_missing_is_named(book: Book) -> None:
    fill(book, 100)
    (book.folder / f.segment_name(3)).unlink()
    with pytest.raises(JournalDamagedError, match="missing") as caught:
        JournalLog(book.folder).bounds()
    assert caught.value.file == f.segment_name(3)


def test_a_row_that_is_being_written_is_not_there_yet(book: Book) -> None:
    fill(book)
    before = list(book.messages)
    path = max(book.folder.glob("*.idx"))
    size = path.stat().st_size
    book.send("d", "last")
    data = path.read_bytes()
    for cut in range(size, len(data), 5):
        path.write_bytes(data[:cut])
        assert told(JournalLog(book.folder)) == before


def test_a_folder_without_a_journal_says_so(tmp_path: Path) -> None:
    with pytest.raises(IllegalStateError, match="there is no journal in"):
        JournalLog(tmp_path).bounds()
