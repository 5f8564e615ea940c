"""The audit of channels: what it says of clean traces and of planted violations, beside the other
judge.

All traces are runs of one table, so that they are audited in one go.
"""

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec.structs import asdict, replace
from pyspark.sql import DataFrame, SparkSession

from antiphon import cli
from antiphon.checkers import channel_traces, peer_views
from antiphon.errors import ConfigurationError
from antiphon.formats.channel_trace import ChannelEvent, encode_event, encode_header
from antiphon.spark.audit import report
from antiphon.spark.audit.channels import judge
from antiphon.spark.audit.channels.findings import PROPERTIES
from antiphon.spark.traces import table as trace_table
from tests.checkers.support.channel_plants import PLANTS, clean, events

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


def table(spark: SparkSession, events: Iterable[ChannelEvent]) -> DataFrame:
    batches = list(trace_table.batches(iter(events), trace_table.CHANNELS))
    return spark.createDataFrame(pa.Table.from_batches(batches, trace_table.CHANNELS))


@pytest.fixture(scope="module")
def runs() -> dict[str, list[ChannelEvent]]:
    return (
        {"clean": events(clean(), "clean")}
        | {name: events(made(), name) for name, made in PLANTS.items()}
        | {"torn": torn()}
    )


def torn() -> list[ChannelEvent]:
    """A pack of two messages, of which one process delivers the first one alone."""
    return [
        replace(row, run="torn", count=1 if row.life == "1.c" else 2) if row.count else row
        for row in events(clean(), "torn")
        if not row.count or (row.sender == "1.b" and row.first == 1)
    ]


@pytest.fixture(scope="module")
def verdict(spark: SparkSession, runs: dict[str, list[ChannelEvent]]) -> judge.Verdict:
    every = [event for own in runs.values() for event in own]
    return judge.judge(spark, table(spark, every), complete=True)


def test_both_judges_know_the_same_properties() -> None:
    assert sorted(PROPERTIES) == sorted(peer_views.CHECKS)


def test_both_judges_say_the_same(
    verdict: judge.Verdict, runs: dict[str, list[ChannelEvent]]
) -> None:
    audited: dict[str, set[str]] = defaultdict(set)
    for finding in verdict.findings:
        audited[finding.world.run].add(finding.property)
    judged: dict[str, set[str]] = defaultdict(set)
    for own in runs.values():
        for cluster, finding in channel_traces.check(own, complete=True):
            judged[cluster.run].add(finding.rule)
    assert audited.pop("torn") == {"once"}, "of packs the other judge knows nothing"
    assert audited == judged
    assert "clean" not in audited
    assert set(audited) == set(PLANTS)


def test_each_property_is_broken_by_some_plant(verdict: judge.Verdict) -> None:
    assert set(verdict.violations) == set(PROPERTIES)


def test_the_verdict_says_how_much_was_looked_at(
    verdict: judge.Verdict, runs: dict[str, list[ChannelEvent]]
) -> None:
    assert verdict.rows == sum(map(len, runs.values()))
    assert set(verdict.checked) == set(PROPERTIES)
    assert min(verdict.checked.values()) > 20


def test_what_must_happen_in_the_end_must_only_if_all_had_come_to_rest(
    spark: SparkSession, runs: dict[str, list[ChannelEvent]]
) -> None:
    some = [*runs["lost_to_its_sender"], *runs["unlike_at_the_end"]]
    assert judge.judge(spark, table(spark, some)).violations == {}


def test_a_folder_of_traces_is_a_table(tmp_path: Path) -> None:
    rows = events(clean(), "r")
    for process in {row.process for row in rows}:
        own = b"".join(encode_event(row) for row in rows if row.process == process)
        (tmp_path / f"r-{process}-1.channel").write_bytes(encode_header() + own)
    out = tmp_path / "table.parquet"
    assert cli.main(["trace", "to-parquet", str(tmp_path), str(out)]) == 0
    read = pq.read_table(out)
    assert read.schema.equals(trace_table.CHANNELS)
    assert sorted(read.to_pylist(), key=_place) == sorted(map(_plain, rows), key=_place)
    (tmp_path / "r-a-1.trace").write_bytes(b"")
    with pytest.raises(ConfigurationError, match="two folders"):
        trace_table.kind_of(tmp_path)


def _plain(row: ChannelEvent) -> dict[str, object]:
    return {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(row).items()}


def _place(row: dict[str, object]) -> tuple[str, int]:
    return str(row["life"]), int(str(row["seq"]))


def test_the_report_tells_findings_in_words(verdict: judge.Verdict) -> None:
    told = report.of_channels(verdict)["properties"]
    assert list(told) == list(PROPERTIES)
    texts = {
        example["run"]: example["text"] for one in told.values() for example in one["examples"]
    }
    assert texts["lost_to_its_sender"] == "b sent b:1 and has not got it"
    assert texts["by_way_of_another"] == "c delivers b:1 before its cause a:1"
    assert texts["not_held_by_all"] == "a delivers a:1, and c never has it"
    assert "otherwise than it was sent" in texts["torn"]
