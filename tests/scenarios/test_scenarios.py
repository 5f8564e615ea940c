"""Every scenario plays as its file says. `--rewrite` makes the files say what is played."""

from pathlib import Path

import pytest

from tests.scenarios.support.cluster import ScenarioError, ScriptedCluster
from tests.scenarios.support.script import parse, play

FOLDER = Path(__file__).parent
FILES = sorted(FOLDER.glob("*.txt"))

SMALL = """\
# Nobody leads a cluster that has just been founded.
cluster 1 2 3
----
members 1 2 3
"""


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_scenario(file: Path, rewrite: bool) -> None:
    expected = file.read_text(encoding="utf-8")
    played = play(expected)
    if rewrite and played != expected:
        file.write_text(played, encoding="utf-8")
    else:
        assert played.splitlines() == expected.splitlines()


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_file_opens_with_its_claim(file: Path) -> None:
    assert file.read_text(encoding="utf-8").startswith("# ")


def test_every_command_is_explained() -> None:
    explained = (FOLDER / "README.md").read_text(encoding="utf-8")
    commands = [
        name.removeprefix("_do_") for name in vars(ScriptedCluster) if name.startswith("_do_")
    ]
    assert [c for c in commands if f"`{c}" not in explained] == []


def test_a_trace_that_does_not_happen_is_not_kept() -> None:
    assert play(SMALL) == SMALL
    assert play(SMALL.replace("1 2 3\n----\nmembers 1 2 3", "1 2\n----\nmembers 1 2 3")) != SMALL


def test_a_step_without_a_rule_is_refused() -> None:
    with pytest.raises(ScenarioError, match="line 6: a step has commands"):
        parse(SMALL + "\nstatus\n")


@pytest.mark.parametrize(
    ("command", "complaint"),
    [
        ("frobnicate 1", "no such command"),
        ("arrive 1->2", "no message"),
        ("tick 9", "no server 9"),
    ],
)
def test_a_command_that_cannot_be_done_is_named_with_its_line(command: str, complaint: str) -> None:
    with pytest.raises(ScenarioError, match=complaint) as caught:
        play(f"{SMALL}\n{command}\n----\n")
    assert caught.value.__notes__ == [f"at line 6: {command}"]
