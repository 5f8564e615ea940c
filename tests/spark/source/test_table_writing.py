"""Tables are written to topics and queues, by Spark itself."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

import antiphon
from tests.api.support.backends import Backend, one_server

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]
PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def server() -> Iterator[Backend]:
    with one_server() as backend:
        yield backend


@pytest.fixture
def context(server: Backend) -> Iterator[antiphon.Context]:
    with antiphon.connect(server.url) as context:
        yield context


def save(table: DataFrame, server: Backend, **options: str) -> None:
    table.write.format("antiphon").mode("append").options(url=server.url, **options).save()


def listed(context: antiphon.Context, queue: str) -> list[Any]:
    return [message.body for message in context.create_browser(context.create_queue(queue))]


def test_rows_arrive_with_their_headers_in_the_order_of_the_table(
    spark: SparkSession, server: Backend, context: antiphon.Context
) -> None:
    everything = context.create_consumer(context.create_topic("table.>"))
    table = spark.range(0, 8, numPartitions=3).selectExpr(
        "concat('table.', id DIV 4) AS topic",
        "CASE WHEN id % 3 = 0 THEN concat('row ', id) END AS text",
        "CASE WHEN id % 3 = 1 THEN CAST(concat(id) AS BINARY) END AS body",
        "CAST(id AS STRING) AS key",
        "'tag' AS tag",
        "'type' AS type",
        "concat('c', id) AS correlation_id",
        "'queue:replies' AS reply_to",
        "CAST(id AS INT) AS priority",
        "60 AS time_to_live",
        "map('number', CAST(id AS STRING), 'nothing', NULL) AS properties",
        "id AS position",
        "current_timestamp() AS stamp",
    )
    save(table, server)
    messages = [everything.receive(PATIENCE_S) for _ in range(8)]
    assert [message.position - messages[0].position for message in messages] == list(range(8))
    for n, message in enumerate(messages):
        assert message.destination == context.create_topic(f"table.{n // 4}")
        assert message.body == [f"row {n}", str(n).encode(), None][n % 3]
        assert (message.key, message.tag, message.type) == (str(n), "tag", "type")
        assert message.correlation_id == f"c{n}"
        assert message.reply_to == context.create_queue("replies")
        assert message.priority == n
        assert message.expiration > message.timestamp
        assert dict(message.properties) == {"number": str(n), "nothing": None}


def test_a_write_with_a_token_happens_once(
    spark: SparkSession, server: Backend, context: antiphon.Context
) -> None:
    for rows in (3, 2):
        save(spark.range(rows).selectExpr("CAST(id AS STRING) AS text"), server,
             topic="queue:once", token="load of today")  # fmt: skip
    assert listed(context, "once") == ["0", "1", "2"]


def test_a_misspelled_option_is_refused_before_the_job(
    spark: SparkSession, server: Backend, context: antiphon.Context, tmp_path: Path
) -> None:
    table = spark.range(1).selectExpr("'x' AS text")
    with pytest.raises(AnalysisException, match=r"'tokn' is not known \(did you mean token\?\)"):
        save(table, server, topic="queue:misspelled", tokn="run 7")
    stream = spark.readStream.format("rate").load().selectExpr("CAST(value AS STRING) AS text")
    query = (
        stream.writeStream.format("antiphon")
        .queryName("misspelled")
        .options(url=server.url, topik="queue:misspelled", checkpointLocation=str(tmp_path))
        .start()
    )
    with pytest.raises(StreamingQueryException, match=r"'topik' is not known \(did you mean topic"):
        query.awaitTermination(PATIENCE_S)
    assert listed(context, "misspelled") == []


def test_numbers_of_sql_are_decimals(
    spark: SparkSession, server: Backend, context: antiphon.Context
) -> None:
    """As SQL writes them, and null where there is none."""
    table = spark.sql(
        "SELECT text, IF(text = 'b', NULL, 90.5) AS time_to_live, 7.0 AS priority FROM "
        "VALUES ('a'), ('b') AS some(text)"
    )
    assert table.schema["time_to_live"].dataType.simpleString() == "decimal(3,1)"
    save(table, server, topic="queue:decimals")
    one, other = context.create_browser(context.create_queue("decimals"))
    assert other.expiration == 0
    assert 90.5 <= one.expiration - one.timestamp < 90.5 + PATIENCE_S  # from the commit on
    assert one.priority == other.priority == 7


def test_what_cannot_be_a_message_is_said_before_the_job(
    spark: SparkSession, server: Backend
) -> None:
    table = spark.range(1).selectExpr("id AS text")
    with pytest.raises(AnalysisException, match="column 'text' is bigint, but must be string"):
        save(table, server, topic="t")
    with pytest.raises(AnalysisException, match="option or a column 'topic'"):
        save(spark.range(1).selectExpr("'x' AS text"), server)


def test_a_write_that_fails_publishes_nothing(
    spark: SparkSession, server: Backend, context: antiphon.Context
) -> None:
    table = spark.range(0, 4, numPartitions=4).selectExpr("CAST(7 + id AS INT) AS priority")
    with pytest.raises(PySparkException, match="from 0 to 9, not 10"):
        save(table, server, topic="queue:failed")
    assert listed(context, "failed") == []


def test_a_batch_that_spark_has_not_noted_is_not_published_again(
    spark: SparkSession, server: Backend, context: antiphon.Context, tmp_path: Path
) -> None:
    """The query's name in the checkpoint counts, not that of a run. Another query is another."""
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "1.txt").write_text("a\nb\n")
    for checkpoint in ("one", "one", "other"):
        folder = tmp_path / checkpoint
        for noted in (folder / "commits").glob("*0*"):
            noted.unlink()
        stream = spark.readStream.text(str(tmp_path / "files")).selectExpr("value AS text")
        query = (
            stream.writeStream.format("antiphon")
            .options(url=server.url, topic="queue:stream", checkpointLocation=str(folder))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(PATIENCE_S)
        assert json.loads((folder / "metadata").read_text())["id"] == query.id != query.runId
        assert (folder / "commits" / "0").exists()
    assert listed(context, "stream") == ["a", "b"] * 2


def test_a_stream_that_would_replace_messages_is_refused(
    spark: SparkSession, server: Backend, tmp_path: Path
) -> None:
    stream = spark.readStream.format("rate").load().groupBy().count()
    query = (
        stream.selectExpr("CAST(count AS STRING) AS text")
        .writeStream.format("antiphon")
        .options(url=server.url, topic="t", checkpointLocation=str(tmp_path))
        .outputMode("complete")
        .start()
    )
    with pytest.raises(StreamingQueryException, match="mode 'append'"):
        query.awaitTermination(PATIENCE_S)
