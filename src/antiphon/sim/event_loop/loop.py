"""An asyncio event loop in simulated time: one thread, no waiting, and one seed decides all.

Time stands still while any callback is ready, and jumps to the next timer when none is. Asyncio's
promises about order hold: `call_soon` is first come, first served, and timers run by their times.
The order that it leaves open is drawn: that of several timers that are due at the same instant.
Tasks and futures have the same places in sets in every run, so that `asyncio.wait`, `TaskGroup` and
the like go through them in the same order.

A loop drives itself (`run_until_complete`, `asyncio.Runner(loop_factory=...)`), or a simulator with
a clock of its own does: `advance` sets the loop's time, `run_ready` runs all ready callbacks,
`next_timer` returns when to come back. A loop can run inside a callback of another one.

A simulated process has a loop of its own, and crashes by `abandon()`: from then on none of its code
runs, no `finally` and no `async with`, and without a warning. Python would run such clean-up code
when it collects the coroutines; so they are kept until `close()`, which the simulator calls after
the run was judged.

The caller that runs the loop gets all errors: those of callbacks at once; those of tasks whose
results no code has asked for in `close()`, since until then some may. In a deadlock, or if code
spins and no time passes, `StuckError` lists all tasks with what they wait for. Calls that cannot be
simulated raise `NotSimulated` (`refused_calls.py`).
"""

from __future__ import annotations

import asyncio
import atexit
import heapq
import inspect
import sys
import threading
import weakref
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import contextmanager
from contextvars import Context
from random import Random
from typing import Any, NoReturn, TypeVarTuple

from antiphon.sim.event_loop import who_waits
from antiphon.sim.event_loop.refusal import THREADS, refusal
from antiphon.sim.event_loop.refused_calls import RefusingLoop

Args = TypeVarTuple("Args")

CALLBACKS_MAX = 1_000_000
"""Limit of the callbacks at one instant: beyond it, some code spins."""

CANCELS_MAX = 100
"""With this many, or half the number of timers if that is more, cancelled timers are dropped."""

CLOSES_MAX = 100
"""Attempts to close a coroutine that goes on waiting, before it is left alone."""


class StuckError(RuntimeError):
    """The simulated program cannot go on, or goes on without time passing."""


class _Task(asyncio.Task[Any]):
    def __init__(self, coro: Any, number: int, **kwargs: Any) -> None:
        self._number = number  # first, for asyncio puts the task into a set
        super().__init__(coro, **kwargs)
        self._log_destroy_pending = False  # a crash leaves tasks behind, without a warning

    def __hash__(self) -> int:
        return self._number


class _Future(asyncio.Future[Any]):
    def __init__(self, number: int, **kwargs: Any) -> None:
        self._number = number
        super().__init__(**kwargs)

    def __hash__(self) -> int:
        return self._number


class SimulatedLoop(RefusingLoop):
    """An event loop in simulated time: it runs callbacks that are due, and draws the order that
    asyncio leaves open from a seed. It refuses calls that need threads, processes or the
    network."""

    def __init__(self, random: Random, start: float = 0.0) -> None:
        """`random` decides the order that asyncio leaves open; `start`: the simulated time, in
        seconds."""
        self._random = random
        self._now = start
        self._thread = threading.get_ident()
        self._ready: deque[asyncio.Handle] = deque()
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._cancels = 0  # of timers, since cancelled ones were dropped
        self._numbers = 0
        self._callbacks = 0  # that ran at this instant
        # Strong references: the garbage collector could take a task that only its own future refers
        # to at any time.
        self._tasks: list[asyncio.Task[Any]] = []
        self._tasks_made = 0
        self._tasks_worth_a_look = 64
        self._generators: weakref.WeakValueDictionary[int, AsyncGenerator[Any, Any]]
        self._generators = weakref.WeakValueDictionary()
        self._failures: list[dict[str, Any]] = []
        self._remains: list[object] = []  # of a crash
        self._exception_handler: Any = None
        self._task_factory: Any = None
        self._debug = False
        self._is_running = False
        self._stopping = False
        self._abandoned = False
        self._closed = False

    def __repr__(self) -> str:
        state = "closed" if self._closed else "abandoned" if self._abandoned else "alive"
        return f"<SimulatedLoop {state} at {self._now:.6f} s>"

    # -- Driven from outside -------------------------------------------------------------------

    def run_ready(self) -> None:
        """Run the ready callbacks, and those that they make ready, until none is."""
        with self._running():
            while self.has_ready():
                self._run_batch()

    def has_ready(self) -> bool:
        if self._ready:
            return True
        when = self.next_timer()
        return when is not None and when <= self._now

    def next_timer(self) -> float | None:
        """Return the time at which the next timer is due; callers that count in whole units round
        up."""
        while self._timers and self._timers[0][2].cancelled():
            heapq.heappop(self._timers)
        return self._timers[0][0] if self._timers else None

    def advance(self, to: float) -> None:
        """Set the time. Timers that were due before run late, but in their order."""
        if to < self._now:
            raise ValueError(f"time does not go back: from {self._now} s to {to} s")
        if to > self._now:
            self._now = to
            self._callbacks = 0

    def abandon(self) -> None:
        """Crash the process of this loop. Called from inside, the running callback still goes on to
        its next `await`."""
        if self._abandoned:
            return
        self._abandoned = True
        self._failures.clear()
        for task in self._pending():
            _close_unless_begun(task.get_coro())
        # Kept like the tasks: they may be the last references to objects with clean-up code.
        self._remains = [self._ready, self._timers]
        self._ready, self._timers = deque(), []
        _crashed.add(self)

    # -- Driving itself ------------------------------------------------------------------------

    def run_forever(self) -> None:
        """Run until `stop()`."""
        try:
            with self._running():
                while True:
                    if not self._stopping and not self.has_ready():
                        self._jump()
                    self._run_batch()
                    if self._stopping or self._abandoned:
                        return
        finally:
            self._stopping = False

    def run_until_complete(self, future: Any) -> Any:
        self._check_can_run()
        is_new = not asyncio.isfuture(future)
        future = asyncio.ensure_future(future, loop=self)
        future.add_done_callback(self._stop_after)
        try:
            self.run_forever()
        except BaseException:
            if is_new and future.done() and not future.cancelled():
                future.exception()  # no other code can ask for it
            raise
        finally:
            future.remove_done_callback(self._stop_after)
        if not future.done():
            raise RuntimeError("the loop was stopped before the future was done")
        return future.result()

    def _stop_after(self, _future: object) -> None:
        self._stopping = True

    def stop(self) -> None:
        self._stopping = True

    def is_running(self) -> bool:
        return self._is_running

    def is_closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        """Throw away all that is left, without warnings. Raise an error that no code has asked for
        yet."""
        if self._is_running:
            raise RuntimeError("a loop that runs cannot be closed")
        if self._closed:
            return
        failures = self._unseen_failures()
        self.abandon()
        self._closed = True
        with self._as_running_loop():
            for task in self._pending():
                _close_quietly(task.get_coro())
        self._tasks, self._remains = [], []
        _crashed.discard(self)
        if failures:
            _raise(failures[0])

    def _jump(self) -> None:
        when = self.next_timer()
        if when is None:
            raise StuckError(
                "deadlock: everybody waits, and no timer is set that would wake anybody\n"
                + who_waits.lines(self._pending())
            )
        self.advance(max(when, self._now))

    def _run_batch(self) -> None:
        """Run the ready callbacks, but not those that they make ready, as every asyncio loop
        does."""
        self._ready.extend(self._due())
        for _ in range(len(self._ready)):
            if not self._ready:
                return  # abandoned meanwhile
            handle = self._ready.popleft()
            if not handle.cancelled():
                handle._run()
            if self._failures:
                _raise(self._failures.pop(0))
            self._callbacks += 1
        if self._callbacks > CALLBACKS_MAX:
            raise StuckError(
                f"busy: {self._callbacks} callbacks ran at {self._now} s, and time does not pass\n"
                + who_waits.lines(self._pending())
            )

    def _due(self) -> Iterator[asyncio.TimerHandle]:
        when = self.next_timer()
        while when is not None and when <= self._now:
            together = []
            while self.next_timer() == when:
                together.append(heapq.heappop(self._timers)[2])
            # Only where there is a choice: other draws stay as they were.
            if len(together) > 1:
                self._random.shuffle(together)
            yield from together
            when = self.next_timer()

    def _check_can_run(self) -> None:
        if self._abandoned:
            raise RuntimeError("the loop is closed" if self._closed else "the loop is abandoned")
        if self._is_running:
            raise RuntimeError("the loop runs already")

    @contextmanager
    def _running(self) -> Iterator[None]:
        self._check_can_run()
        if self._failures:
            _raise(self._failures.pop(0))
        hooks = sys.get_asyncgen_hooks()
        sys.set_asyncgen_hooks(self._generator_begins, self._generator_is_dropped)
        self._is_running = True
        try:
            with self._as_running_loop():
                yield
        finally:
            self._is_running = False
            sys.set_asyncgen_hooks(*hooks)

    @contextmanager
    def _as_running_loop(self) -> Iterator[None]:
        outer = asyncio._get_running_loop()
        asyncio._set_running_loop(self)
        try:
            yield
        finally:
            asyncio._set_running_loop(outer)

    # -- Callbacks -----------------------------------------------------------------------------

    def time(self) -> float:
        return self._now

    def call_soon(
        self, callback: Callable[[*Args], object], *args: *Args, context: Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        if not self._abandoned:
            self._ready.append(handle)
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[[*Args], object], *args: *Args, context: Context | None = None
    ) -> asyncio.Handle:
        if threading.get_ident() != self._thread:
            raise refusal("call_soon_threadsafe from another thread", THREADS)
        return self.call_soon(callback, *args, context=context)

    def call_later(
        self,
        delay: float,
        callback: Callable[[*Args], object],
        *args: *Args,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[*Args], object],
        *args: *Args,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        if not self._abandoned:
            heapq.heappush(self._timers, (when, self._next_number(), handle))
        return handle

    def _timer_handle_cancelled(self, handle: object) -> None:
        """Take note of a cancelled timer; handles report this even if they have run already."""
        self._cancels += 1
        if self._cancels > max(CANCELS_MAX, len(self._timers) // 2):
            self._cancels = 0
            self._timers = [timer for timer in self._timers if not timer[2].cancelled()]
            heapq.heapify(self._timers)

    def _next_number(self) -> int:
        self._numbers += 1
        return self._numbers

    # -- Tasks, futures, asynchronous generators -----------------------------------------------

    def create_future(self) -> asyncio.Future[Any]:
        return _Future(self._next_number(), loop=self)

    def create_task(
        self,
        coro: Any,
        *,
        name: str | None = None,
        context: Context | None = None,
        **kwargs: Any,
    ) -> asyncio.Task[Any]:
        if self._abandoned:
            _close_unless_begun(coro)  # it will not run
        self._tasks_made += 1
        number = self._tasks_made
        if context is not None:
            kwargs["context"] = context
        # asyncio counts the tasks of all loops: names would depend on what ran before.
        name = f"Task-{number}" if name is None else name
        if self._task_factory is None:
            task: asyncio.Task[Any] = _Task(coro, number, loop=self, name=name, **kwargs)
        else:
            task = self._task_factory(self, coro, **kwargs)
            task.set_name(name)
        if not self._abandoned:
            self._keep(task)
        return task

    def _keep(self, task: asyncio.Task[Any]) -> None:
        self._tasks.append(task)
        if len(self._tasks) > self._tasks_worth_a_look:
            self._tasks = [t for t in self._tasks if not t.done() or _is_unseen(t)]
            self._tasks_worth_a_look = 2 * len(self._tasks) + 64

    def _pending(self) -> list[asyncio.Task[Any]]:
        return [task for task in self._tasks if not task.done()]

    def set_task_factory(self, factory: Any) -> None:
        self._task_factory = factory

    def get_task_factory(self) -> Any:
        return self._task_factory

    def _generator_begins(self, generator: AsyncGenerator[Any, Any]) -> None:
        self._generators[self._next_number()] = generator

    def _generator_is_dropped(self, generator: AsyncGenerator[Any, Any]) -> None:
        self.call_soon(self._close_generator, generator)

    def _close_generator(self, generator: AsyncGenerator[Any, Any]) -> None:
        self.create_task(_closing(generator))

    async def shutdown_asyncgens(self) -> None:
        generators = list(self._generators.values())
        self._generators.clear()
        closed = await asyncio.gather(*map(_closing, generators), return_exceptions=True)
        for generator, result in zip(generators, closed, strict=True):
            if isinstance(result, Exception):
                message = f"an asynchronous generator failed to close: {generator!r}"
                self.call_exception_handler({"message": message, "exception": result})

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:  # noqa: ASYNC109
        """Do nothing: there is no executor."""

    # -- Errors --------------------------------------------------------------------------------

    def set_exception_handler(self, handler: Any) -> None:
        self._exception_handler = handler

    def get_exception_handler(self) -> Any:
        return self._exception_handler

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        """Keep the error for the caller that runs the loop."""
        self._failures.append(context)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if self._abandoned:
            return
        if self._exception_handler is None:
            self.default_exception_handler(context)
            return
        try:
            self._exception_handler(self, context)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            message = "the exception handler failed"
            self.default_exception_handler({"message": message, "exception": error})

    def _unseen_failures(self) -> list[dict[str, Any]]:
        if self._abandoned:
            return []
        return [*self._failures, *(_failure(task) for task in self._tasks if _is_unseen(task))]

    def get_debug(self) -> bool:
        return self._debug

    def set_debug(self, enabled: bool) -> None:
        self._debug = enabled


async def _closing(generator: AsyncGenerator[Any, Any]) -> None:
    await generator.aclose()


def _is_unseen(task: Any) -> bool:
    """Return whether a task failed, and no code asked for its result: then asyncio logs the
    error."""
    return task.done() and getattr(task, "_log_traceback", False)


def _failure(task: asyncio.Task[Any]) -> dict[str, Any]:
    message = f"{task.get_name()} failed, and nobody asked for its result"
    return {"message": message, "exception": task.exception()}


def _raise(failure: dict[str, Any]) -> NoReturn:
    message = failure.get("message") or "an error in the event loop"
    error = failure.get("exception")
    if error is None:
        raise RuntimeError(message)
    error.add_note(message)
    raise error


# -- Crashed processes -----------------------------------------------------------------------------

_crashed: set[SimulatedLoop] = set()
"""Coroutines that are not closed yet: Python must not collect them."""


def _close_unless_begun(coroutine: Any) -> None:
    """Close a coroutine that never ran: it has no clean-up to do, but collecting it would cause a
    warning."""
    if inspect.iscoroutine(coroutine) and inspect.getcoroutinestate(coroutine) == "CORO_CREATED":
        coroutine.close()


def _close_quietly(coroutine: Any) -> None:
    """Close a coroutine, ignoring errors of its clean-up. If that waits, end the wait, and go on
    with the clean-up further out."""
    for _ in range(CLOSES_MAX):
        try:
            coroutine.close()
            return
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException:
            if getattr(coroutine, "cr_frame", None) is None:
                return
    # It catches every error, forever; so it is never collected, not even when Python ends.
    import ctypes  # not every Python has it, and few runs need it

    ctypes.pythonapi.Py_IncRef(ctypes.py_object(coroutine))


@atexit.register
def _close_crashed() -> None:
    for loop in list(_crashed):
        loop.close()
