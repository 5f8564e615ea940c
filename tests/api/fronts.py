"""Both fronts behind one blocking face, so that each test of behaviour is written once.

The asyncio front runs on an event loop in a thread of its own; calls are carried over to it and
awaited there. Code that runs inside a listener is on that loop already, and gets what it would get
without us: something to await (see `attempt`).
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import antiphon
from antiphon import aio

PATIENCE_S = 20.0
"""How long a test waits for what must come."""


class Sync:
    name = "sync"

    def connect(self, *args: Any, **options: Any) -> Any:
        return antiphon.connect(*args, **options)

    def do(self, call: Callable[[], Any]) -> Any:
        return call()

    def attempt(self, call: Callable[[], Any], errors: list[Exception | None]) -> Any:
        """For listeners: call it, and note what it raised."""
        try:
            call()
        except Exception as error:
            errors.append(error)
        else:
            errors.append(None)

    def close(self) -> None:
        pass


class Aio:
    name = "aio"

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="aio-front")
        self._thread.start()
        self._tasks: dict[int, Task] = {}

    def connect(self, *args: Any, **options: Any) -> Any:
        return self.do(lambda: aio.connect(*args, **options))

    def do(self, call: Callable[[], Any]) -> Any:
        """All calls of one thread are made by one task, as in a program."""
        if threading.current_thread() is self._thread:
            return call()
        me = threading.get_ident()
        if me not in self._tasks:
            self._tasks[me] = Task(self.loop)
        return self.wrap(self._tasks[me].do(call))

    def wrap(self, value: Any) -> Any:
        if isinstance(value, aio.SendFuture):
            return WrappedFuture(self, value)
        if isinstance(value, aio.Context | aio.Consumer | aio.Producer | antiphon.Message):
            return Wrapped(self, value)
        return value

    async def attempt(self, call: Callable[[], Any], errors: list[Exception | None]) -> None:
        try:
            await call()
        except Exception as error:
            errors.append(error)
        else:
            errors.append(None)

    def close(self) -> None:
        for task in self._tasks.values():
            task.end()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


class Task:
    """Makes the calls that it is told to, one after the other."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._calls: asyncio.Queue[tuple[Callable[[], Any], Future[Any]] | None] = asyncio.Queue()
        self._work = asyncio.run_coroutine_threadsafe(self._run(), loop)

    def do(self, call: Callable[[], Any]) -> Any:
        outcome: Future[Any] = Future()
        self._loop.call_soon_threadsafe(self._calls.put_nowait, (call, outcome))
        return outcome.result()

    def end(self) -> None:
        self._loop.call_soon_threadsafe(self._calls.put_nowait, None)
        self._work.result()

    async def _run(self) -> None:
        while (job := await self._calls.get()) is not None:
            await self._make(*job)
            del job  # what comes of it belongs to the caller alone

    async def _make(self, call: Callable[[], Any], outcome: Future[Any]) -> None:
        try:
            result = call()
            outcome.set_result(await result if inspect.isawaitable(result) else result)
        except BaseException as error:
            outcome.set_exception(error)


class Wrapped:
    """An object of the asyncio front, whose methods block."""

    def __init__(self, front: Aio, wrapped: Any) -> None:
        vars(self).update(front=front, wrapped=wrapped)

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self.wrapped, name)
        if not inspect.ismethod(attribute):
            return attribute

        def call(*args: Any, **options: Any) -> Any:
            return self.front.do(lambda: attribute(*map(_unwrapped, args), **options))

        return call

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.wrapped, name, value)

    def __iter__(self) -> Iterator[Any]:
        messages = self.wrapped.__aiter__()
        while True:
            try:
                yield self.front.do(messages.__anext__)
            except StopAsyncIteration:
                return

    def __enter__(self) -> Any:
        return self.front.do(self.wrapped.__aenter__)

    def __exit__(self, *error: Any) -> None:
        self.front.do(lambda: self.wrapped.__aexit__(*error))


class WrappedFuture:
    def __init__(self, front: Aio, future: aio.SendFuture) -> None:
        self._front = front
        self._future = future

    def done(self) -> bool:
        return self._future.done()

    def result(self, timeout: float | None = None) -> None:
        async def wait() -> None:
            await asyncio.wait_for(self._wait(), timeout)

        self._front.do(wait)

    async def _wait(self) -> None:
        await self._future

    def exception(self, timeout: float | None = None) -> Exception | None:
        try:
            self.result(timeout)
        except antiphon.JMSError:
            return self._future.exception()
        return None

    def add_done_callback(self, callback: Callable[[Any], object]) -> None:
        async def add() -> None:
            self._future.add_done_callback(callback)

        self._front.do(add)


def _unwrapped(value: Any) -> Any:
    return value.wrapped if isinstance(value, Wrapped) else value
