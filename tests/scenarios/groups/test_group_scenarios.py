"""Every scenario about groups plays as its file says. `--rewrite` makes the files say it."""

from pathlib import Path

import pytest

from tests.scenarios.support.cluster import ScenarioError
from tests.scenarios.support.groups import ScriptedGroups
from tests.scenarios.support.script import play

FOLDER = Path(__file__).parent
FILES = sorted(FOLDER.glob("*.txt"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_scenario(file: Path, rewrite: bool) -> None:
    expected = file.read_text(encoding="utf-8")
    assert expected.startswith("# ")
    played = play(expected, ScriptedGroups)
    if rewrite and played != expected:
        file.write_text(played, encoding="utf-8")
    else:
        assert played.splitlines() == expected.splitlines()


def test_there_is_one_for_each_figure_and_table() -> None:
    claims = "\n".join(file.read_text(encoding="utf-8").split("\n")[0] for file in FILES)
    for shown in ("table 4.1", "table 4.2", "figure 5.3 a", "figure 5.3 b", "figure 5.5"):
        assert shown in claims
    for shown in ("table 6.2", "table 6.3", "table 6.4", "table 6.5"):
        assert shown in claims


def test_every_command_is_explained() -> None:
    explained = (FOLDER / "README.md").read_text(encoding="utf-8")
    commands = [
        name.removeprefix("_do_") for name in vars(ScriptedGroups) if name.startswith("_do_")
    ]
    assert [c for c in commands if f"`{c}" not in explained] == []


def test_a_command_that_cannot_be_done_is_named_with_its_line() -> None:
    with pytest.raises(ScenarioError, match="no client b") as caught:
        play("# Nobody is there.\njoin b g\n----\n", ScriptedGroups)
    assert caught.value.__notes__ == ["at line 2: join b g"]
