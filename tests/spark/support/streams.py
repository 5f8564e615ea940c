"""A stream that can be repeated, into a topic, and who judges what arrives there."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import antiphon

TOPIC = "rows"
LINES = 40
PARTITION_BYTES = 400
"""Small, so that a file makes two tasks."""

PATIENCE_S = 60.0
ROOT = Path(__file__).parents[3]


def folders(folder: Path) -> Path:
    """As `stream_program.py` wants them."""
    for name in ("files", "plan"):
        (folder / name).mkdir()
    return folder


def lines(batch: int) -> list[str]:
    return [f"batch {batch} line {line}" for line in range(LINES)]


def add_file(folder: Path, batch: int) -> None:
    """Complete when it is seen, and younger than those before it: so they are taken in order."""
    text = "".join(f"{line}\n" for line in lines(batch))
    hidden = folder / f".{batch}"
    hidden.write_text(text)
    os.utime(hidden, (batch, batch))
    hidden.rename(folder / f"{batch:03}.txt")


def write_files(spark: SparkSession, url: str, folder: Path, **trigger: bool) -> StreamingQuery:
    """All that is there, unless a trigger is given, in batches of one file each."""
    settings = {
        "spark.sql.files.maxPartitionBytes": str(PARTITION_BYTES),
        "spark.sql.files.openCostInBytes": "0",
    }
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        return _started(spark, url, folder, trigger)
    finally:
        for name in settings:  # the query has its own; others share the session
            spark.conf.unset(name)


def _started(
    spark: SparkSession, url: str, folder: Path, trigger: dict[str, bool]
) -> StreamingQuery:
    stream = spark.readStream.option("maxFilesPerTrigger", 1).text(str(folder / "files"))
    writer = stream.selectExpr("value AS text").writeStream.format("stepping")
    for name, value in {
        "url": url,
        "topic": TOPIC,
        "plan": str(folder / "plan"),
        "checkpointLocation": str(folder / "checkpoint"),
    }.items():
        writer = writer.option(name, value)
    return writer.trigger(**(trigger or {"availableNow": True})).start()


class Reader:
    """Sees the topic from its beginning."""

    def __init__(self, context: antiphon.Context) -> None:
        self._consumer = context.create_consumer(context.create_topic(TOPIC))
        self._producer = context.create_producer()
        self.seen: list[tuple[int, str]] = []  # positions and texts

    def check(self, batches: int) -> None:
        """Each row is there once, in order, and nothing stands between those of a batch."""
        self._producer.send(self._consumer.destination, "end")
        while (message := self._consumer.receive(PATIENCE_S)) is not None:
            if message.text == "end":
                break
            self.seen.append((message.position, message.text))
        assert [text for _, text in self.seen] == [
            line for batch in range(batches) for line in lines(batch)
        ]
        for batch in range(batches):
            positions = [position for position, _ in self.seen[batch * LINES :][:LINES]]
            assert positions == list(range(positions[0], positions[0] + LINES)), batch


class Program:
    """`stream_program.py`, with all its processes."""

    def __init__(self, url: str, folder: Path) -> None:
        self._log = folder / "program.log"
        with self._log.open("a") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.spark.support.stream_program", url, str(folder)],
                cwd=ROOT,
                start_new_session=True,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self.group = self._process.pid

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def end(self) -> int:
        code = self._process.wait()
        assert code in (0, -signal.SIGKILL), self._log.read_text()
        return code
