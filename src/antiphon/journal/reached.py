"""How far a journal is synced, noted outside of its segments.

A segment that ends too early, or is gone, does not show it: the knowledge of its end went with it.
So after each sync, and before any output that waits for it leaves, a note of it is written to a
small file. Two places are written in turn, so that a torn write spoils only one of them.

Promises: a note never says more than is on disk, and after a `kill` it says all that was released.
The note itself is synced when the journal is opened, when an incarnation begins, and now and then:
a power failure takes back the notes of the last `NOTE_SYNC_S` at most.
"""

from __future__ import annotations

from collections.abc import Iterator

from antiphon.errors import FormatError, JournalDamagedError
from antiphon.formats import journal as f
from antiphon.formats.notes import (
    REACHED,
    REACHED_SIZE,
    Reached,
    decode_reached,
    encode_reached,
    newest_of,
    note_at,
)
from antiphon.journal.disk import DIRECTORY, Disk

NOTE_SYNC_S = 1.0
"""How often a driver syncs the newest note, if there is a new one."""


def notes_on(disk: Disk) -> list[Reached]:
    """Return the notes that can be read."""
    return notes_in(disk, REACHED) if REACHED in disk.names() else []


def notes_in(disk: Disk, name: str) -> list[Reached]:
    """Return the notes of this file that can be read."""
    return decode_reached(disk.read(name, 0, REACHED_SIZE))


def newest_note(disk: Disk, manifest: f.Manifest) -> Reached | None:
    """Return the last note of this incarnation (`formats/notes.py: newest_of`). Raise
    `JournalDamagedError`."""
    try:
        return newest_of(notes_on(disk), manifest)
    except FormatError as error:
        raise JournalDamagedError(REACHED, 0, str(error)) from None


class ReachedFile:
    """The file of notes, for writing; promises are the module's."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._incarnation = 0
        self._number = 0
        self._synced = 0  # the note that is synced

    def go_on(self, incarnation: int) -> Iterator[tuple[str, ...]]:
        """Be ready for notes of an incarnation that may have some. Yields names to sync."""
        notes = notes_on(self._disk)
        mine = [note for note in notes if note.incarnation == incarnation]
        self._incarnation = incarnation
        self._number = max(mine or notes, default=Reached(0, 0, 0, 0, 0, 0, 0)).number
        self._synced = self._number
        if self._disk.volatile:
            return
        size = self._disk.size(REACHED) if REACHED in self._disk.names() else 0
        if size < REACHED_SIZE:  # all of it, so that notes need no room later
            self._disk.write(REACHED, size, bytes(REACHED_SIZE - size))
            yield (REACHED, DIRECTORY)

    def begin(self, incarnation: int) -> Iterator[tuple[str, ...]]:
        """Have a first note of a new incarnation, which has nothing yet. The newest one of the
        incarnation before it stays: it counts until the manifest names the new one."""
        yield from self.go_on(self._incarnation)
        self._incarnation = incarnation
        self.note(0, 0, 0, 0, 0)
        yield self.begin_sync()

    def note(self, opening: int, segment: int, base: int, offset: int, last: int) -> None:
        """Note that everything before this offset is on disk. Raise `DiskFullError`."""
        if self._disk.volatile:
            return
        number = self._number + 1
        note = Reached(number, self._incarnation, opening, segment, base, offset, last)
        self._disk.write(REACHED, note_at(number), encode_reached(note))
        self._number = number

    def begin_sync(self) -> tuple[str, ...]:
        """Return the names to sync if there is a newer note than the last one that was synced."""
        if self._synced == self._number:
            return ()
        self._synced = self._number
        return (REACHED,)
