"""Charts and pages: what they show is where it belongs, and they need nothing else."""

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.reports.charts import (
    BOTTOM,
    HEIGHT,
    LEFT,
    RIGHT,
    TOP,
    WIDTH,
    Decades,
    Line,
    Mark,
    Scale,
    line_chart,
)
from antiphon.reports.html import Report, cell, machine

SVG = "{http://www.w3.org/2000/svg}"
LINES = [Line("ours", [(1, 2.5), (10, 5.0)]), Line("theirs <&>", [(10, 4)], dots=True)]
values = st.floats(0, 1e12, allow_subnormal=False)


def chart(*marks: Mark) -> ElementTree.Element:
    return ElementTree.fromstring(line_chart("A <title>", "x", "y & z", LINES, marks))


def test_a_chart_has_its_lines_points_and_names() -> None:
    found = chart()
    texts = {text.text for text in found.iter(f"{SVG}text")}
    assert {"A <title>", "x", "y & z", "ours", "theirs <&>", "0", "10"} <= texts
    (line,) = found.iter(f"{SVG}polyline")
    right, top = WIDTH - RIGHT, TOP
    first, last = line.attrib["points"].split()
    assert last == f"{float(right)},{float(top)}"
    assert first.split(",")[1] == str((HEIGHT - BOTTOM + TOP) / 2)
    circles = list(found.iter(f"{SVG}circle"))
    assert len(circles) == 3
    assert circles[2].findtext(f"{SVG}title") == "theirs <&>: 10, 4"


def test_what_happened_is_marked_at_its_time() -> None:
    found = chart(Mark(5, "kill -9"), Mark(20, "view 3"))
    marks = [line for line in found.iter(f"{SVG}line") if line.attrib["class"] == "mark"]
    middle = (LEFT + WIDTH - RIGHT) / 2
    assert [float(mark.attrib["x1"]) for mark in marks] == [
        pytest.approx((LEFT + middle) / 2),
        pytest.approx(WIDTH - RIGHT),
    ]
    assert {"kill -9", "view 3"} <= {text.text for text in found.iter(f"{SVG}text")}


def test_the_same_data_gives_the_same_chart() -> None:
    assert line_chart("t", "x", "y", LINES) == line_chart("t", "x", "y", LINES)


def test_a_chart_of_nothing_is_a_chart() -> None:
    ElementTree.fromstring(line_chart("t", "x", "y", []))
    ElementTree.fromstring(line_chart("t", "x", "y", [Line("none", [(0, 0)])]))


@given(st.lists(values, max_size=20))
def test_a_scale_holds_all_values_and_has_few_ticks(some: list[float]) -> None:
    scale = Scale(some, 100, 0)
    assert scale.ticks[0] == 0
    assert 2 <= len(scale.ticks) <= 10
    assert all(-0.1 <= scale.at(value) <= 100.1 for value in some)
    assert all(
        scale.at(a) >= scale.at(b) for a, b in zip(sorted(some), sorted(some)[1:], strict=False)
    )


def test_decades_are_equally_far_from_each_other() -> None:
    scale = Decades([1, 30, 5000], 0, 400)
    assert scale.ticks == [1, 10, 100, 1000, 10_000]
    assert [scale.at(tick) for tick in scale.ticks] == [0, 100, 200, 300, 400]
    assert 300 < scale.at(5000) < 400


@pytest.mark.parametrize("values", [[], [1], [1, 10]])
def test_there_is_a_decade_at_least(values: list[float]) -> None:
    assert Decades(values, 0, 100).ticks == [1, 10]


def test_a_chart_by_factors() -> None:
    lines = [Line("cost", [(1, 2.0), (1000, 2.5)])]
    found = ElementTree.fromstring(line_chart("t", "x", "y", lines, scale=Decades))
    assert {"1", "10", "100", "1,000"} <= {text.text for text in found.iter(f"{SVG}text")}
    (line,) = found.iter(f"{SVG}polyline")
    xs = [float(point.split(",")[0]) for point in line.attrib["points"].split()]
    assert xs == [LEFT, WIDTH - RIGHT]


# -- Pages -----------------------------------------------------------------------------------------


def test_a_page_needs_nothing_from_elsewhere(tmp_path: Path) -> None:
    report = Report("A & B")
    report.heading("What <happened>")
    report.text("Run `antiphon demo <x>` & see")
    report.table(("name", "value"), [("a<b", 1), ("c", None)])
    report.chart(line_chart("t", "x", "y", LINES))
    report.write(tmp_path / "report.html")
    html = (tmp_path / "report.html").read_text(encoding="utf-8")
    needs_nothing(html)
    assert "<h2>What &lt;happened&gt;</h2>" in html
    assert "<p>Run <code>antiphon demo &lt;x&gt;</code> &amp; see</p>" in html
    assert "<td>a&lt;b</td><td>1</td>" in html
    assert html.count("<svg") == 1
    assert "prefers-color-scheme:dark" in html


def needs_nothing(html: str) -> None:
    """No script, and no address but the name of SVG."""
    assert not re.search(r"<script|<link|<img|<iframe|\bsrc=|\bhref=|url\(|@import", html)
    assert set(re.findall(r"\w+://[^\s\"'<]+", html)) <= {"http://www.w3.org/2000/svg"}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        ("10 to 12", "10 to 12"),
        (7, "7"),
        (1234567, "1,234,567"),
        (1234.5, "1,234"),
        (0.01234, "0.0123"),
        (99.99, "100"),
        (0.0, "0"),
    ],
)
def test_a_cell_says_enough(value: str | float | None, text: str) -> None:
    assert cell(value) == text


def test_a_machine_is_described() -> None:
    assert re.match(r"antiphon \d.*, Python 3.*, Spark 4.*, .+, \d+ cores, \w+", machine())
