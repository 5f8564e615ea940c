"""The parts of `examples/load_balancing.py` that its output does not show: the policy, the plot."""

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from antiphon.reports.charts import line_chart

EXAMPLE = Path(__file__).parents[3] / "examples" / "load_balancing.py"


@pytest.fixture
def example() -> Iterator[ModuleType]:
    spec = importlib.util.spec_from_file_location("load_balancing", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


def test_a_server_sends_on_what_is_beyond_its_threshold(example: ModuleType) -> None:
    assert example.chosen("a", {"a": 2, "b": 0, "c": 0}, 3) == "a"
    assert example.chosen("a", {"a": 3, "b": 2, "c": 1}, 3) == "c"
    assert example.chosen("a", {"a": 3, "b": 5, "c": 4}, 3) == "a"  # the others have more


def test_the_plot_has_the_share_of_each_server(example: ModuleType) -> None:
    lines = example.shares(["a", "b", "b", "a"])
    assert [line.name for line in lines] == ["a", "b", "c"]
    assert [share for _, share in lines[0].points] == [100, 50, pytest.approx(33.3, 0.01), 50]
    assert {share for _, share in lines[2].points} == {0}
    assert line_chart("shares", "requests", "%", lines).count("<polyline") == 3
