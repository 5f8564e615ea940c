"""Archives a journal again and again, each time killed one step later, until one run is through.

    python archive_killer.py JOURNAL FOLDER      makes FOLDER1, FOLDER2, ...

A step is whatever changes a file or a folder. Each run is a process of its own, ended by SIGKILL.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

from antiphon.spark.archive import parquet  # noqa: F401  once for all, it takes a second
from antiphon.spark.archive.run import archive, write_all
from antiphon.spark.logs import arrow  # noqa: F401  once for all, it takes a second
from antiphon.spark.logs.journal_log import JournalLog

STEPS: tuple[tuple[Any, str], ...] = (
    *((os, name) for name in ("fsync", "link", "mkdir")),
    *((Path, name) for name in ("open", "rename", "unlink")),
)


def main(journal: str, folder: str) -> None:
    for die_at in count(1):
        child = os.fork()
        if not child:
            run(journal, Path(f"{folder}{die_at}"), die_at)
            os._exit(0)
        status = os.waitpid(child, 0)[1]
        if os.waitstatus_to_exitcode(status) != -signal.SIGKILL:
            sys.exit(os.waitstatus_to_exitcode(status))


def run(journal: str, folder: Path, die_at: int) -> None:
    steps = count(1)

    def stepping(real: Callable[..., Any]) -> Callable[..., Any]:
        def stepped(*args: Any, **options: Any) -> Any:
            if next(steps) == die_at:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*args, **options)

        return stepped

    for owner, name in STEPS:
        setattr(owner, name, stepping(getattr(owner, name)))
    archive(JournalLog(journal), folder, write_all)


if __name__ == "__main__":
    main(*sys.argv[1:])
