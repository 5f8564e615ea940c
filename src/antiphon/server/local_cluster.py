"""Clusters of real server processes on this machine, for `cluster up`, the demo, benchmarks and
tests.

Promise: leaving the `with` block ends every process, whatever happened inside. Each server writes
its output to a log file beside its data folder.
"""

from __future__ import annotations

import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

from antiphon.errors import IllegalStateError
from antiphon.io.config import check_contexts
from antiphon.io.transport import Address, format_address

HOST = "127.0.0.1"
PORTS = range(10_000, 32_768)
"""Below those that systems give to outgoing connections: otherwise any program's connection could
take the port of a server that is down, and the server could not come back."""

READY_S = 20.0
STOP_S = 5.0
COMMAND = (sys.executable, "-m", "antiphon")


_given: deque[int] = deque(maxlen=1000)


def free_port() -> int:
    """Return a port on which no process listens; not the same one twice, for a server that got one
    may not listen yet."""
    while True:
        port = random.choice(PORTS)
        with socket.socket() as probe:
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
        if port not in _given:
            _given.append(port)
            return port


@contextmanager
def undisturbed() -> Iterator[None]:
    """Hold back signals that end this program for the length of a `with` block: a program that
    starts a process and ends all of its processes must know of the one that is just beginning."""
    waiting: list[int] = []
    if threading.current_thread() is threading.main_thread():
        handlers = {n: signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGINT)}
    else:
        handlers = {}  # only the main thread is interrupted
    for number in (n for n, handler in handlers.items() if callable(handler)):
        signal.signal(number, lambda n, _: waiting.append(n))
    try:
        yield
    finally:
        for number, handler in handlers.items():
            if callable(handler):
                signal.signal(number, handler)
    for n in waiting[:1]:
        signal.raise_signal(n)


class LocalServer:
    """One server process, which may be killed and started again."""

    def __init__(self, node: int, address: Address, folder: Path) -> None:
        self.node = node
        self.address = address
        self.data = folder / f"node-{node}"
        self.log = folder / f"node-{node}.log"
        self.process: subprocess.Popen[bytes] | None = None
        self._log_start = 0

    @property
    def url(self) -> str:
        return f"antiphon://{format_address(self.address)}"

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def start(self, cluster: str, storage: str, *more: str) -> None:
        """`more`: further options of `antiphon serve`."""
        assert not self.running
        self._log_start = self.log.stat().st_size if self.log.exists() else 0
        options = ["--node", str(self.node), "--cluster", cluster]
        options += ["--data", str(self.data), "--storage", storage, *more]
        with undisturbed(), self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*COMMAND, "serve", *options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # Ctrl-C at the terminal is for the program that started the cluster, which ends it.
                start_new_session=True,
            )

    def said(self) -> str:
        """Return its output since it was started last."""
        return self.log.read_bytes()[self._log_start :].decode(errors="replace")

    def wait_ready(self, timeout: float = READY_S) -> None:
        deadline = time.monotonic() + timeout
        while not any(line.startswith("ready ") for line in self.said().splitlines()):
            if not self.running or time.monotonic() > deadline:
                state = "does not get ready" if self.running else "ended"
                raise IllegalStateError(f"node {self.node} {state}; it said:\n{self.said()}")
            time.sleep(0.02)

    def signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def kill(self) -> None:
        """Crash it: `kill -9`."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        """End it in an orderly way; return its exit code."""
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)
        self.process.terminate()
        try:
            return self.process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.kill()
            return -signal.SIGKILL


class LocalCluster:
    """Server processes on this machine that form a cluster; they run in a `with` block."""

    def __init__(
        self,
        servers: int,
        folder: Path,
        storage: str = "durable",
        contexts: str = "replicated",
        trace: str | None = None,
    ) -> None:
        """Prepare a cluster, of which nothing runs yet. Data folders and logs are in `folder`,
        which must exist; the servers' traces go to the folder `trace`. Raise `FormatError` if
        storage and contexts do not go together."""
        check_contexts(contexts, storage)
        self.storage = storage
        self.contexts = contexts
        self._traces = ["--trace", trace] if trace is not None else []
        ports: dict[int, int] = {}
        while len(ports) < servers:
            ports[free_port()] = len(ports) + 1
        self.servers = {
            node: LocalServer(node, (HOST, port), folder) for port, node in ports.items()
        }

    def __enter__(self) -> LocalCluster:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        running = [server for server in self.servers.values() if server.running]
        for server in running:
            server.signal(signal.SIGCONT)
            server.signal(signal.SIGTERM)
        for server in running:
            server.stop()

    @property
    def listed(self) -> str:
        """Return the servers as `--cluster` takes them."""
        return ",".join(f"{n}={format_address(s.address)}" for n, s in self.servers.items())

    @property
    def url(self) -> str:
        return "antiphon://" + ",".join(format_address(s.address) for s in self.servers.values())

    def start(self, *nodes: int, wait: bool = True) -> None:
        """Start these servers, or all; with `wait`, return when they serve."""
        chosen = [self.servers[node] for node in nodes or self.servers]
        for server in chosen:
            server.start(self.listed, self.storage, "--contexts", self.contexts, *self._traces)
        for server in chosen if wait else []:
            server.wait_ready()
