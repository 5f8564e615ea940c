"""States outside memory: what a provider has returned, and what has arrived of another one's.

A state of more than `IN_MEMORY_BYTES` is kept in a temporary file, so that it needs little memory,
and nobody waits for the other: the program that provides it goes on once it is written, and the
parts of one that arrives are taken as they come.
"""

from __future__ import annotations

from typing import IO

from antiphon.api.operations.initial_state import StateProvider

IN_MEMORY_BYTES = 1 << 20
"""A state of up to this size is kept in memory."""


class StateFile:
    """A state that is written, and then read; `Sink` and `Source` of the channel. What nobody has
    opened is closed when nobody knows it any more."""

    def __init__(self) -> None:
        self._file = _file()
        self._is_opened = False
        self.size = 0

    def restart(self) -> None:
        """Forget what was written."""
        self._file.seek(0)
        self._file.truncate()
        self.size = 0

    def write(self, data: bytes | memoryview) -> None:
        """Write behind what was written before."""
        self._file.write(data)
        self.size += len(data)

    def read(self, start: int, size: int) -> bytes:
        """Return what was written, from `start` on."""
        self._file.seek(start)
        return self._file.read(size)

    def opened(self) -> IO[bytes]:
        """Return the state as a stream, from its begin on, for the caller to close."""
        self._is_opened = True
        self._file.seek(0)
        return self._file

    def close(self) -> None:
        """Let go of it."""
        self._file.close()

    def __del__(self) -> None:
        if not self._is_opened:
            self._file.close()


def _file() -> IO[bytes]:
    # Loaded here, since most programs have no state.
    from tempfile import SpooledTemporaryFile

    return SpooledTemporaryFile(IN_MEMORY_BYTES)


class StateBytes:
    """A state that is in memory anyway."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    @property
    def size(self) -> int:
        """How many bytes there are."""
        return len(self._data)

    def read(self, start: int, size: int) -> bytes:
        """Return the bytes from `start` on."""
        return self._data[start : start + size]

    def close(self) -> None:
        """Let go of it."""
        self._data = b""


def source_of(provider: StateProvider) -> StateFile | StateBytes:
    """Return the state as the provider has it now; raise what it raises."""
    state = provider()
    if isinstance(state, bytes | bytearray | memoryview):
        return StateBytes(bytes(state))
    file = StateFile()
    try:
        for part in state:
            file.write(part)
    except BaseException:
        file.close()
        raise
    return file
