"""Large packs on thin links: whole clusters in which nothing fails, and nobody is elected again."""

import msgspec
import pytest

from antiphon.log.settings import Settings
from antiphon.sim.plan import Plan, draw_plan
from antiphon.sim.run import make_world, run_world


def plan_without_faults(seed: int, volatile: bool) -> Plan:
    """A second for each large pack, and for what is sent after it on the same link."""
    plan = draw_plan(seed)
    return msgspec.structs.replace(
        plan,
        listed={n: f"node-{n}" for n in (1, 2, 3)},
        rates=dict.fromkeys((1, 2, 3), 1.0),
        wire_versions=dict.fromkeys((1, 2, 3), 2),
        spares=0,
        volatile=volatile,
        settings=Settings(volatile=volatile, large_bytes=1_000, inflight_max_bytes=10_000),
        segment_bytes=100_000,
        loss=0.0,
        duplication=0.0,
        straggle=0.0,
        delay_us=(100, 500),
        sync_us=(500, 5_000),
        duration_us=20_000_000,
        clients=3,
        operations=1_000,
        faults=(),
        messaging=None,
        local=False,
        all_return=True,
        bandwidth=20,
        large=0.3,
    )


@pytest.mark.parametrize("volatile", [False, True])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_large_packs_cause_no_election(seed: int, volatile: bool) -> None:
    world = make_world(plan_without_faults(seed, volatile))
    result = run_world(world)
    assert result.violation == ""
    assert world.faults["part"] > 100
    epochs = {server.node.replica.epoch for server in world.servers.values()}
    assert epochs == {2}, "the one that was founded, and one election"
