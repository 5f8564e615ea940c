"""`antiphon audit`: opens a trace in any of its forms, has it judged, and reports."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from antiphon.errors import ConfigurationError
from antiphon.spark import session
from antiphon.spark.audit import judge
from antiphon.spark.audit.channels import judge as channels
from antiphon.spark.audit.channels.findings import PROPERTIES as CHECKED
from antiphon.spark.audit.findings import PROPERTIES, Finding
from antiphon.spark.audit.judge import Verdict
from antiphon.spark.traces import table as trace_table
from antiphon.terminal.lines import say_json
from antiphon.terminal.screen import Screen, Table

EXAMPLES_MAX = 5
"""Most examples of each property that are shown; the others are counted."""

PROOF_MAX = 12
"""Most rows of each example."""

HEAP = "2g"
BYTES_A_PART = 16 << 20
"""The bytes of a trace's files that each core sorts or groups at a time."""

PARTS_MAX = 1000
ROWS_SORTED = 1 << 18
"""Rows in memory of one operator: a task has several, and one that grows leaves no memory to the
others."""

_SHOWN = ("process", "incarnation", "seq", "kind", "message", "position", "view_id")


def run(args: argparse.Namespace) -> int:
    """Carry out `antiphon audit`, and return its exit code: 1 if there are violations."""
    report = audit_trace(Path(args.trace), args.master, args.complete)
    if args.json:
        say_json(report)
    else:
        show(report, Screen())
    return 1 if broken(report) else 0


def at_the_end(args: argparse.Namespace) -> int:
    """Audit the traces that another command has written. With `--json` the object of that command
    stays the last line."""
    report = audit_trace(Path(args.trace))
    show(report, Screen(stderr=args.json))
    return 1 if broken(report) else 0


def broken(report: dict[str, Any]) -> bool:
    return any(told["violations"] for told in report["properties"].values())


def audit_trace(path: Path, master: str | None = None, complete: bool = False) -> dict[str, Any]:
    """Return the report of `antiphon audit` about a folder of traces or a Parquet table.
    `complete`: channels had come to rest when the traces ended."""
    if not path.exists():
        raise ConfigurationError(f"there is no trace at {path}")
    session.check_readable(path)
    with Screen(stderr=True).doing("starting Spark") as doing:
        spark = session.start("antiphon audit", master, settings(path))
        try:
            doing("reading the trace")
            with _opened(spark, path) as trace:
                doing("auditing")
                if "life" in trace.columns:
                    return of_channels(channels.judge(spark, trace, complete))
                verdict = judge.judge(spark, trace)
                return _report(verdict, trace)
        finally:
            spark.stop()


def settings(path: Path) -> dict[str, str]:
    """Return Spark's settings for a trace: few partitions for a short one, since each costs a
    moment."""
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    parts = sum(file.stat().st_size for file in files) // BYTES_A_PART
    return {
        "spark.driver.memory": HEAP,
        "spark.sql.shuffle.partitions": str(min(PARTS_MAX, max(2, parts))),
        "spark.shuffle.spill.numElementsForceSpillThreshold": str(ROWS_SORTED),
        "spark.sql.windowExec.buffer.spill.threshold": str(ROWS_SORTED),
        # Results that are kept between steps go to disk before a sort has to.
        "spark.memory.storageFraction": "0.1",
    }


@contextmanager
def _opened(spark: SparkSession, path: Path) -> Iterator[DataFrame]:
    if path.is_file() or not (any(path.glob("*.trace")) or any(path.glob("*.channel"))):
        if not (path.is_file() or any(path.rglob("*.parquet"))):
            raise ConfigurationError(
                f"{path} has no files that end in .trace, .channel or .parquet"
            )
        yield session.parquet(spark, path)
        return
    kind = trace_table.kind_of(path)
    # Beside the trace, so that workers on other machines find it there, too.
    with tempfile.TemporaryDirectory(prefix=".audit-", dir=path) as folder:
        trace_table.write_all(trace_table.trace_files(path, kind), Path(folder), spark, kind)
        yield session.parquet(spark, folder)


def _report(verdict: Verdict, trace: DataFrame) -> dict[str, Any]:
    examples = {
        name: [f for f in verdict.findings if f.property == name][:EXAMPLES_MAX]
        for name in PROPERTIES
    }
    rows = _proofs(trace, [f for some in examples.values() for f in some])
    return {
        "rows": verdict.rows,
        "seconds": round(verdict.seconds, 3),
        "properties": {
            name: {
                "checked": verdict.checked[name],
                "violations": verdict.violations.get(name, 0),
                "examples": [_example(finding, rows) for finding in examples[name]],
            }
            for name in PROPERTIES
        },
    }


def of_channels(verdict: channels.Verdict) -> dict[str, Any]:
    """Return the report about channels."""
    told = {name: [f for f in verdict.findings if f.property == name] for name in CHECKED}
    return {
        "rows": verdict.rows,
        "seconds": round(verdict.seconds, 3),
        "properties": {
            name: {
                "checked": verdict.checked[name],
                "violations": len(found),
                "examples": [
                    {"text": f.text, "run": f.world.run, "group": f.world.cluster, "rows": []}
                    for f in found[:EXAMPLES_MAX]
                ],
            }
            for name, found in told.items()
        },
    }


def _example(finding: Finding, rows: list[dict[str, Any]]) -> dict[str, Any]:
    own = [row for row in rows if _proves(row, finding)]
    return {
        "text": finding.text,
        "run": finding.world.run,
        "group": finding.world.group,
        "rows": own[:PROOF_MAX],
    }


def _proofs(trace: DataFrame, findings: list[Finding]) -> list[dict[str, Any]]:
    """Return the rows of all messages and views in the findings, in their order at each process."""
    if not findings:
        return []
    messages = sorted({message for finding in findings for message in finding.messages})
    views = sorted({view for finding in findings for view in finding.views})
    runs = sorted({finding.world.run for finding in findings})
    mentioned = F.col("message").isin(messages) & (F.col("message") != "")
    of_views = (F.col("kind") == "view") & F.col("view_id").isin(views)
    of_states = (F.col("kind") == "state") & F.lit(any(f.property == "state" for f in findings))
    rows = trace.where(F.col("run").isin(runs) & (mentioned | of_views | of_states))
    ordered = rows.orderBy("run", "at", "process", "incarnation", "seq")
    return [_plain(row) for row in ordered.limit(10_000).toArrow().to_pylist()]


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row without its empty columns."""
    return {
        name: dict(value) if name == "clock" else value
        for name, value in row.items()
        if value not in (None, "", -1, [], False)
    }


def _proves(row: dict[str, Any], finding: Finding) -> bool:
    if (row["run"], row.get("group")) != (finding.world.run, finding.world.group):
        return False
    if row["kind"] == "view":
        return row.get("view_id", -1) in finding.views
    names = {member.name for member in finding.members}
    if row["kind"] == "state":
        return finding.property == "state" and row["process"] in names
    return row.get("message", "") in finding.messages


def show(report: dict[str, Any], screen: Screen) -> None:
    table = Table("property", "checked", "violations", title=_title(report))
    for name, told in report["properties"].items():
        violations = str(told["violations"]) if told["checked"] or told["violations"] else "-"
        table.add_row(name, str(told["checked"]), violations)
    screen.print(table)
    for name, told in report["properties"].items():
        for example in told["examples"]:
            where = f"(group {example['group']}, run {example['run']})"
            _say(screen, f"VIOLATION of {name}: {example['text']} {where}")
            if example["rows"]:
                screen.print(_rows_table(example["rows"]))
        if told["violations"] > len(told["examples"]):
            _say(screen, f"{told['violations'] - len(told['examples'])} more of {name}")
    if not broken(report):
        _say(screen, "all promises were kept")


def _title(report: dict[str, Any]) -> str:
    return f"{report['rows']} rows in {report['seconds']:.1f} s"


def _rows_table(rows: Iterable[dict[str, Any]]) -> Table:
    table = Table(*_SHOWN)
    for row in rows:
        table.add_row(*(str(row.get(name, "")) for name in _SHOWN))
    return table


def _say(screen: Screen, text: str) -> None:
    screen.print(text, soft_wrap=True)
