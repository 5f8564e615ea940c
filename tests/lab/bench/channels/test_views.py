"""Views and growth of channels, with real processes and few of them."""

import json
from typing import Any

import pytest

from antiphon import cli
from antiphon.lab.bench.channels import growth

pytestmark = pytest.mark.process


def run(capsys: pytest.CaptureFixture[str], line: str) -> dict[str, Any]:
    assert cli.main(f"bench channels {line} --json".split()) == 0
    report: dict[str, Any] = json.loads(capsys.readouterr().out.splitlines()[-1])
    return report


@pytest.mark.timeout(120)
def test_views_after_failures_and_joins(capsys: pytest.CaptureFixture[str]) -> None:
    report = run(capsys, "views --rounds 2")
    for failed in ("leader", "other"):
        kill, pause = report[f"kill_ms {failed}"], report[f"pause_ms {failed}"]
        assert kill["median"] > 0
        # Nothing but its silence shows that a process is paused.
        assert 1000 < pause["lowest"] <= pause["median"] <= pause["highest"]
    assert 0 < report["join_ms"]["median"] <= report["all_ms"]["highest"]


def test_more_members(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growth, "COUNTS", (3, 4))
    report = run(capsys, "members --sizes 100 --rounds 1 --seconds 0.3")
    assert [one["members"] for one in report["runs"]] == [3, 4]
    for one in report["runs"]:
        assert one["messages_per_s"]["median"] > 0
        assert one["cpu_s_per_member"]["median"] == pytest.approx(
            one["cpu_s_per_million"]["median"] / one["members"], abs=0.01
        )
        assert one["cpu_of_star"]["median"] > 0


def test_for_people(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growth, "COUNTS", (3,))
    line = "bench channels members --sizes 5000 --rounds 1 --seconds 0.2"
    assert cli.main(line.split()) == 0
    told = capsys.readouterr().out
    assert "5,000 bytes" in told
    assert "cpu_of_star" in told
