"""A table that was read can be written as it is: the same messages, at other positions."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

import antiphon
from tests.api.support.backends import one_server

PATIENCE_S = 60.0
BODIES: list[Any] = ["text", b"bytes", {"a": 1}, [1, "x"], (1, 2), antiphon.Message(), "", b""]
HEADERS: Any = {
    "key": "k",
    "tag": "g",
    "type": "y",
    "correlation_id": "c",
    "reply_to": antiphon.Queue("r"),
    "priority": 7,
    "properties": {"a": "1"},
}


@pytest.mark.spark
@pytest.mark.timeout(180)
def test_a_table_that_was_read_can_be_written(spark: SparkSession) -> None:
    with one_server() as server, antiphon.connect(server.url) as context:
        consumer = context.create_consumer(context.create_topic("trip"))
        producer, topic = context.create_producer(), context.create_topic("trip")
        producer.send_all(topic, BODIES)
        producer.send(topic, "rich", **HEADERS)
        table = spark.read.format("antiphon").options(url=server.url, topic="trip").load()
        table.write.format("antiphon").mode("append").option("url", server.url).save()
        count = len(BODIES) + 1
        messages = [consumer.receive(PATIENCE_S) for _ in range(2 * count)]
    sent, written = (list(map(described, part)) for part in (messages[:count], messages[count:]))
    assert written == sent


def described(message: Any) -> tuple[Any, ...]:
    headers = (message.key, message.tag, message.type, message.correlation_id, message.reply_to)
    return type(message), message.body, headers, message.priority, dict(message.properties)
