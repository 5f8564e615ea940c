"""The journal's disk on real files: one flat directory that one process at a time may hold.

Promises: `sync` returns only when the system says that the bytes are on the medium; no room is
`DiskFullError`, after which the same write may be tried again; anything else that goes wrong with a
write or a sync is `SyncFailedError`, after which nothing unsynced may be relied upon. `sync` may be
called from another thread than the rest.

Large writes are made by the thread that syncs: a system takes its time to take in many megabytes,
and a server has others to serve meanwhile. The room for them is reserved at once, so that lack of
room is reported at once, too.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections import OrderedDict, deque
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import NamedTuple

from antiphon.errors import (
    ConfigurationError,
    DiskFullError,
    IllegalStateError,
    JournalDamagedError,
    SyncFailedError,
)
from antiphon.journal.disk import DIRECTORY

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""EFBIG is a limit on the size of one file: like a quota, it may be raised while we run."""

PARTS_MAX = 1024
"""Parts to be written at once: the system's limit."""

LATE_BYTES = 1 << 20
"""A write of more bytes than this waits for the sync."""

OPEN_MAX = 64
"""Files kept open. Those with unsynced bytes stay open beyond that: a failed write-back is reported
to the descriptors that are open when it happens, so closing one could lose the news."""

_sync_data = getattr(os, "fdatasync", os.fsync)  # not every system has the cheaper one


class LateWrite(NamedTuple):
    """A large write that waits for the next sync."""

    offset: int
    size: int
    data: tuple[bytes, ...]

    def touches(self, offset: int, size: int) -> bool:
        return offset < self.offset + self.size and self.offset < offset + size


def _unusable(path: Path, why: str) -> ConfigurationError:
    return ConfigurationError(
        f"the data folder {str(path)!r} cannot be used: {why}. Name a folder that this user may "
        "write to"
    )


class FileDisk:
    """A folder of real files as the journal's disk; promises are the module's."""

    volatile = False

    def __init__(self, directory: Path | str) -> None:
        self._path = Path(directory)
        try:
            if not self._path.is_dir():
                self._path.mkdir(parents=True)
                _sync_directory(self._path.parent)
            self._directory = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY)
        except OSError as error:
            is_file = isinstance(error, FileExistsError)
            why = "it is not a folder" if is_file else error.strerror or str(error)
            raise _unusable(self._path, why) from None
        if not os.access(self._path, os.W_OK | os.X_OK):
            os.close(self._directory)
            raise _unusable(self._path, "nothing may be written there")
        try:
            fcntl.flock(self._directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._directory)
            raise IllegalStateError(
                f"the data folder {str(self._path)!r} is in use by another process. Nothing was "
                "changed. End that one, or give this one a folder of its own."
            ) from None
        self._open: OrderedDict[str, int] = OrderedDict()
        self._unsynced: set[str] = set()
        self._late: dict[str, deque[LateWrite]] = {}
        self._lock = Lock()  # guards these: syncs come from another thread
        self._writing = Lock()  # held while late writes are made, in order

    def close(self) -> None:
        for name in list(self._late):
            with suppress(OSError):  # nothing refers to this file yet
                self._write_late(name)
        with self._lock:
            for descriptor in self._open.values():
                os.close(descriptor)
            self._open.clear()
            os.close(self._directory)

    # -- Looking -------------------------------------------------------------------------------

    def names(self) -> list[str]:
        with os.scandir(self._path) as found:
            return sorted(entry.name for entry in found if entry.is_file())

    def size(self, name: str) -> int:
        return os.stat(self._path / name).st_size

    def read(self, name: str, offset: int, size: int) -> bytes:
        with self._lock:
            descriptor = self._descriptor(name)
            late = any(w.touches(offset, size) for w in self._late.get(name, ()))
        try:
            if late:
                self._write_late(name)
            return _read(descriptor, offset, size)
        except OSError as error:
            raise JournalDamagedError(name, offset, f"cannot be read: {error.strerror}") from None

    # -- Changing ------------------------------------------------------------------------------

    def write(self, name: str, offset: int, *data: bytes) -> None:
        size = sum(map(len, data))
        try:
            with self._lock:
                descriptor = self._descriptor(name, create=True)
                self._unsynced.add(name)
                late = any(w.touches(offset, size) for w in self._late.get(name, ()))
            if late:
                self._write_late(name)
            if size > LATE_BYTES and _reserve(descriptor, offset, size):
                with self._lock:
                    self._late.setdefault(name, deque()).append(LateWrite(offset, size, data))
            else:
                _write(descriptor, offset, data)
        except OSError as error:
            raise self._explained(error, f"cannot write {size} bytes to", name) from None

    def truncate(self, name: str, size: int) -> None:
        self._write_late(name)
        with self._lock:
            descriptor = self._descriptor(name)
            self._unsynced.add(name)
        os.ftruncate(descriptor, size)

    def rename(self, old: str, new: str) -> None:
        self._write_late(old)
        with self._lock:
            self._forget(new)
            os.rename(self._path / old, self._path / new)
            if old in self._open:
                self._open[new] = self._open.pop(old)
            if old in self._unsynced:
                self._unsynced.remove(old)
                self._unsynced.add(new)

    def remove(self, name: str) -> None:
        with self._lock:
            self._forget(name)
            os.unlink(self._path / name)

    def evict(self, name: str) -> None:
        if not hasattr(os, "posix_fadvise"):
            return  # not every system has it
        with suppress(OSError), self._lock:  # it was only a hint
            os.posix_fadvise(self._descriptor(name), 0, 0, os.POSIX_FADV_DONTNEED)

    def sync(self, name: str) -> None:
        try:
            if name == DIRECTORY:
                os.fsync(self._directory)
            else:
                self._sync_file(name)
        except OSError as error:
            raise SyncFailedError(
                f"{str(self._path / name)!r} could not be synced: {error.strerror}. What was "
                "written last may be lost; a restart finds out and goes on from what is there."
            ) from None

    def _sync_file(self, name: str) -> None:
        self._write_late(name)
        with self._lock:
            try:
                # A second descriptor of the same open file: the first may be closed meanwhile.
                descriptor = os.dup(self._descriptor(name))
            except FileNotFoundError:
                return  # removed since the sync was asked for: it has nothing left to lose
            self._unsynced.discard(name)
        try:
            _sync_data(descriptor)
        finally:
            os.close(descriptor)

    def _write_late(self, name: str) -> None:
        """Make the writes to a file that wait, in order; the first caller that needs them calls
        this."""
        if name not in self._late:
            return
        with self._writing:
            while True:
                with self._lock:
                    late = self._late.get(name)
                    if not late:
                        self._late.pop(name, None)
                        return
                    descriptor = os.dup(self._descriptor(name))
                    write = late[0]  # stays until it is made: readers must wait for it
                try:
                    _write(descriptor, write.offset, write.data)
                finally:
                    os.close(descriptor)
                with self._lock:
                    if late:  # otherwise the file was removed
                        late.popleft()

    # -- Open files ----------------------------------------------------------------------------

    def _descriptor(self, name: str, create: bool = False) -> int:
        descriptor = self._open.get(name)
        if descriptor is None:
            flags = os.O_RDWR | os.O_CREAT if create else os.O_RDWR
            descriptor = self._open[name] = os.open(self._path / name, flags, 0o644)
            self._close_surplus()
        self._open.move_to_end(name)
        return descriptor

    def _close_surplus(self) -> None:
        surplus = len(self._open) - OPEN_MAX
        if surplus > 0:
            *others, _ = self._open  # the newest is about to be used
            for name in [n for n in others if n not in self._unsynced][:surplus]:
                os.close(self._open.pop(name))

    def _forget(self, name: str) -> None:
        self._unsynced.discard(name)
        self._late.pop(name, deque()).clear()
        if (descriptor := self._open.pop(name, None)) is not None:
            os.close(descriptor)

    def _explained(self, error: OSError, what: str, name: str) -> DiskFullError | SyncFailedError:
        kind = DiskFullError if error.errno in NO_ROOM else SyncFailedError
        return kind(f"{what} {str(self._path / name)!r}: {error.strerror}")


def _read(descriptor: int, offset: int, size: int) -> bytes:
    data = os.pread(descriptor, size, offset)
    while 0 < len(data) < size:
        more = os.pread(descriptor, size - len(data), offset + len(data))
        if not more:
            break
        data += more
    return data


def _write(descriptor: int, offset: int, parts: tuple[bytes, ...]) -> None:
    if len(parts) > PARTS_MAX:
        parts = (b"".join(parts),)
    written = os.pwritev(descriptor, parts, offset)
    if written < sum(map(len, parts)):
        data = b"".join(parts)
        while written < len(data):
            written += os.pwrite(descriptor, memoryview(data)[written:], offset + written)


def _reserve(descriptor: int, offset: int, size: int) -> bool:
    """Reserve room for a later write; False: the system cannot."""
    if not hasattr(os, "posix_fallocate"):
        return False
    try:
        os.posix_fallocate(descriptor, offset, size)
    except OSError as error:
        if error.errno in NO_ROOM:
            raise
        return False
    return True


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
