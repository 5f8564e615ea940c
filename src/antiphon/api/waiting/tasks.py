"""How the asyncio front waits, and the tasks in which its listeners run."""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import Awaitable, Callable, Generator
from functools import partial
from typing import Any, cast

from antiphon.api.connection import logger
from antiphon.api.operations.consumer import ConsumerCore
from antiphon.api.operations.context import ContextCore
from antiphon.api.operations.front import LISTENER_TURN, Job
from antiphon.api.operations.scripts import Outcome, Script
from antiphon.api.protocol.ticket import Ticket
from antiphon.errors import JMSError


async def wait(ticket: Ticket, timeout: float | None) -> bool:  # noqa: ASYNC109
    """Wait until the ticket is settled. Return False if it is not after `timeout` seconds."""
    if ticket.done:
        return True
    loop = asyncio.get_running_loop()
    future: asyncio.Future[bool] = loop.create_future()
    ticket.watch(partial(_resolve, future, True))
    timer = None if timeout is None else loop.call_later(timeout, _resolve, future, False)
    try:
        return await future
    finally:
        if timer is not None:
            timer.cancel()


def _resolve(future: asyncio.Future[bool], outcome: bool) -> None:
    if not future.done():
        future.set_result(outcome)


async def run(script: Script[Outcome]) -> Outcome:
    """Run a script, awaiting where it pauses, and return what it returns."""
    try:
        pause = next(script)
        while True:
            pause = script.send(await wait(*pause))
    except StopIteration as end:
        return cast(Outcome, end.value)
    finally:
        script.close()


class Tasks:
    """The asyncio front of one context."""

    def __init__(self, context: ContextCore) -> None:
        self._context = context
        self._worker = Worker()
        self._pools: list[WorkerPool] = []

    run = staticmethod(run)

    def run_at_once(self, script: Script[None]) -> Awaitable[None]:
        return RunningAlready(script, self._context.complain)

    def caller(self) -> object:
        return asyncio.current_task()

    def inside_listener(self) -> bool:
        return self._worker.is_caller or any(pool.is_caller for pool in self._pools)

    def schedule(self, consumer: ConsumerCore) -> None:
        self._worker.submit(partial(_serve, consumer))

    def call_soon(self, what: Callable[[Any], Any], argument: Any) -> None:
        self._worker.submit(partial(_call, what, argument))

    def new_pool(self, workers: int) -> WorkerPool:
        pool = WorkerPool()
        self._pools.append(pool)
        return pool

    def end(self) -> None:
        self._worker.end()


class RunningAlready:
    """A script that was begun before the program awaits it, so that it runs even if the program
    never does; then its error goes to `complain`."""

    def __init__(self, script: Script[None], complain: Callable[[JMSError], None]) -> None:
        self._complain = complain
        self._awaited = False
        self._task = asyncio.ensure_future(run(script))
        self._task.add_done_callback(self._done)

    def __await__(self) -> Generator[Any, Any, None]:
        self._awaited = True
        return self._task.__await__()

    def _done(self, task: asyncio.Task[None]) -> None:
        error = None if self._awaited or task.cancelled() else task.exception()
        if error is not None:
            self._complain(cast(JMSError, error))


class Worker:
    """The one task at a time in which the listeners of a context run."""

    def __init__(self) -> None:
        self._jobs: deque[Callable[[], Awaitable[None]]] = deque()
        self._task: asyncio.Task[None] | None = None
        self._ended = False

    @property
    def is_caller(self) -> bool:
        return self._task is not None and asyncio.current_task() is self._task

    def submit(self, job: Callable[[], Awaitable[None]]) -> None:
        if self._ended:
            return
        self._jobs.append(job)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._work())

    def end(self) -> None:
        """End after the jobs that were submitted."""
        self._ended = True

    async def _work(self) -> None:
        try:
            while self._jobs:
                await self._jobs.popleft()()
                await asyncio.sleep(0)  # a listener that never waits lets others run too
        finally:
            self._task = None


class WorkerPool:
    """The tasks in which a member with several workers handles messages."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def is_caller(self) -> bool:
        return asyncio.current_task() in self._tasks

    def submit(self, job: Job) -> None:
        task = asyncio.get_running_loop().create_task(self._work(job))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def end(self) -> None:
        pass  # a task ends with its message

    async def _work(self, job: Job) -> None:
        error: BaseException | None = None
        try:
            result = job.listener(job.message)
            if inspect.isawaitable(result):
                await result
        except BaseException as raised:
            error = raised
            if not isinstance(raised, Exception):
                raise  # cancelled
        finally:
            job.member.worked(job.item, job.message, error)


async def _serve(consumer: ConsumerCore) -> None:
    """Give a consumer's listener its turn."""
    for _ in range(LISTENER_TURN):
        taken = consumer.turn()
        if taken is None:
            if not consumer.must_provide:
                return
            await run(consumer.providing())
            continue
        listener, message = taken
        error: BaseException | None = None
        try:
            result = listener(message)
            if inspect.isawaitable(result):
                await result
        except BaseException as raised:
            error = raised
            if not isinstance(raised, Exception):
                raise  # cancelled
        finally:
            consumer.handled(message, error)
    consumer.stir()


async def _call(what: Callable[[Any], Any], argument: Any) -> None:
    """Call the application's code, and log an error: no caller would catch it."""
    try:
        result = what(argument)
        if inspect.isawaitable(result):
            await result
    except Exception:
        logger.exception("%r raised", what)
