"""An object group of real processes, which are killed while clients call it."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import antiphon
from antiphon.toolkits.objectgroups import GroupAccessor
from tests.api.support import backends
from tests.api.support.steps import heard, in_thread
from tests.toolkits.support.register_program import GROUP

pytestmark = [pytest.mark.process, pytest.mark.timeout(120), pytest.mark.in_turn]

PROGRAM = Path(__file__).parent / "support" / "register_program.py"
WAIT_S = 30.0


class Members:
    """Members as processes."""

    def __init__(self, url: str, stack: ExitStack) -> None:
        self._url, self._stack = url, stack
        self._processes: dict[str, subprocess.Popen[str]] = {}

    def start(self, name: str) -> None:
        command = [sys.executable, PROGRAM, self._url, name]
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._processes[name] = self._stack.enter_context(process)
        self._stack.callback(process.kill)
        self.wait_for(name, "ready")

    def wait_for(self, name: str, line: str) -> None:
        output = self._processes[name].stdout
        assert output is not None
        assert output.readline() == f"{line}\n", name

    def kill(self, name: str) -> None:
        self._processes[name].kill()


@pytest.fixture(params=["servers", "peers"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "servers":
        with backends.cluster(tmp_path) as backend:
            yield backend.url
    else:
        yield f"peer:file/{tmp_path}/test"


def test_a_group_of_processes_keeps_one_state_and_waits_for_no_dead_member(url: str) -> None:
    with ExitStack() as stack:
        members = Members(url, stack)
        for name in ("ann", "bob", "cid"):
            members.start(name)
        ctx = stack.enter_context(antiphon.connect(url))
        accessor = stack.enter_context(GroupAccessor(ctx, GROUP))

        waiting = in_thread(lambda: accessor.multicast("cid", timeout=WAIT_S))
        members.wait_for("cid", "hangs")
        members.kill("cid")
        assert heard(waiting, 1) == [["cid", "cid"]]
        assert accessor.get_view().members == ("ann", "bob")

        def add(first: int) -> None:
            with antiphon.connect(url) as own, GroupAccessor(own, GROUP) as client:
                register = client.reference(timeout=WAIT_S)
                for number in range(first, first + 30):
                    register.add(number)

        adding = [threading.Thread(target=add, args=(100 * n,)) for n in range(3)]
        for thread in adding:
            thread.start()
        members.start("cid")  # takes over the state of a moment
        members.kill("ann")  # the oldest
        for thread in adding:
            thread.join()
        kept = accessor.reference(transparent=False, timeout=WAIT_S).kept()
        assert len(kept) == 2
        assert kept[0] == kept[1]
        assert sorted(kept[0]) == [100 * n + m for n in range(3) for m in range(30)]
