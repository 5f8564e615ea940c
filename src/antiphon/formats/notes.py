"""The file `REACHED`, byte by byte: how far a journal is synced.

A segment does not show that its end is gone; this file says what was on disk. It has places for two
notes, `NOTE_APART` bytes apart, that are written in turn::

    note      | magic "APRE" | version u32 | number u64 | incarnation u64 | opening u64 |
              | segment u64 | base u64 | offset u64 | last u64 | crc u32 |

Integers are little-endian, the crc is CRC32C.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import NamedTuple

from crc32c import crc32c

from antiphon.errors import FormatError
from antiphon.formats.journal import VERSION, Manifest, SegmentHeader, check_version

REACHED_MAGIC = b"APRE"
REACHED = "REACHED"

NOTE_APART = 4096
"""A write that is torn by a power failure spoils one note at most."""

REACHED_SIZE = 2 * NOTE_APART

_NOTE = struct.Struct("<4sIQQQQQQQ")
_U32 = struct.Struct("<I")


class Reached(NamedTuple):
    """A note of how far a journal is synced."""

    number: int  # of this note
    incarnation: int
    opening: int
    segment: int  # the newest one that has a part of it
    base: int  # where that one begins
    offset: int  # everything before it is on disk
    last: int  # the last entry of the log then, for people


def note_at(number: int) -> int:
    """Return where the note of this number is in the file."""
    return number % 2 * NOTE_APART


def encode_reached(note: Reached) -> bytes:
    """Return a note."""
    head = _NOTE.pack(REACHED_MAGIC, VERSION, *note)
    return head + _U32.pack(crc32c(head))


def decode_reached(data: bytes) -> list[Reached]:
    """Return those of the two notes that are whole."""
    notes = []
    for at in (note_at(0), note_at(1)):
        head = data[at : at + _NOTE.size]
        if len(data) < at + _NOTE.size + 4 or head[:4] != REACHED_MAGIC:
            continue
        if _U32.unpack_from(data, at + _NOTE.size)[0] == crc32c(head):
            _, version, *fields = _NOTE.unpack(head)
            check_version(REACHED_MAGIC, version)
            notes.append(Reached(*fields))
    return notes


def newest_of(notes: list[Reached], manifest: Manifest) -> Reached | None:
    """Return the last note of this incarnation; None: its journal is of a version that made none.
    Raise `FormatError`."""
    mine = [note for note in notes if note.incarnation == manifest.incarnation]
    if manifest.reached and not mine:
        raise FormatError(
            "it is missing or damaged, and nothing else says how far this server has acknowledged"
        )
    return max(mine, default=None)


def still_true(note: Reached, headers: Iterable[SegmentHeader]) -> Reached:
    """Return the note as far as it still holds for these segments. If the journal was opened after
    the note, that opening has cut off the part that it did not know to be synced, and a version
    that makes no notes has written that part again, and shorter: then the note counts up to
    there."""
    later = [header.base for header in headers if header.opening > note.opening]
    if not later:
        return note
    return note._replace(segment=0, offset=min(note.offset, *later))
