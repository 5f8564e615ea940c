"""Groups in the simulator: what the seeds contain, and that it is judged."""

from collections import Counter
from pathlib import Path

import pytest

from antiphon.checkers import groups
from antiphon.cli.sim import check_seed
from antiphon.formats.trace import decode
from antiphon.sim.messaging_world import MessagingWorld
from antiphon.sim.plan import Plan, draw_plan
from antiphon.sim.programs.member_state import Replica
from antiphon.sim.run import make_world, run_world
from antiphon.sim.violations import ViolationError


def plans(count: int) -> list[Plan]:
    """The first ones with groups."""
    found: list[Plan] = []
    seed = 0
    while len(found) < count:
        seed += 1
        plan = draw_plan(seed)
        if plan.messaging is not None and plan.messaging.groups:
            found.append(plan)
    return found


def test_half_of_the_seeds_with_programs_have_groups() -> None:
    drawn = [m for seed in range(400) if (m := draw_plan(seed).messaging) is not None]
    with_groups = sum(bool(m.groups) for m in drawn)
    assert 0.4 < with_groups / len(drawn) < 0.6


@pytest.mark.sim
@pytest.mark.timeout(180)
def test_members_do_all_that_members_can_do() -> None:
    kinds: Counter[str] = Counter()
    for plan in plans(12):
        world = make_world(plan)
        assert isinstance(world, MessagingWorld)
        assert run_world(world).violation == ""
        kinds.update(event.kind for event in world.traces)
    expected = "join leave view state send sent deliver suspect withdraw remove conflict crash"
    assert {kind for kind in expected.split() if kinds[kind] < 3} == set()


@pytest.mark.sim
@pytest.mark.timeout(60)
def test_a_trace_that_breaks_the_specification_is_a_violation() -> None:
    """Without the last delivery of some member, P2 or P1 is broken."""
    for plan in plans(5):
        world = make_world(plan)
        assert isinstance(world, MessagingWorld)
        run_world(world)
        at = max(i for i, e in enumerate(world.traces) if e.kind == "view")
        doubled = [*world.traces, world.traces[at]]
        assert groups.check(world.traces, complete=False) == []
        assert groups.check(doubled, complete=False) != []


def test_a_state_has_all_messages_between_its_origin_and_its_cut() -> None:
    one, other = Replica(), Replica()
    one.begin(view=2, position=3, cut=-1)
    one.positions = {4, 6}
    other.take_over(one.encode(), 6, [1, 3, 4, 6, 7])
    assert (other.origin, other.positions) == (3, {4, 6})
    with pytest.raises(ViolationError, match=r"a state with \[4, 6\] is cut at 7"):
        other.take_over(one.encode(), 7, [1, 3, 4, 6, 7])


def test_a_replica_begins_with_its_join_unless_it_has_a_state() -> None:
    one, other = Replica(), Replica()
    one.begin(view=2, position=3, cut=-1)
    one.positions = {4, 6}
    one.begin(view=2, position=3, cut=-1)  # it is told again
    assert (one.origin, one.positions) == (3, {4, 6})
    other.take_over(one.encode(), 6, [4, 6])
    other.begin(view=3, position=5, cut=6)  # the state was there before the view
    assert (other.origin, other.positions) == (3, {4, 6})
    other.start_over()  # that state was lost
    assert (other.origin, other.positions) == (5, set())


def test_what_members_saw_is_in_the_trace_files(tmp_path: Path) -> None:
    check_seed(plans(1)[0].seed, str(tmp_path))
    kinds = Counter(
        event.kind
        for path in tmp_path.iterdir()
        for event in decode(path.read_bytes())[0]
        if event.group != "log"
    )
    assert kinds["view"] > 0
    assert kinds["join"] > 0
