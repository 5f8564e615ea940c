"""Every Python example in README.md and docs/ runs."""

import os
import re
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import quick_java

ROOT = Path(__file__).parent.parent
PYTHON_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def examples() -> Iterator[pytest.ParameterSet]:
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        text = page.read_text(encoding="utf-8") if page.exists() else ""
        for block in PYTHON_BLOCK.finditer(text):
            lines_before = text.count("\n", 0, block.start(1))
            name = f"{page.name}:{lines_before + 1}"
            # Padded, so that a traceback shows the line numbers of the page.
            source = "\n" * lines_before + block[1]
            yield pytest.param(str(page), source, id=name, marks=marks_of(source))


def on_spark(source: str) -> bool:
    return "session.start" in source


def marks_of(source: str) -> list[pytest.MarkDecorator]:
    return [pytest.mark.spark, pytest.mark.timeout(180)] if on_spark(source) else []


@pytest.mark.parametrize(("page", "source"), list(examples()))
def test_example_runs(
    page: str, source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    if on_spark(source):
        run_apart(page, source)
    else:
        with warnings.catch_warnings():
            # Another process could load a file, but not a part of a page.
            warnings.filterwarnings("ignore", "simulate: ", UserWarning)
            exec(compile(source, page, "exec"), {"__name__": "__main__"})


def run_apart(page: str, source: str) -> None:
    """In a process of its own: a process has one Spark at a time, and an example that stops its
    own would stop that of the tests."""
    program = Path(f"{Path(page).stem}.py")
    program.write_text(source, encoding="utf-8")
    environment = {**os.environ, **quick_java.ENVIRONMENT}
    done = subprocess.run(
        [sys.executable, program], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def places() -> Iterator[pytest.ParameterSet]:
    """`file.py: Class.method`, as the pages point into the code, but for those of history."""
    pages = [page for page in (ROOT / "docs").rglob("*.md") if page.parent.name != "history"]
    for page in [ROOT / "README.md", *sorted(pages)]:
        for line in page.read_text(encoding="utf-8").splitlines():
            for file, name in re.findall(r"`([\w/]+\.py): ([\w.]+)`", line):
                yield pytest.param(file, name, id=f"{page.name}-{file}-{name}")


@pytest.mark.parametrize(("file", "name"), list(places()))
def test_a_place_in_the_code_exists(file: str, name: str) -> None:
    path = ROOT / "src/antiphon" / file
    assert path.exists(), f"there is no {file}"
    text = path.read_text()
    for part in name.split("."):
        assert re.search(rf"(def|class) {part}\b", text), f"{file} has no {part}"


def files() -> Iterator[pytest.ParameterSet]:
    """`folder/file.py` without a name in it, also in drawings; but for pages of history."""
    pages = [page for page in (ROOT / "docs").rglob("*.md") if page.parent.name != "history"]
    for page in [ROOT / "README.md", *sorted(pages)]:
        text = page.read_text(encoding="utf-8")
        for file in sorted(set(re.findall(r"\b([\w/]+/\w+\.py)\b", text)) - OF_READERS):
            yield pytest.param(file, id=f"{page.name}-{file}")


OF_READERS = {"tests/test_seats.py"}
"""Files that examples write."""


@pytest.mark.parametrize("file", list(files()))
def test_a_file_exists(file: str) -> None:
    assert (ROOT / "src/antiphon" / file).exists() or (ROOT / file).exists()


def test_docstrings_and_comments_lead_to_files() -> None:
    """`file.py` beside it, or `folder/file.py` of the package or the repository; with a name that
    stands in it, if there is one: `file.py: name`."""
    package, lost = ROOT / "src/antiphon", []
    for source in sorted(package.rglob("*.py")):
        text = source.read_text(encoding="utf-8")
        for file, name in re.findall(r"`([\w/]+\.py)(?:: ([\w.]+))?`", text):
            found = [p for p in (source.parent / file, package / file, ROOT / file) if p.exists()]
            names = (
                set(re.findall(r"\w+", found[0].read_text(encoding="utf-8"))) if found else set()
            )
            if not found or not set(filter(None, name.split("."))) <= names:
                lost.append(f"{source.relative_to(package)}: {file} {name}")
    assert lost == []


def links() -> Iterator[pytest.ParameterSet]:
    pages = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
    for page in pages:
        for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
            if "://" not in target:
                yield pytest.param(page, target, id=f"{page.name}-{target}")


@pytest.mark.parametrize(("page", "target"), list(links()))
def test_a_link_leads_somewhere(page: Path, target: str) -> None:
    file, _, heading = target.partition("#")
    path = page.parent / file if file else page
    assert path.exists(), target
    if heading:
        lines = path.read_text(encoding="utf-8").splitlines()
        headings = [line.lstrip("# ").lower() for line in lines if line.startswith("#")]
        assert heading in [re.sub(r"[^\w -]", "", h).replace(" ", "-") for h in headings], target


def table_rows() -> Iterator[pytest.ParameterSet]:
    text = (ROOT / "docs" / "IDEAS.md").read_text(encoding="utf-8")
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if line.startswith("| ") and len(cells) == 4 and ".py:" in cells[1]:
            yield pytest.param(*cells[1:], id=cells[0])


@pytest.mark.parametrize(("code", "tests", "mutants"), list(table_rows()))
def test_the_table_of_ideas_is_true(code: str, tests: str, mutants: str) -> None:
    """Each idea stands where the page says, and what it says checks it exists."""
    for place in code.split(";"):
        file, *names = re.findall(r"[\w./]+", place)
        text = (ROOT / "src/antiphon" / file).read_text()
        missing = [name for name in names if not re.search(rf"(def|class) {name}\b", text)]
        assert not missing, f"{file} has no {missing}"
    for name in re.findall(r"`([^`]+)`", tests):
        scenario = ROOT / "tests/scenarios" / f"{name}.txt"
        assert scenario.exists() or (ROOT / name).exists(), name
    for name in re.findall(r"`([^`]+)`", mutants):
        assert (ROOT / "tests/mutants" / f"{name}.mutant").exists(), name


def test_the_architecture_page_shows_every_room() -> None:
    text = (ROOT / "docs" / "ARCHITECTURE.md").read_text(encoding="utf-8")
    shown = set(re.findall(r"\b(\w+)/", text.split("```text")[1].split("```")[0]))
    package = ROOT / "src/antiphon"
    rooms = {room.parent.name for room in package.glob("**/__init__.py")} - {package.name}
    assert rooms - shown == {"channels", "growth", "rivals", "packing"}  # rooms of parts of `lab`
    assert shown <= rooms


CITED = re.compile(
    r"\b(?:thesis,? |chapter |tables? |figures? |footnotes? |JBora,? |section )"
    r"(\d+(?:\.\d+)*|I{1,3}\b)"
)


def known_numbers(page: str) -> set[str]:
    """Of sections, tables, figures and footnotes; `6.2 to 6.5` has those between, too."""
    known = set(re.findall(r"\d+(?:\.\d+)*|\bI{1,3}\b", page))
    for chapter, first, last in re.findall(r"(\d+)\.(\d+) to \1\.(\d+)", page):
        known |= {f"{chapter}.{number}" for number in range(int(first), int(last))}
    return known


def test_the_references_have_what_the_code_cites() -> None:
    known = known_numbers((ROOT / "docs" / "REFERENCES.md").read_text(encoding="utf-8"))
    files = [*(ROOT / "src").rglob("*.py"), *(ROOT / "tests").rglob("*.py")]
    for file in [*files, *(ROOT / "tests/scenarios").rglob("*.txt")]:
        found = set(CITED.findall(file.read_text(encoding="utf-8")))
        assert found <= known, file
