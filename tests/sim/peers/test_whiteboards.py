"""Whiteboards in the simulator: numbers rise, and all know the newest ones in the end."""

import pytest
from msgspec.structs import replace

from antiphon.sim.peers.plan import draw_plan
from antiphon.sim.peers.run import run_world
from antiphon.sim.peers.world import World

pytestmark = pytest.mark.sim


@pytest.mark.parametrize("first", [1, 4, 7, 10])
def test_no_seed_shows_an_older_number_or_hides_the_newest(first: int) -> None:
    read = 0
    for seed in range(first, first + 3):
        plan = draw_plan(seed)
        sends_ms = plan.sends_ms or 200
        layers = replace(plan.layers, whiteboard=True)
        world = World(replace(plan, layers=layers, sends_ms=sends_ms))
        result = run_world(world)
        assert not result.violation, f"seed {seed}: {result.violation}"
        read += world.judge.numbers_read
    assert read > 50


def test_some_worlds_have_whiteboards_by_chance() -> None:
    drawn = [draw_plan(seed).layers.whiteboard for seed in range(100)]
    assert 5 < sum(drawn) < 30
