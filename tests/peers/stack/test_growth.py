"""What a message costs each member does not grow with their number, counted in calls of functions:
so the whole is linear."""

import sys
from typing import Any

from antiphon.peers.stack.stacks import TOTAL_UNIFORM
from tests.peers.support.mesh import AnyCall, Mesh, Process

MESSAGES = 30


class CountingMesh(Mesh):
    """Counts the calls, of built-in functions among them, that the processes make."""

    calls = 0

    def act(self, process: Process, call: AnyCall) -> None:
        def note(frame: Any, event: str, argument: Any) -> None:
            self.calls += event in ("call", "c_call")

        def counted() -> None:
            sys.setprofile(note)
            try:
                call()
            finally:
                sys.setprofile(None)

        super().act(process, counted)


def calls_per_member(count: int) -> float:
    """Return how many calls one member makes for one message that is alone on its way."""
    names = [f"p{number:02}" for number in range(count)]
    mesh = CountingMesh(*TOTAL_UNIFORM.layers)
    mesh.start(names[0])
    first = mesh.processes[names[0]]
    mesh.act(first, lambda: first.running.found(mesh.now_ms))
    mesh.start(*names[1:])
    assert mesh.until(mesh.together(*names))
    mesh.run(1000)
    mesh.calls = 0
    for number in range(MESSAGES):
        mesh.send("p01", f"m{number}")
        mesh.run(4)
    for process in mesh.living():
        assert process.history()[-1] == f"m{MESSAGES - 1}"
    return mesh.calls / MESSAGES / count


def test_the_cost_of_a_message_is_linear_in_the_members() -> None:
    few, many = calls_per_member(5), calls_per_member(20)
    assert many < 1.3 * few, (few, many)
