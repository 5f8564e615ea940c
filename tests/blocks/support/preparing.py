"""A program that takes two seats at once, says how that went, and waits to be killed.

    python preparing.py CONNINFO ID FLIGHT [stop]

With `stop` it stops itself (SIGSTOP) between the two seats, as if it were very slow.
"""

import os
import signal
import sys
from collections.abc import Iterator
from typing import Any

from antiphon.blocks.targets.postgres import PostgresTarget, Statement
from antiphon.errors import JMSError

TAKE = "UPDATE flights SET seats = seats - 1 WHERE number = %s"


def seats(flight: str, stop: bool) -> Iterator[Statement]:
    yield TAKE, (flight,)
    if stop:
        os.kill(os.getpid(), signal.SIGSTOP)
    yield TAKE, (flight,)


def main(conninfo: str, request_id: str, flight: str, *stop: str) -> None:
    statements: Any = seats(flight, bool(stop))
    target = PostgresTarget(conninfo, lock_timeout=30, idle_timeout=1.5 if stop else 30)
    try:
        target.prepare(request_id, statements)
        print("prepared", flush=True)
    except JMSError as error:
        print(type(error).__name__, error.happened, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
