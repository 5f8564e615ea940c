"""Every Python example in README.md and docs/ runs."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PYTHON_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def examples() -> Iterator[pytest.ParameterSet]:
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        text = page.read_text(encoding="utf-8") if page.exists() else ""
        for block in PYTHON_BLOCK.finditer(text):
            lines_before = text.count("\n", 0, block.start(1))
            name = f"{page.name}:{lines_before + 1}"
            # Padded, so that a traceback shows the line numbers of the page.
            yield pytest.param(str(page), "\n" * lines_before + block[1], id=name)


@pytest.mark.parametrize(("page", "source"), list(examples()))
def test_example_runs(
    page: str, source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(source, page, "exec"), {"__name__": "__main__"})
