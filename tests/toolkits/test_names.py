"""Each toolkit has every name of its original, in snake_case, or says in `LEFT_OUT` why not.

The originals' names are in `names/TOOLKIT.txt`, in the originals' spelling: a line is `name` or
`Class.name`, with ` = other.place` behind it if it is found elsewhere in the toolkit; `#` begins a
comment, which says where the name comes from.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

LISTS = sorted((Path(__file__).parent / "names").glob("*.txt"))


@pytest.mark.parametrize("path", LISTS, ids=lambda path: path.stem)
def test_every_name_of_the_original_is_there_or_left_out_with_a_reason(path: Path) -> None:
    toolkit = importlib.import_module(f"antiphon.toolkits.{path.stem}")
    left_out = dict(getattr(toolkit, "LEFT_OUT", {}))
    names = dict(originals(path.read_text(encoding="utf-8")))
    assert names
    missing = [name for name, place in names.items() if not has(toolkit, place)]
    assert [name for name in missing if name not in left_out] == []
    assert [name for name in left_out if name not in names] == []
    assert [name for name in left_out if has(toolkit, names[name])] == []
    assert [name for name, reason in left_out.items() if len(reason.split()) < 3] == []


def test_every_toolkit_has_a_list() -> None:
    package = importlib.import_module("antiphon.toolkits")
    found = {path.stem for path in Path(package.__path__[0]).iterdir() if path.stem[0] != "_"}
    assert {path.stem for path in LISTS} == found


def test_names_become_places() -> None:
    text = "# of a table\nJChannel.getState\nisis_init = Process.start\nfbcast  # in a comment\n"
    assert dict(originals(text)) == {
        "JChannel.getState": "JChannel.get_state",
        "isis_init": "Process.start",
        "fbcast": "fbcast",
    }


def originals(text: str) -> Iterator[tuple[str, str]]:
    """Yield each name, and its place in the toolkit."""
    for line in text.splitlines():
        entry = line.partition("#")[0].strip()
        if entry:
            name, _, place = (part.strip() for part in entry.partition("="))
            yield name, place or snake(name)


def snake(name: str) -> str:
    """Return the last part of a name in snake_case."""
    *owners, last = name.split(".")
    last = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", last).lower()
    return ".".join([*owners, last])


def has(toolkit: ModuleType, place: str) -> bool:
    found: object = toolkit
    for part in place.split("."):
        if not hasattr(found, part):
            return False
        found = getattr(found, part)
    return True
