"""Every test that takes turns comes in one of three commits in a row; no choice is empty."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests import rotation
from tests.mutants.run import load_all

ROOT = Path(__file__).parents[1]
ITEM = "tests/mutants/test_mutants.py::test_planted_bug_is_caught[{}]"


def git(folder: Path, *arguments: str) -> None:
    who = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    subprocess.run(["git", "-C", str(folder), *who, *arguments], check=True, capture_output=True)


def commit(folder: Path, file: str) -> None:
    (folder / file).write_text("")
    git(folder, "add", file)
    git(folder, "commit", "-m", file)


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    folder = tmp_path / "clone"
    folder.mkdir()
    git(folder, "init")
    commit(folder, "a")
    return folder


def test_each_commit_has_the_turn_after_the_one_before(clone: Path) -> None:
    turns = [rotation.turn_of_commit(clone)]
    for file in "bc":
        commit(clone, file)
        turns.append(rotation.turn_of_commit(clone))
    assert turns == [1, 2, 0]


def test_where_commits_cannot_be_counted_the_sources_decide(clone: Path) -> None:
    commit(clone, "b")
    shallow = clone.with_name("shallow")
    git(clone, "clone", "--depth", "1", f"file://{clone}", str(shallow))
    bare = clone.with_name("bare")
    bare.mkdir()
    for folder in (shallow, bare):
        (folder / "src").mkdir()
        turns = set()
        for text in "abcdefghij":
            (folder / "src" / "x.py").write_text(text)
            assert rotation.turn_of_commit(folder) == rotation.turn_of_commit(folder)
            turns.add(rotation.turn_of_commit(folder))
        assert turns == {0, 1, 2}


def test_files_are_recent_that_the_last_commits_touched(clone: Path) -> None:
    for file in ("b", "c"):
        commit(clone, file)
    assert rotation.recent_files(clone, 2) == ["c", "b"]
    assert rotation.recent_files(clone.parent) == []


def test_three_turns_run_every_planted_bug_and_each_about_a_third() -> None:
    marked = [item(ITEM.format(mutant.name), pytest.mark.in_turn) for mutant in load_all()]
    other = item("other", None)
    chosen = []
    for turn in range(rotation.TURNS):
        run, left, due = rotation.choose([*marked, other], turn)
        assert run[-1] is other
        assert (len(run), len(run) + len(left)) == (due + 1, len(marked) + 1)
        assert 0.25 < due / len(marked) < 0.42
        chosen += run[:-1]
    assert sorted(map(id, chosen)) == sorted(map(id, marked))


def test_a_mark_may_name_its_turn() -> None:
    items = [item("x", pytest.mark.in_turn(number)) for number in range(6)]
    for turn in range(rotation.TURNS):
        assert rotation.choose(items, turn)[0] == [items[turn], items[turn + 3]]


def item(nodeid: str, mark: pytest.MarkDecorator | None) -> pytest.Item:
    closest = mark.mark if mark is not None else None
    made: pytest.Item = SimpleNamespace(nodeid=nodeid, get_closest_marker=lambda name: closest)  # type: ignore[assignment]
    return made


INNER = """
import pytest

@pytest.mark.in_turn(1)
def test_in_turn():
    pass

def test_always():
    pass
"""


@pytest.mark.parametrize("workers", [[], ["-n", "1"]], ids=["alone", "worker"])
@pytest.mark.parametrize("turn", ["1", "2", "all"])
def test_a_run_says_its_turn_and_fails_if_that_leaves_nothing(
    tmp_path: Path, turn: str, workers: list[str]
) -> None:
    (tmp_path / "test_inner.py").write_text(INNER)
    command = [sys.executable, "-m", "pytest", "-q", "-c", str(ROOT / "pyproject.toml")]
    command += ["-p", "tests.conftest", "-p", "no:cacheprovider", f"--turn={turn}", *workers]
    command += ["-W", "ignore::pytest.PytestAssertRewriteWarning", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == (pytest.ExitCode.USAGE_ERROR if turn == "2" else 0)
    if turn == "all":
        assert "2 passed" in done.stdout
        assert "turn" not in done.stdout
        return
    assert f"--turn={turn} (make: TURN={turn}) repeats" in done.stdout
    if turn == "1":
        assert "turn 1: 1 of 1 tests that take turns" in done.stdout
    else:
        assert "turn 2: 0 of 1 tests that take turns\nERROR: a run of none" in done.stdout
