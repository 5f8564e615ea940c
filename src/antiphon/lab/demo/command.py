"""The command `antiphon demo`: a run with servers (`run.py`) or without (`peers.py`), and then the
audit of its traces on Spark, with a report."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

from antiphon.errors import ResourceAllocationError
from antiphon.lab.demo import peers
from antiphon.lab.demo import run as servers
from antiphon.reports.charts import Mark
from antiphon.spark import session
from antiphon.terminal.lines import say, say_json

SPARK = {
    # A few thousand rows: half the time without the better compiler, and without many pieces.
    "spark.driver.defaultJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.shuffle.partitions": "1",
}


def run(args: argparse.Namespace) -> int:
    with tempfile.TemporaryDirectory("-antiphon-demo") as folder:
        found, happened = (peers.perform if args.peers else servers.perform)(Path(folder))
        if not found["violations"]:
            found |= _report(Path(folder), happened)
    if args.json:
        say_json(found)
    return int(bool(found["violations"]))


def _report(folder: Path, happened: list[Mark]) -> dict[str, Any]:
    """Return the findings of Spark's audit; without Spark, none."""
    try:
        session.require("the demo's second judge")
        say("Spark audits the traces, and draws what happened", flush=True)
        spark = session.start("antiphon demo", settings=SPARK)
    except ResourceAllocationError as error:
        say(f"no audit and no report: {error}")
        return {}
    from antiphon.lab.demo import report

    path = Path(tempfile.mkdtemp(prefix="antiphon-demo-"), "report.html")
    with spark:
        table = folder / "traces.parquet"
        verdict = report.write(spark, folder / servers.JUDGED, happened, table, path)
    for finding in verdict.findings:
        say(f"FAILED: {finding}")
    checked = [name for name, count in verdict.checked.items() if count]
    found = f"{len(verdict.findings)} violations of {', '.join(checked)}"
    say(f"all traces, {verdict.rows} rows: {found}")
    say(f"report: {path}")
    findings = [str(finding) for finding in verdict.findings]
    return {"rows": verdict.rows, "violations": findings, "report": str(path)}
