"""`antiphon bench start`, with a small journal."""

import json

import pytest

from antiphon import cli
from antiphon.lab.bench import start
from antiphon.lab.bench.start import spread

FIGURES = ("import_ms", "embedded_ms", "cluster_ms", "recovery_ms", "recovery_peak_mb")


def test_the_spread() -> None:
    assert spread([4.0, 1.0, 2.04]) == {"median": 2.0, "least": 1.0, "most": 4.0}


@pytest.mark.process
def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["bench", "start", "--rounds", "1", "--journal-mb", "2", "--json"]) == 0
    report = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert report["journal_mb"] >= 2
    for name in FIGURES:
        assert 0 < report[name]["least"] <= report[name]["median"] <= report[name]["most"]


def test_figures_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    start._show({"rounds": 5, "cluster_ms": spread([1234.5, 1000.0, 2000.0])})
    told = capsys.readouterr().out
    assert all(text in told for text in ("rounds", "cluster_ms", "1,234.5", "1,000.0", "2,000.0"))
