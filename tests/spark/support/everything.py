"""All that the pipeline does, in small: to be done on several masters, which must not differ.

`python -m tests.spark.support.everything URL JOURNAL FOLDER MASTER SETTINGS` prints the results as
JSON.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import antiphon
from antiphon.spark import patterns, session
from antiphon.spark.archive import run
from antiphon.spark.audit import judge
from antiphon.spark.logs.journal_log import JournalLog
from tests.spark.support import scenes
from tests.spark.support.agreement import RANGE, table
from tests.spark.support.planting import PLANTS, as_run, planted

SHARES = "prices.*"
RISEN = patterns.rises_by("price", rise=0.3, within="1 minute", key="topic")


def publish(url: str, messages: int) -> None:
    """A price that goes up and down, of several shares."""
    with antiphon.connect(url) as ctx:
        producer = ctx.create_producer()
        for n in range(messages):
            quote = json.dumps({"at": 1000 * n, "price": 100 + 37 * n % 50})
            producer.send_async(ctx.create_topic(f"prices.{'abc'[n % 3]}"), quote)
        producer.send(ctx.create_topic("elsewhere"), "the end")


def results(spark: SparkSession, url: str, journal: Path, folder: Path) -> dict[str, Any]:
    """The folder is empty, or not there; its name is part of the topics that are written."""
    return {
        "read": rows(spark, url=url, topic=SHARES, messagesPerTask=20),
        "archived": archived(spark, journal, folder / "archive"),
        "written": written(spark, url, f"copies.{folder.name}"),
        "found": found(spark, url, f"found.{folder.name}", folder / "checkpoint"),
        "judged": judged(spark),
    }


def rows(spark: SparkSession, **options: Any) -> list[list[Any]]:
    frame = spark.read.format("antiphon").options(**options).load()
    return sorted(list(row) for row in frame.select("position", "topic", "text").collect())


def archived(spark: SparkSession, journal: Path, folder: Path) -> list[list[Any]]:
    done = run.archive(JournalLog(journal), folder, run.on_spark(spark))
    assert done.messages > 0
    return rows(spark, archive=str(folder), topic=SHARES)


def written(spark: SparkSession, url: str, topic: str) -> list[str]:
    frame = spark.range(0, 50, 1, 3).selectExpr("concat('number ', id) AS text")
    frame.write.format("antiphon").options(url=url, topic=topic).mode("append").save()
    return sorted(text for _, _, text in rows(spark, url=url, topic=topic))


def found(spark: SparkSession, url: str, topic: str, checkpoint: Path) -> list[str]:
    query = patterns.run(
        spark, url, topic=SHARES, pattern=RISEN, to=f"topic:{topic}", time="at",
        lateness="1 second", checkpoint=str(checkpoint), once=True,
    )  # fmt: skip
    query.awaitTermination()
    return sorted(text for _, _, text in rows(spark, url=url, topic=topic))


def judged(spark: SparkSession) -> list[list[str]]:
    """A trace that is right, and one for each kind of violation."""
    events = scenes.trace()
    for plant in PLANTS:
        changed = planted(plant, scenes.trace())
        assert changed is not None
        events += as_run(changed, plant.name)
    verdict = judge.judge(spark, table(spark, events), RANGE)
    return sorted([each.world.run, each.property, each.text] for each in verdict.findings)


def main(url: str, journal: str, folder: str, master: str, settings: str) -> None:
    spark = session.start("everything", master, json.loads(settings))
    told = results(spark, url, Path(journal), Path(folder))
    spark.stop()
    print(json.dumps(told))


if __name__ == "__main__":
    main(*sys.argv[1:])
