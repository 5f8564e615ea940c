"""Waiting with asyncio: a step may return an awaitable, and everything runs on one event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Generator, Iterable
from functools import partial
from typing import Any, Self, cast

from antiphon.blocks.aio.ports import MemberPort, ReplyPort
from antiphon.blocks.aio.running import outcome_of, run
from antiphon.blocks.operations.front import Deadline, Front
from antiphon.blocks.operations.opened import Opened
from antiphon.blocks.pure.scripts import Script


class Watch:
    """A guard without a lock: no other task runs between two steps."""

    def __init__(self) -> None:
        self._changed = asyncio.Event()

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: object) -> None:
        pass

    def notify(self) -> None:
        self._changed.set()
        self._changed.clear()

    async def until(self, what: Callable[[], object], deadline: Deadline) -> None:
        limit = asyncio.timeout(deadline.left())
        try:
            async with limit:
                while not what():
                    await self._changed.wait()
        except TimeoutError:
            if not limit.expired():
                raise  # it is of the function


class Pending:
    """A value that another task sets."""

    def __init__(self) -> None:
        self.value: Any = None
        self._is_set = False
        self._event = asyncio.Event()

    def set(self, value: Any) -> None:
        if not self._is_set:
            self.value, self._is_set = value, True
            self._event.set()

    def wake(self) -> None:
        self._event.set()

    async def wait(self, is_over: Callable[[], object], deadline: Deadline) -> bool:
        if not self._is_set and not is_over():
            try:
                async with asyncio.timeout(deadline.left()):
                    await self._event.wait()
            except TimeoutError:
                pass
        return self._is_set


class Workers:
    """Tasks, of which one that waits holds up no other, even one of the same name."""

    def __init__(self, names: Iterable[str]) -> None:
        self._closing = threading.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def stopped(self) -> bool:
        return self._closing.is_set()

    def start(self, name: str, script: Script[None]) -> None:
        task = asyncio.get_running_loop().create_task(run(script))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def pause(self, seconds: float) -> bool:
        await asyncio.sleep(seconds)
        return self.stopped

    def hold(self, seconds: float) -> bool:
        return self._closing.wait(seconds)

    def stop(self) -> None:
        self._closing.set()

    def shut(self) -> None:
        for task in self._tasks:
            task.cancel()


class _Tasks:
    run = staticmethod(run)
    owner = staticmethod(asyncio.current_task)
    watch = Watch
    pending = Pending
    lock = asyncio.Lock
    workers = Workers
    port = MemberPort
    caller_port = ReplyPort

    def program(self, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        return partial(outcome_of, function)

    def work(self, function: Callable[..., Any], *args: Any) -> Any:
        return asyncio.to_thread(function, *args)


FRONT: Front = cast(Front, _Tasks())


class Awaited(Opened):
    """A block that the program awaits or enters to open it, and that the end of its `async with`
    block closes. It is opened once: awaiting it again returns it as it is."""

    _front = FRONT
    _begun = False

    def __await__(self) -> Generator[Any, Any, Self]:
        return self._opened().__await__()

    async def __aenter__(self) -> Self:
        return await self._opened()

    async def _opened(self) -> Self:
        if not self._begun:
            self._begun = True
            await run(self._opening())
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()
