"""For pytest: `--antiphon-seed=SEED` makes `simulate` run that seed alone, and the summary of a run
names the seed with which a test failed.

Every run of pytest loads it where Antiphon is installed, so it imports nothing of Antiphon.
"""

from __future__ import annotations

import re
import sys
from typing import Any

_FAILED = re.compile(r"AssertionError: seed (-?\d+) fails: ")


def pytest_addoption(parser: Any) -> None:
    """Add the option `--antiphon-seed`, which may be given more than once."""
    parser.getgroup("antiphon").addoption(
        "--antiphon-seed",
        type=int,
        action="append",
        metavar="SEED",
        help="the seed that antiphon.sim.simulate runs instead of those that a test names",
    )


def pytest_configure(config: Any) -> None:
    """Have `simulate` run the seeds of the option, if there are any."""
    seeds = config.getoption("--antiphon-seed")
    if seeds:
        from antiphon.sim.services import simulate as services

        services.replayed[:] = seeds


def pytest_unconfigure() -> None:
    """Have `simulate` run the seeds of the tests again."""
    services = sys.modules.get("antiphon.sim.services.simulate")
    if services is not None:
        services.replayed.clear()


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Write, for each failed test that `simulate` ended, the command that replays its seed."""
    for report in terminalreporter.getreports("failed"):
        if found := _FAILED.search(str(report.longrepr)):
            seed = found.group(1)
            terminalreporter.write_line(
                f"antiphon: pytest --antiphon-seed={seed} {report.nodeid!r} replays it"
            )
