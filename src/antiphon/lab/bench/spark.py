"""`antiphon bench spark`: measures how fast Spark reads topics, beside Parquet and Python tuples.

A server of its own is filled; then the same columns of the same messages are read, in turn and
several times: from the journal's folder, from the server, from Parquet by Spark itself, and from a
source that hands Spark the same rows as Python tuples. Rates are rows a second, the median of the
rounds after the first one, in which everything is warmed up. The rows are counted and compared:
otherwise it fails (exit code 1).
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import antiphon
from antiphon.server.local_cluster import LocalCluster
from antiphon.spark import session
from antiphon.terminal.lines import say_json
from antiphon.terminal.screen import Screen, Table, track

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TOPIC = "bench"
COLUMNS = "position, topic, message_id, timestamp, stamp, sequence, priority, text"
BODY = "x" * 88
TUPLES_SHARE = 8
"""The tuple source reads one message of this many: it is slow, and its rate is the same."""

WINDOW = 20_000  # messages that are sent before the first of them must have been accepted


def run(args: argparse.Namespace) -> int:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory("-antiphon-bench")))
        cluster = stack.enter_context(LocalCluster(1, folder))
        cluster.start()
        fill(cluster.url, args.messages)
        with Screen(stderr=True).doing("starting Spark"):
            spark = session.start(
                "antiphon bench spark", args.master, {"spark.driver.memory": "2g"}
            )
        stack.callback(spark.stop)
        server = cluster.servers[1]
        report = measure(spark, server.url, server.data, folder / "parquet", args)
    say_json(report) if args.json else _show(report)
    return 0 if report["complete"] else 1


def fill(url: str, messages: int) -> None:
    with antiphon.connect(url, client_id="bench") as ctx:
        topic = ctx.create_topic(TOPIC)
        ctx.create_durable_consumer(topic, "keep").close()  # so that all of them are kept
        producer = ctx.create_producer()
        last = None
        for number in track(range(messages), "sending"):
            sent = producer.send_async(topic, f"{number:012}{BODY}")
            if number % WINDOW == 0:
                if last is not None:
                    last.result()
                last = sent
        sent.result()


def measure(
    spark: SparkSession,
    url: str,
    journal: Path,
    parquet: Path,
    args: argparse.Namespace,
) -> dict[str, object]:
    from antiphon.lab.bench.spark_tuples import TupleSource

    spark.dataSource.register(TupleSource)
    fields = ", ".join(f"{name} {_TYPES.get(name, 'STRING')}" for name in COLUMNS.split(", "))

    def read(format_: str = "antiphon", **options: object) -> DataFrame:
        reader = spark.read.format(format_).schema(fields)
        return reader.options(topic=TOPIC, **options).load()  # type: ignore[arg-type]

    few = max(1, args.messages // TUPLES_SHARE)
    read(journal=journal).write.parquet(str(parquet))
    frames: dict[str, tuple[int, Callable[[], DataFrame]]] = {
        "journal": (args.messages, lambda: read(journal=journal)),
        "server": (args.messages, lambda: read(url=url)),
        "parquet": (args.messages, lambda: session.parquet(spark, parquet)),
        "tuples": (few, lambda: read("antiphon_tuples", journal=journal, endingPosition=few)),
    }
    complete = all(make().count() == rows for rows, make in frames.values())
    seconds: dict[str, list[float]] = {name: [] for name in frames}
    for _ in track(range(args.rounds + 1), "reading"):
        for name, (_, make) in frames.items():
            seconds[name].append(_timed(make()))
    rates = {name: round(rows / median(seconds[name][1:])) for name, (rows, _) in frames.items()}
    return {
        "messages": args.messages,
        "complete": complete,
        "rows_per_s": rates,
        "journal_to_parquet": round(rates["journal"] / rates["parquet"], 2),
        "server_to_parquet": round(rates["server"] / rates["parquet"], 2),
        "journal_to_tuples": round(rates["journal"] / rates["tuples"], 2),
        "seconds": {name: [round(s, 2) for s in some] for name, some in seconds.items()},
    }


_TYPES = {
    "position": "LONG",
    "timestamp": "TIMESTAMP",
    "stamp": "TIMESTAMP",
    "sequence": "LONG",
    "priority": "INT",
}


def _timed(frame: DataFrame) -> float:
    """Return the seconds of a query whose rows are thrown away."""
    begin = time.perf_counter()
    frame.write.format("noop").mode("overwrite").save()
    return time.perf_counter() - begin


def _show(report: dict[str, object]) -> None:
    table = Table("read from", "rows/s")
    rates = report["rows_per_s"]
    assert isinstance(rates, dict)
    for name, rate in rates.items():
        table.add_row(name, f"{rate:,}")
    screen = Screen()
    screen.print(table)
    for name in ("journal_to_parquet", "server_to_parquet", "journal_to_tuples"):
        screen.print(f"{name.replace('_', ' ')}: {report[name]}")
    if not report["complete"]:
        screen.print("not all messages were read")
