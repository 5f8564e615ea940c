"""`antiphon bench growth`: measures the cost of more members, servers, backlog, topics and so on.

A dimension is the thing that grows: members of a group, servers, a backlog on disk, topics, durable
subscriptions nobody reads, idle connections. Its points grow by factors, and each is measured with
servers of its own (`points.py`), so that a point's memory is its own.

How to read a row: `server_us_per_message` is the processor time of all servers together for one
message, `server_us_per_delivered_pack` the same for one pack that one consumer was sent, and
`all_us_per_message` that of all processes; a figure that does not depend on the dimension is the
same in all rows. `setup_s` is the time until all members had joined, all consumers or subscriptions
were there, all clients were connected, and `setup_server_cpu_s` the servers' processor time for it;
`setup_peak_mb` and `server_peak_mb` are the most memory that one server had had by then, and at the
end. `early_ms` goes from the publish call to the first delivery, `late_ms` to the last, at a light
load. A backlog is written and then read, and `read_` marks the figures of reading.

Rates and latencies move with other load on the machine; compare processor times first.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from antiphon.lab.bench.growth import points as measures
from antiphon.lab.bench.growth.points import Effort, Row
from antiphon.reports.charts import Decades, Line, Scale, line_chart
from antiphon.terminal.lines import say_json
from antiphon.terminal.screen import Progress, Screen, Table

FULL = Effort(seconds=2.0, rounds=5, light=200)
QUICK = Effort(seconds=0.2, rounds=1, light=10)


class Dimension(NamedTuple):
    """A thing that grows: its points, and how one is measured."""

    what: str
    points: tuple[int, ...]
    quick: tuple[int, ...]
    measure: Callable[[int, Effort], Row]


DIMENSIONS = {
    "members": Dimension(
        "members of a group", (1, 3, 10, 30, 100, 300, 1000), (1, 3), measures.members
    ),
    "servers": Dimension("servers", (1, 3, 5), (1, 3), measures.servers),
    "backlog": Dimension(
        "messages on disk", (10_000, 100_000, 1_000_000, 10_000_000), (100, 1000), measures.backlog
    ),
    "topics": Dimension("topics", (10, 100, 1000, 10_000), (10, 20), measures.topics),
    "subscriptions": Dimension(
        "durable subscriptions", (100, 1000, 10_000, 100_000), (1, 10), measures.subscriptions
    ),
    "connections": Dimension("idle connections", (1, 10, 100, 1000), (1, 10), measures.connections),
}

CHARTS = {
    "processor time": (
        "µs",
        ("server_us_per_message", "all_us_per_message", "read_server_us_per_message"),
    ),
    "processor time of packs": ("µs", ("server_us_per_delivered_pack",)),
    "memory": ("MB", ("server_peak_mb", "setup_peak_mb", "read_server_peak_mb")),
    "latency": ("ms", ("early_ms", "late_ms")),
}
"""Title -> unit, and the figures that are drawn if they were measured; of latencies, the p50."""


def run(args: argparse.Namespace) -> int:
    chosen = [args.dimension] if args.dimension else list(DIMENSIONS)
    effort = QUICK if args.quick else FULL
    report: dict[str, Any] = {"cores": os.cpu_count(), "size": measures.SIZE, "load": _load()}
    if args.out is not None:  # fails before the hours of measuring
        Path(args.out).mkdir(parents=True, exist_ok=True)
    with Progress() as progress:
        points = {name: _points(name, args.quick) for name in chosen}
        bar = progress.add_task("", total=sum(map(len, points.values())))
        for name in chosen:
            report[name] = rows = []
            for point in points[name]:
                progress.update(bar, description=f"{point:,} {DIMENSIONS[name].what}")
                rows.append({name: point, **DIMENSIONS[name].measure(point, effort)})
                progress.advance(bar)
    report["load_after"] = _load()
    if args.out is not None:
        write(Path(args.out), report)
    if args.json:
        say_json(report)
    else:
        for name in chosen:
            _show(name, report[name])
    return 0


def _points(name: str, quick: bool) -> tuple[int, ...]:
    return DIMENSIONS[name].quick if quick else DIMENSIONS[name].points


def _load() -> float:
    """Return how many processes wanted to run in the last minute."""
    return round(os.getloadavg()[0], 1)


def write(folder: Path, report: dict[str, Any]) -> None:
    """Write all figures to one file, and each curve to one of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(report, indent=1) + "\n"
    (folder / "growth.json").write_text(text, encoding="utf-8")
    for name in DIMENSIONS.keys() & report.keys():
        for title, svg in _charts(name, report[name]):
            path = folder / f"{name}-{title.replace(' ', '-')}.svg"
            path.write_text(svg + "\n", encoding="utf-8")


def _charts(name: str, rows: Sequence[Row]) -> Iterator[tuple[str, str]]:
    what = DIMENSIONS[name].what
    scale = Decades if rows[-1][name] >= 10 * rows[0][name] else Scale
    for title, (unit, keys) in CHARTS.items():
        lines = [Line(key, _curve(name, key, rows)) for key in keys if key in rows[0]]
        if lines:
            yield title, line_chart(f"{what}: {title}", what, unit, lines, scale=scale)


def _curve(name: str, key: str, rows: Sequence[Row]) -> list[tuple[float, float]]:
    values = ((row[name], row[key]) for row in rows)
    return [(x, y["p50"] if isinstance(y, dict) else y) for x, y in values]


def _show(name: str, rows: Sequence[Row]) -> None:
    """Show figures down and points across: there are more figures than fit into a line."""
    table = Table(title=f"growth: {DIMENSIONS[name].what}")
    table.add_column("")
    for row in rows:
        table.add_column(f"{row[name]:,}", justify="right")
    for key in list(rows[0])[1:]:
        table.add_row(key, *(_text(row[key]) for row in rows))
    Screen().print(table)


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return " / ".join(f"{part:,}" for part in value.values())
    if isinstance(value, list):
        return " to ".join(f"{part:,}" for part in value)
    return f"{value:,}"
