"""Every point of "What implementers get wrong" in `docs/jms.md` has a test.

A test says in its docstring which points it is about: [7], or [19, 20].
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

PAGE = Path(__file__).parents[3] / "docs" / "jms.md"


def points() -> list[int]:
    _, _, section = PAGE.read_text(encoding="utf-8").partition("## What implementers get wrong\n")
    return [int(number) for number in re.findall(r"^(\d+)\. ", section, re.MULTILINE)]


def labels(path: Path) -> Iterator[int]:
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            for label in re.findall(r"\[([\d, ]+)\]", ast.get_docstring(node) or ""):
                yield from map(int, label.split(","))


def test_points_are_numbered_without_gaps() -> None:
    assert points() == list(range(1, 40))


def test_every_point_has_a_test() -> None:
    found = {n for path in Path(__file__).parent.glob("test_*.py") for n in labels(path)}
    assert found == set(points())
