"""Commands that need the extra `spark`: without it they say what to install."""

from __future__ import annotations

import argparse
from pathlib import Path

from antiphon.spark import session


def audit(args: argparse.Namespace) -> int:
    session.require("antiphon audit")
    from antiphon.spark import audit_report

    return audit_report.run(args)


def to_parquet(args: argparse.Namespace) -> int:
    session.require("antiphon trace to-parquet")
    from antiphon.spark import trace_table

    return trace_table.run(args)


def audit_at_the_end(folder: str, what: str) -> bool:
    """For commands that have written traces, with `--audit`: whether all promises were kept."""
    session.require(f"{what} --audit")
    from antiphon.spark import audit_report

    report = audit_report.audit_trace(Path(folder))
    audit_report.show(report)
    return not audit_report.broken(report)
