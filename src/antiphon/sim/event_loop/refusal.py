"""Refusals of calls that a simulation cannot control: their words, and the guard in force in each
thread.

The sentence of an error names the call, the reason why it is refused, and an alternative.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from random import Random

EPOCH_S = 1_000_000_000
"""The time that `time.time()` returns when a simulation begins: in September 2001, but a round
number."""

SLEEP = "it stops the whole simulation, in which no time passes meanwhile: await asyncio.sleep()"
THREADS = (
    "no seed decides in which order threads run: call the function directly, "
    "or make it a coroutine and start a task"
)
NETWORK = (
    "the network is outside, and answers differently every time: "
    "talk through Antiphon, or hand in a stand-in for the connection"
)
PROCESSES = (
    "another process is outside, and neither its time nor its answers are under control: "
    "hand in a stand-in for it"
)
SIGNALS = "no signals arrive in a simulation: call the handler at the time when it is to run"
INPUT = "nobody sits at a simulation: hand in the answers as arguments"
SECOND_LOOP = "a second event loop would run in real time: await the coroutine, or start a task"
CLOCK = (
    "a replica that looks at a clock decides differently from the others: "
    "put the time into the command"
)
CHANCE = (
    "a replica that draws decides differently from the others: "
    "draw before, and put the result into the command"
)
ENVIRONMENT = (
    "every replica runs in an environment of its own, and decides differently from the others: "
    "read it before, and put what it says into the command"
)
PLACE = (
    "it says where this replica runs, and each one runs somewhere else: "
    "put what replicas have to know into the command"
)
FILES = (
    "a file is not part of the state, which is all that another replica takes over: "
    "keep it in the state, and write files where results arrive"
)
HASHES = (
    "text has another hash in every process (PYTHONHASHSEED): use zlib.crc32, or hashlib, which "
    "say the same everywhere"
)


class NotSimulated(RuntimeError):  # noqa: N818  (its sentence goes on: "... is not simulated")
    """Code made a call that a simulation cannot control."""


class Guard:
    """The guard that is in force in one thread."""

    def __init__(
        self,
        now: Callable[[], float],
        random: Random,
        deterministic: bool,
        refused: list[str],
        modules: frozenset[str] = frozenset(),
    ) -> None:
        self.now = now
        self.random = random
        self.deterministic = deterministic
        self.modules = modules  # where the guarded code is, by name
        self.refused = refused
        """Each sentence once: code may swallow the error, and the simulation still learns of it."""

    def now_ns(self) -> int:
        return round(self.now() * 1_000_000_000)

    def clock_s(self) -> float:
        return EPOCH_S + self.now()

    def clock_ns(self) -> int:
        return EPOCH_S * 1_000_000_000 + self.now_ns()


class _Here(threading.local):
    guard: Guard | None = None


here = _Here()
"""The guard of this thread."""


def refusal(called: str, why: str) -> NotSimulated:
    """The error to raise; the guard in force, if there is one, keeps its sentence."""
    sentence = f"{called} is not simulated: {why}"
    if here.guard is not None and sentence not in here.guard.refused:
        here.guard.refused.append(sentence)
    return NotSimulated(sentence)
