"""The servers at which all must be done in the end."""

import pytest
from msgspec.structs import replace

from antiphon.sim import run
from antiphon.sim.cluster.world import World
from antiphon.sim.plan import draw_plan

THREE = 218
"""A seed with three servers."""


def test_the_core_is_a_majority_after_a_removal_that_is_under_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of three servers one asks to be removed: the two who stay need each other."""
    monkeypatch.setattr(run, "_heal", lambda world, random: None)
    world = run.make_world(replace(draw_plan(THREE), faults=(), partial="", all_return=False))
    for number in world.plan.listed:
        world.servers[number].start()
    world.begin()
    world.run_until(3_000_000, lambda: world.leader() is not None)
    world.run_until(world.now_us + 1_000_000)
    leader = world.leader()
    assert leader is not None
    assert {len(core) for core in cores(world)} == {2}
    stay = world.servers.keys() - {leader.number}
    assert len(stay) == 2
    leader.change(leader.number)
    leading = leader.node.replica.leading
    assert leading is not None
    assert leading.changes.removal is not None  # nobody has answered yet
    assert all(stay <= core for core in cores(world))


def cores(world: World) -> list[frozenset[int]]:
    """Return what is chosen by the luck of some seeds."""
    chosen = []
    for seed in range(20):
        world.seed = seed
        run._choose_core(world)
        assert world.core is not None
        chosen.append(world.core)
        world.core = None
    return chosen
