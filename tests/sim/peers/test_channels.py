"""The simulator of channels, over fixed seeds; `antiphon sim --peers` tries fresh ones."""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from antiphon.checkers import channel_traces
from antiphon.cli import commands
from antiphon.formats.channel_trace import ChannelReading
from antiphon.sim.peers.plan import KINDS, draw_plan
from antiphon.sim.peers.run import run_plan, run_seed
from antiphon.sim.peers.simplifications import simplifications
from antiphon.sim.peers.stacks import READY_MADE
from antiphon.sim.shrink import Shrinker

SEEDS = 40
A_TEST = 4
UNIFORM = 290
"""A seed with a stack that promises all."""


@pytest.fixture(scope="module")
def counts() -> Counter[str]:
    """What happened in all these seeds."""
    return Counter()


@pytest.mark.sim
@pytest.mark.parametrize("first", range(1, SEEDS + 1, A_TEST))
def test_no_seed_breaks_a_promise(first: int, counts: Counter[str]) -> None:
    for seed in range(first, first + A_TEST):
        result = run_seed(seed)
        assert not result.violation, f"seed {seed}: {result.violation}"
        counts.update({**result.faults, **result.changes, "seeds": 1})


@pytest.mark.sim
def test_who_leaves_and_missed_the_view_without_it_has_left() -> None:
    assert not run_seed(905726738068).violation


@pytest.mark.sim
def test_there_was_enough_of_everything(counts: Counter[str]) -> None:
    if counts["seeds"] < SEEDS:
        pytest.skip("it takes the seeds of the tests before")
    kinds = [*KINDS, "founded", "join", "leave", "minority", "merge", "recovery", "behind"]
    found = {kind: sum(counts[what] for what in counts if what.startswith(kind)) for kind in kinds}
    assert not {kind for kind, number in found.items() if number < 1}
    assert counts["trap sprung"] > 3


@pytest.mark.sim
def test_a_seed_takes_the_same_course_in_every_process() -> None:
    code = (
        "from antiphon.sim.peers.run import run_seed\n"
        "print([(r.trace_hash, r.events) for r in map(run_seed, range(40, 43))])"
    )
    courses = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(courses) == 1


@pytest.mark.sim
def test_a_plan_shrinks_while_it_fails_in_the_same_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("antiphon.sim.shrink.RUNS_MAX", 40)

    def fails(plan: object) -> str:
        result = run_plan(plan)
        return "at 1.000 s: made up: a merge" if "merge of 2" in result.changes else ""

    plan = draw_plan(290)
    assert fails(plan)
    small = Shrinker(plan, fails(plan), fails, simplifications).run()
    assert fails(small)
    assert len(small.faults) <= len(plan.faults) // 2


@pytest.mark.sim
def test_summary_and_story_of_a_seed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert commands.main(["sim", "--peers", "--seed", "290", "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["views"] == sum(summary["changes"].values()) > 0
    assert summary["violations"] == []
    monkeypatch.setattr("antiphon.sim.peers.run.CHANGES_MAX", -1)
    monkeypatch.setattr("antiphon.sim.shrink.RUNS_MAX", 10)
    assert commands.main(["sim", "--peers", "--seed", "290"]) == 1
    told = capsys.readouterr().err
    assert "replay: antiphon sim --peers --seed 290" in told
    assert "from here on" in told
    assert "=> at" in told


@pytest.mark.sim
def test_traces_can_be_read_back(tmp_path: Path) -> None:
    assert draw_plan(UNIFORM).layers.above == READY_MADE["total uniform"]
    assert commands.main(f"sim --peers --seed {UNIFORM} --json --trace {tmp_path}".split()) == 0
    events = [
        event for path in sorted(tmp_path.iterdir()) for event in ChannelReading(path.read_bytes())
    ]
    assert {event.kind for event in events} >= {"send", "deliver", "view"}
    assert channel_traces.check(events) == []
