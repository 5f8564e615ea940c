"""CI's bounded form of `make mutants`."""

import pytest

from tests.mutants.run import Mutant, hunt, load_all

SEEDS = 1500


@pytest.mark.mutant
@pytest.mark.timeout(180)
@pytest.mark.parametrize("mutant", load_all(), ids=lambda m: m.name)
def test_planted_bug_is_caught(mutant: Mutant) -> None:
    verdict = hunt(mutant, SEEDS)
    assert verdict.caught, f"{mutant.claim}: {verdict.how}"


def test_there_are_many() -> None:
    assert len(load_all()) >= 100
