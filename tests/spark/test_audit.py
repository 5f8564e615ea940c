"""The Spark audit: what it says of clean traces and of planted violations, beside the other judge.

All traces are runs of one table, so that they are audited in one go.
"""

from collections import defaultdict
from collections.abc import Iterable

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from antiphon.formats.trace import TraceEvent
from antiphon.spark import audit, trace_table
from tests.spark import scenes
from tests.spark.planting import KNOWN, PLANTS, Trace, as_run, planted, verdict

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

RANGE = 16  # small, so that there is agreement and doubt in short traces


def table(spark: SparkSession, events: Iterable[TraceEvent]) -> DataFrame:
    batches = list(trace_table.batches(iter(events)))
    return spark.createDataFrame(pa.Table.from_batches(batches, trace_table.SCHEMA))


def by_run(found: audit.Verdict) -> dict[str, set[str]]:
    broken: dict[str, set[str]] = defaultdict(set)
    for finding in found.findings:
        broken[finding.world.run].add(finding.property)
    return broken


def test_every_planted_violation_is_reported_as_what_it_is(spark: SparkSession) -> None:
    runs: dict[str, Trace] = {"clean": scenes.trace("clean")}
    for plant in PLANTS:
        changed = planted(plant, scenes.trace())
        assert changed is not None, f"no place for: {plant.name}"
        runs[plant.name] = as_run(changed, plant.name)
    found = audit.judge(spark, table(spark, [e for t in runs.values() for e in t]), RANGE)
    broken = by_run(found)
    wanted = {plant.name: set(plant.broken) for plant in PLANTS}
    assert broken["clean"] == set()
    assert {name: broken[name] for name in wanted} == wanted
    assert {name: broken[name] & KNOWN for name in runs} == {
        name: verdict(trace) for name, trace in runs.items()
    }
