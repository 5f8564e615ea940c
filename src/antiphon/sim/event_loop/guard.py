"""While `guarded()` is in force, code of this thread cannot leave the simulation unnoticed.

A call that blocks, writes to files, or uses threads, processes or the network raises
`NotSimulated`, with a sentence that names the call, the reason, and an alternative. Clocks, chance,
the environment, the process and hashes of text are refused as well where all replicas must decide
alike (`deterministic=True`). Elsewhere clocks and chance are simulated: the clock is the
simulation's, and chance comes from its seed. Log records always carry simulated time, for no code
decides by them.

Stand-ins take the places of the functions while any thread has a guard. In a thread without one
they call the original; a reference that was taken before is the original itself. That is why the
caller names the modules of the guarded code: functions that they imported (`from time import time`)
are replaced in them too, and so is `datetime`, whose clock cannot be replaced in another way.

The guard does not notice references kept elsewhere (defaults of arguments, attributes), extension
modules, files that are read, locks that block, the order of sets of strings, and `id()`.
`sim/services/elsewhere.py` finds differences between processes that come from them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from random import Random
from types import ModuleType
from typing import Any

from antiphon.sim.event_loop import surroundings
from antiphon.sim.event_loop.refusal import Guard, here
from antiphon.sim.event_loop.refusal import NotSimulated as NotSimulated
from antiphon.sim.event_loop.stand_ins import IN_MODULES_ONLY, acts, full_name, stand_in_for


@contextmanager
def guarded(
    now: Callable[[], float] | None = None,
    random: Random | None = None,
    *,
    deterministic: bool = True,
    modules: Iterable[ModuleType] = (),
) -> Iterator[Guard]:
    """Guard this thread for a `with` block. `now` (seconds since the simulation began) and `random`
    are the sources of clocks and chance if they are simulated; a guard inside another one takes
    over the sources that it is not given. Entering one is cheap if any thread has one already."""
    before = here.guard
    outer = before or Guard(lambda: 0.0, Random(0), deterministic, [])
    modules = tuple(modules)
    names = outer.modules.union(module.__name__ for module in modules)
    inner = Guard(now or outer.now, random or outer.random, deterministic, outer.refused, names)
    _patches.acquire()
    try:
        with _patches.in_modules(modules):
            here.guard = inner
            yield inner
    finally:
        here.guard = before
        _patches.release()


_INHERITED = object()


class _Patches:
    """The stand-ins, in place while any thread has a guard."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._guards = 0
        self._before: list[tuple[Any, str, Any]] = []
        self._stand_ins: dict[int, tuple[Any, Any]] = {}  # id -> the original, its stand-in

    def acquire(self) -> None:
        with self._lock:
            if self._guards == 0:
                try:
                    self._put_in_place()
                except BaseException:
                    self._undo()
                    raise
            self._guards += 1

    def release(self) -> None:
        with self._lock:
            self._guards -= 1
            if self._guards == 0:
                self._undo()

    def _put_in_place(self) -> None:
        self._stand_ins = {id(real): (real, other) for real, other in IN_MODULES_ONLY}
        for owner, name, act in [*acts(), *surroundings.acts()]:
            if not hasattr(owner, name):
                continue
            original = getattr(owner, name)
            stand_in = stand_in_for(full_name(owner, name), original, act)
            self._stand_ins[id(original)] = (original, stand_in)
            self._before.append((owner, name, vars(owner).get(name, _INHERITED)))
            setattr(owner, name, stand_in)

    def _undo(self) -> None:
        for owner, name, before in reversed(self._before):
            if before is _INHERITED:
                delattr(owner, name)
            else:
                setattr(owner, name, before)
        self._before = []
        self._stand_ins = {}

    @contextmanager
    def in_modules(self, modules: Iterable[ModuleType]) -> Iterator[None]:
        """Replace in these modules, too, the functions that they have imported by name."""
        before: list[tuple[ModuleType, str, Any]] = []
        try:
            for module in modules:
                for name, value in list(vars(module).items()):
                    if (found := self._stand_ins.get(id(value))) is not None:
                        before.append((module, name, value))
                        setattr(module, name, found[1])
            yield
        finally:
            for module, name, value in before:
                setattr(module, name, value)


_patches = _Patches()
