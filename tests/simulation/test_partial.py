"""Partial partitions that last: which links are cut, and that a cluster goes on as if none were."""

from random import Random

import pytest
from msgspec.structs import replace

from antiphon.sim.plan import draw_plan
from antiphon.sim.run import run_plan
from antiphon.sim.topology import SHAPES, draw_cuts, is_connected


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("size", [3, 4, 5, 7])
def test_a_shape_cuts_links_and_leaves_ways(shape: str, size: int) -> None:
    servers = list(range(1, size + 1))
    for seed in range(20):
        cut = draw_cuts(Random(seed), servers, shape, 2)
        assert cut
        assert is_connected(servers, cut)


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
