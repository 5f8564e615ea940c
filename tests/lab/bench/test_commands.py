"""The commands, for a second each, with real processes."""

import json
from typing import Any

import pytest

from antiphon import cli
from antiphon.lab.bench import selectors

pytestmark = pytest.mark.process


def run(capsys: pytest.CaptureFixture[str], *line: str) -> dict[str, Any]:
    assert cli.main(["bench", *line, "--seconds", "1", "--json"]) == 0
    report: dict[str, Any] = json.loads(capsys.readouterr().out.splitlines()[-1])
    return report


def check(figures: dict[str, Any]) -> None:
    assert figures["messages_per_s"] > 0
    for latency in (figures["latency_ms"], figures["last_delivery_ms"]):
        assert 0 < latency["p50"] <= latency["p99"] <= latency["p99.9"]
    assert figures["latency_ms"]["p50"] <= figures["last_delivery_ms"]["p50"]
    assert figures["cpu_s_per_million"] > 0
    roles = {"publisher", "leader", "followers", "members"}
    assert set(figures["cpu_s_per_million_of"]) == roles
    assert figures["server_peak_mb"] > 0
    rates = figures["spread"]["messages_per_s"]
    assert rates["lowest"] <= figures["messages_per_s"] <= rates["highest"]


@pytest.mark.parametrize(
    ("storage", "contexts"),
    [
        pytest.param("durable", "replicated", marks=pytest.mark.in_turn(0)),
        pytest.param("durable", "local", marks=pytest.mark.in_turn(1)),
        pytest.param("memory", "replicated", marks=pytest.mark.in_turn(2)),
    ],
)
def test_throughput(storage: str, contexts: str, capsys: pytest.CaptureFixture[str]) -> None:
    report = run(capsys, "throughput", "--storage", storage, "--contexts", contexts)
    check(report)
    check(report["bare_relay"])
    assert report["of_bare_relay"] > 0  # a short slice on a busy machine says no more
    assert report["messages_per_pack"] > 1
    assert (report["servers"], report["members"], report["size"]) == (3, 3, 100)
    assert (report["storage"], report["contexts"]) == (storage, contexts)
    for figures in (report, report["bare_relay"]):
        early, late = figures["saturated_latency_ms"], figures["saturated_last_delivery_ms"]
        assert 0 < early["p50"] <= late["p50"]
        assert (figures["syncs_per_s"] > 0) == (storage == "durable")
    ratios = report["spread"]["of_bare_relay"]
    assert ratios["lowest"] <= report["of_bare_relay"] <= ratios["highest"]
    assert report["times_bare_relay"]["latency_ms"]["p99.9"] > 0


def test_several_publishers_with_a_fixed_packing(capsys: pytest.CaptureFixture[str]) -> None:
    line = "throughput --servers 1 --members 2 --publishers 3 --policy fixed=16 --storage memory"
    report = run(capsys, *line.split())
    check(report)
    check(report["bare_relay"])
    assert (report["publishers"], report["packing"]) == (3, "fixed=16")
    assert 1 < report["messages_per_pack"] <= 16
    assert "saturated_latency_ms" not in report


def test_latency(capsys: pytest.CaptureFixture[str]) -> None:
    report = run(capsys, "latency", "--servers", "1", "--members", "2", "--storage", "memory")
    check(report)
    check(report["bare_relay"])
    assert report["of_bare_relay"] > 0
    assert report["architecture"] == "servers"
    assert (report["servers"], report["members"]) == (1, 2)


def test_peers(capsys: pytest.CaptureFixture[str]) -> None:
    """There are no servers, so all of the time is that of publishers and members."""
    line = "throughput --architecture peers --members 2 --publishers 2"
    report = run(capsys, *line.split())
    check(report)
    check(report["bare_relay"])
    assert report["architecture"] == "peers"
    assert not {"servers", "storage", "contexts"} & report.keys()
    spent = report["cpu_s_per_million_of"]
    assert (spent["leader"], spent["followers"]) == (0, 0)
    assert spent["publisher"] > 0 < spent["members"]
    assert report["messages_per_pack"] > 1


def test_figures_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    line = "throughput --servers 1 --members 1 --size 5000 --storage memory --seconds 1"
    assert cli.main(["bench", *line.split()]) == 0
    told = capsys.readouterr().out
    assert "of_bare_relay" in told
    assert "5000" in told
    assert "latency_ms p99.9" in told


def test_selectors(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selectors, "COUNTS", (0, 3))
    report = run(capsys, "selectors", "--storage", "memory")
    nobody, some = report["runs"]
    assert (nobody["consumers"], some["consumers"]) == (0, 3)
    assert some["arrived"] == some["wanted"] > 0
    for figures in report["runs"]:
        assert figures["messages_per_s"] > 0
        assert figures["server_cpu_us"] >= 0
        assert figures["unwanted_cpu_us"] >= 0
