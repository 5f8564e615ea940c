"""The services that a front offers to operations: waiting, locks, tasks, and ports. There are two
fronts.

Methods that wait do so when they are called (threads), or return an awaitable (asyncio); scripts
yield them as steps.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any, Protocol

import antiphon
from antiphon.blocks.pure.port import CallerPort, Port
from antiphon.blocks.pure.scripts import Script
from antiphon.model import durations


class Deadline:
    """The time that is left of a limit; with None or infinity there is no limit. Raise `TypeError`
    or `ValueError` for any other wrong limit."""

    def __init__(self, seconds: float | None) -> None:
        limit = durations.timeout("a timeout", seconds)
        self._end = None if limit is None else time.monotonic() + limit

    def left(self) -> float | None:
        """Return the seconds that are left; None: there is no limit."""
        return None if self._end is None else max(0.0, self._end - time.monotonic())


class Watch(AbstractContextManager[Any], Protocol):
    """Guards a value that changes, as a condition does: code that reads or changes it enters this
    guard. With asyncio no other task runs between two steps, and entering does nothing."""

    def notify(self) -> None:
        """Have all waiting calls look again. Call it inside."""

    def until(self, what: Callable[[], object], deadline: Deadline) -> Any:
        """Wait until a function returns a true value, or the time is over. Call it outside."""


class Pending(Protocol):
    """A value that comes later, once; several calls may wait for it."""

    value: Any

    def set(self, value: Any) -> None:
        """Set the value; only the first one counts."""

    def wake(self) -> None:
        """Note that the value will not come any more."""

    def wait(self, is_over: Callable[[], object], deadline: Deadline) -> Any:
        """Wait, and return whether the value has come; False if it will not come any more,
        `is_over` returns a true value, or the time is over."""


class Lock(Protocol):
    """Held by one script at a time."""

    def acquire(self) -> Any:
        """Wait until it is held."""

    def release(self) -> None: ...


class Workers(Protocol):
    """Runs scripts in the background, those with the same name one after the other."""

    @property
    def stopped(self) -> bool: ...

    def start(self, name: str, script: Script[None]) -> None: ...

    def pause(self, seconds: float) -> Any:
        """Wait for this time; return whether `stop` was called meanwhile."""

    def hold(self, seconds: float) -> bool:
        """Do the same as `pause`, in a thread of `work`."""

    def stop(self) -> None:
        """Begin no more scripts."""

    def shut(self) -> None:
        """Give up the scripts that wait."""


class Front(Protocol):
    """One way of waiting."""

    def run(self, script: Script[Any]) -> Any:
        """Return the outcome of a script, or an awaitable for it."""

    def program(self, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Return a function of the program as one that can be a step: with asyncio it may be
        `async def`."""

    def work(self, function: Callable[..., Any], *args: Any) -> Any:
        """Call a function that may block for long; asyncio does so in a thread."""

    def owner(self) -> object:
        """Return the thread or task that runs the caller."""

    def watch(self) -> Watch: ...

    def pending(self) -> Pending: ...

    def lock(self) -> Lock: ...

    def workers(self, names: Iterable[str]) -> Workers: ...

    def port(self, ctx: Any, group: antiphon.Topic | str, name: str | None, durable: bool) -> Port:
        """Return the port of a new member of a group, to be opened."""

    def caller_port(self, ctx: Any, group: antiphon.Topic | str) -> CallerPort:
        """Return an address for the replies of a group, to be opened."""
