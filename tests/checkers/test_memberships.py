"""The judge of memberships: histories that only it finds broken, and agreement with the others.

What it has in common with the specification is in `test_groups.py`, where both judge each history.
"""

from itertools import islice
from random import Random

import pytest

from antiphon.checkers import groups, memberships
from antiphon.sim.messaging_world import MessagingWorld
from antiphon.sim.run import make_world, run_world
from tests.checkers.support.histories import History, of_members, pair
from tests.sim.test_group_seeds import plans
from tests.spark.support import scenes
from tests.spark.support.planting import PLANTS, Plant, Trace, planted

SEEDS = 4
PLANTS_A_SEED = 4


def test_a_view_that_is_handed_out_again_is_the_same() -> None:
    h = pair().add("q", "view", view_id=1, members=("q",), position=0, redelivered=True)
    assert h.broken_for_members(complete=False) == {"views"}


def test_a_higher_view_has_no_earlier_place() -> None:
    h = pair().broadcast("s", "1").view(2, "p q r", "p", "q", position=-1)
    assert h.broken_for_members(complete=False) == {"views"}


def test_who_is_out_is_told_of_no_view() -> None:
    h = pair().add("p", "remove", members=("q",)).view(2, "p", "p", "q").view(3, "p r", "q")
    assert h.broken_for_members(complete=False) == {"views"}


def test_that_an_earlier_member_left_is_no_reason_to_exclude_the_later_one() -> None:
    h = pair().add("q", "leave").view(2, "p", "p").join("q").view(3, "p q")
    assert h.broken_for_members() == set()
    assert h.view(4, "p", "p", "q").broken_for_members() == {"views"}


def test_that_a_member_leaves_when_it_is_out_is_no_reason_for_it() -> None:
    h = pair().view(2, "p", "p", "q").add("q", "leave")
    assert h.broken_for_members() == {"views"}


def test_who_crashed_before_its_program_knew_that_it_had_joined_may_be_missing() -> None:
    """q is in views 3 and 5, and no trace has these joins."""
    h = pair().crash("q").view(2, "p", "p").view(3, "p q", "p").crash("q").view(4, "p", "p")
    assert h.view(5, "p q", "p").view(6, "p", "p").broken_for_members() == set()


def test_a_name_that_no_program_joined_as_is_only_judged_by_its_views() -> None:
    h = pair().view(2, "p q guest").view(3, "p q")
    assert h.broken_for_members() == set()


def test_a_finding_names_the_group_and_both_rows() -> None:
    h = pair().view(2, "p q r", "p").view(2, "p q", "q")
    found = memberships.check(h.events, complete=False)
    text = "views: g: view 2 is 2 ('p', 'q', 'r') at 0 and 2 ('p', 'q') at 0"
    assert str(found[0]) == text


def test_groups_of_one_name_in_two_runs_have_nothing_to_do_with_each_other() -> None:
    one, other = scenes.trace(), History().join("p").view(1, "p").events
    assert memberships.check([*one, *other]) == []


# -- Agreement -------------------------------------------------------------------------------------


def difference(trace: Trace) -> str:
    """Return where the judges differ; what follows from views that contradict each other is told
    in one way or another."""
    expected = of_members(v.rule for v in groups.check(trace))
    found = memberships.check(trace)
    rules = {f.rule for f in found}
    if rules == expected or "views" in rules & expected:
        return ""
    return f"{sorted(expected)}, not {sorted(rules)}: {[str(f) for f in found]}"


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.name)
def test_it_finds_what_is_planted_in_a_clean_trace(plant: Plant) -> None:
    changed = planted(plant, scenes.trace())
    assert changed is not None
    assert difference(changed) == ""


@pytest.mark.sim
@pytest.mark.timeout(300)
def test_it_agrees_with_the_specification_on_simulated_runs() -> None:
    for plan in islice(plans(SEEDS), SEEDS):
        world = make_world(plan)
        assert isinstance(world, MessagingWorld)
        assert run_world(world).violation == ""
        assert difference(world.traces) == ""
        for plant in Random(plan.seed).sample(PLANTS, PLANTS_A_SEED):
            changed = planted(plant, world.traces)
            if changed is not None:
                assert difference(changed) == "", f"seed {plan.seed}: {plant.name}"
