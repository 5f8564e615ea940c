"""The delivery trace of one program, written by the program itself.

Each event is handed to the kernel before the program continues, so that `kill -9` loses none.
"""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any

from antiphon.formats.trace import Kind, TraceEvent, decode, encode_event, encode_header


class Recorder:
    """Writes the events of one life of a program to its trace."""

    def __init__(self, folder: str, run: str, process: str, incarnation: int) -> None:
        self._who = (run, process, incarnation)
        self._lock = threading.Lock()  # listeners run on a thread of their own
        self._seq = 0
        path = os.path.join(folder, f"{run}-{process}-{incarnation}.trace")
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o644)
        os.write(self._file, encode_header())

    def add(self, kind: Kind, **columns: Any) -> None:
        run, process, incarnation = self._who
        with self._lock:
            self._seq += 1
            event = TraceEvent(
                run=run,
                process=process,
                incarnation=incarnation,
                seq=self._seq,
                kind=kind,
                at=time.monotonic(),  # one clock for all processes of a machine
                **columns,
            )
            os.write(self._file, encode_event(event))


def read_traces(folder: Path) -> list[TraceEvent]:
    """Return the events of all processes, of each up to a torn tail."""
    found: list[TraceEvent] = []
    for path in sorted(folder.glob("*.trace")):
        found += decode(path.read_bytes())[0]
    return found
