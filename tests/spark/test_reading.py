"""`spark.read.format("antiphon")`: a server's log as rows, all of them and nothing else."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

import antiphon
from antiphon.io.local import LocalCluster

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]

TOPICS = ("prices.ibm", "prices.sap", "news")
MESSAGES = 300


class Filled(NamedTuple):
    url: str
    cluster: LocalCluster
    rows: list[tuple[int, str, str]]  # position, topic, text


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Filled]:
    """A server with messages of three topics, and of others that nobody asks for."""
    with LocalCluster(1, tmp_path_factory.mktemp("server"), "durable") as cluster:
        cluster.start()
        rows = fill(cluster.url, MESSAGES)
        yield Filled(cluster.url, cluster, rows)


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


def test_every_message_is_a_row(spark: SparkSession, filled: Filled) -> None:
    assert told(read(spark, filled)) == filled.rows
