"""A journal's files, looked at from outside while the journal itself is put through everything.

The machine of `tests/journal/test_journal.py` writes, replaces, parks, applies, stores and installs
snapshots, is killed and loses power. After every step the files are read as a reader of the folder
would, and must tell what was accepted.
"""

from __future__ import annotations

import shutil
import tempfile
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis.stateful import invariant

from antiphon.errors import JournalDamagedError
from antiphon.formats import journal as f
from antiphon.formats.notes import REACHED
from antiphon.log.effects import Accepted as Row
from antiphon.spark.logs.journal_files import Accepted, JournalFiles, Sight
from tests.journal.test_journal import EVERYTHING, JournalMachine, ParkingMachine
from tests.spark.support.journals import Book


class LookedAt(JournalMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="antiphon-test-"))
        self.looks = JournalFiles(self.folder)  # what it remembers from look to look is tried too
        self.copied: dict[str, bytes] = {}

    def teardown(self) -> None:
        shutil.rmtree(self.folder)

    def copy(self) -> None:
        names = self.disk.names()
        for name in set(self.copied) - set(names):
            (self.folder / name).unlink()
            del self.copied[name]
        for name in names:
            data = self.disk.read(name, 0, self.disk.size(name))
            if self.copied.get(name) != data:
                (self.folder / name).write_bytes(data)
                self.copied[name] = data

    @invariant()
    def the_files_tell_what_was_accepted(self) -> None:
        if not hasattr(self, "journal"):
            return
        self.copy()
        found = accepted(self.looks.look())
        positions = [(one.row.position, one.last) for one in found]
        assert all(a[1] < b[0] for a, b in pairwise(positions)), "in order"
        truth = {row.position: row for row in self.ever_accepted()}
        for one in found:
            true, row = truth[one.row.position], one.row
            assert (row.count, row.stamp, row.destination) == (
                true.count,
                true.stamp,
                true.destination,
            )
            assert one.read().pack == self.committed[(true.source or true.index) - 1].payload
        if not self.installing and not any(s.index.unwritten for s in self.journal.segments):
            known = {row.position for row in self.journal.rows(1, EVERYTHING)}
            assert known <= {one.row.position for one in found}

    def ever_accepted(self) -> list[Row]:
        machine = ParkingMachine()
        return [row for entry in self.committed for row in machine.apply(entry)]


def accepted(sight: Sight) -> list[Accepted]:
    found = [one for name in sight.destinations() for one in sight.accepted(name, 1, EVERYTHING)]
    return sorted(found, key=lambda one: one.row.position)


TestLookedAt = LookedAt.TestCase
TestLookedAt.settings = settings(max_examples=100, stateful_step_count=40, derandomize=True)


# -- Without its end -------------------------------------------------------------------------------


def book(folder: Path) -> tuple[Book, int]:
    """A journal of several segments, synced, and then a little more; how much of the newest
    segment was synced."""
    book = Book(folder)
    for number in range(60):
        book.send("orders", f"order {number} " + "x" * 50)
    book.sync()
    synced = newest(folder).stat().st_size
    book.send("orders", "not synced")
    assert len(list(folder.glob("seg-*.log"))) > 2
    return book, synced


def read(folder: Path) -> None:
    """All of it."""
    for one in accepted(JournalFiles(folder).look()):
        one.read()


def newest(folder: Path) -> Path:
    return max(folder.glob("seg-*.log"))


def test_a_journal_without_its_end_is_not_read_as_a_shorter_one(tmp_path: Path) -> None:
    written, synced = book(tmp_path / "journal")
    written.close()
    files = {path.name: path.read_bytes() for path in written.folder.iterdir()}
    path = newest(written.folder)
    whole = JournalFiles(written.folder).look()
    assert whole.last == written.position
    data = files[path.name]
    for at in range(f.SEGMENT_SIZE, len(data), 7):
        for rest in (b"", bytes(len(data) - at)):
            path.write_bytes(data[:at] + rest)
            if at >= synced:
                assert JournalFiles(written.folder).look().last >= written.position - 1
            else:
                with pytest.raises(JournalDamagedError, match=path.name):
                    read(written.folder)
    path.unlink()
    with pytest.raises(JournalDamagedError, match=path.name):
        JournalFiles(written.folder).look()
    path.write_bytes(data)
    (written.folder / REACHED).unlink()
    with pytest.raises(JournalDamagedError, match=REACHED):
        JournalFiles(written.folder).look()
