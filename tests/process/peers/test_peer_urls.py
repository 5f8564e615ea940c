"""`peer:` URLs: programs without any server, whose processes are killed, paused and cut off. What
they got is judged by both judges of groups."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import antiphon
from antiphon.checkers import groups, memberships
from antiphon.errors import ConfigurationError, ConnectionLostError
from antiphon.io.transport import Address, format_address
from antiphon.lab.chaos.channels.links import Network
from antiphon.lab.chaos.recorder import read_traces
from antiphon.server.local_cluster import HOST, free_port
from tests.process.support.table_program import CALM

pytestmark = [pytest.mark.process, pytest.mark.timeout(120)]

PROGRAM = "tests.process.support.table_program"
WAIT_S = 40.0


class Programs:
    """Processes with one table, and gates between them."""

    def __init__(self, folder: Path, count: int) -> None:
        self.names = tuple(f"p{number}" for number in range(1, count + 1))
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self._folder = folder
        self._targets: dict[str, Address] = {name: (HOST, free_port()) for name in self.names}
        self.network = Network(self._targets)

    def start(self, *names: str) -> None:
        gates = ",".join(format_address(gate) for gate in self.network.gates.values())
        for name in names:
            listen = format_address(self._targets[name])
            address = format_address(self.network.gates[name])
            url = f"peer://{gates}/tables?name={name}&listen={listen}&address={address}"
            with (self._folder / f"{name}.log").open("ab") as log:
                self.running[name] = subprocess.Popen(
                    [sys.executable, "-m", PROGRAM, url, name, str(self._folder)],
                    stdin=subprocess.DEVNULL,
                    stderr=log,
                )

    def kill(self, *names: str) -> None:
        for name in names:
            self.running[name].kill()
        for name in names:
            self.running.pop(name).wait()

    def pause(self, name: str) -> None:
        self.running[name].send_signal(signal.SIGSTOP)

    def resume(self, name: str) -> None:
        self.running[name].send_signal(signal.SIGCONT)

    def part(self, name: str) -> None:
        for other in self.names:
            if other != name:
                self.network.cut(name, other)

    def said(self, name: str) -> dict[str, object]:
        try:
            found: dict[str, object] = json.loads((self._folder / f"{name}.json").read_text())
        except FileNotFoundError:
            return {}
        return found

    def are_members(self, *names: str, at: str = "") -> Callable[[], bool]:
        """Whether these, and no others, are members, as all of them say."""
        told = (at,) if at else names
        return lambda: all(
            set(self.said(name).get("members", ())) == set(names)  # type: ignore[call-overload]
            for name in told
        )

    def goes_on(self, name: str) -> Callable[[], bool]:
        """Whether more is written to this one's table than now."""
        before = self.said(name).get("table")
        return lambda: self.said(name).get("table") != before

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        until = time.monotonic() + WAIT_S
        while not condition():
            assert time.monotonic() < until, f"waited {WAIT_S} s for: {what}\n{self._story()}"
            time.sleep(0.05)

    def judge(self) -> None:
        """Let them come to rest; all have the same, and the traces keep the promises."""
        (self._folder / CALM).touch()
        self.wait(self._are_alike, "all tables are alike")
        self.kill(*self.running)
        events = read_traces(self._folder)
        assert sum(event.kind == "deliver" for event in events) > 100
        found = [*map(str, groups.check(events)), *map(str, memberships.check(events))]
        assert found == [], f"{found[:5]}\n{self._story()}"

    def _are_alike(self) -> bool:
        before = [self.said(name) for name in self.running]
        time.sleep(0.5)
        said = [self.said(name) for name in self.running]
        tables = {json.dumps(one.get("table"), sort_keys=True) for one in said}
        return before == said and len(tables) == 1

    def _story(self) -> str:
        lines = [f"{self._folder}:"]
        for name in self.names:
            log = self._folder / f"{name}.log"
            lines.append(f"{name}: {self.said(name)}")
            lines += log.read_text().splitlines()[-6:] if log.exists() else []
        return "\n".join(lines)


@contextmanager
def programs(folder: Path, count: int) -> Iterator[Programs]:
    """All of them started at once, and in one view."""
    started = Programs(folder, count)
    with started.network:
        try:
            started.start(*started.names)
            started.wait(started.are_members(*started.names), "all are members")
            yield started
        finally:
            started.kill(*started.running)


def test_three_survive_a_kill_a_pause_and_a_cut(tmp_path: Path) -> None:
    with programs(tmp_path, 3) as three:
        three.kill("p2")
        three.wait(three.are_members("p1", "p3"), "p2 is removed")
        three.start("p2")
        three.wait(three.are_members("p1", "p2", "p3"), "p2 is back")
        three.pause("p1")
        three.wait(three.are_members("p2", "p3"), "p1 is removed")
        three.resume("p1")
        three.wait(three.are_members("p1", "p2", "p3"), "p1 is back")
        three.part("p3")
        three.wait(three.are_members("p1", "p2"), "p3 is removed")
        stands_still = three.said("p3")
        three.wait(three.goes_on("p1"), "the others go on")
        assert three.said("p3").get("table") == stands_still.get("table")
        three.network.mend_all()
        three.wait(three.are_members("p1", "p2", "p3"), "p3 is back")
        three.judge()


def test_five_survive_two_that_are_killed_at_once(tmp_path: Path) -> None:
    with programs(tmp_path, 5) as five:
        five.kill("p1", "p4")
        five.wait(five.are_members("p2", "p3", "p5"), "p1 and p4 are removed")
        five.start("p1", "p4")
        five.wait(five.are_members(*five.names), "p1 and p4 are back")
        five.kill("p2", "p5")
        five.wait(five.are_members("p1", "p3", "p4"), "p2 and p5 are removed")
        five.start("p2", "p5")
        five.wait(five.are_members(*five.names), "p2 and p5 are back")
        five.judge()


def test_who_is_not_in_a_majority_is_told_what_it_waits_for() -> None:
    listed = ",".join(format_address((HOST, free_port())) for _ in range(3))
    with pytest.raises(ConnectionLostError) as caught:
        antiphon.connect(f"peer://{listed}/tables?name=alone", connect_timeout=4)
    assert "only primary views count, and alone are none" in str(caught.value)
    assert "it is connected to nobody" in str(caught.value)
    assert caught.value.happened == "no"


def test_a_list_of_other_machines_needs_tls() -> None:
    with pytest.raises(ConfigurationError, match="off loopback a channel needs tls"):
        antiphon.connect(f"peer://{HOST}:{free_port()},192.0.2.1:7400/tables")
