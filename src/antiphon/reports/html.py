"""Reports for people: one HTML file with text, tables and charts, that needs nothing else.

Promise: no scripts, and nothing is loaded from anywhere, so a report can be kept and sent; it reads
well on a light and on a dark screen.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from pathlib import Path

from antiphon import __version__
from antiphon.reports.charts import escape

_STYLE = """\
:root{color-scheme:light dark}
body{font:16px/1.5 system-ui,sans-serif;max-width:72em;margin:2em auto;padding:0 1em;
background:#fff;color:#222}
h1,h2{line-height:1.2}h2{margin-top:2em}
table{border-collapse:collapse;margin:1em 0;font-variant-numeric:tabular-nums}
th,td{padding:.25em .7em;text-align:right;border-bottom:1px solid #8884}
th:first-child,td:first-child{text-align:left}
th{vertical-align:bottom}
code{background:#8882;padding:.1em .3em;border-radius:3px}
figure{margin:1em 0;display:inline-block}
.scroll{overflow-x:auto}
@media(prefers-color-scheme:dark){body{background:#111317;color:#ddd}}
"""

Cell = str | int | float | None


class Report:
    """One page of headings, paragraphs, tables and charts; all text is escaped."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._parts = [f"<h1>{escape(title)}</h1>"]

    def heading(self, text: str) -> None:
        self._parts.append(f"<h2>{escape(text)}</h2>")

    def text(self, text: str) -> None:
        """Add a paragraph; text between backticks is code."""
        pieces = [
            f"<code>{escape(piece)}</code>" if number % 2 else escape(piece)
            for number, piece in enumerate(text.split("`"))
        ]
        self._parts.append(f"<p>{''.join(pieces)}</p>")

    def table(self, header: Sequence[str], rows: Iterable[Sequence[Cell]]) -> None:
        head = "".join(f"<th>{escape(name)}</th>" for name in header)
        lines = ("".join(f"<td>{escape(cell(value))}</td>" for value in row) for row in rows)
        body = "\n".join(f"<tr>{line}</tr>" for line in lines)
        self._parts.append(
            f'<div class="scroll"><table><thead><tr>{head}</tr></thead>\n'
            f"<tbody>{body}</tbody></table></div>"
        )

    def chart(self, svg: str) -> None:
        self._parts.append(f"<figure>{svg}</figure>")

    def html(self) -> str:
        return (
            '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            f"<title>{escape(self._title)}</title>\n<style>{_STYLE}</style></head>\n<body>\n"
            + "\n".join(self._parts)
            + "\n</body></html>\n"
        )

    def write(self, path: Path) -> None:
        path.write_text(self.html(), encoding="utf-8")


def cell(value: Cell) -> str:
    """Return a value with three digits, a whole number with all of its digits."""
    if value is None:
        return "-"
    if isinstance(value, str):
        return value
    if isinstance(value, int) or abs(value) >= 1000:
        return f"{round(value):,}"
    return f"{value:.3g}"


def machine() -> str:
    """Return the software and the hardware that figures are measured on, in a sentence."""
    return (
        f"antiphon {__version__}, Python {platform.python_version()}, Spark {version('pyspark')}, "
        f"{_processor()}, {os.cpu_count()} cores, {platform.system()} {platform.release()}"
    )


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    except OSError:
        pass
    return platform.machine()
