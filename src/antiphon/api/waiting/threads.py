"""How the blocking front waits, and the threads on which its listeners run."""

from __future__ import annotations

import threading
from _thread import allocate_lock
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from typing import Any, cast

from antiphon.api.connection import logger
from antiphon.api.operations.consumer import ConsumerCore
from antiphon.api.operations.context import ContextCore
from antiphon.api.operations.front import LISTENER_TURN, Job
from antiphon.api.operations.scripts import Outcome, Script
from antiphon.api.protocol.ticket import Ticket


def wait(ticket: Ticket, timeout: float | None) -> bool:
    """Block until the ticket is settled. Return False if it is not after `timeout` seconds."""
    if ticket.done:
        return True
    gate = allocate_lock()
    gate.acquire()
    ticket.watch(gate.release)
    return gate.acquire(timeout=-1 if timeout is None else max(0, timeout))


def run(script: Script[Outcome]) -> Outcome:
    """Run a script, blocking where it pauses, and return what it returns."""
    try:
        pause = next(script)
        while True:
            pause = script.send(wait(*pause))
    except StopIteration as end:
        return cast(Outcome, end.value)
    finally:
        script.close()


class Threads:
    """The blocking front of one context."""

    def __init__(self, context: ContextCore) -> None:
        self._worker = Worker()
        self._pools: list[WorkerPool] = []

    run = run_at_once = staticmethod(run)

    def caller(self) -> object:
        return threading.get_ident()

    def inside_listener(self) -> bool:
        return self._worker.is_caller or any(pool.is_caller for pool in self._pools)

    def schedule(self, consumer: ConsumerCore) -> None:
        self._worker.submit(partial(_serve, consumer))

    def call_soon(self, what: Callable[[Any], Any], argument: Any) -> None:
        self._worker.submit(partial(_call, what, argument))

    def new_pool(self, workers: int) -> WorkerPool:
        pool = WorkerPool(workers)
        self._pools.append(pool)
        return pool

    def end(self) -> None:
        self._worker.end()
        for pool in self._pools:
            pool.end()


class Worker:
    """The one thread on which the listeners of a context run. It begins when there is work."""

    def __init__(self) -> None:
        self._jobs: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._ended = False

    @property
    def is_caller(self) -> bool:
        return threading.current_thread() is self._thread

    def submit(self, job: Callable[[], object]) -> None:
        with self._lock:
            if self._ended:
                return
            self._jobs.put(job)
            if self._thread is None:
                # A daemon: a program that ends without closing its contexts ends all the same.
                self._thread = threading.Thread(target=self._work, name="antiphon-listener")
                self._thread.daemon = True
                self._thread.start()

    def end(self) -> None:
        """End after the jobs that were submitted."""
        with self._lock:
            self._ended = True
            self._jobs.put(None)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()


class WorkerPool:
    """The threads on which a member with several workers handles messages."""

    def __init__(self, workers: int) -> None:
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._threads = [
            threading.Thread(target=self._work, name="antiphon-worker", daemon=True)
            for _ in range(workers)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def is_caller(self) -> bool:
        return threading.current_thread() in self._threads

    def submit(self, job: Job) -> None:
        self._jobs.put(job)

    def end(self) -> None:
        for _ in self._threads:
            self._jobs.put(None)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            error: BaseException | None = None
            try:
                job.listener(job.message)
            except BaseException as raised:  # the thread goes on after any error
                error = raised
            job.member.worked(job.item, job.message, error)
            del job, error  # frees them before the next job comes


def _serve(consumer: ConsumerCore) -> None:
    """Give a consumer's listener its turn."""
    for _ in range(LISTENER_TURN):
        taken = consumer.turn()
        if taken is None:
            if not consumer.must_provide:
                return
            run(consumer.providing())
            continue
        listener, message = taken
        error: BaseException | None = None
        try:
            listener(message)
        except BaseException as raised:  # the thread goes on after any error
            error = raised
        consumer.handled(message, error)
    consumer.stir()


def _call(what: Callable[[Any], Any], argument: Any) -> None:
    """Call the application's code, and log an error: no caller would catch it."""
    try:
        what(argument)
    except Exception:
        logger.exception("%r raised", what)
