"""A trace that is being written: one life of one process (`formats/trace.py`).

`DIR/<run>-<process>-<incarnation>.trace`, or `.channel` for the trace of a channel, where the run
is the name of the folder. While a file is locked its process lives; one that comes with the same
name meanwhile is another process, one that comes later is its next incarnation.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from urllib.parse import quote

from antiphon.formats.trace import encode_header

try:
    import fcntl
except ImportError:  # not everywhere; then every earlier life counts as over
    fcntl = None  # type: ignore[assignment]


class TraceFile:
    """One open trace file, which no other process writes."""

    def __init__(
        self,
        folder: Path,
        process: str,
        otherwise: str,
        header: bytes = encode_header(),
        ending: str = "trace",
    ) -> None:
        """Begin a file for `process`, or for `otherwise` if that one lives."""
        folder.mkdir(parents=True, exist_ok=True)
        self.run = run_of(folder)
        self.process = otherwise if _lives(folder, process, ending) else process
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND
        for incarnation, path in _paths(folder, self.process, ending):
            try:
                self._file = os.open(path, flags, 0o644)
            except FileExistsError:
                continue
            self.incarnation = incarnation
            break
        if fcntl is not None:
            fcntl.flock(self._file, fcntl.LOCK_EX)
        self.write(header)

    def write(self, records: bytes) -> None:
        """Hand them to the kernel; raises `OSError`."""
        while records:
            records = records[os.write(self._file, records) :]

    def close(self) -> None:
        os.close(self._file)


def run_of(folder: Path) -> str:
    return folder.resolve().name


def _paths(folder: Path, process: str, ending: str) -> Iterator[tuple[int, Path]]:
    for incarnation in count(1):
        name = f"{run_of(folder)}-{quote(process, safe='')}-{incarnation}.{ending}"
        yield incarnation, folder / name


def _lives(folder: Path, process: str, ending: str) -> bool:
    """Return whether another running process has this name."""
    for _, path in _paths(folder, process, ending):
        if not path.exists():
            return False
        if _is_locked(path):
            return True
    raise AssertionError


def _is_locked(path: Path) -> bool:
    if fcntl is None:
        return False
    file = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(file)
    return False
