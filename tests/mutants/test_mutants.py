"""CI's bounded form of `make mutants`."""

import pytest

from tests.mutants.run import HERE, PYTEST, SOURCE, Mutant, changed, hunt, load_all, runner

SEEDS = 1500


@pytest.mark.mutant
@pytest.mark.timeout(180)
@pytest.mark.parametrize("mutant", load_all(), ids=lambda m: m.name)
def test_planted_bug_is_caught(mutant: Mutant) -> None:
    verdict = hunt(mutant, SEEDS)
    assert verdict.caught, f"{mutant.claim}: {verdict.how}"


def test_every_planted_bug_fits_the_code() -> None:
    """Known here already, before they are all tried."""
    for mutant in load_all():
        assert changed(mutant)


def test_there_are_many() -> None:
    assert len(load_all()) >= 100


@pytest.mark.mutant
def test_where_nothing_is_planted_nothing_is_found() -> None:
    """Otherwise whatever is wrong with the way they are run would pass for a bug that is caught."""
    code, text = runner().run(
        SOURCE, "", [*PYTEST, "tests/log/test_clock.py", "tests/formats/test_pack.py"]
    )
    assert code == 0, text
    assert " passed" in text
    code, text = runner().run(SOURCE, str(HERE / "hunt.py"), ["1", "5"])
    assert code == 0, text
