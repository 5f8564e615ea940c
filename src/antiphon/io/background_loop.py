"""The event loop of the process's background thread: for embedded servers, and for the sockets of
blocking clients.

One thread for all of them, started with the first call. It is a daemon: a program that ends without
closing its connections ends all the same, but only after the loop has stopped, since a loop that
runs while the interpreter is taken apart can crash the process. After a fork the child has
none of its parent's threads, so it gets a loop of its own.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading

STOP_S = 2.0
"""How long a program that ends waits for the loop to stop."""

_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None
_pid = 0


def background_loop() -> asyncio.AbstractEventLoop:
    """Return the loop, which runs. Any thread may call this."""
    global _loop, _pid
    with _lock:
        if _loop is None or _pid != os.getpid():
            _loop, _pid = _start(), os.getpid()
        return _loop


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return a new loop: the fast one, where it exists."""
    try:
        import uvloop
    except ImportError:  # there is none for this system; the built-in loop does, more slowly
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def _start() -> asyncio.AbstractEventLoop:
    loop = new_event_loop()
    started = threading.Event()
    loop.call_soon(started.set)
    thread = threading.Thread(target=_run, args=(loop,), name="antiphon", daemon=True)
    thread.start()
    started.wait()
    atexit.register(_stop, loop, thread, os.getpid())
    return loop


def _stop(loop: asyncio.AbstractEventLoop, thread: threading.Thread, pid: int) -> None:
    if pid == os.getpid() and thread.is_alive():
        loop.call_soon_threadsafe(loop.stop)
        thread.join(STOP_S)


def _run(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    loop.run_forever()


def _forget_after_fork() -> None:
    global _lock
    _lock = threading.Lock()  # some thread of the parent may have held the old one


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_after_fork)
