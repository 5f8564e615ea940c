"""Every scenario about GCom plays as its file says. `--rewrite` makes the files say it."""

from pathlib import Path

import pytest

from tests.scenarios.support.gcom import ScriptedGcom
from tests.scenarios.support.script import play

FOLDER = Path(__file__).parent
FILES = sorted(FOLDER.glob("*.txt"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_scenario(file: Path, rewrite: bool) -> None:
    expected = file.read_text(encoding="utf-8")
    assert expected.startswith("# ")
    played = play(expected, ScriptedGcom)
    if rewrite and played != expected:
        file.write_text(played, encoding="utf-8")
    else:
        assert played.splitlines() == expected.splitlines()


def test_there_is_one_for_each_scenario_of_the_report() -> None:
    claims = "\n".join(file.read_text(encoding="utf-8").split("\n")[0] for file in FILES)
    for section in ("6.1", "6.2", "6.3", "6.4"):
        assert f"(GCom, {section})" in claims


def test_every_command_is_explained() -> None:
    explained = (FOLDER / "README.md").read_text(encoding="utf-8")
    commands = [name.removeprefix("_do_") for name in vars(ScriptedGcom) if name.startswith("_do_")]
    assert [c for c in commands if f"`{c}" not in explained] == []
