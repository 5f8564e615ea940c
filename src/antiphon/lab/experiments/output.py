"""The files of an experiment: raw events and results as Parquet, results as JSON, each chart as
SVG, and one report with all of it."""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from antiphon.errors import IllegalStateError
from antiphon.lab.experiments.evaluation import Row
from antiphon.reports.charts import Line, line_chart
from antiphon.reports.html import Report, machine


class Output:
    """The folder of one experiment, and its report."""

    def __init__(self, folder: str, title: str) -> None:
        self.folder = Path(folder).absolute()  # a relative one may look like a URI
        self.raw = self.folder / "raw"
        if self.raw.exists():
            raise IllegalStateError(f"{self.raw} is there already: name another folder with --out")
        self.raw.mkdir(parents=True)
        self.report = Report(title)
        self._began = datetime.now(UTC)
        self._load = os.getloadavg()[0]

    def setting(self, sentence: str) -> None:
        """Write how it was measured: a sentence, and those that apply to all experiments."""
        self.report.text(sentence)
        self.report.text(
            "All processes run on one machine, share its cores, and read one clock "
            "(`time.monotonic`), so times of different processes can be compared. They note events "
            "in memory while they work; the notes became the trace table in `raw/`, from which "
            "Spark computed the figures."
        )
        self.report.text(
            f"{machine()}. Measured {self._began:%Y-%m-%d %H:%M} UTC with `{command()}`; the load "
            f"of one minute was {self._load:.1f} before it and {os.getloadavg()[0]:.1f} after it. "
            "Other load on the machine moves all figures, so compare those of one report only."
        )

    def chart(self, title: str, x_name: str, y_name: str, lines: Sequence[Line]) -> None:
        svg = line_chart(title, x_name, y_name, [line for line in lines if line.points])
        name = re.sub(r"\W+", "-", title.lower(), flags=re.ASCII).strip("-")
        (self.folder / f"{name}.svg").write_text(svg, encoding="utf-8")
        self.report.chart(svg)

    def finish(self, rows: Sequence[Row]) -> Path:
        """Write the files; return the path of the report."""
        pq.write_table(pa.Table.from_pylist(list(rows)), self.folder / "results.parquet")
        text = json.dumps({"machine": machine(), "results": rows}, indent=1)
        (self.folder / "results.json").write_text(text + "\n", encoding="utf-8")
        path = self.folder / "report.html"
        self.report.write(path)
        return path


def command() -> str:
    return shlex.join(["antiphon", *sys.argv[1:]])
