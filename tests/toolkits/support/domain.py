"""A domain of replicated objects for tests: managers and locations as processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType

import antiphon
from antiphon.toolkits import eternal
from tests.process.support.cluster import WAIT_S

PROGRAM = Path(__file__).parent / "ledger_program.py"


class Domain:
    """Processes, each with those that it starts in a session of its own, so that one signal takes
    all of a location; and a replica of the manager in this process, the youngest."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url, self.folder = url, folder
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self.faults: list[eternal.Fault] = []

    def start(self, role: str, *names: str) -> None:
        """Return when they are ready."""
        for name in names:
            self._processes[name] = subprocess.Popen(
                [sys.executable, PROGRAM, role, self.url, name],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                start_new_session=True,
            )
            if role == "manager":  # in this order
                self._wait_ready(name)
        for name in names:
            if role != "manager":
                self._wait_ready(name)

    def open(self) -> None:
        self.ctx = antiphon.connect(self.url)
        self.manager = eternal.ReplicationManager(self.ctx, "test")
        eternal.FaultNotifier(self.manager).subscribe(self.faults.append)

    def criteria(
        self, style: str, initial: int, minimum: int, fails_at: str = ""
    ) -> eternal.Criteria:
        arguments = (str(self.folder), fails_at)
        return eternal.Criteria(style, initial, minimum, arguments=arguments)

    def kill(self, name: str, number: int = signal.SIGKILL) -> None:
        """A manager, or a location with all members there."""
        os.killpg(self._processes[name].pid, number)

    def signal_member(self, member: str, number: int = signal.SIGKILL) -> None:
        os.kill(int((self.folder / member).read_text()), number)

    def signal_factory(self, location: str, number: int) -> None:
        """Its members go on."""
        os.kill(self._processes[location].pid, number)

    def runs(self, member: str) -> bool:
        """Whether its process is there (a stopped one is)."""
        state = Path(f"/proc/{(self.folder / member).read_text()}/stat")
        return state.exists() and state.read_text().split()[2] != "Z"

    def members(self, group: str) -> dict[str, str]:
        """Return those that run, by their locations."""
        return self.manager.get_object_group(group).members

    def wait_for_members(
        self, group: str, what: Callable[[dict[str, str]], bool]
    ) -> dict[str, str]:
        self.manager.wait_until(lambda manager: what(manager.group(group).members), WAIT_S)
        return self.members(group)

    def _wait_ready(self, name: str) -> None:
        output = self._processes[name].stdout
        assert output is not None
        assert output.readline() == b"ready\n", f"{name} did not start"

    def __enter__(self) -> Domain:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if hasattr(self, "manager"):
            self.manager.close()
            self.ctx.close()
        for process in self._processes.values():
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            for pipe in (process.stdin, process.stdout):
                assert pipe is not None
                pipe.close()
            process.wait()


class Writer(threading.Thread):
    """Adds marks 0, 1, 2... to a ledger, one after the other."""

    def __init__(self, url: str, group: str) -> None:
        super().__init__(daemon=True)
        self._url, self._group = url, group
        self.sizes: list[int] = []
        self.error: Exception | None = None
        self._stopping = threading.Event()

    def run(self) -> None:
        try:
            with (
                antiphon.connect(self._url) as ctx,
                eternal.ObjectRequestGateway(ctx, self._group) as client,
            ):
                ledger = client.proxy(WAIT_S)
                while not self._stopping.is_set():
                    self.sizes.append(ledger.add(len(self.sizes)))
        except Exception as error:
            self.error = error

    def stop(self) -> int:
        """Return how many marks were added."""
        self._stopping.set()
        self.join(WAIT_S)
        assert self.error is None, repr(self.error)
        return len(self.sizes)
