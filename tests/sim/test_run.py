"""The servers at which all must be done in the end, and how long they have for it."""

import pytest
from msgspec.structs import replace

from antiphon.sim import run
from antiphon.sim.cluster.server import SimServer
from antiphon.sim.cluster.world import LIVENESS_US, OUTSIDE_TIMES, World
from antiphon.sim.plan import draw_plan
from antiphon.sim.violations import ViolationError

THREE = 218
"""A seed with three servers."""


def test_the_core_is_a_majority_after_a_removal_that_is_under_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of three servers one asks to be removed: the two who stay need each other."""
    monkeypatch.setattr(run, "_heal", lambda world, random: None)
    world = run.make_world(replace(draw_plan(THREE), faults=(), partial="", all_return=False))
    leader = led(world)
    assert {len(core) for core in cores(world)} == {2}
    stay = world.servers.keys() - {leader.number}
    assert len(stay) == 2
    leader.change(leader.number)
    leading = leader.node.replica.leading
    assert leading is not None
    assert leading.changes.removal is not None  # nobody has answered yet
    assert all(stay <= core for core in cores(world))


def led(world: World) -> SimServer:
    """Let the servers found a cluster; return their leader."""
    for number in world.plan.listed:
        world.servers[number].start()
    world.begin()
    world.run_until(3_000_000, lambda: world.leader() is not None)
    world.run_until(world.now_us + 1_000_000)
    leader = world.leader()
    assert leader is not None
    return leader


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


@pytest.mark.parametrize(
    ("outside", "done_after_us", "in_time"),
    [
        (False, LIVENESS_US, True),
        (False, LIVENESS_US + 1, False),
        (True, LIVENESS_US + 1, True),
        (True, OUTSIDE_TIMES * LIVENESS_US, True),
        (True, OUTSIDE_TIMES * LIVENESS_US + 1, False),
    ],
)
def test_only_a_core_that_is_led_over_lossy_links_has_more_time(
    monkeypatch: pytest.MonkeyPatch, outside: bool, done_after_us: int, in_time: bool
) -> None:
    world = run.make_world(draw_plan(THREE))  # its servers are not started: nothing happens
    world.core = frozenset(world.plan.listed)
    done_us = world.plan.duration_us + done_after_us
    monkeypatch.setattr(world, "live", lambda: world.now_us >= done_us)
    monkeypatch.setattr(world, "is_led_over_lossy_links", lambda: outside)
    if in_time:
        run._finish_in_time(world)
    else:
        with pytest.raises(ViolationError, match="the core is not live"):
            run._finish_in_time(world)
    assert world.faults["led from outside"] == outside


def test_whether_a_core_is_led_over_lossy_links() -> None:
    """Its leader is outside of it, and messages are lost there."""
    world = run.make_world(replace(draw_plan(THREE), faults=(), partial="", loss=0.1))
    leader = led(world)
    everybody = frozenset(world.plan.listed)
    world.core = everybody
    assert not world.is_led_over_lossy_links()
    world.core = everybody - {leader.number}
    assert world.is_led_over_lossy_links()
    world.plan = replace(world.plan, loss=0.0)
    assert not world.is_led_over_lossy_links()
    world.plan = replace(world.plan, loss=0.1)
    leader.crash(power=False)
    assert not world.is_led_over_lossy_links()  # nobody leads
