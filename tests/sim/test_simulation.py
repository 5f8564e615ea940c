"""The simulator, over fixed seeds; `make sim` tries fresh ones."""

import json
import os
import subprocess
import sys
from collections import Counter

import pytest

from antiphon.sim.plan import KINDS, PROGRAM_KINDS
from antiphon.sim.topology import SHAPES
from tests.mutants.run import load_all, planted
from tests.rotation import TURNS

SEEDS = 1000
A_TEST = 50  # of them at a time
ENOUGH = SEEDS // 50
"""Of each kind of fault, among all seeds; each must be among those of one turn, too."""


def simulate(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "antiphon", "sim", *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def faults() -> Counter[str]:
    """What happened in all these seeds."""
    return Counter()


PARTS = [
    pytest.param(first, marks=pytest.mark.in_turn(part))
    for part, first in enumerate(range(1, SEEDS + 1, A_TEST))
]


@pytest.mark.sim
@pytest.mark.timeout(240)  # 50 seeds take more than a minute where others use the cores, too
@pytest.mark.parametrize("first", PARTS)
def test_no_seed_breaks_a_promise(first: int, faults: Counter[str]) -> None:
    done = simulate("--seeds", str(A_TEST), "--first-seed", str(first), "--json", "--no-shrink")
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout.splitlines()[-1])
    assert summary["seeds"] == A_TEST
    assert summary["violations"] == []
    faults.update(summary["faults"], seeds=A_TEST)


@pytest.mark.sim
def test_there_was_enough_of_every_kind_of_fault(faults: Counter[str]) -> None:
    if faults["seeds"] < SEEDS // TURNS // A_TEST * A_TEST:
        pytest.skip("it takes the seeds of the tests before")
    kinds = [*KINDS, *PROGRAM_KINDS, "link break", "frame repeated", "snapshot installed"]
    kinds += ["partial", "full-at-start", "little-room", "end-in-order"]
    kinds += [f"core {shape}" for shape in SHAPES]
    enough = ENOUGH if faults["seeds"] == SEEDS else 1
    few = {kind: faults[kind] for kind in kinds if faults[kind] < enough}
    assert not few


@pytest.mark.sim
def test_a_seed_takes_the_same_course_in_every_process() -> None:
    code = (
        "from antiphon.sim.run import run_seed\n"
        "print([(r.trace_hash, r.events) for r in map(run_seed, range(300, 312))])"
    )
    courses = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(courses) == 1


@pytest.mark.sim
@pytest.mark.timeout(120)
def test_a_failing_seed_is_told_as_a_story() -> None:
    """A server that lets its promises go before the sync believes itself that it has stored what
    it promises, so no assertion in it fails: the oracle finds out, which reads the disks."""
    name = "driver_releases_tails_when_they_are_written"
    mutant = next(m for m in load_all() if m.name == name)
    with planted(mutant) as source:
        done = simulate("--seed", "1", "--json", PYTHONPATH=str(source))
    assert done.returncode == 1
    assert "replay: antiphon sim --seed 1" in done.stderr
    assert "faults that are needed: " in done.stderr
    assert "server 1" in done.stderr
    assert "=> at" in done.stderr
    assert "uniform: " in json.loads(done.stdout.splitlines()[-1])["violations"][0]["violation"]


def test_trace_files_can_be_read_back(tmp_path) -> None:
    from antiphon.formats import trace

    done = simulate("--seed", "7", "--trace", str(tmp_path), "--json")
    assert done.returncode == 0, done.stderr
    events = []
    for path in sorted(tmp_path.iterdir()):
        found, torn = trace.decode(path.read_bytes())
        assert torn == 0
        events += found
    assert {"send", "sent", "deliver"} <= {event.kind for event in events}
    assert {"join", "view"} <= {event.kind for event in events if event.group}
    logged = [event for event in events if not event.group]
    sent = {event.message for event in logged if event.kind == "sent"}
    delivered = {event.message for event in logged if event.kind == "deliver"}
    assert sent <= delivered
