"""The event loop of the process's background thread: for embedded servers, and for the sockets of
blocking clients.

One thread for all of them, started when it is first asked for. It is a daemon: a program that ends
without closing its connections ends all the same. After a fork the child has none of its parent's
threads, so it gets a loop of its own.
"""

from __future__ import annotations

import asyncio
import os
import threading

_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None
_pid = 0


def background_loop() -> asyncio.AbstractEventLoop:
    """The loop, which runs; to be called from any thread."""
    global _loop, _pid
    with _lock:
        if _loop is None or _pid != os.getpid():
            _loop, _pid = _start(), os.getpid()
        return _loop


def new_event_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:  # there is none for this system; the built-in loop does, more slowly
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def _start() -> asyncio.AbstractEventLoop:
    loop = new_event_loop()
    started = threading.Event()
    loop.call_soon(started.set)
    threading.Thread(target=_run, args=(loop,), name="antiphon", daemon=True).start()
    started.wait()
    return loop


def _run(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    loop.run_forever()


def _forget_after_fork() -> None:
    global _lock
    _lock = threading.Lock()  # some thread of the parent may have held the old one


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_after_fork)
