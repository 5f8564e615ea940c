"""A program for the tests of `eternal`.

python ledger_program.py manager URL NAME       one replica of the manager, until it is killed
python ledger_program.py location URL NAME      a factory of ledgers, until it is killed
python ledger_program.py ledger ORDER           a member, as a factory starts it; it writes its
                                                process's number into a file of its name
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import antiphon
from antiphon.toolkits import eternal


class Ledger:
    """Keeps marks."""

    def __init__(self) -> None:
        self._marks: list[int] = []

    def add(self, mark: int) -> int:
        if mark < 0:
            raise ValueError("a mark is not negative")
        self._marks.append(mark)
        return len(self._marks)

    def marks(self) -> list[int]:
        return list(self._marks)

    def get_state(self) -> bytes:
        return json.dumps(self._marks).encode()

    def set_state(self, state: bytes) -> None:
        self._marks = json.loads(state)


def make(folder: str, fails_at: str = "") -> Ledger:
    _, _, member, *_ = json.loads(sys.argv[-1])["order"]
    if fails_at and Path(folder, fails_at).exists():
        sys.exit("it cannot start here")
    Path(folder, member).write_text(str(os.getpid()))
    return Ledger()


def main(role: str, *arguments: str) -> None:
    if role == "ledger":
        eternal.serve(make, arguments[-1])
    elif role == "location":
        url, name = arguments
        command = [sys.executable, __file__, "ledger"]
        with eternal.Factory(url, name, {"ledger": command}) as factory:
            print("ready", flush=True)
            factory.wait()
    else:
        url, name = arguments
        with antiphon.connect(url) as ctx, eternal.ReplicationManager(ctx, name):
            print("ready", flush=True)
            sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
