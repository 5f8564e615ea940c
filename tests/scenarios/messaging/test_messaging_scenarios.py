"""Every scenario about messaging plays as its file says. `--rewrite` makes the files say it."""

from pathlib import Path

import pytest

from tests.scenarios.support.messaging import ScriptedMessaging
from tests.scenarios.support.script import play

FOLDER = Path(__file__).parent
FILES = sorted(FOLDER.glob("*.txt"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_scenario(file: Path, rewrite: bool) -> None:
    expected = file.read_text(encoding="utf-8")
    assert expected.startswith("# ")
    played = play(expected, ScriptedMessaging)
    if rewrite and played != expected:
        file.write_text(played, encoding="utf-8")
    else:
        assert played.splitlines() == expected.splitlines()


def test_every_command_is_explained() -> None:
    explained = (FOLDER / "README.md").read_text(encoding="utf-8")
    commands = [
        name.removeprefix("_do_") for name in vars(ScriptedMessaging) if name.startswith("_do_")
    ]
    assert [c for c in commands if f"`{c}" not in explained] == []
