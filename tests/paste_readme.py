"""Paste the first screen of README.md into terminals, as a newcomer would, and watch.

    python -m tests.paste_readme      on a clean clone, in a new virtual environment

A terminal is a shell that gets the block's text. What a person does by eye, copying the URL and
choosing a process id, is done here; everything else is the page's own text.
"""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
SHELL_BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
WAIT_S = 30.0


class Terminal:
    """A shell with something pasted into it; what it prints goes to a file."""

    def __init__(self, text: str, folder: Path, environment: Mapping[str, str], name: str) -> None:
        self._output = folder / f"{name}.txt"
        with self._output.open("ab") as output:
            self._shell = subprocess.Popen(
                ["bash", "-c", text],
                cwd=folder,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # so that Ctrl-C reaches what runs in it
            )

    @property
    def lines(self) -> list[str]:
        return self._output.read_text().splitlines()

    def wait(self) -> None:
        assert self._shell.wait(WAIT_S) == 0, "\n".join(self.lines)

    def interrupt(self) -> None:
        """Ctrl-C."""
        self._signal(signal.SIGINT)
        self._shell.wait(WAIT_S)

    def close(self) -> None:
        if self._shell.poll() is None:
            self._signal(signal.SIGINT)
            try:
                self._shell.wait(WAIT_S)
            except subprocess.TimeoutExpired:
                self._signal(signal.SIGKILL)
                self._shell.wait()

    def _signal(self, number: signal.Signals) -> None:
        os.killpg(self._shell.pid, number)


class Desk:
    """The terminals of one person, in one folder."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self._folder = folder
        self.environment = dict(environment)
        self._open: list[Terminal] = []

    def paste(self, text: str, name: str) -> Terminal:
        terminal = Terminal(text, self._folder, self.environment, name)
        self._open.append(terminal)
        return terminal

    def clear(self) -> None:
        for terminal in reversed(self._open):
            terminal.close()


@contextmanager
def desk(folder: Path, environment: Mapping[str, str]) -> Iterator[Desk]:
    mine = Desk(folder, environment)
    try:
        yield mine
    finally:
        mine.clear()


def first_screen() -> tuple[str, ...]:
    """The shell blocks above the first heading below the title."""
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    return tuple(SHELL_BLOCK.findall(page.split("\n## ")[0]))


def line_with(text: str, block: str) -> str:
    return next(line for line in block.splitlines() if text in line)


def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, f"waited {WAIT_S:g} s: {what}"
        time.sleep(0.02)


def numbers(reader: Terminal) -> list[int]:
    return [int(line.split()[1]) for line in reader.lines if line.startswith("number ")]


def until_ten_more(reader: Terminal) -> None:
    enough = len(numbers(reader)) + 10
    until(lambda: len(numbers(reader)) >= enough, f"numbers appear:\n{reader.lines[-20:]}")


def watch_the_screen(mine: Desk) -> str:
    """Everything on the screen but the installation; returns what was seen."""
    start, program, roles, kill = first_screen()
    cluster = mine.paste(line_with("cluster up", start), "cluster")
    until(lambda: cluster.lines[-1:] != [] and cluster.lines[-1].startswith("antiphon://"), "a URL")
    program = program.replace("antiphon://...", cluster.lines[-1])
    mine.environment["ANTIPHON_URL"] = cluster.lines[-1]
    mine.paste(program, "editor").wait()

    reader = mine.paste(line_with("reader", roles), "reader")
    until(lambda: status(mine, kill)["subscriptions"] == 1, "the reader has subscribed")
    mine.paste(line_with("publisher", roles), "publisher")
    until_ten_more(reader)

    found = status(mine, kill)
    began = time.monotonic()
    before = len(numbers(reader))
    mine.paste(line_with("kill", kill).replace("PID", str(found["leader_pid"])), "kill").wait()
    until(lambda: len(numbers(reader)) >= before + 3, "numbers go on")
    pause = time.monotonic() - began
    assert status(mine, kill)["leader_pid"] != found["leader_pid"]
    until_ten_more(reader)

    reader.interrupt()
    reader = mine.paste(line_with("reader", roles), "reader")
    until_ten_more(reader)
    seen = numbers(reader)
    assert sorted(set(seen)) == list(range(len(set(seen)))), f"not 0, 1, 2...: {seen}"
    # A Ctrl-C between printing and acknowledging brings one again.
    assert len(seen) - len(set(seen)) <= 1, f"doubled: {seen}"
    assert seen == sorted(seen), f"out of order: {seen}"
    return f"{len(set(seen))} numbers, in order; {pause:.1f} s around the kill"


def status(mine: Desk, kill: str) -> dict[str, Any]:
    command = line_with("status", kill).split("#")[0].split()
    done = subprocess.run(
        [*command, "--json"], env=mine.environment, capture_output=True, text=True, timeout=WAIT_S
    )
    found = json.loads(done.stdout)
    pids = {node["node"]: node["pid"] for node in found["nodes"]}
    leading = [node for node in found["nodes"] if node["node"] == found["leader"]]
    subscriptions = leading[0]["counts"]["broker"]["subscriptions"] if leading else 0
    return {"leader_pid": pids.get(found["leader"]), "subscriptions": subscriptions}


def with_path(folder: Path) -> dict[str, str]:
    """An environment in which this folder's commands come first."""
    return os.environ | {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}


def main() -> int:
    with tempfile.TemporaryDirectory("-antiphon-readme") as name:
        folder = Path(name)
        subprocess.run(["git", "clone", "--quiet", ROOT, folder / "clone"], check=True)
        subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
        with desk(folder / "clone", with_path(folder / "venv" / "bin")) as mine:
            mine.paste(line_with("pip install", first_screen()[0]), "install").wait()
            print(watch_the_screen(mine))
    return 0


if __name__ == "__main__":
    sys.exit(main())
