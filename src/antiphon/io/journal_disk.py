"""What the journal needs of a disk, and the one that is only memory.

The journal is written against this interface, so that the same code, recovery included, runs on
files (`io/files.py`), in memory, and on the simulator's faulty disk.
"""

from __future__ import annotations

from typing import Protocol

from antiphon.errors import DiskFullError

DIRECTORY = ""
"""The name to sync so that files created, renamed and removed stay so."""


class Disk(Protocol):
    """A flat directory of files. `write` may be lost until `sync` of that name has returned, a
    creation or renaming until `sync(DIRECTORY)` has."""

    volatile: bool
    """Nothing outlives the process here, and a sync has nothing to do."""

    def names(self) -> list[str]: ...

    def size(self, name: str) -> int: ...

    def read(self, name: str, offset: int, size: int) -> bytes: ...

    def write(self, name: str, offset: int, data: bytes) -> None:
        """Raises `DiskFullError`, and may then have written a part."""

    def truncate(self, name: str, size: int) -> None: ...

    def rename(self, old: str, new: str) -> None: ...

    def remove(self, name: str) -> None: ...

    def sync(self, name: str) -> None:
        """Raises `SyncFailedError`; after that nothing unsynced may be relied upon."""


class RamDisk:
    """Memory mode: the journal's files in memory, up to a limit."""

    volatile = True

    def __init__(self, limit_bytes: int = 1 << 30) -> None:
        self._files: dict[str, bytearray] = {}
        self._limit_bytes = limit_bytes
        self._used = 0

    def names(self) -> list[str]:
        return list(self._files)

    def size(self, name: str) -> int:
        return len(self._files[name])

    def read(self, name: str, offset: int, size: int) -> bytes:
        return bytes(self._files[name][offset : offset + size])

    def write(self, name: str, offset: int, data: bytes) -> None:
        file = self._files.setdefault(name, bytearray())
        grown = max(0, offset + len(data) - len(file))
        if self._used + grown > self._limit_bytes:
            raise DiskFullError(f"memory storage is full: {self._limit_bytes} bytes")
        self._used += grown
        file[offset : offset + len(data)] = data

    def truncate(self, name: str, size: int) -> None:
        self._used -= len(self._files[name]) - size
        del self._files[name][size:]

    def rename(self, old: str, new: str) -> None:
        self._used -= len(self._files.get(new, b""))
        self._files[new] = self._files.pop(old)

    def remove(self, name: str) -> None:
        self._used -= len(self._files.pop(name, b""))

    def sync(self, name: str) -> None:
        pass
