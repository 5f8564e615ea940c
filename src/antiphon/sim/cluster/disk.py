"""A disk with the faults of disks.

Writes sit in a cache until they are synced. A process that is killed leaves the cache behind; when
the power fails, an arbitrary subset of the unsynced sectors survives, and of the directory's
unsynced changes a prefix (as in a journaling file system). A failed sync drops the writes but keeps
showing them, until the power fails. Space can run out. Bits flip, and writes land in the wrong
place, at rest: only below the offset that a batch on this disk states as synced. Ends of files are
lost: `lost_end.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from antiphon.errors import DiskFullError, FormatError, SyncFailedError
from antiphon.formats import journal as f
from antiphon.journal.disk import DIRECTORY

SECTOR = 512


class _File:
    __slots__ = ("data", "durable", "pending", "synced")

    def __init__(self) -> None:
        self.data = bytearray()  # as a reader sees it
        self.durable = bytearray()  # as it is after a power failure
        self.pending: list[tuple[int, bytes]] = []
        self.synced = 0  # writes that are no longer pending

    def take_pending(self, upto: int) -> list[tuple[int, bytes]]:
        """Take the pending writes among the first `upto` ones ever made."""
        count = max(0, upto - self.synced)
        taken, self.pending = self.pending[:count], self.pending[count:]
        self.synced += len(taken)
        return taken


class SyncToken:
    """The writes that a running sync will make durable: those before its beginning."""

    __slots__ = ("directory", "files")

    def __init__(self, files: list[tuple[str, _File, int]], directory: int) -> None:
        self.files = files
        self.directory = directory


class SimDisk:
    """A simulated disk: a cache above a medium, and chance at each power failure."""

    def __init__(self, random: Random, volatile: bool = False) -> None:
        self.volatile = volatile
        self._random = random
        self._files: dict[str, _File] = {}
        self._durable_files: dict[str, _File] = {}
        self._directory_changes: list[dict[str, _File]] = []  # the directory after each change
        self._changes_synced = 0
        self.full = False
        self._refused = ""  # a part of the names of files for which there is no room
        self._refusals = 0  # writes to refuse
        self.fail_next_sync = False
        self.on_durable: Callable[[str, bytearray], None] = lambda name, data: None
        self.copies: dict[str, bytes] = {}  # backups

    # -- For the journal -----------------------------------------------------------------------

    def names(self) -> list[str]:
        return list(self._files)

    def size(self, name: str) -> int:
        return len(self._file(name).data)

    def read(self, name: str, offset: int, size: int) -> bytes:
        return bytes(self._file(name).data[offset : offset + size])

    def write(self, name: str, offset: int, *parts: bytes) -> None:
        if self._refusals and self._refused in name:
            self._refusals -= 1
            raise DiskFullError("too little space left on the simulated disk")
        if self.full:
            raise DiskFullError("no space left on the simulated disk")
        data = b"".join(parts)
        file = self._files.get(name)
        if file is None:
            file = self._files[name] = _File()
            self._changed()
        _put(file.data, offset, data)
        if not self.volatile:
            file.pending.append((offset, data))

    def truncate(self, name: str, size: int) -> None:
        raise NotImplementedError("the journal never truncates")

    def rename(self, old: str, new: str) -> None:
        self._files[new] = self._file(old)
        del self._files[old]
        self._changed()

    def remove(self, name: str) -> None:
        del self._files[name]
        self._changed()

    def evict(self, name: str) -> None:
        pass  # a cache has no visible effect without a clock

    def sync(self, name: str) -> None:
        self.finish_sync(self.begin_sync((name,)))

    # -- For the simulator's driver ------------------------------------------------------------

    def refuse(self, part_of_name: str, times: int) -> None:
        """Have no room for the next few writes to such files."""
        self._refused, self._refusals = part_of_name, times

    def begin_sync(self, names: tuple[str, ...]) -> SyncToken:
        files = [
            (name, file, file.synced + len(file.pending))
            for name in names
            if (file := self._files.get(name)) is not None
        ]
        changes = self._changes_synced + len(self._directory_changes)
        return SyncToken(files, changes if DIRECTORY in names else 0)

    def finish_sync(self, token: SyncToken) -> None:
        if self.fail_next_sync:
            self.fail_next_sync = False
            for _, file, upto in token.files:
                file.take_pending(upto)  # marked clean, and never written
            raise SyncFailedError("the simulated disk failed to sync")
        for name, file, upto in token.files:
            written = file.take_pending(upto)
            for offset, data in written:
                _put(file.durable, offset, data)
            if written and name.endswith(".log"):
                self.on_durable(name, file.durable)
        changes = token.directory - self._changes_synced
        if changes > 0:
            self._durable_files = self._directory_changes[changes - 1]
            del self._directory_changes[:changes]
            self._changes_synced += changes

    def power_failure(self) -> None:
        """Keep synced writes, and a random part of the others."""
        kept = self._random.randrange(len(self._directory_changes) + 1)
        if kept:
            self._durable_files = self._directory_changes[kept - 1]
        self._changes_synced += len(self._directory_changes)
        self._directory_changes = []
        self._files = dict(self._durable_files)
        for file in self._files.values():
            self._tear(file)

    def wipe(self) -> None:
        self._files = {}
        self._durable_files = {}
        self._changes_synced += len(self._directory_changes)
        self._directory_changes = []

    def _tear(self, file: _File) -> None:
        survive = self._random.choice((0.0, 0.5, 0.9, 1.0))
        for offset, data in file.pending:
            end = offset + len(data)
            at = offset
            while at < end:
                upto = min(end, (at // SECTOR + 1) * SECTOR)
                if self._random.random() < survive:
                    _put(file.durable, at, data[at - offset : upto - offset])
                at = upto
        file.take_pending(file.synced + len(file.pending))
        file.data = bytearray(file.durable)

    def _file(self, name: str) -> _File:
        try:
            return self._files[name]
        except KeyError:
            raise FileNotFoundError(name) from None

    def _changed(self) -> None:
        if not self.volatile:
            self._directory_changes.append(dict(self._files))

    # -- Damage at rest ------------------------------------------------------------------------

    def contents(self) -> dict[str, bytes]:
        return {name: bytes(file.data) for name, file in self._files.items()}

    def put(self, name: str, data: bytes | None) -> None:
        """Make a file hold `data`, on the medium and for readers; None: remove the file."""
        if data is None:
            self._files.pop(name, None)
        else:
            file = self._files.setdefault(name, _File())
            file.take_pending(file.synced + len(file.pending))
            file.data, file.durable = bytearray(data), bytearray(data)
        self._durable_files = dict(self._files)
        self._changes_synced += len(self._directory_changes)
        self._directory_changes = []

    def put_all(self, files: dict[str, bytes]) -> None:
        """Make the disk hold these files, and no others."""
        for name in {*self._files, *files}:
            self.put(name, files.get(name))

    def flip_bit(self) -> str:
        """Flip a bit where a checksum must find it; return the place, or nothing if there is
        none."""
        spot = self._spot()
        if spot is None:
            return ""
        name, file, at = spot
        bit = 1 << self._random.randrange(8)
        for data in (file.data, file.durable):
            if at < len(data):
                data[at] ^= bit
        return f"{name} at {at}"

    def misdirect(self) -> str:
        """Move a batch over another place in its file, as a misdirected write does; return the
        place, or nothing."""
        name, file, batches = self._proven_batches()
        if len(batches) < 2:
            return ""
        victim, stray = self._random.sample(batches, 2)
        data = bytes(file.data[stray[0] : sum(stray)])[: victim[1]]
        if data == bytes(file.data[victim[0] : victim[0] + len(data)]):
            return ""
        for target in (file.data, file.durable):
            if victim[0] + len(data) <= len(target):
                _put(target, victim[0], data)
        return f"{name} at {victim[0]}"

    def _spot(self) -> tuple[str, _File, int] | None:
        snapshots = [n for n in self._files if n.startswith("snap-") or n == "MANIFEST"]
        if snapshots and self._random.random() < 0.2:
            name = self._random.choice(snapshots)
            file = self._files[name]
            if file.durable == file.data:
                return name, file, self._random.randrange(len(file.data))
        name, file, batches = self._proven_batches()
        if not batches:
            return None
        at, size = self._random.choice(batches)
        return name, file, at + self._random.randrange(size)

    def _proven_batches(self) -> tuple[str, _File, list[tuple[int, int]]]:
        """Return a segment with batches (place, size) that some batch on the *durable* disk knows
        to be synced."""
        segments = sorted(n for n in self._files if n.startswith("seg-") and n.endswith(".log"))
        synced = 0
        for name in segments:
            for _, batch in f.find_batches(bytes(self._files[name].durable), 0):
                synced = max(synced, batch.synced)
        self._random.shuffle(segments)
        for name in segments:
            file = self._files[name]
            try:
                base = f.decode_segment_header(bytes(file.durable[: f.SEGMENT_SIZE])).base
            except FormatError:
                continue  # its header was never synced: no batch in it is proven
            found = [
                (batch.offset - base, batch.size)
                for _, batch in f.find_batches(bytes(file.durable), 0)
                if batch.offset + batch.size <= synced
            ]
            if found:
                return name, file, found
        return "", _File(), []


def _put(target: bytearray, offset: int, data: bytes) -> None:
    if offset > len(target):
        target.extend(bytes(offset - len(target)))
    target[offset : offset + len(data)] = data
