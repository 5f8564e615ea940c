"""CI's bounded form of `make mutants`: the bugs in recently changed files, and a third of all."""

import os
from pathlib import Path

import pytest

from tests.api.support.steps import heard, in_thread
from tests.mutants.run import HERE, PYTEST, SOURCE, Mutant, Runner, changed, hunt, load_all, runner
from tests.rotation import recent_files

SEEDS = 1500
RECENT_MAX = 50
"""Of the bugs in recently changed files, so many at most are tried whatever the turn."""


def taking_turns(mutants: list[Mutant]) -> list[object]:
    """Return all, marked but for those whose patch or file the last commits changed."""
    age = {file: at for at, file in enumerate(recent_files())}
    ages = {}
    for mutant in mutants:
        files = (f"tests/mutants/{mutant.name}.mutant", f"src/antiphon/{mutant.file}")
        ages[mutant] = min(age.get(file, len(age)) for file in files)
    recent = sorted((mutant for mutant in ages if ages[mutant] < len(age)), key=ages.__getitem__)
    always = set(recent[:RECENT_MAX])
    return [
        pytest.param(mutant, id=mutant.name, marks=() if mutant in always else pytest.mark.in_turn)
        for mutant in mutants
    ]


@pytest.mark.mutant
@pytest.mark.timeout(180)
@pytest.mark.parametrize("mutant", taking_turns(load_all()))
def test_planted_bug_is_caught(mutant: Mutant) -> None:
    verdict = hunt(mutant, SEEDS)
    assert verdict.caught, f"{mutant.claim}: {verdict.how}"


def test_every_planted_bug_fits_the_code() -> None:
    """Known here already, before they are all tried."""
    for mutant in load_all():
        assert changed(mutant)


def test_there_are_many() -> None:
    assert len(load_all()) >= 600


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


@pytest.mark.mutant
def test_a_run_that_is_given_up_leaves_nothing_behind(tmp_path: Path) -> None:
    """Or it would go on, and slow down all that come after it."""
    script, pipe = tmp_path / "script.py", tmp_path / "pipe"
    script.write_text("import signal, sys\npipe = open(sys.argv[1], 'w')\nsignal.pause()\n")
    os.mkfifo(pipe)
    one = Runner()
    running = in_thread(lambda: one.run(SOURCE, str(script), [str(pipe)]))
    with pipe.open() as reader:  # as soon as it runs
        one.kill()
        assert reader.read() == ""  # as soon as it runs no longer
    assert heard(running, 1) == [(-9, "")]
    assert one._process.returncode == -9
    assert one._process.stdin is not None
    assert one._process.stdin.closed
