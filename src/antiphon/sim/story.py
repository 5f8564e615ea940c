"""A run as a space-time table: a column for each process, time runs downwards."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

Event = tuple[int, int | str, str]  # microseconds, process (0 or "": the world), text

_QUIET = re.compile(r"entries=-|Appended\(|Knock\(|Welcome\(")
"""Heartbeats and their answers, which the table omits."""


def _fold(events: Sequence[Event]) -> list[Event]:
    """Drop sendings of a process that differ from its one before in numbers only."""
    folded: list[Event] = []
    shapes: dict[int | str, str] = {}
    for now_us, process, text in events:
        shape = re.sub(r"\d+", "#", text)
        if shapes.get(process) != shape or not text.startswith("->"):
            folded.append((now_us, process, text))
        shapes[process] = shape
    return folded


def table(
    events: Sequence[Event], columns: Mapping[Any, str], width: int = 160, rows: int = 80
) -> str:
    """Return the last `rows` events as a table, without the heartbeats. `columns`: the processes,
    with the headings of their columns."""
    shown = _fold([event for event in events if not _QUIET.search(event[2])])
    column = max(24, (width - 12) // max(1, len(columns)))
    places = {process: at for at, process in enumerate(columns)}
    lines = ["   seconds  " + "".join(name.ljust(column) for name in columns.values())]
    if len(shown) > rows:
        lines.append(f"     ...    ({len(shown) - rows} earlier events)")
    for now_us, process, text in shown[-rows:]:
        start = f"{now_us / 1e6:10.4f}  "
        if process not in places:
            lines.append(start + text)
            continue
        indent = " " * (column * places[process])
        lines.append(start + indent + text)
    return "\n".join(line.rstrip() for line in lines)
