"""The simulator of servers inside processes, over fixed seeds; `antiphon sim --peers logs` tries
fresh ones."""

from collections import Counter

import pytest

from antiphon.cli import commands
from antiphon.sim.peer_log.run import run_seed

SEEDS = 60
A_TEST = 6


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
        counts.update(seeds=1, entries=result.entries, states=result.taken_over)
        counts.update(reads=result.reads, relays=result.relays)


@pytest.mark.sim
def test_there_was_enough_of_everything(counts: Counter[str]) -> None:
    if counts["seeds"] < SEEDS:
        pytest.skip("it takes the seeds of the tests before")
    assert counts["entries"] > 5_000
    assert counts["states"] > 100
    assert counts["reads"] > 300
    assert counts["relays"] > 300


@pytest.mark.sim
def test_a_seed_takes_the_same_course_again() -> None:
    assert run_seed(3).trace_hash == run_seed(3).trace_hash


def test_the_command_simulates_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert commands.main(["sim", "--peers", "logs", "--seed", "1", "--json"]) == 0
    assert '"taken_over"' in capsys.readouterr().out
