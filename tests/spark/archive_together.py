"""Several processes that archive the same journal at the same time, in small steps.

python archive_together.py JOURNAL FOLDER PROCESSES
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from antiphon.spark import (
    archive,
    archive_writing,  # noqa: F401  once for all, it takes a second
    columns,  # noqa: F401
)
from antiphon.spark.journal_log import JournalLog

STEP_POSITIONS = 7


def main(journal: str, folder: str, processes: str) -> None:
    archive.STEP_POSITIONS = STEP_POSITIONS
    children = []
    for _ in range(int(processes)):
        child = os.fork()
        if not child:
            archive.archive(JournalLog(journal), Path(folder), archive.write_all)
            os._exit(0)
        children.append(child)
    sys.exit(max(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children))


if __name__ == "__main__":
    main(*sys.argv[1:])
