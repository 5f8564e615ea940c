"""Planted bugs: each must be caught, or a test is missing.

`python -m tests.mutants.run` tries every mutant and prints what caught it. A mutant is a file in
this folder:

    # what is broken, in a sentence
    file: log/quorum.py
    caught by: sim                     (or `sim programs`, `sim log` and so on, or tests)
    ---- the text to replace, which must stand in the file exactly once
    ...
    ---- what stands there instead
    ...
    ----

It is applied to a copy of the source; one that no longer applies is an error. `sim` simulates
seeds, from a fixed one on, until one fails; with `programs`, `groups`, `local` or `log` only those
with programs, with groups, with local contexts, or without programs; with `peers` it simulates
channels, and with `peer-logs` the servers on them; with `from N` behind that it begins with seed N,
where it was found before: only to be done sooner. Tests are named as pytest
takes them.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
SOURCE = ROOT / "src"
FIRST_SEED = 1
SEEDS_MAX = 4000
SECONDS_MAX = 600
# Without the warning that plugins are loaded already, which would be an error, and a find.
PYTEST = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
PYTEST += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]

FOUND = 42
"""How a hunt ends that has found something."""


class Mutant(NamedTuple):
    name: str
    claim: str
    file: str
    caught_by: str
    old: str
    new: str


class Verdict(NamedTuple):
    mutant: Mutant
    caught: bool
    how: str
    seconds: float


def load(path: Path) -> Mutant:
    head, old, new, rest = re.split(r"^----.*\n", path.read_text(), flags=re.MULTILINE)
    assert not rest.strip(), f"{path.name}: something stands after the last ----"
    lines = head.splitlines()
    claim = " ".join(line.lstrip("# ") for line in lines if line.startswith("#"))
    fields = dict(line.split(": ", 1) for line in lines if ": " in line and line[0] != "#")
    old, new = old.removesuffix("\n"), new.removesuffix("\n")
    return Mutant(path.stem, claim, fields["file"], fields["caught by"], old, new)


def load_all() -> list[Mutant]:
    return [load(path) for path in sorted(HERE.glob("*.mutant"))]


@contextmanager
def planted(mutant: Mutant) -> Iterator[Path]:
    """The source with the bug in it: links to all files but the one that has it."""
    with tempfile.TemporaryDirectory(prefix=f"mutant-{mutant.name}-") as folder:
        copy = Path(folder) / "src"
        source, target = SOURCE, copy
        for part in Path("antiphon", mutant.file).parts:
            link_all_but(part, source, target)
            source, target = source / part, target / part
        target.write_text(changed(mutant))
        yield copy


def changed(mutant: Mutant) -> str:
    """The file with the bug in it."""
    text = (SOURCE / "antiphon" / mutant.file).read_text()
    times = text.count(mutant.old)
    if times != 1:
        raise ValueError(
            f"{mutant.name} does not apply: its text stands {times} times in {mutant.file}"
        )
    return text.replace(mutant.old, mutant.new)


def link_all_but(name: str, source: Path, target: Path) -> None:
    """With the byte code of what is linked, so that it need not be compiled again."""
    target.mkdir()
    for entry in source.iterdir():
        if entry.name == "__pycache__":
            link_all_but(name, entry, target / entry.name)
        elif entry.name != name and not entry.name.startswith(Path(name).stem + "."):
            (target / entry.name).symlink_to(entry)


class Runner:
    """A process that has loaded what all runs need (`warm.py`), and runs one after the other. A run
    that is given up ends it, and leaves nothing behind: neither what it ran, nor an open pipe."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / "warm.py")],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # so that what it runs is killed with it
        )

    def run(self, source: Path, script: str, arguments: list[str]) -> tuple[int, str]:
        """The exit code, and what was printed."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with tempfile.NamedTemporaryFile("r") as output:
            request = {"source": str(source), "script": script, "arguments": arguments}
            self._process.stdin.write(json.dumps(request | {"output": output.name}) + "\n")
            self._process.stdin.flush()
            timer = threading.Timer(SECONDS_MAX, self.kill)
            timer.start()
            answer = ""
            try:
                answer = self._process.stdout.readline()
            finally:
                timer.cancel()
                if not answer:  # otherwise the next one would get this one's answer
                    self._end()
            return int(answer or -9), output.read()

    def kill(self) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)

    def _end(self) -> None:
        if getattr(_own, "runner", None) is self:
            del _own.runner
        with self._process:  # which closes its pipes, and waits for it
            self.kill()


_own = threading.local()


def runner() -> Runner:
    """This thread's."""
    if not hasattr(_own, "runner"):
        _own.runner = Runner()
    one: Runner = _own.runner
    return one


def hunt(mutant: Mutant, seeds: int) -> Verdict:
    started = time.monotonic()
    sim, *which = mutant.caught_by.split()
    with planted(mutant) as source:
        if sim == "sim":
            first = int(which.pop()) if "from" in which else FIRST_SEED
            arguments = [str(first), str(seeds), *(word for word in which if word != "from")]
            code, text = runner().run(source, str(HERE / "hunt.py"), arguments)
        else:
            code, text = runner().run(source, "", [*PYTEST, sim, *which])
    failure = FOUND if sim == "sim" else 1
    lines = [line for line in text.splitlines() if line.strip()]
    failed = [line for line in lines if line.startswith("FAILED")]
    how = failed[0] if failed else (lines or ["no output"])[-1]
    if code not in (0, failure):
        how = f"exit {code}: {text[-300:]}"
    return Verdict(mutant, code == failure, how, time.monotonic() - started)


def main() -> int:
    parser = argparse.ArgumentParser(description="Show that every planted bug is caught.")
    parser.add_argument("names", nargs="*", help="mutants to try; all without any")
    parser.add_argument("--seeds", type=int, default=SEEDS_MAX)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    args = parser.parse_args()
    mutants = [m for m in load_all() if not args.names or m.name in args.names]
    survivors = []
    with ThreadPoolExecutor(args.jobs) as pool:
        for verdict in pool.map(lambda m: hunt(m, args.seeds), mutants):
            word = "caught" if verdict.caught else "SURVIVES"
            how = verdict.how[:150]
            print(f"{word:9} {verdict.mutant.name:34} {verdict.seconds:5.1f} s  {how}", flush=True)
            if not verdict.caught:
                survivors.append(verdict.mutant.name)
    print(f"{len(mutants) - len(survivors)} of {len(mutants)} mutants caught")
    if survivors:
        print("a test is missing for: " + ", ".join(survivors))
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
