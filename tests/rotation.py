"""Which of the tests marked `in_turn` a run leaves out: two thirds of them, with `--turn`.

Promise: the choice depends on the commit alone, every test comes in one of any three commits in a
row, and a run says which turn it took and how to repeat it. Without `--turn` nothing is left out.
"""

from __future__ import annotations

import subprocess
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TURNS = 3
RECENT_COMMITS = 20
CHOICES = ["auto", "all", *map(str, range(TURNS))]


def turn_of_commit(root: Path = ROOT) -> int:
    """Return the number of commits up to this one, modulo `TURNS`.

    Where it cannot be known (no git, or a shallow clone), the sources decide instead.
    """
    count = _git(root, "rev-list", "--count", "HEAD")
    shallow = _git(root, "rev-parse", "--is-shallow-repository")
    if count and shallow[0] == "false":
        return int(count[0]) % TURNS
    return _checksum(sorted((root / "src").rglob("*.py"))) % TURNS


def recent_files(root: Path = ROOT, commits: int = RECENT_COMMITS) -> list[str]:
    """Return what the last commits touched, the latest first; nothing without git."""
    lines = _git(root, "log", f"-{commits}", "--name-only", "--format=", "HEAD")
    return list(dict.fromkeys(line for line in lines if line))


def turn_of(item: pytest.Item, mark: pytest.Mark) -> int:
    """Return the turn that runs this test: the one that its mark names, or one by its name."""
    turn: int = mark.args[0] if mark.args else zlib.crc32(item.nodeid.encode())
    return turn % TURNS


def choose(
    items: Iterable[pytest.Item], turn: int
) -> tuple[list[pytest.Item], list[pytest.Item], int]:
    """Return the tests to run, those to leave out, and how many of the first are in turn."""
    run: list[pytest.Item] = []
    left: list[pytest.Item] = []
    due = 0
    for item in items:
        mark = item.get_closest_marker("in_turn")
        if mark is None:
            run.append(item)
        elif turn_of(item, mark) == turn:
            run.append(item)
            due += 1
        else:
            left.append(item)
    return run, left, due


def _git(root: Path, *arguments: str) -> list[str]:
    """Return the lines that git prints, none if this is not a clone or there is no git."""
    command = ["git", "-C", str(root), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return []
    return done.stdout.splitlines()


def _checksum(paths: Iterable[Path]) -> int:
    value = 0
    for path in paths:
        value = zlib.crc32(path.read_bytes(), value)
    return value


# -- The plugin ------------------------------------------------------------------------------------


class Rotation:
    """The hooks, for a run with one turn."""

    def __init__(self, turn: int) -> None:
        self.turn = turn
        self.due = 0
        self.marked = 0

    @pytest.hookimpl(trylast=True)  # of what `-m` and `-k` leave
    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        run, left, self.due = choose(items, self.turn)
        self.marked = self.due + len(left)
        items[:] = run
        if left:
            config.hook.pytest_deselected(items=left)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionstart(self, session: pytest.Session) -> Iterator[None]:
        yield
        terminal = session.config.pluginmanager.getplugin("terminalreporter")
        if terminal is not None and not hasattr(session.config, "workerinput"):
            terminal.write_line(
                f"turn {self.turn} of 0 to {TURNS - 1}: --turn={self.turn} (make: TURN="
                f"{self.turn}) repeats this choice of tests, all leaves out nothing"
            )

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput["in_turn"] = self.due, self.marked
        elif self.marked and not self.due:
            session.exitstatus = pytest.ExitCode.USAGE_ERROR

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: object) -> None:
        """A worker of xdist, which collected the tests, has ended."""
        self.due, self.marked = getattr(node, "workeroutput", {}).get("in_turn", (0, 0))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self.marked:
            terminalreporter.write_line(
                f"turn {self.turn}: {self.due} of {self.marked} tests that take turns"
            )
            if not self.due:
                terminalreporter.write_line("ERROR: a run of none proves nothing; try --turn=all")


def add_option(parser: pytest.Parser) -> None:
    parser.addoption(
        "--turn",
        choices=CHOICES,
        default="all",
        help="leave out two thirds of the tests marked in_turn; auto: which ones, the commit says",
    )


def configure(config: pytest.Config) -> None:
    turn = config.getoption("--turn")
    if turn != "all":
        number = turn_of_commit() if turn == "auto" else int(turn)
        config.pluginmanager.register(Rotation(number), "rotation")
