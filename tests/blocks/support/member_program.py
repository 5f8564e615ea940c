"""A program for the tests, which is a member of a group until SIGTERM.

python member_program.py count URL NAME    a replica of a counter; in the end it says its value
python member_program.py echo URL NAME     replies with what it is asked; asked for its own
                                           name, it never does
python member_program.py lock URL NAME     takes a lock again and again, and writes into the file
                                           `book` when it is in and out, and with which fence
"""

from __future__ import annotations

import signal
import sys
import threading
from typing import Any

import antiphon
from antiphon.blocks import Counter, Lock, MessageDispatcher


def say(what: str) -> None:
    print(what, flush=True)


def count(ctx: antiphon.Context, name: str, stop: threading.Event) -> None:
    with Counter(ctx, "count", name=name) as counter:
        say(f"joined with {counter.look(lambda service: service.value)}")
        stop.wait()
        say(f"leaves with {counter.value}")


def echo(ctx: antiphon.Context, name: str, stop: threading.Event) -> None:
    def handler(body: Any) -> Any:
        if body == name:
            say("hangs")
            threading.Event().wait()
        return body

    with MessageDispatcher(ctx, "echo", handler, name=name):
        say("joined")
        stop.wait()


def lock(ctx: antiphon.Context, name: str, stop: threading.Event) -> None:
    group = ctx.create_group("lock", remove_after=0.3)
    say("joined")
    with open("book", "a", buffering=1) as book:
        while not stop.is_set():
            with Lock(ctx, group) as one:
                book.write(f"in {name} {one.fence}\n")
                book.write(f"out {name} {one.fence}\n")


def main(role: str, url: str, name: str) -> None:
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    with antiphon.connect(url) as ctx:
        {"count": count, "echo": echo, "lock": lock}[role](ctx, name, stop)


if __name__ == "__main__":
    main(*sys.argv[1:])
