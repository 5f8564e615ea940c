"""`antiphon bench start`, with a small journal."""

import json
from statistics import median

import pytest

from antiphon import cli
from antiphon.lab.bench import peer_joins, start
from antiphon.lab.bench.start import spread

FIGURES = (
    "import_ms",
    "embedded_ms",
    "peer_found_ms",
    "peer_join_ms",
    "again_peer_meet_ms",
    "cluster_ms",
    "recovery_ms",
    "recovery_peak_mb",
)


def test_the_spread() -> None:
    assert spread([4.0, 1.0, 2.04]) == {"median": 2.0, "least": 1.0, "most": 4.0}


@pytest.mark.process
def test_programs_without_servers_find_each_other_at_once() -> None:
    """Whether they come one by one or together, they are in one cluster: `measure` raises unless
    they are. It takes them less than 100 ms on a quiet machine, and imports come on top; the limits
    are for a busy one, and below the times after which anybody looks or tries again."""
    found = peer_joins.measure()
    for figure in ("peer_join_ms", "peer_meet_ms"):
        assert 0 < median(found[f"again_{figure}"]) < 1000
        assert 0 < median(found[figure]) < 5000


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
