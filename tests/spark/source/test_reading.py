"""`spark.read.format("antiphon")`: a server's log as rows, all of them and nothing else."""

from __future__ import annotations

import json
import time
from argparse import Namespace
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import reduce
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as fn

import antiphon
from antiphon.lab.bench import spark as bench
from antiphon.server.local_cluster import LocalCluster
from antiphon.spark.archive import run as archiving
from antiphon.spark.logs import arrow
from antiphon.spark.logs.journal_log import JournalLog

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

TOPICS = ("prices.ibm", "prices.sap", "news")
MESSAGES = 300


class Filled(NamedTuple):
    url: str
    cluster: LocalCluster
    rows: list[tuple[int, str, str]]  # position, topic, text
    archive: str  # a folder, with some of them


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Filled]:
    """A server with messages of three topics, and of others that nobody asks for."""
    with LocalCluster(1, tmp_path_factory.mktemp("server"), "durable") as cluster:
        cluster.start()
        rows = fill(cluster.url, MESSAGES - 100)
        cluster.servers[1].kill()  # the next life begins with a segment of its own
        cluster.start()
        rows += fill(cluster.url, 100, start=MESSAGES - 100)
        archive = tmp_path_factory.mktemp("archive")
        done = archiving.archive(JournalLog(cluster.servers[1].data), archive, archiving.write_all)
        assert rows[100][0] < done.last < rows[-1][0]
        yield Filled(cluster.url, cluster, rows, str(archive))


def fill(url: str, messages: int, start: int = 0) -> list[tuple[int, str, str]]:
    with antiphon.connect(url) as ctx:
        producer = ctx.create_producer()
        consumer = ctx.create_consumer(ctx.create_topic(">"))
        for n in range(start, start + messages):
            producer.send_async(ctx.create_topic(TOPICS[n % 3]), f"number {n}")
            producer.send_async(ctx.create_queue("orders"), "nobody asks for this")
        producer.send(ctx.create_topic("elsewhere"), "the end")
        rows = []
        for _ in range(messages):
            message = consumer.receive(timeout=20)
            assert message is not None
            rows.append((message.position, message.destination.name, message.text))
        return rows


def read(spark: SparkSession, filled: Filled, **options: Any) -> DataFrame:
    given = {"url": filled.url, "topic": "prices.*,news", **options}
    return spark.read.format("antiphon").options(**given).load()


def told(frame: DataFrame) -> list[tuple[int, str, str]]:
    return sorted(tuple(row) for row in frame.select("position", "topic", "text").collect())


def test_every_message_is_a_row_wherever_it_is_read_from(
    spark: SparkSession, filled: Filled
) -> None:
    server, journal = {"url": filled.url}, {"journal": str(filled.cluster.servers[1].data)}
    archived = {"archive": filled.archive}
    places = [server, journal, archived | server, archived | journal]
    frames = [
        spark.read.format("antiphon").options(**place, topic="prices.*,news").load()
        for place in places
    ]
    marked = [frame.withColumn("place", fn.lit(n)) for n, frame in enumerate(frames)]
    found: list[list[Row]] = [[] for _ in places]
    for row in reduce(DataFrame.union, marked).collect():
        found[row.place].append(row)
    for rows in found:
        rows.sort(key=lambda row: row.position)
        assert [(row.position, row.topic, row.text) for row in rows] == filled.rows
        assert [row[:-1] for row in rows] == [row[:-1] for row in found[0]]  # every column
    assert frames[0].columns == arrow.SCHEMA.names


def test_a_range_is_read_by_several_tasks_with_the_columns_that_are_named(
    spark: SparkSession, filled: Filled
) -> None:
    first, last = filled.rows[20][0], filled.rows[200][0]
    options = {"startingPosition": first, "endingPosition": last, "messagesPerTask": 50}
    reader = spark.read.format("antiphon").schema("text STRING, position LONG")
    frame = reader.options(url=filled.url, topic="prices.*,news", **options).load()
    assert frame.rdd.getNumPartitions() > 3
    found = sorted((row.position, row.text) for row in frame.collect())
    assert found == [(p, text) for p, _, text in filled.rows if first <= p <= last]


def test_a_topic_of_any_name_is_read(spark: SparkSession, filled: Filled) -> None:
    odd = ("odd.a,b", "odd.queue:q", "odd.[c]", "odd.d\\", "odd.topic:e")
    with antiphon.connect(filled.url) as ctx:
        for name in odd:
            ctx.create_producer().send(ctx.create_topic(name), name)
    named = r"odd.a\,b, topic:odd.queue:q, odd.[c], odd.d\\, odd.topic:e, odd.nobody"
    assert sorted(row.text for row in read(spark, filled, topic=named).collect()) == sorted(odd)
    with pytest.raises(PySparkException, match="'queue:orders' cannot be read, since only topics"):
        read(spark, filled, topic="queue:orders").collect()


def test_filters_are_carried_out_by_the_source(spark: SparkSession, filled: Filled) -> None:
    first, last = filled.rows[20][0], filled.rows[200][0]
    rows = {row.position: row for row in read(spark, filled).collect()}
    stamp = rows[filled.rows[100][0]].stamp
    wanted = read(spark, filled, topic=">", pushFilters="true").where(
        (fn.col("topic") == "news")
        & fn.col("position").between(first, last)
        & (fn.col("stamp") <= stamp)
        & (fn.col("timestamp") > datetime(2020, 1, 1, tzinfo=UTC))
    )
    plan = wanted._jdf.queryExecution().executedPlan().toString()
    assert "Filter " not in plan  # but `RuntimeFilters`
    assert told(wanted) == [
        (p, topic, text)
        for p, topic, text in filled.rows
        if topic == "news" and first <= p <= last and rows[p].stamp <= stamp
    ]


def test_a_frame_can_be_filtered_in_several_ways(spark: SparkSession, filled: Filled) -> None:
    """What is planned for one query must not be what another one gets."""
    frame = read(spark, filled)
    news, sap = frame.where("topic = 'news'"), frame.where("topic = 'prices.sap'")
    assert told(news.union(sap)) == [row for row in filled.rows if row[1] != "prices.ibm"]
    assert frame.count() == MESSAGES


def test_what_is_wrong_is_named(spark: SparkSession, filled: Filled) -> None:
    with pytest.raises(Exception, match="option startingPosition is earliest, latest"):
        read(spark, filled, startingPosition="yesterday").count()
    with pytest.raises(Exception, match="there is no column 'size', only: position, topic"):
        spark.read.format("antiphon").schema("size LONG").options(
            url=filled.url, topic="news"
        ).load().count()


# -- Streams ---------------------------------------------------------------------------------------


class Pipeline:
    """A stream of one topic into a folder, which can be run again and again."""

    def __init__(self, spark: SparkSession, url: str, folder: Path, **options: object) -> None:
        self._spark = spark
        self._options = {"url": url, "topic": "prices.*,news", **options}
        self._folder = folder

    def run(self) -> None:
        """All that is there now."""
        stream = self._spark.readStream.format("antiphon").options(**self._options).load()
        query = (
            stream.select("position", "topic", "text")
            .writeStream.format("parquet")
            .option("checkpointLocation", str(self._folder / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(self._folder / "rows"))
        )
        query.awaitTermination()

    def rows(self) -> list[tuple[int, str, str]]:
        return told(self._spark.read.parquet(str(self._folder / "rows")))

    def offsets(self) -> list[int]:
        """The last position of each batch."""
        files = sorted((self._folder / "checkpoint" / "offsets").glob("[0-9]*"), key=_number)
        return [json.loads(file.read_text().splitlines()[-1])["position"] for file in files]


def _number(file: Path) -> int:
    return int(file.name)


def test_a_stream_goes_on_where_its_checkpoint_is(
    spark: SparkSession, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with LocalCluster(1, tmp_path_factory.mktemp("server"), "durable") as cluster:
        cluster.start()
        rows = fill(cluster.url, 20)
        pipeline = Pipeline(spark, cluster.url, tmp_path, maxMessagesPerTrigger=15)
        pipeline.run()
        assert pipeline.rows() == rows
        offsets = pipeline.offsets()
        assert len(offsets) == 2
        cluster.servers[1].kill()  # in between: positions are the same after it
        cluster.start()
        rows += fill(cluster.url, 10, start=20)
        pipeline.run()
        assert pipeline.rows() == rows
        assert pipeline.offsets()[:2] == offsets
        pipeline.run()  # nothing new: nothing happens
        assert pipeline.rows() == rows
        assert len(pipeline.offsets()) == 3


# -- Faults ----------------------------------------------------------------------------------------


def test_a_server_is_killed_in_the_middle_of_a_batch(
    spark: SparkSession, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with LocalCluster(3, tmp_path_factory.mktemp("servers"), "durable") as cluster:
        cluster.start()
        rows = fill(cluster.url, 300)
        reader = spark.read.format("antiphon").options(url=cluster.url, topic="prices.*,news")
        frame = reader.option("messagesPerTask", 20).load()
        folder = str(tmp_path)

        def mark(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            """Each task tells that it has begun, and waits for the second kill."""
            for batch in batches:
                (Path(folder) / f"begun-{uuid4()}").touch()
                while not (Path(folder) / "killed").exists():
                    time.sleep(0.01)
                yield batch

        marked = frame.select("position", "topic", "text").mapInArrow(
            mark, "position LONG, topic STRING, text STRING"
        )
        with ThreadPoolExecutor(1) as thread:
            result = thread.submit(told, marked)
            while not list(tmp_path.glob("begun-*")) and not result.done():
                time.sleep(0.01)
            cluster.servers[1].kill()
            (tmp_path / "killed").touch()
            assert result.result() == rows


def test_the_benchmark_reads_everything(spark: SparkSession, tmp_path: Path) -> None:
    with LocalCluster(1, tmp_path, "durable") as cluster:
        cluster.start()
        bench.fill(cluster.url, 800)
        server = cluster.servers[1]
        args = Namespace(messages=800, rounds=1)
        parquet = tmp_path / "parquet"
        report = bench.measure(spark, server.url, server.data, parquet, args)
        assert report["complete"]
