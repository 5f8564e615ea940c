"""Processes of a channel, as a test has them: started, asked, paused, killed."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

WAIT_S = 30.0
ROOT = Path(__file__).parents[3]
PROGRAM = "tests.process.support.peer_program"
"""What a process runs, unless its options name another `program`."""


class Peer:
    """One process (`peer_program.py`, or another one that takes orders), and all that it has
    said."""

    def __init__(self, options: dict[str, Any], environment: dict[str, str], log: Path) -> None:
        self.name = options["name"]
        self.events: list[dict[str, Any]] = []
        self._news = threading.Condition()
        self._answers = 0
        self._log = log
        with log.open("ab") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", options.get("program", PROGRAM), json.dumps(options)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=ROOT,
                env=environment,
            )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._news:
                self.events.append(json.loads(line))
                self._news.notify_all()
        with self._news:
            self.events.append({"ended": True})
            self._news.notify_all()

    def wait(
        self, condition: Callable[[list[dict[str, Any]]], Any], what: str, timeout: float = WAIT_S
    ) -> Any:
        """Wait until what it has said fulfils the condition, and return what that returns."""
        with self._news:
            if self._news.wait_for(lambda: condition(self.events), timeout):
                return condition(self.events)
        story = "\n".join(map(str, self.events[-20:]))
        log = self._log.read_text(encoding="utf-8")[-2000:]
        raise AssertionError(f"{self.name}: waited {timeout} s for {what}\n{story}\n{log}")

    # -- What it has said ------------------------------------------------------------------------

    def said(self, key: str, timeout: float = WAIT_S) -> Any:
        """Wait for the first event with this key, and return it."""
        return self.wait(
            lambda events: next((event for event in events if key in event), None), key, timeout
        )

    @property
    def views(self) -> list[dict[str, Any]]:
        """The views that it has received."""
        return [event for event in self.events if "view" in event]

    @property
    def bodies(self) -> list[Any]:
        """The bodies that it has received."""
        return [event["got"] for event in self.events if "got" in event]

    def wait_view(
        self, *names: str, primary: bool | None = None, timeout: float = WAIT_S
    ) -> dict[str, Any]:
        """Wait until its last view has these members."""

        def last(events: list[dict[str, Any]]) -> dict[str, Any] | None:
            views = [event for event in events if "view" in event]
            if not views or sorted(views[-1]["view"]) != sorted(names):
                return None
            return views[-1] if primary in (None, views[-1]["primary"]) else None

        kind = {None: "", True: " primary", False: " non-primary"}[primary]
        return self.wait(last, f"a{kind} view of {names}", timeout)

    def wait_bodies(self, bodies: set[Any], timeout: float = WAIT_S) -> None:
        """Wait until it has received all of these."""

        def have_all(events: list[dict[str, Any]]) -> bool:
            return bodies <= {event["got"] for event in events if "got" in event}

        self.wait(have_all, f"{bodies}", timeout)

    # -- What it is told -------------------------------------------------------------------------

    def order(self, **order: Any) -> None:
        """Tell it to do something."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(order).encode() + b"\n")
        self.process.stdin.flush()

    def ask(self, **order: Any) -> Any:
        """Tell it to do something, and return what came of it."""
        self.order(**order)
        at, self._answers = self._answers, self._answers + 1

        def answer(events: list[dict[str, Any]]) -> Any:
            answers = [event for event in events if "answer" in event]
            return answers[at] if len(answers) > at else None

        return self.wait(answer, f"an answer to {order}")["answer"]

    def send(self, *bodies: str) -> None:
        assert self.ask(send=bodies) == len(bodies)

    # -- What becomes of it ----------------------------------------------------------------------

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def pause(self) -> None:
        os.kill(self.process.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.process.pid, signal.SIGCONT)

    def end(self) -> None:
        """Let go of everything, whatever it is doing."""
        self.process.kill()
        self.process.wait()
        self._reader.join()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            with suppress(BrokenPipeError):
                pipe.close()


class Peers:
    """The processes of one cluster, on this machine."""

    def __init__(self, folder: Path, url: str = "peer:c", **options: Any) -> None:
        """`options`: those of all processes; see `peer_program.py`."""
        self.url = url
        self.all: list[Peer] = []
        self._folder = folder
        self._options = options
        self._environment = {**os.environ, "XDG_RUNTIME_DIR": str(folder)}

    def begin(self, name: str, **options: Any) -> Peer:
        """Start a process, and return at once."""
        options = {"url": self.url, "name": name, **self._options, **options}
        peer = Peer(options, self._environment, self._folder / f"{name}.log")
        self.all.append(peer)
        return peer

    def join(self, name: str, **options: Any) -> Peer:
        """Start a process, and wait until it is connected."""
        peer = self.begin(name, **options)
        connected = peer.said("connected")
        assert connected["connected"], connected
        return peer

    def group(self, *names: str, **options: Any) -> list[Peer]:
        """Start processes, and wait until all are in one view."""
        peers = [self.begin(name, **options) for name in names]
        for peer in peers:
            peer.wait_view(*names)
        return peers

    def at_once(self, *names: str, **options: Any) -> list[Peer]:
        """Start processes that all connect in the same moment."""
        peers = [self.begin(name, waits=True, **options) for name in names]
        for peer in peers:
            peer.said("ready")
        for peer in peers:
            peer.order(go=True)
        return peers

    def end(self) -> None:
        for peer in self.all:
            peer.end()


@contextmanager
def peers_in(folder: Path, url: str = "peer:c", **options: Any) -> Iterator[Peers]:
    """The processes of a cluster, which end with the block."""
    peers = Peers(folder, url, **options)
    try:
        yield peers
    finally:
        peers.end()


def free_addresses(count: int) -> list[str]:
    """Return addresses of this machine at which nobody listens."""
    with ExitStack() as stack:
        sockets = [
            stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)
        ]
        return [f"127.0.0.1:{sock.getsockname()[1]}" for sock in sockets]


def wait_until(condition: Callable[[], bool], what: str, timeout: float = WAIT_S) -> None:
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, f"waited {timeout} s for {what}"
        time.sleep(0.02)
