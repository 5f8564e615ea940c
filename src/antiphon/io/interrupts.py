"""Work in the main thread that Ctrl-C does not break off in the middle.

Python runs the handlers of signals in the main thread, between any two of its steps, and some of
them raise: `KeyboardInterrupt`, or what a program raises for SIGTERM or SIGALRM. Code that waits
can bear that, code that is half through with a change of shared state cannot.

Promise: no handler of `SIGNALS` runs during the work; those that were due run right after it, once
each, and raise there. In other threads, where no handler ever runs, nothing is done at all.
"""

from __future__ import annotations

# `signal` makes enumerations of whatever it gives and gets, which takes longer than the rest.
import _signal  # type: ignore[import-not-found]
import threading
from collections.abc import Callable
from typing import Any

SIGNALS = tuple(
    getattr(_signal, name)
    for name in ("SIGINT", "SIGTERM", "SIGALRM", "SIGHUP", "SIGUSR1", "SIGUSR2")
    if hasattr(_signal, name)
)
"""Those for which programs have handlers of their own."""

Handler = Callable[[int, Any], Any]

_known: tuple[Any, ...] = ()  # what was found to be set for these, and
_handlers: dict[int, Handler] = {}  # which of it may be called


def uninterrupted(work: Callable[[], None]) -> None:
    if threading.get_ident() != threading.main_thread().ident:
        work()
        return
    due: dict[int, Any] = {}  # signals that came, and where they would have interrupted
    handlers = _of_the_program()
    try:
        for number in handlers:
            _signal.signal(number, due.__setitem__)
        work()
    finally:
        try:
            _set(handlers)
        except BaseException:
            _set(handlers)  # a signal whose handler was back already has kept the others from it
            raise
        finally:
            _catch_up(handlers, due)


def _of_the_program() -> dict[int, Handler]:
    global _known, _handlers
    known = tuple(map(_signal.getsignal, SIGNALS))
    if known != _known:
        _known = known
        _handlers = {n: h for n, h in zip(SIGNALS, known, strict=True) if callable(h)}
    return _handlers


def _catch_up(handlers: dict[int, Handler], due: dict[int, Any]) -> None:
    if due:
        number, frame = due.popitem()
        try:
            handlers[number](number, frame)
        finally:
            _catch_up(handlers, due)  # whatever that one raised, the others are not forgotten


def _set(handlers: dict[int, Handler]) -> None:
    for number, handler in handlers.items():
        _signal.signal(number, handler)
