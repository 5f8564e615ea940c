"""Scripts, run without waiting and on an event loop: errors are thrown into them."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from antiphon.blocks.aio import running
from antiphon.blocks.pure import scripts
from antiphon.blocks.pure.scripts import Script

RUNNERS = [scripts.run, lambda script: asyncio.run(running.run(script))]
runners = pytest.mark.parametrize("run", RUNNERS, ids=["threads", "asyncio"])
Run = Callable[[Script[Any]], Any]


def fails() -> None:
    raise ValueError("no")


@runners
def test_a_step_is_called_and_the_script_gets_what_it_returns(run: Run) -> None:
    def script() -> Script[int]:
        first = yield partial(int, "20")
        second = yield lambda: first + 1
        return int(second * 2)

    assert run(script()) == 42


@runners
def test_the_error_of_a_step_is_raised_in_the_script_which_may_go_on(run: Run) -> None:
    def script() -> Script[str]:
        try:
            yield fails
        except ValueError as error:
            undone = yield lambda: "undone"
            return f"{error}: {undone}"
        raise AssertionError

    assert run(script()) == "no: undone"


@runners
def test_an_error_that_the_script_does_not_catch_is_the_runs(run: Run) -> None:
    ends: list[str] = []

    def script() -> Script[None]:
        try:
            yield fails
        finally:
            ends.append((yield lambda: "ended"))

    with pytest.raises(ValueError, match="no"):
        run(script())
    assert ends == ["ended"]


def test_with_asyncio_what_a_step_returns_is_awaited_and_cancelling_is_an_error() -> None:
    ends: list[str] = []

    async def late(value: str) -> str:
        await asyncio.sleep(0)
        return value

    def script() -> Script[None]:
        ends.append((yield partial(late, "begun")))
        try:
            yield asyncio.Event().wait
        finally:
            ends.append((yield partial(late, "undone")))

    async def program() -> None:
        task = asyncio.ensure_future(running.run(script()))
        while not ends:  # noqa: ASYNC110
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert task.cancelled()

    asyncio.run(program())
    assert ends == ["begun", "undone"]
