"""Names in the sources and the tests say what a thing is; those that had to be learnt are gone."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
INSTEAD = {
    "house": "the class: a home, a list of homes",
    "rig": "what it holds, with `bare` in front: `BareBroker`",
    "crew": "processes",
    "teller": "who writes or reports what",
    "saboteur": "faults",
    "station": "a process, a server",
    "director": "the commands of a scenario",
}
"""Banned as a part of a name, and what to call the thing."""

ANY = re.compile("|".join(INSTEAD), re.IGNORECASE)

STAGES = {"src/antiphon/formats/protocol/requests.py", "src/antiphon/spark/source/writing.py"}
"""Classes may be called a stage here: that is what a transaction can be committed by."""


def test_no_name_has_a_banned_word() -> None:
    found = [
        f"{path}: {name}: instead {INSTEAD.get(word, 'a word for what it is')}"
        for path, source in sources().items()
        for name, word in banned(path, source)
    ]
    assert found == []


@pytest.mark.parametrize(
    "source",
    [
        "class ServerRig: ...",
        "def open_house(): ...",
        "rig = 1",
        "def f(*, crew): ...",
        "x.rig = 1",
    ],
)
def test_a_planted_word_is_found(source: str) -> None:
    assert list(banned("tests/x.py", source))


@pytest.mark.parametrize("path", ["tests/support/rig.py", "src/antiphon/lab/demo/house_rules.py"])
def test_a_planted_word_in_the_name_of_a_file_is_found(path: str) -> None:
    assert list(banned(path, ""))


def test_a_stage_is_one_of_a_transaction() -> None:
    assert list(banned("tests/x.py", "class GroupStage: ..."))
    assert not list(banned(min(STAGES), "class Stage: ..."))


def test_other_words_may_contain_them() -> None:
    assert not list(banned("tests/original.py", "origin = right = warehouse = screw = 1"))


def sources() -> dict[str, str]:
    return {
        path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
        for folder in ("src", "tests")
        for path in sorted((ROOT / folder).rglob("*.py"))
    }


def banned(path: str, source: str) -> Iterator[tuple[str, str]]:
    """Yield the names that a file has or gives, with the banned word in each."""
    parts = path.removesuffix(".py").split("/")
    for name in sorted({*parts, *names(ast.parse(source))}):
        if ANY.search(name):  # most names are done with here
            for word in set(words(name)) & set(INSTEAD):
                yield name, word
        if name.endswith("Stage") and path not in STAGES:
            yield name, "stage"


def names(tree: ast.AST) -> Iterator[str]:
    """Yield the names that are given here: of classes, functions, arguments and variables."""
    for node in ast.walk(tree):
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name):
                yield name
            case ast.AsyncFunctionDef(name=name):
                yield name
            case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()):
                yield name
            case ast.Attribute(attr=name, ctx=ast.Store()):
                yield name


def words(name: str) -> list[str]:
    return [word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)]
