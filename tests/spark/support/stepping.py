"""The format `stepping`: `antiphon`, in which a test decides what happens at each step of a write.

The steps of a batch are: *sent* and *staged* (in each task), *committing* and *committed* (at the
driver). The option `plan` names a folder. At step `staged` of batch 3, the file `staged-3` there
says what happens (`STEPS` below); it happens once.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamWriter
from pyspark.sql.types import StructType

from antiphon.spark.source.datasource import AntiphonSource
from antiphon.spark.source.writing import Stage, StreamWriter, Target, stream_writer

STEPS = ("sent", "staged", "committing", "committed")
PATIENCE_S = 60.0


def plan(folder: Path, step: str, batch: int, what: str) -> None:
    """`what`: `fail` the task, `kill GROUP` of processes, or `wait` until `go_on`."""
    (folder / f"{step}-{batch}").write_text(what)


def reached(folder: Path, step: str, batch: int) -> bool:
    """Whether somebody waits there."""
    return (folder / f"{step}-{batch}.reached").exists()


def go_on(folder: Path, step: str, batch: int) -> None:
    (folder / f"{step}-{batch}.reached").unlink()


class SteppingSource(AntiphonSource):
    @classmethod
    def name(cls) -> str:
        return "stepping"

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        options = dict(self.options)
        folder = Path(options.pop("plan"))  # the format itself has no such option
        return SteppingWriter(stream_writer(options, schema, overwrite)._target, folder)


class SteppingWriter(StreamWriter):
    def __init__(self, target: Target, folder: Path) -> None:
        super().__init__(target)
        self._folder = folder

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Stage:
        task = TaskContext.get()
        assert task is not None
        batch = int(task.getLocalProperty("streaming.sql.batchId") or -1)
        stage = super().write(self._until_sent(iterator, batch))
        self._reach("staged", batch)
        return stage

    def _until_sent(self, batches: Iterator[pa.RecordBatch], batch: int) -> Iterator[Any]:
        yield from batches
        self._reach("sent", batch)

    def commit(self, messages: Any, batchId: int) -> None:  # noqa: N803
        self._reach("committing", batchId)
        super().commit(messages, batchId)
        self._reach("committed", batchId)

    def _reach(self, step: str, batch: int) -> None:
        planned = self._folder / f"{step}-{batch}"
        mine = planned.with_suffix(f".{os.getpid()}")
        try:
            planned.rename(mine)  # one of those who are here
        except FileNotFoundError:
            return
        what, *group = mine.read_text().split()
        if what == "fail":
            raise RuntimeError("the test wants this attempt to fail")
        if what == "kill":
            os.killpg(int(group[0]), signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)
        _wait(mine.rename(planned.with_suffix(".reached")))


def _wait(until_gone: Path) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while until_gone.exists():
        assert time.monotonic() < deadline, f"{until_gone} is still there"
        time.sleep(0.01)
