"""How fast packs become Arrow, and a journal becomes Parquet. Ratios within one run, warm, medians.

    python -m tests.spark.support.bench_archive [--messages 3000000] [--rounds 5]

Decoding is compared with a loop over messages, in this process. The archive's writer is compared
with Spark's own at the same level of zstd: both read the same slices of the same journal in as many
tasks, and write the same columns; Spark's need not sync, nor part topics and days.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from antiphon.api.messages.arriving import arrived
from antiphon.api.messages.message import Arrival
from antiphon.formats.columns import Columns
from antiphon.formats.pack import LogPack
from antiphon.spark import session
from antiphon.spark.archive.parquet import LEVEL, _said_once
from antiphon.spark.archive.run import SLICE_MESSAGES, _shares, archive, on_spark
from antiphon.spark.logs.arrow import SCHEMA, batches
from antiphon.spark.logs.journal_log import ALL_TOPICS, JournalLog
from tests.spark.support.journals import Book

PACK_MESSAGES = 1000
TOPICS = 4
SOME = ["position", "topic", "message_id", "timestamp", "session", "sequence", "body", "text"]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--messages", type=int, default=3_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="antiphon-bench-") as folder:
        journal = written(Path(folder) / "journal", args.messages)
        decoding(journal, args.rounds)
        archiving(journal, Path(folder), args.rounds)


def written(folder: Path, messages: int) -> JournalLog:
    book = Book(folder, 64 << 20)
    for n in range(messages // PACK_MESSAGES):
        texts = [
            f"{n:08d} {i:04d} a text that is about as long as one in a log file: {i * n:020d}"
            for i in range(PACK_MESSAGES)
        ]
        book.send(f"bench.{n % TOPICS}", *texts)
        book.messages.clear()
    book.sync()
    book.snapshot(((1, book.position),))
    book.restart()  # so that all segments are finished
    book.close()
    return JournalLog(folder)


def medians(rounds: int, *works: Callable[[], None]) -> list[float]:
    """Seconds for each, in turn; once more than asked for, as the first time warms up."""
    times: list[list[float]] = [[] for _ in works]
    for _ in range(rounds + 1):
        for work, its_times in zip(works, times, strict=True):
            began = time.perf_counter()
            work()
            its_times.append(time.perf_counter() - began)
    return [statistics.median(its_times[1:]) for its_times in times]


# -- Packs as Arrow -------------------------------------------------------------------------------


def decoding(journal: JournalLog, rounds: int) -> None:
    sight = journal._look()
    accepted = list(sight.accepted("topic:bench.0", 1, 400 * PACK_MESSAGES))
    packs = [one.read() for one in accepted]
    rows = len(packs) * PACK_MESSAGES
    plain, some, every = (
        rows / seconds
        for seconds in medians(
            rounds,
            lambda: decode_one_by_one(packs),
            lambda: exhaust(batches(packs, 1, 1 << 60, SOME)),
            lambda: exhaust(batches(packs, 1, 1 << 60, SCHEMA.names)),
        )
    )
    print(f"one by one, {len(SOME)} columns    {plain / 1e6:6.2f} M rows/s")
    times = f"{some / plain:.1f} times"
    print(f"Arrow, {len(SOME)} columns         {some / 1e6:6.2f} M rows/s    {times}")
    print(f"Arrow, all {len(SCHEMA.names)} columns    {every / 1e6:6.2f} M rows/s")


def exhaust(some: Iterator[pa.RecordBatch]) -> None:
    for _ in some:
        pass


def decode_one_by_one(packs: list[LogPack]) -> None:
    values: list[list[object]] = [[] for _ in SOME]
    for log_pack in packs:
        read = Columns(log_pack.pack)
        header = read.header
        for i in range(read.count):
            message = next(arrived(Arrival(read, log_pack.position, 1), (i,)))
            row = (
                message.position,
                header.destination.removeprefix("topic:"),
                message.id,
                read.timestamp(i) * 1000,
                f"{header.session:x}",
                header.sequence + i,
                read.body(i),
                message.text,
            )
            for column, value in zip(values, row, strict=True):
                column.append(value)
    for name, column in zip(SOME, values, strict=True):
        pa.array(column, SCHEMA.field(name).type)


# -- A journal as Parquet -------------------------------------------------------------------------


def archiving(journal: JournalLog, folder: Path, rounds: int) -> None:
    spark = session.start("bench", "local[2]")
    work = on_spark(spark)
    messages = journal.sealed()

    def ours() -> None:
        shutil.rmtree(folder / "ours", ignore_errors=True)
        assert archive(journal, folder / "ours", work).messages == messages

    def sparks() -> None:
        shutil.rmtree(folder / "sparks", ignore_errors=True)
        by_spark(spark, journal, folder / "sparks")

    own, jvm = (messages / seconds for seconds in medians(rounds, ours, sparks))
    assert spark.read.parquet(str(folder / "sparks")).count() == messages
    print(f"Spark's writer     {jvm / 1e6:6.2f} M rows/s    {size(folder / 'sparks'):,} bytes")
    print(f"antiphon archive   {own / 1e6:6.2f} M rows/s    {size(folder / 'ours'):,} bytes")
    print(f"{own / jvm:.1f} times, {messages:,} messages")
    spark.stop()


def by_spark(spark: SparkSession, journal: JournalLog, folder: Path) -> None:
    slices = journal.slices(ALL_TOPICS, 1, journal.sealed(), SLICE_MESSAGES)
    tasks = min(len(slices), spark.sparkContext.defaultParallelism * 3)
    shares = _shares(slices, tasks)

    def read_shares(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for number in batch["id"].to_pylist():
                for piece in shares[number]:
                    yield from map(_said_once, journal.read(piece, SCHEMA.names))

    rows = spark.range(0, tasks, 1, tasks).mapInArrow(read_shares, from_arrow_schema(SCHEMA))
    writer = rows.write.option("compression", "zstd").option(
        "parquet.compression.codec.zstd.level", LEVEL
    )
    writer.parquet(str(folder))


def size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*.parquet"))


if __name__ == "__main__":
    main()
