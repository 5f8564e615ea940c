"""Patterns on Spark: streams in batches, with restarts, from topics to topics."""

import json
import os
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

import antiphon
from antiphon.server.local_cluster import LocalCluster
from antiphon.spark import patterns
from antiphon.spark.patterns import Counts
from antiphon.spark.patterns.events import Event, Pattern, moment
from tests.spark.support import pattern_oracle as oracle
from tests.spark.support.pattern_oracle import Happened, Told

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]

COLUMNS = "position long, timestamp timestamp, text string, properties map<string,string>"
LATENESS = 200  # ms
FALLEN = patterns.rise_and_fall(
    "price", rise=0.05, fall=0.03, within="400 milliseconds", key="symbol"
)


class Stream:
    """Messages that come file by file, each file a batch."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark = spark
        self._folder = folder
        (folder / "messages").mkdir()
        self._files = 1
        self.found: list[dict[str, Any]] = []

    def add(self, messages: Sequence[dict[str, Any]]) -> None:
        lines = "".join(f"{json.dumps(message)}\n" for message in messages)
        file = self._folder / "messages" / f"{self._files}.json"
        file.write_text(lines)
        os.utime(file, (self._files, self._files))  # Spark takes them by age
        self._files += 1

    def find(self, pattern: Pattern[Any], **options: str) -> Counts:
        """All that was added and not seen yet."""
        reader = self._spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 1)
        messages = reader.json(str(self._folder / "messages"))
        lateness = f"{LATENESS} milliseconds"
        found = patterns.find(messages, pattern, lateness=lateness, **options)
        writer = found.writeStream.foreachBatch(self._collect).trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(self._folder / "checkpoint")).start()
        query.awaitTermination()
        assert query.lastProgress is not None
        (self.kept,) = (one.numRowsTotal for one in query.lastProgress.stateOperators)
        return patterns.counts(query)

    def _collect(self, batch: DataFrame, number: int) -> None:
        self.found += [json.loads(row.text) for row in batch.collect()]


def message(time: int, position: int, fields: dict[str, Any]) -> dict[str, Any]:
    """Half of them have their fields in a text, the others as properties."""
    if position % 2:
        fields = {name: str(value) for name, value in fields.items()}
        return {"position": position, "timestamp": moment(time), "properties": fields}
    return {"position": position, "timestamp": moment(time), "text": json.dumps(fields)}


def arrivals(seed: int, count: int) -> list[Happened]:
    """Prices of some shares, in the order of arrival: no later than is allowed."""
    chance = Random(seed)
    times = sorted(chance.randrange(0, 10 * count) // 5 * 5 for _ in range(count))
    arrived = sorted(times, key=lambda time: time + chance.randrange(LATENESS))
    return [
        (1000 + time, position, {"symbol": chance.choice("ABC"), "price": chance.randint(90, 110)})
        for position, time in enumerate(arrived)
    ]


def expected(history: list[Happened]) -> dict[str, list[Told]]:
    of_key: dict[str, list[Happened]] = defaultdict(list)
    for one in history:
        of_key[one[2]["symbol"]].append(one)
    told = {k: oracle.rise_and_fall(some, "price", 0.05, 0.03, 400) for k, some in of_key.items()}
    return {key: found for key, found in told.items() if found}


def told(found: list[dict[str, Any]]) -> dict[str, list[Told]]:
    by_key: dict[str, list[Told]] = defaultdict(list)
    for one in found:
        positions = tuple(part["position"] for part in one["found"].values())
        by_key[one["key"]].append(Told(milliseconds_of(one["time"]), positions))
    return {key: sorted(some) for key, some in by_key.items()}


def milliseconds_of(text: str) -> int:
    seconds, _, rest = text.removesuffix("Z").rpartition(":")[2].partition(".")
    return int(text[14:16]) * 60_000 + int(seconds) * 1000 + int(rest)


def test_a_stream_in_batches_with_a_restart(spark: SparkSession, tmp_path: Path) -> None:
    """In the middle of it all the query ends, and another goes on."""
    stream, history = Stream(spark, tmp_path), arrivals(seed=7, count=400)
    for begin in range(0, 200, 100):
        stream.add([message(*one) for one in history[begin : begin + 100]])
    stream.find(FALLEN)
    stream.add([message(*one) for one in history[200:]])
    stream.add([message(60_000, 400, {})])  # of no share, but it tells the time
    read, skipped, late = stream.find(FALLEN)
    assert (read, skipped, late) == (201, 1, 0)
    assert told(stream.found) == expected(history)
    assert len(stream.found) > 10


def test_what_is_late_or_of_no_use_is_counted(spark: SparkSession, tmp_path: Path) -> None:
    stream = Stream(spark, tmp_path)
    rises = [message(t, t, {"symbol": "A", "price": p}) for t, p in ((1000, 100), (1100, 106))]
    of_no_use = [{"symbol": "A"}, {"price": 1}, {"symbol": "A", "price": "x"}]
    of_no_use += [{"symbol": "A", "price": price} for price in (0, -1, "NaN", "Infinity")]
    others = [message(1100, 2000 + n, fields) for n, fields in enumerate(of_no_use)]
    others.append({"position": 3000, "timestamp": moment(1100), "text": "no JSON"})
    others.append({"position": 3001, "text": '{"symbol": "A", "price": 1}'})
    stream.add([*rises, *others])
    stream.add([message(1300, 1300, {"symbol": "B", "price": 1})])
    stream.add([message(1300, 1301, {"symbol": "B", "price": 1})])  # now 1100 is over
    too_late = message(1100, 4000, {"symbol": "A", "price": 1})
    in_time = message(1101, 1101, {"symbol": "A", "price": 100})
    stream.add([too_late, in_time, message(60_000, 5000, {})])
    assert stream.find(FALLEN) == Counts(messages=16, skipped=10, late=1)
    assert told(stream.found) == {"A": [Told(1101, (1000, 1100, 1101))]}


def test_silence_is_noticed_and_keys_are_forgotten(spark: SparkSession, tmp_path: Path) -> None:
    stream = Stream(spark, tmp_path)
    pattern = patterns.absence(
        patterns.event(step="pay"), after=patterns.event(step="order"), within="1 second", key="n"
    )
    steps = [(1000, "order", 1), (1100, "order", 2), (1200, "order", 3), (2100, "pay", 2)]
    steps += [(2201, "pay", 3), (9000, "other", 4)]
    for at, step, n in steps:
        body = json.dumps({"at": at, "step": step, "n": n})
        stream.add([{"position": at, "timestamp": moment(0), "text": body}])
    counts = stream.find(pattern, time="at")
    assert counts == Counts(6, 0, 0)
    assert stream.kept == 1  # the last event
    found = {one["key"]: (one["time"], one["found"]["after"]["position"]) for one in stream.found}
    assert found == {"1": (moment(2000), 1000), "3": (moment(2200), 1200)}


def test_a_function_of_the_user(spark: SparkSession, tmp_path: Path) -> None:
    limit = 100.0

    def crossed(was_above: bool | None, event: Event) -> tuple[bool, list[dict[str, Any]]]:
        is_above = event.number("price") > limit
        return is_above, [{"price": event["price"]}] if is_above and not was_above else []

    stream = Stream(spark, tmp_path)
    quotes = [(1, 99), (2, 101), (3, 102), (4, 98), (5, 103), (60_000, 1)]
    stream.add([message(time, time, {"price": price}) for time, price in quotes])
    stream.find(patterns.stateful(crossed, fields={"price": float}, forget_after="1 day"))
    assert [(one["pattern"], one["key"], one["found"]) for one in stream.found] == [
        ("crossed", None, {"price": 101.0}),
        ("crossed", None, {"price": 103.0}),
    ]


# -- From topics to topics -------------------------------------------------------------------------


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    (folder := tmp_path / "server").mkdir()
    with LocalCluster(1, folder, "durable") as cluster:
        cluster.start()
        yield cluster.url


def publish(url: str, topic: str, rows: Sequence[tuple[int, str, float]]) -> None:
    with antiphon.connect(url) as ctx:
        bodies = [json.dumps({"at": at, "place": p, "level": level}) for at, p, level in rows]
        ctx.create_producer().send_all(ctx.create_topic(topic), bodies)


def test_what_is_found_is_published_once(spark: SparkSession, url: str, tmp_path: Path) -> None:
    """The driver dies when a batch with an alert is published, and a second alert half found."""
    flood = patterns.at_least(
        3,
        of="place",
        where=patterns.rises_by("level", rise=0.2, within="1 hour"),
        within="1 hour",
        key="topic",
    )
    checkpoint = tmp_path / "checkpoint"

    def run() -> None:
        query = patterns.run(
            spark, url, topic="levels.*", pattern=flood, to="topic:alerts", time="at",
            lateness="1 second", checkpoint=str(checkpoint), once=True,
        )  # fmt: skip
        query.awaitTermination()

    with antiphon.connect(url) as ctx, ctx.join(ctx.create_group("alerts"), "ranger") as ranger:
        places = ("bridge", "ford", "mill")
        publish(url, "levels.eden", [(1000, place, 10.0) for place in places])
        publish(url, "levels.lune", [(1000, place, 10.0) for place in places])
        publish(url, "levels.lune", [(2000, place, 12.5) for place in places[:2]])
        publish(url, "levels.eden", [(3000, place, 12.0) for place in places])
        publish(url, "levels.clock", [(5000, "", 1.0)])
        run()
        forget_the_last_batch(checkpoint)
        publish(url, "levels.lune", [(6000, places[2], 12.0)])
        publish(url, "levels.clock", [(9000, "", 1.0)])
        run()
        ctx.create_producer().send(ctx.create_topic("alerts"), "all clear")
        eden, lune, end = _messages(ranger)
    assert (eden.type, eden.properties["topic"]) == ("at_least", "levels.eden")
    assert json.loads(eden.text)["time"] == moment(3000)
    found = json.loads(lune.text)
    assert (found["key"], found["time"]) == ("levels.lune", moment(6000))
    levels = {place: rise["high"]["value"] for place, rise in found["found"]["place"].items()}
    assert levels == {"bridge": 12.5, "ford": 12.5, "mill": 12.0}
    assert end.text == "all clear"


def test_a_checkpoint_of_another_pattern_is_refused(
    spark: SparkSession, url: str, tmp_path: Path
) -> None:
    rise = patterns.rises_by("level", rise=0.2, within="1 hour", key="place")
    steeper = patterns.rises_by("level", rise=0.3, within="1 hour", key="place")
    checkpoint = str(tmp_path / "of [1]{a,b}* and 100%: ?")
    publish(url, "levels.eden", [(1000, "ford", 1.0)])

    def run(pattern: Pattern[Any], topic: str) -> None:
        query = patterns.run(
            spark, url, topic=topic, pattern=pattern, to="alerts", time="at",
            checkpoint=checkpoint, once=True,
        )  # fmt: skip
        query.awaitTermination()

    run(rise, "levels.*")
    with pytest.raises(StreamingQueryException, match=r"made for something else: for RisesBy\("):
        run(steeper, "levels.*")
    with pytest.raises(StreamingQueryException, match=r"and this is .* in levels\.eden by at"):
        run(rise, "levels.eden")
    publish(url, "levels.eden", [(2000, "ford", 2.0)])
    run(rise, "levels.*")


def forget_the_last_batch(checkpoint: Path) -> None:
    """As if the driver had died between the commit of its sink and its own."""
    commits = checkpoint / "commits"
    last = max(int(path.name) for path in commits.glob("[0-9]*"))
    for name in (f"{last}", f".{last}.crc"):
        (commits / name).unlink()


def _messages(member: antiphon.Member) -> Iterator[antiphon.Message]:
    """Up to the one that says that it is over."""
    while True:
        event = member.receive(timeout=20)
        assert event is not None
        if isinstance(event, antiphon.TextMessage):
            yield event
            if event.text == "all clear":
                return


def test_a_table_is_refused(spark: SparkSession) -> None:
    with pytest.raises(ValueError, match="use readStream"):
        patterns.find(spark.createDataFrame([], COLUMNS), FALLEN)


def test_the_key_is_a_property_under_its_own_name(spark: SparkSession) -> None:
    def properties(key: str | None) -> dict[str, str]:
        pattern = patterns.rises_by("v", rise=0.1, within="1 day", key=key)
        row = spark.sql("select 'k' as key").select(patterns._properties(pattern)).first()
        assert row is not None
        found: dict[str, str] = row[0]
        return found

    assert properties("text.order.id") == {"id": "k"}
    assert properties("no-name") == properties(None) == {}


def test_a_query_has_few_partitions_unless_its_user_has_chosen(spark: SparkSession) -> None:
    """And Spark is left as it was."""
    setting, chosen = "spark.sql.shuffle.partitions", spark.conf.get("spark.sql.shuffle.partitions")
    with patterns._a_partition_for_each_core(spark):
        assert spark.conf.get(setting) == chosen
    spark.conf.set(setting, "200")
    with patterns._a_partition_for_each_core(spark):
        assert spark.conf.get(setting) == "2"
    assert spark.conf.get(setting) == "200"
    spark.conf.set(setting, str(chosen))
