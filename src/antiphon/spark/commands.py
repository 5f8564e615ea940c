"""Commands that need the extra `spark`: without it they say what to install."""

from __future__ import annotations

import argparse
from pathlib import Path

from rich.console import Console

from antiphon.spark import session


def audit(args: argparse.Namespace) -> int:
    session.require("antiphon audit")
    from antiphon.spark import audit_report

    return audit_report.run(args)


def to_parquet(args: argparse.Namespace) -> int:
    session.require("antiphon trace to-parquet")
    from antiphon.spark import trace_table

    return trace_table.run(args)


def audit_at_the_end(args: argparse.Namespace) -> int:
    """Of commands that have written traces. With `--json` their own object stays the last line."""
    session.require("--audit")
    from antiphon.spark import audit_report

    report = audit_report.audit_trace(Path(args.trace))
    audit_report.show(report, Console(stderr=args.json))
    return 1 if audit_report.broken(report) else 0
