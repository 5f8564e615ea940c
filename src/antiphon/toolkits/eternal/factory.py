"""Factories: a process at each location that runs members of object groups as processes."""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial

import antiphon
from antiphon.errors import IllegalStateError, JMSError, OutcomeUnknownError
from antiphon.toolkits._closing import Closing
from antiphon.toolkits.eternal.pure.groups import Order
from antiphon.toolkits.eternal.pure.manager import FACTORY, ManagerService
from antiphon.toolkits.eternal.replication_manager import ReplicationManager

STOP_S = 5.0
"""Seconds that a process has to end before it is killed."""

REPORT_S = 10.0
"""Seconds until a report to the manager is made again."""


class Factory(Closing):
    """Runs the members that the manager wants at one location, each as a process of its own.

    `types`: for each type of object the command of a program that calls `serve` with its last
    argument. Members that end by themselves are reported to the manager. If the factory ends or is
    killed, so do its members; if it was cut off and removed, it ends its members and comes back.
    """

    def __init__(self, url: str, location: str, types: Mapping[str, Sequence[str]]) -> None:
        self.location = location
        self._url = url
        self._types = {name: tuple(command) for name, command in types.items()}
        for name, (program, *_) in self._types.items():
            if shutil.which(program) is None:
                raise ValueError(f"type {name!r}: there is no program {program!r}")
        self._processes: dict[str, _Process] = {}
        self._closing = threading.Event()
        self._ctx = antiphon.connect(url)
        try:
            self._manager = self._open()
        except BaseException:
            self._ctx.close()
            raise
        self._runner = threading.Thread(target=self._run, daemon=True)
        self._runner.start()

    def wait(self) -> None:
        """Wait until this is closed, or has lost its connection for good."""
        self._runner.join()

    def close(self) -> None:
        """Have the manager make others elsewhere, end all members, and leave. Closing twice is no
        error."""
        self._closing.set()
        with suppress(JMSError):  # it knows by the view, too
            self._manager.submit(("withdraw", self.location), REPORT_S)
        self._manager.close()
        self._runner.join()
        self._ctx.close()

    def _open(self) -> ReplicationManager:
        manager = ReplicationManager(self._ctx, FACTORY + self.location)
        manager.submit(("offer", self.location, tuple(self._types)))
        return manager

    def _run(self) -> None:
        while True:
            try:
                self._follow(self._manager)
            except IllegalStateError:
                self._run_only({})  # the manager takes them for gone
            if self._closing.is_set():
                return
            try:
                self._manager.close()
                self._manager = self._open()
            except JMSError:
                return  # the connection is lost

    def _follow(self, manager: ReplicationManager) -> None:
        """Run what the manager wants, until this replica of it is removed or closed."""
        seen = 0

        def news(state: ManagerService) -> tuple[int, dict[str, Order]] | None:
            if state.revision == seen:
                return None
            return state.revision, state.orders(self.location)

        while found := manager.wait_until(news):
            seen, orders = found
            self._run_only(orders)

    def _run_only(self, orders: Mapping[str, Order]) -> None:
        ending = [self._processes.pop(name) for name in list(self._processes) if name not in orders]
        for process in ending:
            process.end()
        for name, order in orders.items():
            if name not in self._processes:
                self._start(order)
        if not orders:
            for process in ending:
                process.wait()

    def _start(self, order: Order) -> None:
        given = json.dumps({"url": self._url, "order": order})
        ended = partial(_report_end, self._manager, order)
        try:
            process = _Process([*self._types[order.type_id], given], ended)
        except OSError as error:
            threading.Thread(target=ended, args=(f"it cannot start: {error}",), daemon=True).start()
        else:
            self._processes[order.member] = process


def _report_end(manager: ReplicationManager, order: Order, why: str) -> None:
    """Report the end of a member until the manager knows, or takes the whole location for gone."""
    while manager.is_member:
        try:
            manager.submit(("ended", order.group, order.member, why), REPORT_S)
            return
        except (OutcomeUnknownError, IllegalStateError):
            continue


class _Process:
    """A process of a member. `ended` is called on a thread of its own if it ends unasked."""

    def __init__(self, command: Sequence[str], ended: Callable[[str], None]) -> None:
        self._ended = ended
        self._ending = False
        self._popen = subprocess.Popen(command, stdin=subprocess.PIPE)
        threading.Thread(target=self._watch, daemon=True).start()
        self._ender = threading.Thread(target=self._kill_if_late, daemon=True)

    def end(self) -> None:
        """Have it end, and kill it if it does not in time. Return at once."""
        self._ending = True
        assert self._popen.stdin is not None
        with suppress(OSError):  # it has ended
            self._popen.stdin.close()
        self._ender.start()

    def wait(self) -> None:
        """Wait until it has ended, after `end`."""
        self._ender.join()

    def _watch(self) -> None:
        status = self._popen.wait()
        if not self._ending:
            self._ended(f"its process ended with status {status}")

    def _kill_if_late(self) -> None:
        try:
            self._popen.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            self._popen.wait()
