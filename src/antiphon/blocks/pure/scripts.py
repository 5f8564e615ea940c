"""Scripts: operations of blocks that wait, written once for both fronts.

A script is a generator that yields *steps*: functions without arguments. The front calls the step
and sends the outcome back into the script, or throws the step's error into it: with threads a step
blocks until it has its outcome (`run`), with asyncio it may return an awaitable, for whose outcome
the front waits (`blocks/aio/front.py: run`). So

    sent = yield partial(port.cast, body)

is a call with threads and an `await` with asyncio. An error that ends a wait (`KeyboardInterrupt`,
a cancelled task) is thrown into the script like any other, so its `except` and `finally` run, and
may wait, too.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, TypeAlias, TypeVar, cast

Outcome = TypeVar("Outcome")

Step: TypeAlias = Callable[[], Any]
Script: TypeAlias = Generator[Step, Any, Outcome]


def run(script: Script[Outcome]) -> Outcome:
    """Take the steps of a script one after the other, here and now, and return what it returns."""
    try:
        step = next(script)
        while True:
            try:
                outcome = step()
            except BaseException as error:
                step = script.throw(error)
            else:
                step = script.send(outcome)
    except StopIteration as end:
        return cast(Outcome, end.value)
