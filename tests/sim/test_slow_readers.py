"""Programs that stop reading: the server cuts them off, and nothing is lost for it."""

import msgspec

from antiphon.sim.plan import draw_plan
from antiphon.sim.run import run_plan

SLOW = 611
"""A seed in which programs stop reading."""

LARGE_RESUME = 930000945
"""A seed in which a group's events, which a member gets together when it comes back, are more than
a server keeps for one program."""


def test_who_stops_reading_is_cut_off_and_finishes_its_work() -> None:
    plan = draw_plan(SLOW)
    assert plan.messaging is not None
    result = run_plan(plan)
    assert result.violation == ""
    assert result.faults["unread"] > 0
    quick = msgspec.structs.replace(
        plan, messaging=msgspec.structs.replace(plan.messaging, stalls=0)
    )
    assert "reader stalls" not in run_plan(quick).faults


def test_programs_stop_reading_in_some_seeds() -> None:
    drawn = [m for seed in range(200) if (m := draw_plan(seed).messaging) is not None]
    assert 0.1 < sum(m.stalls > 0 for m in drawn) / len(drawn) < 0.3


def test_who_comes_back_to_more_than_a_server_kept_gets_it_once_faults_have_stopped() -> None:
    assert run_plan(draw_plan(LARGE_RESUME)).violation == ""
