"""How points of a curve become figures, tables and charts; and each dimension at its smallest."""

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from antiphon import cli
from antiphon.lab.bench.growth import run as growth
from antiphon.lab.bench.growth.points import Effort, Taken, figures
from antiphon.lab.bench.processes import Part, Slice
from antiphon.lab.bench.servers import Spent

SVG = "{http://www.w3.org/2000/svg}"


def taken(seconds: float, messages: int) -> Taken:
    """A publisher that uses 1 s, two members with 2 s each, servers with 5 s; packs of 100."""
    ended = round(seconds * 1e9)
    members = [Part(messages, 0, ended, 2.0, []) for _ in range(2)]
    done = Slice([Part(messages, 0, ended, 1.0, [])], members)
    return Taken(done, Spent(2.0, 3.0, messages // 100, 2 * messages // 100, 0))


def test_rates_are_the_median_of_the_rounds_and_costs_are_over_all() -> None:
    found = figures([taken(1.0, 100_000), taken(4.0, 100_000), taken(2.0, 100_000)])
    assert found["messages_per_s"] == 50_000
    assert found["slowest_fastest"] == [25_000, 100_000]
    assert found["messages_per_pack"] == 100
    assert found["server_us_per_message"] == 50
    assert found["server_us_per_delivered_pack"] == 2500
    assert found["all_us_per_message"] == 100


def test_what_was_spent_since() -> None:
    spent = Spent(5.0, 4.0, 30, 90, 7).since(Spent(2.0, 3.0, 10, 40, 2))
    assert spent == (3.0, 1.0, 20, 50, 5)
    assert spent.cpu_s == 4.0


def row(topics: int, cost: float) -> dict[str, Any]:
    latency = {"p50": cost, "p99": 2 * cost}
    return {"topics": topics, "server_us_per_message": cost, "early_ms": latency}


def test_each_curve_is_a_chart_by_factors(tmp_path: Path) -> None:
    growth.write(tmp_path / "new", {"cores": 2, "topics": [row(10, 4.0), row(1000, 4.5)]})
    assert {path.name for path in (tmp_path / "new").iterdir()} == {
        "growth.json",
        "topics-processor-time.svg",
        "topics-latency.svg",
    }
    chart = ElementTree.parse(tmp_path / "new" / "topics-latency.svg").getroot()
    assert {"topics: latency", "100", "early_ms"} <= {
        text.text for text in chart.iter(f"{SVG}text")
    }
    (circle, _) = chart.iter(f"{SVG}circle")
    assert circle.findtext(f"{SVG}title") == "early_ms: 10, 4"


def test_a_table_for_people(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def measure(point: int, effort: Effort) -> dict[str, Any]:
        assert effort == growth.FULL
        return {"messages_per_s": 1234, "slowest_fastest": [1000, 2000], "late_ms": {"p50": 1.5}}

    monkeypatch.setitem(growth.DIMENSIONS, "topics", growth.Dimension("topics", (7,), (), measure))
    assert cli.main(["bench", "growth", "topics"]) == 0
    told = capsys.readouterr().out
    for text in ("growth: topics", "7", "1,234", "1,000 to 2,000", "late_ms", "1.5"):
        assert text in told


def test_a_dimension_that_does_not_exist(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["bench", "growth", "weight"])
    assert ended.value.code == 2
    assert "weight" in capsys.readouterr().err


def test_the_command_offers_all_dimensions(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["bench", "growth", "--help"])
    assert "{" + ",".join(growth.DIMENSIONS) + "}" in capsys.readouterr().out


@pytest.mark.process
@pytest.mark.in_turn
@pytest.mark.parametrize("name", growth.DIMENSIONS)
def test_a_dimension_at_its_smallest(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = ["bench", "growth", name, "--quick", "--json", "--out", str(tmp_path)]
    assert cli.main(line) == 0
    report = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert report == json.loads((tmp_path / "growth.json").read_text(encoding="utf-8"))
    assert tuple(point[name] for point in report[name]) == growth.DIMENSIONS[name].quick
    for point in report[name]:
        assert point["messages_per_s"] > 0
        assert 0 < point["server_us_per_message"] < point["all_us_per_message"]
        assert 0 < point["early_ms"]["p50"] <= point["late_ms"]["p50"]
        assert point["server_peak_mb"] > 0
    charts = {path.name for path in tmp_path.glob("*.svg")}
    assert {f"{name}-{title}.svg" for title in ("processor-time", "memory", "latency")} <= charts
