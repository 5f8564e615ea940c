"""Stand-ins for the functions that read or change the machine around a replica: the environment,
the process, files, and hashes of text, which differ between processes.

`acts` lists the functions, as in `stand_ins.py`. Imports and the logging package are exempt:
services do not decide by what they read or write.
"""

from __future__ import annotations

import builtins
import datetime
import io
import os
import platform
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from enum import Enum
from typing import Any

from antiphon.sim.event_loop.refusal import (
    ENVIRONMENT,
    FILES,
    HASHES,
    PLACE,
    PROCESSES,
    SIGNALS,
    refusal,
)
from antiphon.sim.event_loop.stand_ins import Act, Call, caller, is_logging

_SIMULATION = "antiphon.sim."


def acts() -> Iterator[tuple[Any, str, Act]]:
    """Yield (owner of the attribute, its name, its stand-in); not every system has all of them."""
    yield builtins, "hash", _hash
    for name in ("__getitem__", "__setitem__", "__delitem__", "__iter__", "__len__", "__repr__"):
        yield os._Environ, name, _deciding("os.environ", ENVIRONMENT)
    for name in ("getpid", "getppid", "getuid", "getlogin", "uname"):
        yield os, name, _deciding(f"os.{name}", PLACE)
    for name in ("getcwd", "getcwdb"):
        yield os, name, _deciding(f"os.{name}", PLACE)
    yield socket, "gethostname", _deciding("socket.gethostname", PLACE)
    yield platform, "node", _deciding("platform.node", PLACE)
    for name in ("kill", "killpg"):
        yield os, name, _always(f"os.{name}", PROCESSES)
    yield signal, "signal", _always("signal.signal", SIGNALS)
    yield from _writers()


def _writers() -> Iterator[tuple[Any, str, Act]]:
    for module in (builtins, io):
        yield module, "open", _open
    yield os, "open", _open_descriptor
    for name in _CHANGES:
        yield os, name, _always(f"os.{name}", FILES)
    if (sqlite3 := sys.modules.get("sqlite3")) is not None:
        yield sqlite3, "connect", _open_database


_CHANGES = (
    "chdir",
    "chmod",
    "chown",
    "fchdir",
    "fchmod",
    "fchown",
    "ftruncate",
    "lchown",
    "link",
    "mkdir",
    "mkfifo",
    "mknod",
    "pwrite",
    "pwritev",
    "remove",
    "removexattr",
    "rename",
    "replace",
    "rmdir",
    "sendfile",
    "setxattr",
    "symlink",
    "truncate",
    "unlink",
    "utime",
    "write",
    "writev",
)
"""Functions of the module `os`: `pathlib`, `shutil` and `tempfile` go through these, and through
`open`."""


def _always(called: str, why: str) -> Act:
    return _unless_exempt(called, why, lambda call: True)


def _deciding(called: str, why: str) -> Act:
    """Return a stand-in that refuses the call where all replicas must decide alike."""
    return _unless_exempt(called, why, lambda call: call.guard.deterministic)


def _unless_exempt(called: str, why: str, applies: Callable[[Call], bool]) -> Act:
    def act(call: Call, *args: Any, **kwargs: Any) -> Any:
        if applies(call) and not _is_exempt():
            raise refusal(called, why)
        return call.original(*args, **kwargs)

    return act


def _is_exempt() -> bool:
    """Return whether the call comes from the logging package, from asyncio's runner (for Ctrl-C),
    or from an import of the user's code."""
    if is_logging():
        return True
    frame = caller()
    while frame is not None:
        name = str(frame.f_globals.get("__name__"))
        if name in {"importlib._bootstrap", "asyncio.runners"}:
            return True
        if name.startswith(_SIMULATION):
            return False  # frames further out are of the test, which may be imported itself
        frame = frame.f_back
    return False


# -- Files -----------------------------------------------------------------------------------------


def _open(call: Call, file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
    if isinstance(mode, str) and set(mode) & set("wax+"):
        _refuse_to_write(call.called.removeprefix("io."), file)
    return call.original(file, mode, *args, **kwargs)


_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


def _open_descriptor(call: Call, path: Any, flags: int, *args: Any, **kwargs: Any) -> Any:
    if flags & _WRITING:
        _refuse_to_write("os.open", path)
    return call.original(path, flags, *args, **kwargs)


def _open_database(call: Call, database: Any, *args: Any, **kwargs: Any) -> Any:
    if database != ":memory:":
        _refuse_to_write("sqlite3.connect", database)
    return call.original(database, *args, **kwargs)


def _refuse_to_write(called: str, file: Any) -> None:
    if file != os.devnull and not _is_exempt():
        raise refusal(f"{called} of {file!r} for writing", FILES)


# -- Hashes ----------------------------------------------------------------------------------------


def _hash(call: Call, value: Any) -> int:
    """Refuse hashes of text that the user's code itself computes; those in a `__hash__` serve dicts
    and sets, and other packages are trusted."""
    if call.guard.deterministic and _has_text(value):
        frame = caller()
        name = None if frame is None else frame.f_globals.get("__name__")
        if frame is not None and name in call.guard.modules and _function(frame) != "__hash__":
            raise refusal(f"hash of {type(value).__name__} {value!r}", HASHES)
    return int(call.original(value))


def _function(frame: Any) -> str:
    return str(frame.f_code.co_name)


def _has_text(value: Any) -> bool:
    """Return whether its hash differs in each process."""
    if isinstance(value, tuple | frozenset):
        return any(_has_text(each) for each in value)
    return isinstance(value, str | bytes | memoryview | datetime.date | datetime.time | Enum)
