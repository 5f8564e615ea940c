"""Running scripts and functions of the program on an event loop."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar, cast

from antiphon.blocks.pure.scripts import Script
from antiphon.model import durations

Outcome = TypeVar("Outcome")


async def run(script: Script[Outcome]) -> Outcome:
    """Take the steps of a script one after the other, and return what it returns. Await awaitables
    that steps return; if this task is cancelled meanwhile, throw that into the script."""
    try:
        step = next(script)
        while True:
            try:
                outcome = step()
                if inspect.isawaitable(outcome):
                    outcome = await outcome
            except BaseException as error:
                step = script.throw(error)
            else:
                step = script.send(outcome)
    except StopIteration as end:
        return cast(Outcome, end.value)


async def outcome_of(function: Callable[[Any], Any], *arguments: Any) -> Any:
    """Return the result of a function of the program, which may be `async def`. If an awaitable in
    it was cancelled, but not this task, raise that as an ordinary error."""
    try:
        result = function(*arguments)
        return await result if inspect.isawaitable(result) else result
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        raise RuntimeError("what it waited for was cancelled") from error


@asynccontextmanager
async def at_most(seconds: float | None) -> AsyncIterator[None]:
    """Leave the `async with` block when the time is over, without an error: the code behind it
    decides what that means."""
    limit = asyncio.timeout(durations.timeout("a timeout", seconds))
    try:
        async with limit:
            yield
    except TimeoutError:
        if not limit.expired():
            raise  # a timeout of the block's own code
