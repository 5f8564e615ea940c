"""docs/jms.md: the names in it exist, and its file is one that can be read."""

import re
from pathlib import Path

import pytest

import antiphon

PAGE = (Path(__file__).parent.parent / "docs" / "jms.md").read_text(encoding="utf-8")
CODE = re.sub(r"^```.*?^```$", "", PAGE, flags=re.M | re.S)
CALLED = sorted(
    set(re.findall(r"\b([a-z]+(?:_[a-z]+)*)\(", " ".join(re.findall(r"`[^`]+`", CODE))))
)


def ours() -> set[str]:
    classes = [getattr(antiphon, name) for name in antiphon.__all__]
    return {*dir(antiphon)} | {name for cls in classes for name in dir(cls)}


def test_there_are_names() -> None:
    assert len(CALLED) > 30


@pytest.mark.parametrize("name", CALLED)
def test_a_name_in_the_tables_exists(name: str) -> None:
    assert name in ours() | {"list"}


def test_its_file_can_be_read(tmp_path: Path) -> None:
    (written,) = re.findall(r"^```toml\n(.*?)^```$", PAGE, re.M | re.S)
    path = tmp_path / "names.toml"
    path.write_text(written)
    assert antiphon.lookup("alarms", path) == antiphon.Topic("Alarms")
    factory = antiphon.lookup("office", path)
    assert type(factory) is antiphon.TopicConnectionFactory
    assert (factory.url, factory.client_id) == ("antiphon://10.1.0.1:7470", "porter")
