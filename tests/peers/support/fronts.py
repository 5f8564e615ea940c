"""The asyncio front of channels behind the names of the blocking one, so that each test of a
channel is one of both fronts."""

import asyncio
import inspect
import threading
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, Self

from antiphon.peers import aio

PATIENCE_S = 60


@cache
def _loop() -> asyncio.AbstractEventLoop:
    """Return the event loop of the program that the tests play."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()
    return loop


def _on_loop(call: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    async def awaited() -> Any:
        outcome = call(*arguments, **options)
        return await outcome if inspect.isawaitable(outcome) else outcome

    return asyncio.run_coroutine_threadsafe(awaited(), _loop()).result(PATIENCE_S)


class AwaitedChannel:
    """A channel of asyncio, each call of which is awaited on the loop of its program."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._channel = aio.Channel(*arguments, **options)

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._channel, name)
        if not callable(attribute):
            return attribute
        return lambda *arguments, **options: _on_loop(attribute, *arguments, **options)

    def __iter__(self) -> Iterator[Any]:
        messages = aiter(self._channel)
        try:
            while True:
                yield _on_loop(anext, messages)
        except StopAsyncIteration:
            return
        finally:
            _on_loop(messages.aclose)  # type: ignore[attr-defined]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        _on_loop(self._channel.close)
