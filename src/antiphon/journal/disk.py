"""The disk as the journal needs it, and one that is only memory.

The journal is written against this interface, so that the same code, recovery included, runs on
files (`io/file_disk.py`), in memory, and on the simulator's faulty disk.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Protocol

from antiphon.errors import DiskFullError

DIRECTORY = ""
"""The name to sync so that files created, renamed and removed stay so."""


SMALL_BYTES = 4096


class Disk(Protocol):
    """A flat directory of files. `write` may be lost until `sync` of that name has returned, a
    creation or renaming until `sync(DIRECTORY)` has."""

    volatile: bool
    """Nothing outlives the process here, and a sync has nothing to do."""

    def names(self) -> list[str]:
        """Return the names of all files."""

    def size(self, name: str) -> int:
        """Return the size of a file."""

    def read(self, name: str, offset: int, size: int) -> bytes:
        """Return bytes of a file, fewer if it ends before."""

    def write(self, name: str, offset: int, *data: bytes) -> None:
        """Write these bytes one after the other. Raise `DiskFullError`, and may then have written a
        part."""

    def truncate(self, name: str, size: int) -> None:
        """Cut a file off."""

    def rename(self, old: str, new: str) -> None:
        """Give a file another name, in one step, instead of a file that has that name."""

    def remove(self, name: str) -> None:
        """Remove a file."""

    def evict(self, name: str) -> None:
        """Let the system forget a file that will hardly be read."""

    def sync(self, name: str) -> None:
        """Return when all writes to a file are on disk. Raise `SyncFailedError`; after that nothing
        unsynced may be relied upon."""


class RamDisk:
    """Memory mode: the journal's files in memory, up to a limit."""

    volatile = True

    def __init__(self, limit_bytes: int = 1 << 30) -> None:
        self._files: dict[str, RamFile] = {}
        self._limit_bytes = limit_bytes
        self._used = 0

    def names(self) -> list[str]:
        return list(self._files)

    def size(self, name: str) -> int:
        return self._files[name].size

    def read(self, name: str, offset: int, size: int) -> bytes:
        return self._files[name].read(offset, size)

    def write(self, name: str, offset: int, *data: bytes) -> None:
        file = self._files.setdefault(name, RamFile())
        grown = max(0, offset + sum(map(len, data)) - file.size)
        if self._used + grown > self._limit_bytes:
            raise DiskFullError(f"memory storage is full: {self._limit_bytes} bytes")
        self._used += grown
        for part in data if sum(map(len, data)) > SMALL_BYTES else (b"".join(data),):
            file.write(offset, part)
            offset += len(part)

    def truncate(self, name: str, size: int) -> None:
        file = self._files[name]
        self._used -= file.size - size
        file.truncate(size)

    def rename(self, old: str, new: str) -> None:
        replaced = self._files.get(new)
        self._used -= replaced.size if replaced is not None else 0
        self._files[new] = self._files.pop(old)

    def remove(self, name: str) -> None:
        removed = self._files.pop(name, None)
        self._used -= removed.size if removed is not None else 0

    def evict(self, name: str) -> None:
        pass  # there is no other place for it

    def sync(self, name: str) -> None:
        pass


class RamFile:
    """Keeps appended bytes as they come, by reference: one growing buffer would copy all of it, and
    cost a server more than everything else that it does with a pack."""

    def __init__(self) -> None:
        self.size = 0
        self._chunks: list[bytes] = []
        self._starts: list[int] = []  # of the chunks

    def write(self, offset: int, data: bytes) -> None:
        if offset != self.size:  # hardly ever: the whole file becomes one chunk
            content = bytearray(self.read(0, self.size))
            content[offset : offset + len(data)] = data
            self.truncate(0)
            data = bytes(content)
        if self._chunks and len(self._chunks[-1]) + len(data) <= SMALL_BYTES:
            self._chunks[-1] += data  # many small ones would cost more than they hold
        elif data:
            self._starts.append(self.size)
            self._chunks.append(data)
        self.size = self._starts[-1] + len(self._chunks[-1]) if self._chunks else 0

    def read(self, offset: int, size: int) -> bytes:
        end = min(offset + size, self.size)
        if offset >= end:
            return b""
        at = bisect_right(self._starts, offset) - 1
        pieces = []
        while offset < end:
            start, chunk = self._starts[at], self._chunks[at]
            pieces.append(chunk[offset - start : end - start])
            offset = start + len(chunk)
            at += 1
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def truncate(self, size: int) -> None:
        while self._starts and self._starts[-1] >= size:
            self._starts.pop()
            self._chunks.pop()
        self.size = min(self.size, size)
        if self._chunks:
            self._chunks[-1] = self._chunks[-1][: size - self._starts[-1]]
