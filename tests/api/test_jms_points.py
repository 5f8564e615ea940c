"""Every point of the design's list of what JMS implementers get wrong has a test.

A test says in its docstring which points it is about: [7], or [19, 20].
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

POINTS = range(1, 40)


def labels(path: Path) -> Iterator[int]:
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            for label in re.findall(r"\[([\d, ]+)\]", ast.get_docstring(node) or ""):
                yield from map(int, label.split(","))


def test_every_point_has_a_test() -> None:
    found = {n for path in Path(__file__).parent.glob("test_jms_*.py") for n in labels(path)}
    assert found == set(POINTS)
