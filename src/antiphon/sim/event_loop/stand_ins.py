"""Stand-ins for the functions that leave a simulation: while a guard is in force they refuse, or
simulate.

`acts` lists the functions, and that of `surroundings.py` lists others; `guard.py` puts the
stand-ins in their places.
"""

from __future__ import annotations

import asyncio
import builtins
import concurrent.futures
import datetime
import functools
import os
import random
import secrets
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.process import BaseProcess
from random import Random
from types import FrameType, ModuleType
from typing import Any, NamedTuple

from antiphon.sim.event_loop.refusal import (
    CHANCE,
    CLOCK,
    INPUT,
    NETWORK,
    PROCESSES,
    SECOND_LOOP,
    SLEEP,
    THREADS,
    Guard,
    here,
    refusal,
)


class Call(NamedTuple):
    """A call of a function that has a stand-in, with the original."""

    guard: Guard
    called: str
    original: Callable[..., Any]


Act = Callable[..., Any]
"""A stand-in: a function of a `Call` and its arguments."""


def stand_in_for(called: str, original: Callable[..., Any], act: Act) -> Callable[..., Any]:
    @functools.wraps(original)
    def stand_in(*args: Any, **kwargs: Any) -> Any:
        guard = here.guard
        if guard is None:
            return original(*args, **kwargs)
        return act(Call(guard, called, original), *args, **kwargs)

    return stand_in


def full_name(owner: Any, attribute: str) -> str:
    if isinstance(owner, type):
        attribute = f"{owner.__qualname__}.{attribute}".removesuffix(".__init__")
    module = owner.__module__ if isinstance(owner, type) else owner.__name__
    return f"{module}.{attribute}".removeprefix("builtins.")


def _refuse(why: str) -> Act:
    def act(call: Call, *args: Any, **kwargs: Any) -> Any:
        raise refusal(call.called, why)

    return act


def _clock(read: Callable[[Guard], float]) -> Act:
    def act(call: Call, *args: Any, **kwargs: Any) -> Any:
        _check_clock(call.guard, call.called)
        return read(call.guard)

    return act


def _check_clock(guard: Guard, called: str) -> None:
    if guard.deterministic and not is_logging():
        raise refusal(called, CLOCK)


_STAND_INS = (__name__, "antiphon.sim.event_loop.surroundings")


def caller() -> FrameType | None:
    """Return the frame of the code that called the stand-in."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__") in _STAND_INS:
        frame = frame.f_back
    return frame


def is_logging() -> bool:
    """Return whether the logging package called the stand-in."""
    frame = caller()
    name = "" if frame is None else str(frame.f_globals.get("__name__"))
    return name.split(".")[0] == "logging"


def _calendar(call: Call, seconds: float | None = None) -> Any:
    """Convert a time; read the clock, refused or simulated, only if it is not given."""
    if seconds is None:
        _check_clock(call.guard, call.called)
        seconds = call.guard.clock_s()
    return call.original(seconds)


def _written_time(call: Call, *args: Any) -> Any:
    """Do the same for functions that take the time as a tuple, after a format if they have one."""
    told = 2 if call.called == "time.strftime" else 1
    if len(args) < told:
        _check_clock(call.guard, call.called)
        args = (*args, _real_localtime(call.guard.clock_s()))
    return call.original(*args)


_real_localtime = time.localtime


def _draw(simulate: Act) -> Act:
    def act(call: Call, *args: Any, **kwargs: Any) -> Any:
        if call.guard.deterministic:
            raise refusal(call.called, CHANCE)
        return simulate(call, *args, **kwargs)

    return act


def _from_seed(method: str) -> Act:
    return _draw(lambda call, *args, **kw: getattr(call.guard.random, method)(*args, **kw))


def _from_seed_of_self(method: str) -> Act:
    return _draw(lambda call, _self, *args, **kw: getattr(call.guard.random, method)(*args, **kw))


def _uuid(version: int) -> Act:
    def simulate(call: Call, *args: Any, **kwargs: Any) -> uuid.UUID:
        return uuid.UUID(int=call.guard.random.getrandbits(128), version=version)

    return _draw(simulate)


_as_before = _draw(lambda call, *args, **kw: call.original(*args, **kw))


def _seed(call: Call, self: Random, a: Any = None, *args: Any, **kwargs: Any) -> None:
    """Refuse a generator without a seed, which would take one from the system."""
    if a is None:
        if call.guard.deterministic:
            raise refusal("a random.Random without a seed", CHANCE)
        a = call.guard.random.getrandbits(64)
    call.original(self, a, *args, **kwargs)


def _reduce(call: Call, self: Random) -> Any:
    """Let copies and pickles begin without a seed: they get their state after that."""
    if type(self) is Random:
        return Random, (0,), self.getstate()
    return call.original(self)


def _as_completed(call: Call, awaitables: Iterable[Any], **kwargs: Any) -> Any:
    """Start coroutines in the order given; asyncio does so in the order of their addresses."""
    return call.original([asyncio.ensure_future(each) for each in awaitables], **kwargs)


# -- datetime --------------------------------------------------------------------------------------


class _Lookalike(type):
    """The metaclass of a stand-in for a class: instances of that class count as its own."""

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, cls.__mro__[1])

    def __subclasscheck__(cls, other: type) -> bool:
        return issubclass(other, cls.__mro__[1])

    def __eq__(cls, other: object) -> bool:
        return other is cls or other is cls.__mro__[1]

    def __hash__(cls) -> int:
        return hash(cls.__mro__[1])


class _Date(datetime.date, metaclass=_Lookalike):
    # What it makes are plain dates: they outlive the guard.
    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        return datetime.date(*args, **kwargs)

    @classmethod
    def today(cls) -> Any:
        now = _simulated_datetime("datetime.date.today")
        return datetime.date.today() if now is None else now.date()


class _Datetime(datetime.datetime, metaclass=_Lookalike):
    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        return datetime.datetime(*args, **kwargs)

    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> Any:
        now = _simulated_datetime("datetime.datetime.now", tz)
        return datetime.datetime.now(tz) if now is None else now

    @classmethod
    def today(cls) -> Any:
        now = _simulated_datetime("datetime.datetime.today")
        return datetime.datetime.today() if now is None else now

    @classmethod
    def utcnow(cls) -> Any:
        now = _simulated_datetime("datetime.datetime.utcnow", datetime.UTC)
        return datetime.datetime.utcnow() if now is None else now.replace(tzinfo=None)


def _simulated_datetime(called: str, tz: datetime.tzinfo | None = None) -> datetime.datetime | None:
    """Return the simulated time; None in a thread without a guard."""
    if here.guard is None:
        return None
    _check_clock(here.guard, called)
    return datetime.datetime.fromtimestamp(here.guard.clock_s(), tz)


def _datetime_module() -> ModuleType:
    module = ModuleType("datetime", datetime.__doc__)
    vars(module).update(vars(datetime), date=_Date, datetime=_Datetime)
    return module


# Only in the modules of the guarded code: in the module `datetime` itself they would keep pickle
# from finding the real classes.
IN_MODULES_ONLY: list[tuple[Any, Any]] = [
    (datetime, _datetime_module()),
    (datetime.datetime, _Datetime),
    (datetime.date, _Date),
]


# -- Which functions have stand-ins ----------------------------------------------------------------


def acts() -> Iterator[tuple[Any, str, Act]]:
    """Yield (owner of the attribute, its name, its stand-in); not every system has all of them."""
    yield time, "sleep", _refuse(SLEEP)
    yield builtins, "input", _refuse(INPUT)
    yield threading.Thread, "start", _refuse(THREADS)
    yield concurrent.futures.ThreadPoolExecutor, "submit", _refuse(THREADS)
    yield BaseProcess, "start", _refuse(PROCESSES)
    yield subprocess.Popen, "__init__", _refuse(PROCESSES)
    for name in ("fork", "forkpty", "posix_spawn", "posix_spawnp", "system"):
        yield os, name, _refuse(PROCESSES)
    for name in ("bind", "connect", "connect_ex", "sendto"):
        yield socket.socket, name, _refuse(NETWORK)
    for name in ("getaddrinfo", "gethostbyname"):
        yield socket, name, _refuse(NETWORK)
    for module in (asyncio, asyncio.events):
        yield module, "new_event_loop", _refuse(SECOND_LOOP)
    for module in (asyncio, asyncio.tasks):
        yield module, "as_completed", _as_completed
    yield from _clocks()
    yield from _chances()


def _clocks() -> Iterator[tuple[Any, str, Act]]:
    yield time, "time", _clock(Guard.clock_s)
    yield time, "time_ns", _clock(Guard.clock_ns)
    for name in ("monotonic", "perf_counter", "process_time", "thread_time"):
        yield time, name, _clock(lambda guard: guard.now())
        yield time, f"{name}_ns", _clock(Guard.now_ns)
    yield time, "clock_gettime", _clock(Guard.clock_s)
    yield time, "clock_gettime_ns", _clock(Guard.clock_ns)
    for name in ("ctime", "gmtime", "localtime"):
        yield time, name, _calendar
    for name in ("asctime", "strftime"):
        yield time, name, _written_time


_SHARED_GENERATOR: object = getattr(random.random, "__self__", None)
"""The generator whose methods are the functions of the module `random`."""


def _chances() -> Iterator[tuple[Any, str, Act]]:
    for name, value in vars(random).items():
        if getattr(value, "__self__", None) is _SHARED_GENERATOR:
            yield random, name, _from_seed(name)
    yield Random, "seed", _seed
    yield Random, "__reduce__", _reduce
    for name in ("random", "getrandbits", "randbytes"):
        yield random.SystemRandom, name, _from_seed_of_self(name)
    for name in ("urandom", "getrandom"):
        yield os, name, _draw(lambda call, size, *_args: call.guard.random.randbytes(size))
    yield uuid, "uuid1", _uuid(1)
    yield uuid, "uuid4", _uuid(4)
    # These ask SystemRandom, which has stand-ins of its own.
    for name in ("choice", "randbelow", "token_bytes", "token_hex", "token_urlsafe"):
        yield secrets, name, _as_before
    yield secrets, "randbits", _from_seed("getrandbits")
