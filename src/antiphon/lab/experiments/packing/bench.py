"""`antiphon bench packing`: JBora's tables 1 to 3 and figures 3, 5 and 6, without Spark.

The measurement and the tables are those of `antiphon experiment packing`; the figures of a run are
computed here as it ends (`lab/experiments/evaluation.py`), and no events are kept. For a figure the
measured curve is printed; the tables have the values to compare it with. Exit code 1 if a message
is missing.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence

from antiphon.lab.experiments import evaluation
from antiphon.lab.experiments.evaluation import Row, with_losses
from antiphon.lab.experiments.packing import measure
from antiphon.lab.experiments.packing.plan import MEMBERS, QUICK, SERVERS, Plan
from antiphon.lab.experiments.packing.report import (
    Figure,
    Over,
    medians,
    over_time,
    setting,
    summary,
    tables,
)
from antiphon.lab.experiments.processes import Done
from antiphon.reports.html import Cell, cell
from antiphon.terminal.lines import say_json
from antiphon.terminal.screen import Screen, Table

POINTS_MAX = 12
"""Points of a curve that are printed; a longer curve is thinned."""


def run(args: argparse.Namespace) -> int:
    plan = QUICK if args.quick else Plan()
    found = Found()
    measure.measure(plan, found.take)
    rows = medians(found.rows)
    if args.json:
        say_json(report(rows, found.over, plan))
    else:
        terminal = Terminal(Screen())
        terminal.text(setting(plan))
        tables(rows, found.over, plan, terminal)
    return int(any(row["lost"] for row in rows))


class Found:
    """The figures of each run."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.over: dict[str, Over] = {}

    def take(self, source: str, policy: str, done: Done) -> None:
        known = measure.facts(source, policy, done)
        self.rows.append(with_losses({**known, **evaluation.by_run(done)}))
        if done.looks:
            self.over[source] = Over(done.looks, evaluation.over_time(done, measure.EVERY_S))


def report(rows: list[Row], over: dict[str, Over], plan: Plan) -> Row:
    return {
        "servers": SERVERS,
        "members": MEMBERS,
        "rounds": plan.rounds,
        "seconds": plan.seconds,
        "climbing_s": plan.climbing_s,
        "step_s": plan.step_s,
        "summary": summary(rows, list(plan.degrees)),
        "over_time": {source: _curves(one) for source, one in over.items()},
        "results": rows,
    }


def _curves(over: Over) -> Row:
    """Return the curves of hill climbing: for each unit, pairs of seconds and value."""
    return {
        curve.unit: curve.lines[0].points for figure in over_time(over) for curve in figure.curves
    }


class Terminal:
    """Where `lab/experiments/packing/report.py` writes."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen

    def heading(self, text: str) -> None:
        self._screen.print()
        self._screen.print(text, style="bold")

    def text(self, text: str) -> None:
        self._screen.print(text)

    def table(self, header: Sequence[str], rows: Iterable[Sequence[Cell]]) -> None:
        lines = [list(row) for row in rows]
        table = Table()
        for name, *cells in zip(header, *lines, strict=True):
            words = any(isinstance(one, str) for one in cells)
            width = max((len(cell(one)) for one in cells), default=0)
            table.add_column(name, justify="left" if words else "right", min_width=width)
        for line in lines:
            table.add_row(*map(cell, line))
        self._screen.print(table)

    def figure(self, figure: Figure) -> None:
        self.heading(figure.title)
        measured = [dict(curve.lines[0].points) for curve in figure.curves]
        every = max(1, -(-len(measured[0]) // POINTS_MAX))
        self.table(
            (figure.x_name, *(curve.unit for curve in figure.curves)),
            [[x, *(points[x] for points in measured)] for x in list(measured[0])[::every]],
        )
