"""Line charts as SVG: small, the same for the same data, and readable on a light or a dark page.

A chart needs no other file: it can be a file of its own, or a part of a page.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape as escape_html
from typing import NamedTuple

from antiphon.terminal.lines import harmless

WIDTH, HEIGHT = 640, 340
LEFT, RIGHT, TOP, BOTTOM = 70, 14, 34, 76
TICKS = 8
LEAST = 1e-6
"""A value up to this is shown as 0."""

COLOURS = ("#3b7dd8", "#d9722b", "#3a9a56", "#b1509e", "#b8860b", "#5b9aa0")
"""Distinct on white and on black, and, in this order, with all kinds of colour blindness."""

_STYLE = """\
svg.chart{font:12px system-ui,sans-serif;max-width:100%;height:auto;background:#fff;color:#222}
@media(prefers-color-scheme:dark){svg.chart{background:#181a1f;color:#ddd}}
.chart text{fill:currentColor}.chart .grid{stroke:currentColor;opacity:.15}
.chart .axis{stroke:currentColor}.chart .title{font-weight:600}
.chart .mark{stroke:currentColor;stroke-dasharray:2 3;opacity:.6}
.chart .line{fill:none;stroke-width:2}
"""

Point = tuple[float, float]


class Line(NamedTuple):
    """One line of a chart."""

    name: str
    points: Sequence[Point]
    dashed: bool = False
    dots: bool = False  # points without a curve: published values


class Mark(NamedTuple):
    """An event on the time axis, with its label."""

    x: float
    text: str


class Scale:
    """A linear scale from 0 to a round number above the greatest value, with its ticks."""

    def __init__(self, values: Iterable[float], start: float, end: float) -> None:
        greatest = max(values, default=0.0)
        step = _round_step((greatest if greatest > LEAST else 1.0) / TICKS)
        count = max(1, math.ceil(round(greatest / step, 9)))
        self.ticks = [round(step * n, 10) for n in range(count + 1)]
        self._start = start
        self._factor = (end - start) / self.ticks[-1]

    def at(self, value: float) -> float:
        return round(self._start + value * self._factor, 1)


class Decades:
    """A scale of powers of ten, for values of 1 or more that grow by factors."""

    def __init__(self, values: Iterable[float], start: float, end: float) -> None:
        count = max(1, math.ceil(math.log10(max(values, default=1.0))))
        self.ticks = [10.0**n for n in range(count + 1)]
        self._start = start
        self._factor = (end - start) / count

    def at(self, value: float) -> float:
        return round(self._start + math.log10(value) * self._factor, 1)


def line_chart(
    title: str,
    x_name: str,
    y_name: str,
    lines: Sequence[Line],
    marks: Sequence[Mark] = (),
    scale: type[Scale | Decades] = Scale,
) -> str:
    """Return an `<svg>` element with the title as its name. All values are 0 or more; `scale` is
    that of the horizontal axis."""
    points = [point for line in lines for point in line.points]
    across = scale([x for x, _ in points] + [mark.x for mark in marks], LEFT, WIDTH - RIGHT)
    upwards = Scale([y for _, y in points], HEIGHT - BOTTOM, TOP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="chart" role="img" '
        f'viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}">',
        f"<title>{escape(title)}</title><style>{_STYLE}</style>",
        _text(LEFT, 18, title, "start", "title"),
        *_axes(across, upwards, x_name, y_name),
        *(part for number, mark in enumerate(marks) for part in _mark(mark, number, across)),
        *(
            part
            for number, line in enumerate(lines)
            for part in _line(line, number, across, upwards)
        ),
        *_legend(lines),
        "</svg>",
    ]
    return "\n".join(parts)


def _round_step(least: float) -> float:
    """Return 1, 2 or 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(power * n for n in (1, 2, 5, 10) if power * n >= least * (1 - 1e-9))


def _axes(across: Scale | Decades, upwards: Scale, x_name: str, y_name: str) -> Iterable[str]:
    floor, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    for tick in upwards.ticks:
        y = upwards.at(tick)
        yield f'<line class="grid" x1="{LEFT}" x2="{right}" y1="{y}" y2="{y}"/>'
        yield _text(LEFT - 6, y + 4, _number(tick), "end")
    for tick in across.ticks:
        x = across.at(tick)
        yield f'<line class="grid" x1="{x}" x2="{x}" y1="{TOP}" y2="{floor}"/>'
        yield _text(x, floor + 16, _number(tick), "middle")
    yield f'<path class="axis" fill="none" d="M{LEFT} {TOP}V{floor}H{right}"/>'
    yield _text((LEFT + right) / 2, floor + 34, x_name, "middle")
    middle = (TOP + floor) / 2
    yield (
        f'<text x="14" y="{middle}" text-anchor="middle" transform="rotate(-90 14 {middle})">'
        f"{escape(y_name)}</text>"
    )


def _mark(mark: Mark, number: int, across: Scale | Decades) -> Iterable[str]:
    x = across.at(mark.x)
    yield f'<line class="mark" x1="{x}" x2="{x}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>'
    y = TOP + 12 + 13 * (number % 6)  # labels at one height would overlap
    side = "end" if x > WIDTH * 0.7 else "start"
    yield _text(x + (-4 if side == "end" else 4), y, mark.text, side)


def _line(line: Line, number: int, across: Scale | Decades, upwards: Scale) -> Iterable[str]:
    colour = COLOURS[number % len(COLOURS)]
    places = [(across.at(x), upwards.at(y)) for x, y in line.points]
    if not line.dots:
        dashes = ' stroke-dasharray="6 4"' if line.dashed else ""
        path = " ".join(f"{x},{y}" for x, y in places)
        yield f'<polyline class="line" stroke="{colour}"{dashes} points="{path}"/>'
    if line.dots or len(places) <= 40:
        for (x, y), (x_value, y_value) in zip(places, line.points, strict=True):
            what = f"{line.name}: {_number(x_value)}, {_number(y_value)}"
            yield (
                f'<circle cx="{x}" cy="{y}" r="3" fill="{colour}">'
                f"<title>{escape(what)}</title></circle>"
            )


def _legend(lines: Sequence[Line]) -> Iterable[str]:
    x, y = float(LEFT), HEIGHT - 24
    for number, line in enumerate(lines):
        width = 30 + 6.6 * len(line.name)
        if x + width > WIDTH and x > LEFT:
            x, y = float(LEFT), y + 16
        colour = COLOURS[number % len(COLOURS)]
        dashes = ' stroke-dasharray="4 3"' if line.dashed else ""
        yield (
            f'<path stroke="{colour}" stroke-width="{6 if line.dots else 3}"{dashes} '
            f'd="M{x:.0f} {y - 4}h{6 if line.dots else 16}"/>'
        )
        yield _text(x + 20, y, line.name, "start")
        x += width


def _text(x: float, y: float, text: str, anchor: str, kind: str = "") -> str:
    named = f' class="{kind}"' if kind else ""
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}"{named}>{escape(text)}</text>'


def escape(text: str) -> str:
    """Return the text so that it is not part of the page, and turns no direction of writing."""
    return escape_html(harmless(text))


def _number(value: float) -> str:
    return f"{value:,.10g}" if value == int(value) or abs(value) < 1 else f"{value:,.6g}"
