"""Small experiments end to end: real processes, Spark, and a report that stands by itself."""

import json
import re
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from antiphon.lab.experiments import architectures, groups
from antiphon.lab.experiments.output import Output
from antiphon.lab.experiments.packing import bench, measure, run
from antiphon.lab.experiments.packing.plan import BURSTS, MIXED, Plan
from antiphon.lab.experiments.packing.report import medians, tell
from antiphon.lab.experiments.processes import Done
from tests.reports.test_charts import needs_nothing
from tests.spark.traces.test_latency import plainly

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]


def test_groups(spark: SparkSession, tmp_path: Path) -> None:
    """One configuration; the figures are those that plain Python finds in the same events."""
    plan = groups.Plan((groups.Architecture(3, "replicated"),), (2,), 0.3)
    output = Output(str(tmp_path / "out [1]{2}*"), "Groups")
    rows = groups.evaluate(spark, groups.measure(plan, output.raw), output.raw)
    assert [(row["call"], row["members"], row["lost"]) for row in rows] == [
        ("send", 2, 0),
        ("send_async", 2, 0),
    ]
    expected = plainly(pq.read_table(output.raw).to_pylist())
    for row in rows:
        plain = expected[row["run"]]
        assert {name: row[name] for name in plain} == pytest.approx(plain, rel=1e-3)
        assert 0 < row["early_p50_ms"] <= row["late_p50_ms"] <= row["late_p99_ms"]
    groups.tell(rows, plan, output)
    html = output.finish(rows).read_text(encoding="utf-8")
    needs_nothing(html)
    assert "6.7 Latency with send, replicated" in html
    assert "6.8 Throughput with send_async, replicated" in html
    assert html.count("<svg") == len(list(output.folder.glob("*.svg"))) == 4
    stored = json.loads((output.folder / "results.json").read_text(encoding="utf-8"))
    assert stored["results"] == rows
    assert pq.read_table(output.folder / "results.parquet").num_rows == len(rows)


@pytest.mark.in_turn
def test_architectures(spark: SparkSession, tmp_path: Path) -> None:
    """Servers and peers beside each other, of the same runs."""
    plan = groups.Plan((architectures.BASE, architectures.PEERS), (1, 2), 0.3)
    output = Output(str(tmp_path / "out"), "Architectures")
    rows = groups.evaluate(spark, groups.measure(plan, output.raw), output.raw)
    names = ["3 servers, replicated", "peers"]
    assert [(row["architecture"], row["members"], row["call"], row["lost"]) for row in rows] == [
        (name, size, call, 0)
        for name in names
        for size in plan.sizes
        for call in architectures.CALLS
    ]
    servers, peers = (
        [row for row in rows if (row["architecture"], row["members"]) == (name, 2)]
        for name in names
    )
    columns = [column for _, column, _ in architectures.MEASURES]
    assert list(architectures.beside_servers(rows, plan))[1] == (
        2,
        *(
            ours[column] / theirs[column]
            for ours, theirs in zip(peers, servers, strict=True)
            for column in columns
        ),
    )
    architectures.tell(rows, plan, output)
    html = output.finish(rows).read_text(encoding="utf-8")
    needs_nothing(html)
    assert html.count("<svg") == len(list(output.folder.glob("*.svg"))) == 6
    assert "Early latency with send_async" in html
    assert html.count("<title>peers: 2, ") == 6


def test_packing(spark: SparkSession, tmp_path: Path) -> None:
    """The figures are those that `antiphon bench packing` finds without Spark in the same runs."""
    sources = {"1000": (4,), MIXED: (4,), BURSTS: (8,), "5-20ms": (5,)}
    plan = Plan(sources, rounds=2, seconds=0.1, climbing_s=0.8, step_s=0.1)
    output = Output(str(tmp_path / "out [1]{2}*"), "Packing")
    notes, plainly = run.Notes(output.raw), bench.Found()

    def take(source: str, policy: str, done: Done) -> None:
        notes.take(source, policy, done)
        plainly.take(source, policy, done)

    measure.measure(plan, take)
    rows, over = run.evaluate(spark, notes, output.raw)
    for ours, theirs in zip(rows, medians(plainly.rows), strict=True):
        assert ours["rates"] == pytest.approx(theirs.pop("rates"))
        assert {name: ours[name] for name in theirs} == pytest.approx(theirs)
    for source, (looks, rates) in plainly.over.items():
        assert over[source].looks == looks
        for ours, theirs in zip(over[source].rates, rates, strict=True):
            assert {name: ours[name] for name in theirs} == pytest.approx(theirs)
    assert [(row["source"], row["policy"]) for row in rows] == [
        (source, policy) for source in sources for policy in (*plan.in_turns(source), plan.climbing)
    ]
    assert {len(row["rates"]) for row in rows} == {1, 2}
    assert {row["lost"] for row in rows} == {0}
    per_pack = {(row["source"], row["policy"]): row["messages_per_pack"] for row in rows}
    assert per_pack["1000", "off"] == pytest.approx(1, abs=0.01)
    assert per_pack["1000", "fixed=4"] == pytest.approx(4, abs=0.1)
    tell(rows, over, plan, output)
    html = output.finish(rows).read_text(encoding="utf-8")
    needs_nothing(html)
    for figure in ("Figure 3", "Figure 5", "Figure 6"):
        assert re.search(rf"<title>{figure}: ", html)
    for value in ("453", "1,577", "901", "660", "154", "236"):  # what is published
        assert f"<td>{value}</td>" in html
