"""A run as a space-time table: a column for each server, time runs downwards."""

from __future__ import annotations

import re
from collections.abc import Sequence

Event = tuple[int, int, str]  # microseconds, server (0: the world), text

_QUIET = re.compile(r"entries=-|Appended\(|Knock\(|Welcome\(")
"""Heartbeats and their answers: nothing happened."""


def _fold(events: Sequence[Event]) -> list[Event]:
    """Drop sendings of a server that differ from its one before in numbers only."""
    folded: list[Event] = []
    shapes: dict[int, str] = {}
    for now_us, server, text in events:
        shape = re.sub(r"\d+", "#", text)
        if shapes.get(server) != shape or not text.startswith("->"):
            folded.append((now_us, server, text))
        shapes[server] = shape
    return folded


def table(events: Sequence[Event], servers: Sequence[int], width: int = 160, rows: int = 80) -> str:
    """Return the last `rows` events as a table, without the heartbeats."""
    shown = _fold([event for event in events if not _QUIET.search(event[2])])
    column = max(24, (width - 12) // max(1, len(servers)))
    lines = ["   seconds  " + "".join(f"server {n}".ljust(column) for n in servers)]
    if len(shown) > rows:
        lines.append(f"     ...    ({len(shown) - rows} earlier events)")
    for now_us, server, text in shown[-rows:]:
        start = f"{now_us / 1e6:10.4f}  "
        if server not in servers:
            lines.append(start + text)
            continue
        indent = " " * (column * servers.index(server))
        lines.append(start + indent + text)
    return "\n".join(line.rstrip() for line in lines)
