"""The specification of groups (thesis 4.2): histories that keep it, and histories that break it.

A history is told in the order in which it happened, by short methods of `History`. What breaks the
specification is named by its rule. Each history is judged by `checkers/memberships.py`, too, which
must agree as far as it goes.
"""

import pytest

from antiphon.checkers import groups
from antiphon.model.conflicts import ConflictRelation
from tests.checkers.support.histories import History, pair


def test_a_history_without_faults() -> None:
    h = pair().broadcast("s", "1", "2").deliver("p", "1", "2").deliver("q", "1", "2")
    h.join("r").view(2, "p q r").broadcast("p", "3")
    for process in "pqr":
        h.deliver(process, "3", view=2)
    assert h.broken() == []


# -- Views ----------------------------------------------------------------------------------------


def test_a_view_has_the_same_members_everywhere() -> None:
    h = pair().view(2, "p q r", "p").view(2, "p q", "q")
    assert "views" in h.broken(complete=False)


def test_a_view_stands_at_the_same_place_everywhere() -> None:
    h = pair().broadcast("s", "1").view(2, "p q", "p", position=1).view(2, "p q", "q", position=0)
    assert h.broken(complete=False) == ["views"]


def test_nobody_skips_a_view_or_goes_back() -> None:
    assert pair().view(3, "p q", "p").broken(complete=False) == ["views"]
    assert pair().view(2, "p q", "p").view(1, "p q", "p").broken(complete=False) == ["views"]
    assert pair().view(1, "p q", "p").broken(complete=False) == ["views"]


def test_who_has_left_delivers_nothing() -> None:
    h = pair().broadcast("s", "1").add("q", "leave").view(2, "p").deliver("p", "1", view=2)
    assert h.broken() == []
    assert h.deliver("q", "1", view=2).broken() == ["views"]


def test_a_member_is_in_its_own_first_view() -> None:
    assert pair().join("r").view(2, "p q", "p", "q", "r").broken() == ["views"]


def test_in_the_end_everybody_knows_the_last_view() -> None:
    h = pair().view(2, "p q r", "p")
    assert h.broken(complete=False) == []
    assert h.broken() == ["views"]
    assert pair().crash("q").view(2, "p q r", "p").broken() == []


def test_a_durable_member_that_is_back_may_be_told_views_again() -> None:
    h = pair(durable=True).view(2, "p q r").view(3, "p q").crash("p").join("p", durable=True)
    assert h.view(2, "p q r", "p").view(3, "p q", "p").broken(complete=False) == []


def test_a_durable_member_misses_no_view() -> None:
    h = pair(durable=True).crash("p").view(2, "p q r", "q").view(3, "p q", "q")
    h.join("p", durable=True)
    assert h.view(3, "p q", "p").broken(complete=False) == ["views"]


def test_a_durable_member_that_was_removed_comes_back_as_another() -> None:
    h = pair(durable=True).crash("p").add("q", "remove", members=("p",)).view(2, "q", "q")
    h.broadcast("q", "1").deliver("q", "1", view=2)
    h.join("p", durable=True).view(3, "q p")
    assert h.broken() == []


# -- Suspicion ------------------------------------------------------------------------------------


def test_a_group_that_was_over_begins_anew_with_greater_numbers() -> None:
    """Whatever was between them belongs to groups of other names."""
    h = History().join("p", durable=True).view(1, "p").broadcast("p", "m1").deliver("p", "m1")
    h.add("p", "leave")
    h.join("p", durable=True).join("q").view(9, "p").view(10, "p q")
    h.broadcast("q", "m2").deliver("p", "m2", view=10).deliver("q", "m2", view=10)
    assert h.broken() == []


def test_a_durable_member_is_never_excluded_because_it_is_suspected() -> None:
    h = pair(durable=True).crash("p").add("q", "suspect", members=("p",))
    assert h.broken() == []
    assert h.view(2, "q", "q").broken() == ["suspicion"]


def test_a_durable_member_that_comes_back_was_in_all_views() -> None:
    h = pair(durable=True).crash("p").view(2, "q", "q").join("p", durable=True).view(3, "q p")
    assert h.broken() == ["suspicion"]
    h = pair(durable=True).view(2, "q", "p", "q").add("p", "leave").join("p", durable=True)
    assert h.view(3, "q p").broken() == ["suspicion"]
    h = pair(durable=True).add("p", "leave").view(2, "q", "q").join("p", durable=True)
    assert h.view(3, "q p").broken() == []


def test_members_may_remove_a_suspect() -> None:
    h = pair(durable=True).crash("p").add("q", "suspect", members=("p",))
    h.add("q", "remove", members=("p",)).view(2, "q", "q")
    assert h.broken() == []


def test_the_group_may_remove_a_suspect_that_is_not_durable() -> None:
    h = pair().add("q", "suspect", members=("p",)).view(2, "q", "p", "q")
    assert h.broken() == []


def test_nobody_is_excluded_without_a_reason() -> None:
    assert pair().view(2, "q", "p", "q").broken() == ["suspicion"]
    assert pair().crash("p").view(2, "q", "q").broken() == []
    assert pair().add("p", "leave").view(2, "q", "q").broken() == []


def test_who_comes_back_is_another_if_it_is_not_durable() -> None:
    h = pair().broadcast("s", "1").deliver("q", "1").crash("p").view(2, "q p", "q")
    h.join("p").view(2, "q p", "p")
    assert h.broken() == []  # it need not deliver what came before it


# -- P1, uniform validity -------------------------------------------------------------------------


def test_p1_what_was_broadcast_is_delivered() -> None:
    assert pair().broadcast("s", "1").broken() == ["P1"]


def test_p1_holds_if_the_sender_crashes_after_the_acknowledgement() -> None:
    assert pair().broadcast("s", "1").crash("s").broken() == ["P1"]


def test_p1_what_was_partially_broadcast_need_not_be_delivered() -> None:
    assert pair().partially("s", "1").crash("s").broken() == []


def test_p1_a_correct_process_delivers_it_not_only_one_that_crashes() -> None:
    h = pair().broadcast("s", "1").deliver("q", "1").crash("q")
    assert "P1" in h.broken()


def test_p1_if_nobody_is_correct_nobody_delivers() -> None:
    assert pair().broadcast("s", "1").crash("p").crash("q").broken() == []
    assert pair().add("p", "leave").add("q", "leave").broadcast("s", "1").broken() == []


def test_p1_a_good_process_delivers_it_after_it_is_back() -> None:
    h = pair(durable=True).crash("q").crash("p").broadcast("s", "1").join("p", durable=True)
    assert h.broken() == ["P1"]
    assert h.deliver("p", "1").broken() == []


def test_p1_does_not_concern_who_joined_later() -> None:
    assert History().broadcast("s", "1").join("p").view(1, "p").broken() == []


def test_p1_non_persistent_messages_are_promised_to_nobody() -> None:
    h = pair().partially("s", "1").add("s", "sent", message="1", persistent=False)
    assert h.broken() == []


def test_nothing_is_due_before_the_run_has_come_to_rest() -> None:
    assert pair().broadcast("s", "1").deliver("p", "1").broken(complete=False) == []


# -- P2, uniform agreement ------------------------------------------------------------------------


def test_p2_what_one_delivers_all_correct_ones_deliver() -> None:
    assert pair().broadcast("s", "1").deliver("p", "1").broken() == ["P2"]


def test_p2_is_uniform_who_delivers_it_may_crash() -> None:
    assert pair().partially("s", "1").deliver("p", "1").crash("p").broken() == ["P2"]


def test_p2_who_crashes_in_the_view_need_not_deliver() -> None:
    h = pair().broadcast("s", "1").deliver("p", "1").crash("q")
    assert h.broken() == []


def test_p2_who_crashes_in_a_later_view_must_have_delivered() -> None:
    """(ii) of footnote 7: q did not crash while its view was 1."""
    h = pair().broadcast("s", "1").deliver("p", "1").view(2, "p q r", "p", "q").crash("q")
    assert h.broken() == ["P2"]


def test_p2_who_is_not_in_the_next_view_need_not_deliver() -> None:
    """(iii) of footnote 7: q is cut off, and the others removed it."""
    h = pair().broadcast("s", "1").deliver("p", "1").add("p", "remove", members=("q",))
    h.view(2, "p", "p")
    assert h.broken() == ["views"]  # only that it does not know, which is not the time yet
    assert h.broken(complete=False) == []
    assert h.view(2, "p", "q").broken() == []


def test_p2_who_is_in_the_next_view_of_others_must_deliver() -> None:
    """(iii) again: it is enough that somebody installed a view with q in it."""
    h = pair().broadcast("s", "1").deliver("p", "1").view(2, "p q r", "p")
    assert sorted(h.broken()) == ["P2", "views"]


def test_p2_a_durable_member_misses_nothing_while_it_is_down() -> None:
    h = pair(durable=True).crash("p").broadcast("s", "1").deliver("q", "1").join("p", durable=True)
    assert h.broken() == ["P2"]
    assert h.deliver("p", "1", redelivered=True).broken() == []


def test_p2_a_durable_member_that_stays_down_is_bad_and_owes_nothing() -> None:
    h = pair(durable=True).crash("p").broadcast("s", "1").deliver("q", "1")
    assert h.broken() == []


def test_p2_durable_and_not_durable_members_of_one_group() -> None:
    """Both crash and come back: only the durable one owes what it missed (footnote 6)."""
    h = History().join("p", durable=True).join("q").join("r").view(1, "p q r")
    h.crash("p").crash("q").broadcast("s", "1").deliver("r", "1")
    h.view(2, "p r q", "r").join("q").view(2, "p r q", "q")
    h.join("p", durable=True).view(2, "p r q", "p")
    found = groups.check(h.events)
    assert [str(v)[:14] for v in found] == ["P2: r/r.1.3 de"]
    assert "and p, which is correct in it, did not" in found[0].text


def test_p2_who_left_owes_only_the_views_that_it_has_seen_the_end_of() -> None:
    h = pair().broadcast("s", "1").deliver("p", "1").view(2, "p q r", "p", "q")
    h.deliver("p", view=2).add("q", "leave")
    assert h.broken() == ["P2"]
    late = pair().deliver("q").add("q", "leave").broadcast("s", "1").deliver("p", "1")
    assert late.view(2, "p", "p").broken() == []


def test_p2_what_is_in_the_state_counts_as_delivered() -> None:
    h = pair().broadcast("s", "1").deliver("p", "1").deliver("q", "1")
    h.join("r").view(2, "p q r").broadcast("s", "2", "3").deliver("p", "2", "3", view=2)
    h.deliver("q", "2", "3", view=2).add("r", "state", position=2).deliver("r", "3", view=2)
    assert h.broken() == []


def test_p2_what_comes_after_the_cut_is_to_be_delivered() -> None:
    h = pair().join("r").view(2, "p q r").broadcast("s", "1", "2").deliver("p", "1", "2", view=2)
    h.deliver("q", "1", "2", view=2).add("r", "state", position=1)
    assert h.broken() == ["P2"]


def returned(cut: int) -> History:
    """p is durable, missed message 1 and was removed. It is back in view 4, after message 2, and
    before it was told of that it has got a state."""
    h = pair(durable=True).broadcast("s", "1").deliver("q", "1").view(2, "p q r", "p", "q")
    h.crash("p").add("q", "remove", members=("p",)).view(3, "q r", "q")
    h.broadcast("s", "2").deliver("q", "2", view=3).view(4, "q r p", "q")
    h.broadcast("s", "3").deliver("q", "3", view=4)
    return h.join("p", durable=True).add("p", "state", position=cut).view(4, "q r p", "p")


def test_p2_a_state_that_comes_before_the_view_is_of_the_process_that_has_the_view() -> None:
    """Message 3 is in it; that the process before missed message 1 is not mended by it."""
    found = groups.check(returned(cut=3).events)
    assert [v.rule for v in found] == ["P2"]
    assert "delivered 1 in view 1, and p, which is" in found[0].text


def test_p2_who_is_another_owes_what_is_not_in_its_state() -> None:
    found = groups.check(returned(cut=2).events)
    assert ["delivered 3 in view 4, and p', which is" in v.text for v in found] == [False, True]


def test_p2_a_state_that_comes_before_a_view_with_the_same_process_is_its_own() -> None:
    h = pair(durable=True).crash("p").broadcast("s", "1", "2").deliver("q", "1", "2")
    h.view(2, "p q r", "q").join("p", durable=True)
    assert h.view(2, "p q r", "p").broken() == ["P2", "P2"]
    h = pair(durable=True).crash("p").broadcast("s", "1", "2").deliver("q", "1", "2")
    h.view(2, "p q r", "q").join("p", durable=True).add("p", "state", position=2)
    assert h.view(2, "p q r", "p").broken() == []


# -- P3, uniform integrity ------------------------------------------------------------------------


def test_p3_nothing_is_delivered_twice() -> None:
    h = pair().broadcast("s", "1").deliver("p", "1", "1").deliver("q", "1")
    assert h.broken() == ["P3"]


def test_p3_what_may_be_a_duplicate_is_marked() -> None:
    """Footnote 9; also after a crash, where nobody knows what the application has seen."""
    h = pair(durable=True).broadcast("s", "1").deliver("p", "1").deliver("q", "1").crash("p")
    h.join("p", durable=True)
    assert h.deliver("p", "1", redelivered=True).broken() == []
    assert h.deliver("p", "1").broken() == ["P3"]


def test_p3_nothing_is_delivered_that_nobody_broadcast() -> None:
    assert pair().deliver("p", "1").deliver("q", "1").broken() == ["P3", "P3"]


def test_p3_partial_broadcast_is_enough_to_be_delivered() -> None:
    h = pair().partially("s", "1").crash("s").deliver("p", "1").deliver("q", "1")
    assert h.broken() == []


# -- P4, uniform same view delivery ---------------------------------------------------------------


def test_p4_two_deliver_a_message_in_the_same_view() -> None:
    h = pair().broadcast("s", "1").deliver("p", "1").view(2, "p q", position=0).deliver("q", "1")
    assert "P4" in h.broken(complete=False)


def test_p4_the_view_of_a_message_is_the_one_it_is_delivered_in() -> None:
    h = pair().broadcast("s", "1").deliver("p", "1", view=2)
    assert h.broken(complete=False) == ["P4"]


def test_p4_what_is_repeated_after_a_crash_was_delivered_in_its_view() -> None:
    h = pair(durable=True).broadcast("s", "1").deliver("p", "1").deliver("q", "1")
    h.view(2, "p q r", "p", "q").crash("p").join("p", durable=True)
    assert h.deliver("p", "1", redelivered=True).broken(complete=False) == []


def test_p4_what_is_only_marked_as_repeated_is_delivered_in_its_view() -> None:
    h = pair(durable=True).broadcast("s", "1").deliver("q", "1").view(2, "p q", "p", "q")
    assert set(h.deliver("p", "1", redelivered=True).broken(complete=False)) == {"P4"}


def missed_one() -> History:
    """p is durable, knows of view 2, which stands after message 1, and did not deliver that."""
    h = pair(durable=True).broadcast("s", "1").deliver("q", "1").view(2, "p q", "p", "q")
    return h.broadcast("s", "2").deliver("q", "2", view=2).crash("p").join("p", durable=True)


def test_p4_in_a_new_life_a_message_counts_for_the_view_that_stood_before_it() -> None:
    """As if its state was lost with the last life: views are told again only if need be."""
    assert missed_one().deliver("p", "1").deliver("p", "2", view=2).broken(complete=False) == []
    assert "P4" in missed_one().deliver("p", "1", view=2).broken(complete=False)
    assert "P4" in missed_one().deliver("p", "1", "2", view=1).broken(complete=False)


def test_p4_in_a_new_life_that_was_told_of_a_view_that_one_counts() -> None:
    again = missed_one().view(1, "p q", "p").deliver("p", "1").view(2, "p q", "p")
    assert again.deliver("p", "2", view=2).broken(complete=False) == []
    assert "P4" in missed_one().view(2, "p q", "p").deliver("p", "1").broken(complete=False)


# -- P5, uniform generic order --------------------------------------------------------------------

KEYED = ConflictRelation(("put", "get"), [("put", "put"), ("put", "get")], keyed=True)


def orders(one: list[str], two: list[str], relation: ConflictRelation | None) -> list[str]:
    """What is broken if p delivers in the first order and q in the second one."""
    h = pair()
    if relation is not None:
        h.relation(relation)
    h.broadcast("s", *one).deliver("p", *one).deliver("q", *two)
    return h.broken()


def test_p5_by_default_everything_is_in_one_order() -> None:
    assert orders(["1", "2"], ["1", "2"], None) == []
    assert orders(["1", "2"], ["2", "1"], None) == ["P5"]


def test_p5_reliable_broadcast_has_no_order() -> None:
    assert orders(["1", "2"], ["2", "1"], ConflictRelation.RELIABLE) == []


@pytest.mark.parametrize(
    ("first", "second", "conflict"),
    [
        ("rbcast1", "rbcast2", False),
        ("rbcast1", "abcast2", True),
        ("abcast1", "rbcast2", True),
        ("abcast1", "abcast2", True),
        ("rbcast1", "2", True),
    ],
)
def test_p5_figure_4_1(first: str, second: str, conflict: bool) -> None:
    relation = ConflictRelation.RELIABLE_ATOMIC
    assert orders([first, second], [second, first], relation) == ["P5"] * conflict


@pytest.mark.parametrize(
    ("first", "second", "conflict"),
    [
        ("put:x1", "put:x2", True),
        ("put:x1", "put:y2", False),
        ("put:x1", "get:x2", True),
        ("get:x1", "get:x2", False),
        ("put:x1", "put2", True),
    ],
)
def test_p5_keys(first: str, second: str, conflict: bool) -> None:
    assert orders([first, second], [second, first], KEYED) == ["P5"] * conflict


def test_p5_what_somebody_delivered_before_must_not_be_left_out() -> None:
    """Uniform: p may crash, and q must still not deliver 2 without 1."""
    h = pair().broadcast("s", "1", "2").deliver("p", "1", "2").deliver("q", "2").crash("p")
    assert "P5" in h.broken(complete=False)


def test_p5_what_is_owed_and_lost_is_told_once() -> None:
    h = pair().broadcast("s", "1", "2", "3").deliver("p", "1", "2", "3").deliver("q", "2", "3")
    assert h.broken() == ["P2"]
    assert h.crash("q").broken() == ["P5"]


def test_p5_a_stuck_message_holds_up_only_what_conflicts_with_it() -> None:
    h = pair().relation(KEYED).broadcast("s", "put:x1", "put:y2", "put:y3", "put:x4")
    h.deliver("p", "put:x1", "put:y2", "put:y3", "put:x4")
    h.deliver("q", "put:y2", "put:y3", "put:x1", "put:x4")
    assert h.broken() == []


def test_p5_the_relation_changes_at_one_place() -> None:
    """Message 2 is still under the old relation, 3 and 4 under the new one."""
    h = pair().relation(ConflictRelation.RELIABLE).relation(ConflictRelation.ATOMIC, after=2)
    h.broadcast("s", "1", "2", "3", "4").deliver("p", "1", "2", "3", "4")
    assert h.deliver("q", "2", "1", "3", "4").broken() == []
    h = pair().relation(ConflictRelation.RELIABLE).relation(ConflictRelation.ATOMIC, after=2)
    h.broadcast("s", "1", "2", "3", "4").deliver("p", "1", "2", "3", "4")
    assert h.deliver("q", "2", "1", "4", "3").broken() == ["P5"]


def test_p5_of_several_relations_at_one_place_the_last_one_holds() -> None:
    h = pair()
    for relation in (ConflictRelation.RELIABLE, ConflictRelation.ATOMIC, ConflictRelation.RELIABLE):
        h.relation(relation)
    h.broadcast("s", "1", "2").deliver("p", "1", "2").deliver("q", "2", "1")
    assert h.broken() == []


def test_p5_nothing_overtakes_a_change_of_the_relation() -> None:
    h = pair().relation(ConflictRelation.ATOMIC).relation(ConflictRelation.RELIABLE, after=1)
    h.broadcast("s", "1", "2").deliver("p", "1", "2").deliver("q", "2", "1")
    assert h.broken() == ["P5"]


def test_p5_one_position_is_one_message() -> None:
    h = pair().broadcast("s", "1").partially("s", "2")
    h.deliver("p", "1").add("q", "deliver", message="2", position=1, view_id=1)
    assert "P5" in h.broken(complete=False)


def test_p5_what_is_in_the_state_is_not_missed() -> None:
    h = pair().join("r").view(2, "p q r").broadcast("s", "1", "2")
    for process in "pq":
        h.deliver(process, "1", "2", view=2)
    h.add("r", "state", position=1).deliver("r", "2", view=2)
    assert h.broken() == []


def test_p5_what_a_crash_repeats_does_not_change_the_order() -> None:
    h = pair(durable=True).broadcast("s", "1", "2", "3").deliver("q", "1", "2", "3")
    h.deliver("p", "1", "2").crash("p").join("p", durable=True)
    h.deliver("p", "1", "2", "3", redelivered=True)
    assert h.broken() == []


def test_p5_what_a_program_asks_for_again_does_not_change_the_order() -> None:
    h = pair().broadcast("s", "1", "2").deliver("q", "1", "2").deliver("p", "1", "2")
    assert h.deliver("p", "1", redelivered=True).broken() == []


# -- Explaining -----------------------------------------------------------------------------------


def test_a_violation_is_told_in_a_sentence() -> None:
    h = pair().broadcast("s", "1").deliver("p", "1")
    assert [str(v) for v in groups.check(h.events)] == [
        "P2: p/p.1.1 delivered 1 in view 1, and q/q.1.2, which is correct in it, did not"
    ]


def test_groups_are_judged_one_by_one() -> None:
    h = pair().broadcast("s", "1").deliver("p", "1").deliver("q", "1")
    h.add("p", "join", group="h", sender="p").add(
        "p", "view", group="h", view_id=1, members=("p",), position=1
    )
    h.add("s", "sent", group="h", message="2", persistent=True)
    assert h.broken() == ["P1"]
    assert "h" in str(groups.check(h.events)[0])
