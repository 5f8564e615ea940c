"""The common parts of the other systems in `antiphon bench peers`: starting and ending servers,
counting their processor time, and driving clients that gather messages, or live in an event loop,
from the blocking loops of `lab/bench/processes.py`.

A peer is a module of this folder with a function `contenders(fetch)`. Each contender opens its
servers, one publisher and three subscribers, and then works on the same jobs as Antiphon does, in
the same loops.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from antiphon.errors import IllegalStateError
from antiphon.lab.bench.compare import Side
from antiphon.lab.bench.connections import cpu_s
from antiphon.lab.bench.processes import (
    PATIENCE_S,
    ClientProcesses,
    Job,
    Load,
    OpenReceiver,
    OpenSender,
    Slice,
)
from antiphon.server.local_cluster import undisturbed

SERVERS = 3
MEMBERS = 3
READY_S = 120.0
OUTSTANDING = 1000
"""Messages that a peer's publisher has sent and not every subscriber has, at most."""

SAID_MAX = 500
T = TypeVar("T")


class Contender(NamedTuple):
    """A system with its promises, in words."""

    name: str
    order: str
    survives: str  # of its servers
    synced: str  # to disk, before it acknowledges: "yes", or the rule that it has instead
    publishes: str  # with which API
    open: Callable[[ExitStack, int, Path], Side]  # for messages of a size, in a folder


def load(size: int) -> Load:
    """Return the load of a peer. The publisher waits for the window, and then sends a block, an
    eighth, more."""
    return Load(size, OUTSTANDING * 8 // 9)


# -- Servers ---------------------------------------------------------------------------------------


class Processes:
    """Servers, which run in `folder`. Leaving the `with` block kills them: their data is not needed
    again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._started: list[tuple[subprocess.Popen[bytes], Path]] = []

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *_: object) -> None:
        for pid in self._pids():
            with suppress(ProcessLookupError):
                os.kill(pid, 9)
        for process, _log in self._started:
            process.wait()

    def start(self, name: str, command: Sequence[str], env: Mapping[str, str]) -> Path:
        """Start a server and return the file of its log."""
        log = self.folder / f"{name}.log"
        with undisturbed(), log.open("wb") as out:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env=env,
                cwd=self.folder,
                # All processes that it starts are of its session; and Ctrl-C comes to us alone.
                start_new_session=True,
            )
            self._started.append((process, log))
        return log

    def wait(self, ready: Callable[[], bool]) -> None:
        deadline = time.monotonic() + READY_S
        while not ready():
            ended = [log for process, log in self._started if process.poll() is not None]
            if ended or time.monotonic() > deadline:
                log = ended[0] if ended else self._started[-1][1]
                said = log.read_text(errors="replace").strip()[-SAID_MAX:]
                raise IllegalStateError(f"its servers do not get ready; one said: {said}")
            time.sleep(0.05)

    def cpu_s(self) -> float:
        total = 0.0
        for pid in self._pids():
            with suppress(OSError):  # it has just ended
                total += cpu_s(pid)
        return total

    def _pids(self) -> list[int]:
        sessions = {process.pid for process, _log in self._started}
        return [pid for pid in map(int, _running()) if _session(pid) in sessions]


def _running() -> list[str]:
    return [entry for entry in os.listdir("/proc") if entry.isdecimal()]


def _session(pid: int) -> int:
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return 0


class Ends(NamedTuple):
    """The clients of servers that are ready."""

    sender: OpenSender
    receivers: list[OpenReceiver]


class Peer:
    """Servers, a publisher and subscribers, ready to work."""

    def __init__(
        self, start: Callable[[Processes], Ends], stack: ExitStack, size: int, folder: Path
    ) -> None:
        """All ends with the `stack`."""
        self._servers = stack.enter_context(Processes(folder))
        ends = start(self._servers)
        self._clients = stack.enter_context(ClientProcesses(load(size), len(ends.receivers)))
        for receiver in ends.receivers:
            self._clients.add_member(receiver)
        self._clients.add_publisher(ends.sender)

    def work(self, job: Job) -> Slice:
        before = self._servers.cpu_s()
        done = self._clients.work(job)
        # Systems differ in which server leads: all servers are counted together.
        return done._replace(leader_cpu_s=self._servers.cpu_s() - before)


# -- Clients ---------------------------------------------------------------------------------------


class Gathering:
    """A sender for clients that are handed several messages at a time, which then travel as single
    messages: `per_pack` is how many."""

    def __init__(self, hand_on: Callable[[list[bytes]], None], settle: Callable[[], None]) -> None:
        """`settle` returns when the servers have acknowledged everything."""
        self.per_pack = 1
        self._hand_on = hand_on
        self._settle = settle
        self._gathered: list[bytes] = []

    def send(self, body: bytes) -> None:
        self._gathered.append(body)
        if len(self._gathered) >= self.per_pack:
            self._hand_on_all()

    def flush(self, last: None) -> None:
        if self._gathered:
            self._hand_on_all()
        self._settle()

    def _hand_on_all(self) -> None:
        bodies, self._gathered = self._gathered, []
        self._hand_on(bodies)


class LoopThread:
    """An event loop that always runs, in a thread: for clients of asyncio. Antiphon's blocking
    client has one, too, and of the same kind."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE_S)


@contextmanager
def loop_thread() -> Iterator[LoopThread]:
    import uvloop

    loop = uvloop.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield LoopThread(loop)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
