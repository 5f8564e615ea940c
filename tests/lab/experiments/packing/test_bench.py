"""The output of `antiphon bench packing`, which needs nothing of the extra."""

import json
import subprocess
import sys
from contextlib import redirect_stdout
from io import StringIO

import pytest

from antiphon import cli
from antiphon.lab.experiments.evaluation import Row
from antiphon.lab.experiments.packing import bench
from antiphon.lab.experiments.packing.bench import Terminal, report
from antiphon.lab.experiments.packing.plan import BURSTS, MIXED, Plan
from antiphon.lab.experiments.packing.report import Over, summary, tables
from antiphon.lab.experiments.processes import Look
from antiphon.terminal.screen import Screen

SOURCES = {"1000": (4, 16), MIXED: (8,), BURSTS: (8,), "5-20ms": (5,)}
PLAN = Plan(SOURCES, rounds=2, seconds=0.1, climbing_s=0.8, step_s=0.1)
RATES = {"off": 1000.0, "fixed=4": 3000.0, "fixed=16": 2500.0, "adaptive": 2700.0}


def a_row(source: str, policy: str) -> Row:
    rate = RATES.get(policy, 2000.0)
    return {
        "source": source,
        "policy": policy,
        "messages_per_s": rate,
        "rates": [rate, rate],
        "messages_per_pack": 3.5,
        "early_mean_ms": 1.5,
        "early_p50_ms": 1.25,
        "early_p99_ms": 7.75,
        "cpu_us": 321.0,
        "cpu_percent": 12.5,
        "lost": 0,
    }


ROWS = [
    a_row(source, policy)
    for source in SOURCES
    for policy in (*PLAN.in_turns(source), PLAN.climbing)
]
OVER = {
    MIXED: Over(
        [Look(10.0, 0, 0), Look(10.25, 100, 50)],
        [{"at": 10.0 + n / 4, "messages_per_s": 100.0 + n} for n in range(40)],
    )
}


def test_every_source_has_the_policies_beside_its_best_fixed_degree() -> None:
    off, best, adaptive, climbing = summary(ROWS, ["1000"])
    assert [row["policy"] for row in (off, best)] == ["no packing", "best fixed"]
    assert [row["policy"] for row in (adaptive, climbing)] == ["adaptive", "hill climbing"]
    assert [row["degree"] for row in (off, best, adaptive, climbing)] == [1, 4, None, None]
    assert best["of_best"] == 1
    assert adaptive["of_best"] == pytest.approx(0.9)
    assert adaptive["cpu_us"] == 321


def test_tables_and_figures_for_people() -> None:
    told = _told()
    for title in ("Table 1", "Table 2", "Table 3", "Figure 3", "Figure 5", "Figure 6"):
        assert f"{title}: " in told
    for text in ("3,000", "1,577", "best fixed", "hill climbing", "no packing", "7.75", "321"):
        assert text in told


def test_a_long_curve_is_thinned_for_people_and_whole_in_json() -> None:
    after = _told().partition("Figure 5: throughput over time")[2]
    curve = [line for line in after.partition("Figure 5:")[0].splitlines() if "│" in line]
    assert len(curve) == 10
    found = report(ROWS, OVER, PLAN)
    over = found["over_time"][MIXED]
    assert len(over["messages/s"]) == 40
    assert over["messages a pack"] == [(0.25, 2.0)]
    assert len(found["summary"]) == 4 * len(SOURCES)
    json.dumps(found)


def _told() -> str:
    with redirect_stdout(StringIO()) as written:
        tables(ROWS, OVER, PLAN, Terminal(Screen()))
    return written.getvalue()


def test_it_needs_nothing_of_the_extra() -> None:
    program = (
        "import sys\n"
        "for name in ('pyspark', 'pyarrow', 'pandas'): sys.modules[name] = None\n"
        "import antiphon.lab.experiments.packing.bench"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.process
@pytest.mark.timeout(180)  # dozens of short runs, each with processes of its own
def test_a_few_points(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "QUICK", PLAN)
    assert cli.main(["bench", "packing", "--quick", "--json"]) == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    policies = [(row["source"], row["policy"]) for row in found["results"]]
    assert policies == [
        (source, policy) for source in SOURCES for policy in (*PLAN.in_turns(source), PLAN.climbing)
    ]
    for row in found["results"]:
        assert row["messages_per_s"] > 0
        assert row["cpu_us"] > 0
        assert 0 < row["early_p50_ms"] <= row["early_p99_ms"]
        assert row["lost"] == 0
    assert {row["source"] for row in found["summary"]} == set(SOURCES)
    assert found["over_time"][MIXED]["messages/s"]
