"""A journal that loses its end at rest: cut, zeroed, emptied, deleted, or an older copy of itself.

The server's note of its journal (`journal/reached.py`) decides which loss must be found: any below
it. After a `kill` the note is exact, and a loss above it is a torn tail.
"""

from __future__ import annotations

from random import Random
from typing import NamedTuple

from antiphon.errors import JournalDamagedError
from antiphon.formats import journal as f
from antiphon.journal import reached, recovery
from antiphon.sim.cluster.disk import SimDisk


class Victim(NamedTuple):
    """A segment, and how much of it was synced."""

    name: str
    data: bytes
    synced: int


def lose_end(disk: SimDisk, random: Random, way: str) -> str:
    """Damage the synced part; return the words that a report must have, or an empty text if there
    is no part to damage. A lost end of an older segment may only show in the next one."""
    victims = _victims(disk)
    if not victims:
        return ""
    victim = victims[-1] if random.random() < 0.7 else random.choice(victims)
    spoilt = _spoilt(disk, random, way, victim, victim is victims[-1])
    if spoilt is not None and spoilt[: victim.synced] == victim.data[: victim.synced]:
        return ""  # only zeros are gone, or bytes without a meaning
    disk.put(victim.name, spoilt)
    return victim.name if victim is victims[-1] else "journal file"


def tear_end(disk: SimDisk, random: Random) -> str:
    """Cut off or spoil a part that was not synced; return the file, or an empty text."""
    victims = _victims(disk)
    if not victims:
        return ""
    victim = victims[-1]
    at = random.randint(victim.synced, len(victim.data))
    end = random.choice((b"", bytes(len(victim.data) - at), random.randbytes(50)))
    disk.put(victim.name, victim.data[:at] + end)
    return victim.name


def _spoilt(disk: SimDisk, random: Random, way: str, victim: Victim, newest: bool) -> bytes | None:
    """Return the damaged contents; None: the file is gone."""
    if way == "end-deleted":
        return None
    if way == "end-emptied":
        return b""
    if way == "end-older":
        if newest and random.random() < 0.5:
            return disk.copies.get(victim.name, victim.data)
        batches = f.find_batches(victim.data[: victim.synced], 0)
        return victim.data[: random.choice([f.SEGMENT_SIZE, *(at for at, _ in batches)])]
    # Often only a few bytes.
    at = victim.synced - 1 - min(random.choice((0, 1, 40)), random.randrange(victim.synced))
    if random.random() < 0.6:
        at = random.randrange(victim.synced)
    rest = b"" if way == "end-cut" else bytes(len(victim.data) - at)
    return victim.data[:at] + rest


def _victims(disk: SimDisk) -> list[Victim]:
    """Return the segments that have a synced part, in order."""
    try:
        manifest = recovery.read_manifest(disk)
        note = reached.newest_note(disk, manifest) if manifest is not None else None
    except JournalDamagedError:
        return []
    if manifest is None or note is None or note.segment < manifest.first_segment:
        return []
    numbers = range(manifest.first_segment, note.segment + 1)
    files = {n: disk.read(name, 0, disk.size(name)) for n in numbers if (name := _name(disk, n))}
    if len(files) < len(numbers) or not files[note.segment]:
        return []  # it was damaged before
    bases = {n: f.decode_segment_header(data).base for n, data in files.items()}
    ends = {n: bases.get(n + 1, note.offset) for n in numbers}
    return [Victim(f.segment_name(n), files[n], ends[n] - bases[n]) for n in numbers]


def _name(disk: SimDisk, number: int) -> str:
    name = f.segment_name(number)
    return name if name in disk.names() else ""
