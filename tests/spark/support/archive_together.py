"""Several processes that archive the same journal at the same time, in small steps.

python archive_together.py JOURNAL FOLDER PROCESSES
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from antiphon.spark.archive import parquet, run  # noqa: F401  once for all, it takes a second
from antiphon.spark.logs import arrow  # noqa: F401  once for all, it takes a second
from antiphon.spark.logs.journal_log import JournalLog

STEP_POSITIONS = 7


def main(journal: str, folder: str, processes: str) -> None:
    run.STEP_POSITIONS = STEP_POSITIONS
    children = []
    for _ in range(int(processes)):
        child = os.fork()
        if not child:
            run.archive(JournalLog(journal), Path(folder), run.write_all)
            os._exit(0)
        children.append(child)
    sys.exit(max(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children))


if __name__ == "__main__":
    main(*sys.argv[1:])
