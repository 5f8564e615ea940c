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
    """Take the steps of a script one after the other, and return what it returns. An awaitable that
    a step returns is awaited; that this task is cancelled meanwhile is thrown into the script."""
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
    """Return what a function of the program returns, at last if it is `async def`. That something
    it waited for was cancelled is an error like others, unless this task is cancelled."""
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
    """Leave the block when the time is over; what follows it says what that means."""
    limit = asyncio.timeout(durations.timeout("a timeout", seconds))
    try:
        async with limit:
            yield
    except TimeoutError:
        if not limit.expired():
            raise  # it is the block's own
