"""Notes and transitional views in the simulator: on top of the stacks of fixed seeds, under their
faults."""

from collections.abc import Sequence

import pytest

from antiphon.model.peer_views import ViewId
from antiphon.peers.layers.layer import Effect
from antiphon.peers.layers.views.notes import Notes
from antiphon.peers.layers.views.transitional import Passing
from antiphon.peers.stack.running import Output, Shown
from antiphon.peers.stack.stack import Stack
from antiphon.peers.stack.stacks import transitional
from antiphon.sim.peers.plan import draw_plan
from antiphon.sim.peers.process import Process
from antiphon.sim.peers.run import run_world
from antiphon.sim.peers.world import World

SEEDS = 24
A_TEST = 4
CHANGES = 4
EVERY_MS = 700


class Restless(Notes):
    """Changes its note some times, after times of its own."""

    count = 0
    due_ms: int | None = None

    def start(self, now_ms: int) -> Sequence[Effect]:
        self.due_ms = now_ms + self.random.randrange(EVERY_MS)
        return ()

    def tick(self, now_ms: int) -> Sequence[Effect]:
        self.count += 1
        self.due_ms = None
        if self.count < CHANGES:
            self.due_ms = now_ms + self.random.randrange(EVERY_MS)
        return self.set(f"{self.me} {self.me.incarnation} {self.count}", now_ms)

    def next_deadline_ms(self) -> int | None:
        return self.due_ms


@pytest.mark.sim
@pytest.mark.in_turn
@pytest.mark.parametrize("first", range(1, SEEDS + 1, A_TEST))
def test_all_who_show_a_view_show_the_same_notes(
    first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: dict[ViewId, Shown] = {}
    passed: dict[Process, Passing] = {}
    carry_out = Process._carry_out

    def watched(process: Process, output: Output) -> None:
        if isinstance(output, Passing):
            passed[process] = output
        elif isinstance(output, Shown):
            known = shown.setdefault(output.view.id, output)
            assert output.notes == known.notes
            assert set(output.notes) <= set(output.view.members)
            assert all(note.startswith(f"{one} ") for one, note in output.notes.items())
            assert passed.pop(process).together == output.changed.together
        carry_out(process, output)

    monkeypatch.setattr(Process, "_carry_out", watched)
    noted = 0
    for seed in range(first, first + A_TEST):
        shown.clear()
        world = World(draw_plan(seed))
        world.stack = transitional(Stack(*world.stack.layers, Restless()))
        result = run_world(world)
        assert not result.violation, f"seed {seed}: {result.violation}"
        noted += sum(bool(output.notes) for output in shown.values())
    assert noted > 0  # some seeds have no primary view after the first note
