"""Writes what is in a folder of files as a stream: a file a batch, a message a line.

`python -m tests.spark.support.stream_program URL FOLDER` leads a group of processes of its own;
`FOLDER` has `files`, `checkpoint` and `plan` (`stepping.py`).
"""

from __future__ import annotations

import sys
from pathlib import Path

from antiphon.spark import session
from tests.spark.conftest import QUICK
from tests.spark.support.stepping import SteppingSource
from tests.spark.support.streams import write_files


def main(url: str, folder: Path) -> None:
    # A task may fail twice; by default a local Spark gives up at once.
    spark = session.start("stream", "local[2,3]", {**QUICK, "spark.local.dir": str(folder / "tmp")})
    spark.dataSource.register(SteppingSource)
    query = write_files(spark, url, folder)
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
