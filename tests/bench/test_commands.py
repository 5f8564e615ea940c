"""The commands, for a second each, with real processes."""

import json
from typing import Any

import pytest

from antiphon import cli
from antiphon.bench import selectors

pytestmark = pytest.mark.process


def run(capsys: pytest.CaptureFixture[str], *line: str) -> dict[str, Any]:
    assert cli.main(["bench", *line, "--seconds", "1", "--json"]) == 0
    report: dict[str, Any] = json.loads(capsys.readouterr().out.splitlines()[-1])
    return report


def check(figures: dict[str, Any]) -> None:
    assert figures["messages_per_s"] > 0
    for latency in (figures["latency_ms"], figures["last_delivery_ms"]):
        assert 0 < latency["p50"] <= latency["p99"]
    assert figures["latency_ms"]["p50"] <= figures["last_delivery_ms"]["p50"]
    assert figures["cpu_s_per_million"] > 0
    roles = {"publisher", "leader", "followers", "members"}
    assert set(figures["cpu_s_per_million_of"]) == roles


@pytest.mark.parametrize(
    ("storage", "contexts"),
    [("durable", "replicated"), ("durable", "local"), ("memory", "replicated")],
)
def test_throughput(storage: str, contexts: str, capsys: pytest.CaptureFixture[str]) -> None:
    report = run(capsys, "throughput", "--storage", storage, "--contexts", contexts)
    check(report)
    check(report["bare_relay"])
    assert 0 < report["of_bare_relay"] < 1
    assert report["messages_per_pack"] > 1
    assert (report["servers"], report["members"], report["size"]) == (3, 3, 100)
    assert (report["storage"], report["contexts"]) == (storage, contexts)


def test_latency(capsys: pytest.CaptureFixture[str]) -> None:
    report = run(capsys, "latency", "--servers", "1", "--members", "2", "--storage", "memory")
    check(report)
    check(report["bare_relay"])
    assert report["of_bare_relay"] > 0
    assert (report["servers"], report["members"]) == (1, 2)


def test_figures_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    line = "throughput --servers 1 --members 1 --size 5000 --storage memory --seconds 1"
    assert cli.main(["bench", *line.split()]) == 0
    told = capsys.readouterr().out
    assert "of_bare_relay" in told
    assert "5,000" in told


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
