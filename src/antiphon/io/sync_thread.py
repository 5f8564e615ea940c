"""The thread in which a server's files are synced, one after the other, while its loop goes on.

Promises: jobs are done in the order in which they were given, and each is reported on the loop,
with the error if it failed. Few are ever waiting: a server begins the next sync of its journal, and
the next step of a snapshot, after the last one is reported.

An executor does the same with two futures for each job; without them a server that gets single
messages, and syncs hundreds of times a second, answers sooner.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue

Done = Callable[[Exception | None], object]


class Syncing:
    """The thread that syncs files, and makes large writes, for an event loop."""

    def __init__(self, sync: Callable[[str], None]) -> None:
        """`sync`: of a file, by name."""
        self._sync = sync
        self._jobs: SimpleQueue[tuple[tuple[str, ...], Done] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def begin(self, names: tuple[str, ...], done: Done) -> None:
        """Have them synced, and `done` called on this thread's loop."""
        if self._thread is None:
            loop = asyncio.get_running_loop()
            # A daemon: a program that ends without closing an embedded server ends all the same.
            self._thread = threading.Thread(target=self._work, args=(loop,), name="antiphon-sync")
            self._thread.daemon = True
            self._thread.start()
        self._jobs.put((names, done))

    def close(self) -> None:
        """End the thread, after the jobs that it was given."""
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join()

    def _work(self, loop: asyncio.AbstractEventLoop) -> None:
        while (job := self._jobs.get()) is not None:
            names, done = job
            error: Exception | None = None
            try:
                for name in names:
                    self._sync(name)
            except Exception as raised:
                error = raised
            with suppress(RuntimeError):  # the loop is closed, and with it the server
                loop.call_soon_threadsafe(done, error)
