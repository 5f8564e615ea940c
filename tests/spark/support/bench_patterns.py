"""Measures the cost of looking for a pattern, beside a pass over the same stream without state.

`python -m tests.spark.support.bench_patterns [MESSAGES [KEYS [ROUNDS]]]`: processor time of Spark
and its Python workers together, which other programs on the machine disturb least.
"""

import os
import statistics
import sys
import tempfile
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from antiphon.spark import patterns, session

FALLEN = patterns.rise_and_fall("price", rise=0.05, fall=0.03, within="10 minutes", key="symbol")
FILES = 4
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def main(messages: str = "400000", keys: str = "100", rounds: str = "5") -> None:
    spark = session.start("bench patterns", "local[2]", {"spark.sql.shuffle.partitions": "2"})
    with tempfile.TemporaryDirectory() as folder:
        prices(spark, int(messages), int(keys)).write.parquet(f"{folder}/prices")
        took: dict[str, list[float]] = {"stateless": [], "pattern": []}
        for number in range(int(rounds) + 1):
            for kind, times in took.items():
                seconds = run(spark, kind, Path(folder), f"{kind}-{number}")
                times += [seconds] if number else []  # the first warms up
        spark.stop()
    medians = {kind: statistics.median(times) for kind, times in took.items()}
    for kind, seconds in medians.items():
        print(f"{kind}: {int(messages) / seconds:,.0f} messages per second of processor time")
    print(f"a pattern costs {medians['pattern'] / medians['stateless']:.1f} times a stateless pass")


def prices(spark: SparkSession, messages: int, keys: int) -> DataFrame:
    """Each share rises by a fifth and falls again, with some noise."""
    number = f.col("id")
    price = 100 + 10 * f.sin(number / 1000) + f.rand(7)
    symbol = f.pmod(f.hash(number), f.lit(keys)).cast("int")
    return spark.range(messages, numPartitions=FILES).select(
        number.alias("position"),
        f.timestamp_millis(number * 2).alias("timestamp"),
        f.lit(None).cast("map<string,string>").alias("properties"),
        f.format_string('{"symbol":"S%d","price":%.2f}', symbol, price).alias("text"),
    )


def run(spark: SparkSession, kind: str, folder: Path, name: str) -> float:
    files = str(folder / "prices")
    reader = spark.readStream.schema(spark.read.parquet(files).schema)
    stream = reader.option("maxFilesPerTrigger", 1).parquet(files)
    stateless = patterns._events(stream, FALLEN, "timestamp").filter("usable")
    frame = stateless if kind == "stateless" else patterns.find(stream, FALLEN)
    writer = frame.writeStream.format("noop").trigger(availableNow=True)
    before = processor_seconds()
    writer.option("checkpointLocation", str(folder / name)).start().awaitTermination()
    return processor_seconds() - before


def processor_seconds() -> float:
    """Of this program and all that it started, also those that have ended."""
    parents, ticks = {}, {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it ended just now
        process = int(stat.parent.name)
        parents[process] = int(fields[1])
        ticks[process] = sum(map(int, fields[11:15]))
    return sum(ticks[process] for process in ticks if is_ours(process, parents)) / TICKS_PER_S


def is_ours(process: int, parents: dict[int, int]) -> bool:
    while process in parents and process != os.getpid():
        process = parents[process]
    return process == os.getpid()


if __name__ == "__main__":
    main(*sys.argv[1:])
