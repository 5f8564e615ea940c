"""Partial partitions that last: which links are cut, and that a cluster goes on as if none were."""

from random import Random

import pytest
from msgspec.structs import replace

from antiphon.formats.frames import NEWEST
from antiphon.sim.cluster.world import FOREVER_US, World
from antiphon.sim.plan import draw_plan
from antiphon.sim.run import make_world, run_plan
from antiphon.sim.topology import SHAPES, are_connected, draw_cuts, is_connected


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("size", [3, 4, 5, 7])
def test_a_shape_cuts_links_and_leaves_ways(shape: str, size: int) -> None:
    servers = list(range(1, size + 1))
    for seed in range(20):
        cut = draw_cuts(Random(seed), servers, shape, 2)
        assert cut
        assert is_connected(servers, cut)


def test_two_servers_may_be_connected_where_not_all_are() -> None:
    cut = {(1, 3), (3, 1), (2, 4), (4, 2), (1, 4), (3, 4)}
    assert are_connected(1, 3, [1, 2, 3, 4], cut)
    assert not are_connected(1, 3, [1, 3, 4], cut)
    assert not are_connected(1, 4, [1, 2, 3, 4], cut)


def test_a_way_must_lead_forth_and_back() -> None:
    assert is_connected([1, 2, 3], {(1, 2), (2, 3), (3, 1)})
    assert not is_connected([1, 2, 3], {(1, 2), (3, 2)})
    assert not is_connected([1, 2, 3], {(2, 1), (2, 3)})


PLAIN, BUSY = 56, 34
"""Seeds with five servers: of a log by itself, and with programs and a group."""


@pytest.mark.parametrize("seed", [PLAIN, BUSY])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_cluster_goes_on_though_links_are_cut_for_good(seed: int, shape: str) -> None:
    """Everything is done and known everywhere, and nobody is elected later."""
    plan = replace(draw_plan(seed), partial=shape, faults=(), all_return=True)
    assert len(plan.listed) == 5
    result = run_plan(plan)
    assert result.violation == ""
    assert result.faults[f"core {shape}"] == 1
    assert result.faults["blocked"] > 0


def test_whom_a_leader_outside_of_the_core_is_to_reach() -> None:
    """Those to whom a way leads forth and back, if all on it know of ways around."""
    world = make_world(replace(draw_plan(PLAIN), faults=(), partial=""))
    for number in world.plan.listed:
        world.servers[number].start()
    world.begin()
    world.run_until(3_000_000, lambda: world.leader() is not None)
    leader = world.leader()
    assert leader is not None
    lead = leader.number
    old, one, two, outside = (n for n in sorted(world.plan.listed) if n != lead)
    world.core = frozenset({old, one, two})
    assert core_numbers(world) == [old, one, two]
    for link in ((lead, one), (two, lead), (old, lead), (lead, outside), (outside, lead)):
        world.blocked[link] = FOREVER_US
    assert core_numbers(world) == [old, one, two]
    versions = world.plan.wire_versions
    world.plan = replace(world.plan, wire_versions={**versions, old: NEWEST - 1})
    assert core_numbers(world) == [one, two]
    world.plan = replace(world.plan, wire_versions={**versions, one: NEWEST - 1})
    assert core_numbers(world) == []
    world.plan = replace(world.plan, wire_versions={**versions, lead: NEWEST - 1})
    assert core_numbers(world) == []


def core_numbers(world: World) -> list[int]:
    return [server.number for server in world.core_members()]
