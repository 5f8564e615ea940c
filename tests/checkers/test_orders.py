"""The orders of messages in channels: each has histories that keep it, and some that must fail."""

import pytest

from antiphon.model.peer_views import Level, ViewId
from tests.checkers.support.peer_histories import Peers, life, three

NONE, FIFO, CAUSAL, AGREED, SAFE = Level


def test_a_message_is_delivered_once() -> None:
    h = three().send("a").deliver("a b c", "a:1")
    assert h.findings() == []
    assert "once" in h.deliver("b", "a:1").broken()


def test_a_message_is_not_delivered_again_in_a_later_view() -> None:
    h = three().send("a").deliver("a b c", "a:1").view(2, "a b c", primary=False)
    assert h.deliver("a b c", "a:1").broken() == {"once"}


def test_only_what_was_sent_is_delivered() -> None:
    assert three().send("a").deliver("a b c", "a:1", "a:2").broken() == {"once"}


def test_a_message_for_some_is_not_for_others() -> None:
    h = three().send("a", FIFO, to="b").deliver("b", "a:1")
    assert h.findings() == []
    assert h.deliver("c", "a:1").broken() == {"once"}


def test_the_level_of_a_message_is_its_senders() -> None:
    h = three().send("a", FIFO)
    h.levels.clear()
    assert h.deliver("a b c", "a:1").broken() == {"once"}


def test_of_a_sender_without_a_history_nothing_is_known() -> None:
    """As in traces that lack a process."""
    assert Peers().view(1, "a b", "b").deliver("b", "a:1").findings() == []


def test_a_sender_delivers_its_own_messages() -> None:
    h = three().send("a")
    assert h.broken(complete=False) == set()
    assert h.broken() == {"own"}
    assert h.end("a", crashed=False).findings() == []


def test_a_message_that_others_delivered_after_its_sender_was_cut_off_is_part_of_their_state() -> (
    None
):
    h = three().send("c").deliver("a b", "c:1").view(2, "a b").view(2, "c", primary=False)
    assert h.view(3, "a b c").findings() == []


@pytest.mark.parametrize("level", [NONE, FIFO, CAUSAL])
def test_what_the_leader_of_a_primary_view_sent_may_come_once_more_to_who_was_cut_off_with_it(
    level: Level,
) -> None:
    h = three().send("a", level).deliver("b c", "a:1").view(2, "b c").view(2, "a", primary=False)
    assert h.deliver("a", "a:1").findings() == []
    again = three().view(2, "a b c").send("a", level).deliver("a b c", "a:1").view(3, "a b c")
    assert "one view" in again.deliver("a", "a:1").broken()


def test_what_was_sent_behind_an_agreed_message_may_come_once_more_with_it() -> None:
    h = three().send("b", AGREED, FIFO, to=None).deliver("a c", "b:1", "b:2").view(2, "a c")
    h.view(2, "b", primary=False).deliver("b", "b:1", "b:2")
    assert h.findings() == []


@pytest.mark.parametrize("level", [NONE, FIFO, CAUSAL])
def test_a_message_is_delivered_in_one_view(level: Level) -> None:
    h = three().send("b", level).deliver("a b", "b:1").view(2, "a b").view(2, "c", primary=False)
    assert h.deliver("c", "b:1").broken() >= {"one view"}


def test_an_agreed_message_is_delivered_in_one_primary_view() -> None:
    h = three().send("c").deliver("a b", "c:1").view(2, "a b").view(2, "c", primary=False)
    h.deliver("c", "c:1").view(3, "a b c")
    assert h.findings() == []
    h = three().send("c").deliver("a b", "c:1").view(2, "a b c").deliver("c", "c:1")
    assert "one view" in h.broken()


@pytest.mark.parametrize(("level", "broken"), [(AGREED, set()), (FIFO, {"one view"})])
def test_an_agreed_message_may_come_once_more_in_a_group_that_is_founded_anew(
    level: Level, broken: set[str]
) -> None:
    first, second = ViewId(1, life("a")), ViewId(2, life("d"))
    h = Peers().view(1, "a b c", founding=first).send("c", level).deliver("a b", "c:1")
    h.end("a b").view(2, "d c", "c", founding=second).deliver("c", "c:1")
    assert h.broken(complete=False) & {"one view", "once"} == broken


# -- Fifo ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("levels", [(FIFO, FIFO), (FIFO, AGREED), (CAUSAL, CAUSAL), (FIFO, SAFE)])
def test_messages_of_a_sender_come_in_its_order(levels: tuple[Level, ...]) -> None:
    h = three().send("a", *levels).receive("a b c", "a:1", "a:2")
    h.deliver("a b", "a:1", "a:2").deliver("c", "a:2", "a:1")
    assert "fifo" in h.broken()


@pytest.mark.parametrize("levels", [(NONE, FIFO), (FIFO, NONE), (AGREED, FIFO), (AGREED, CAUSAL)])
def test_a_message_may_overtake_one_of_a_higher_level_or_without_order(
    levels: tuple[Level, ...],
) -> None:
    h = three().send("a", *levels).deliver("a b c", "a:2", "a:1")
    assert h.findings() == []


def test_messages_of_a_sender_come_without_a_gap() -> None:
    h = three().send("a", FIFO, FIFO).deliver("a b", "a:1", "a:2").deliver("c", "a:2")
    h.view(2, "a b").view(2, "c", primary=False)
    assert h.broken() == {"fifo"}


def test_a_message_that_comes_in_a_later_view_was_not_overtaken() -> None:
    h = three().send("a", AGREED, AGREED).deliver("a b c", "a:2").view(2, "a b c")
    assert h.deliver("a b c", "a:1").broken() >= {"fifo"}


def test_a_newcomer_misses_what_was_before_it() -> None:
    h = Peers().view(1, "a b").send("a", FIFO, FIFO).deliver("a b", "a:1").view(2, "a b c")
    assert h.deliver("a b c", "a:2").findings() == []


# -- Causal ----------------------------------------------------------------------------------------


def test_a_message_does_not_come_before_its_cause() -> None:
    h = three().send("a", CAUSAL).deliver("a b", "a:1").send("b", CAUSAL).deliver("a b", "b:1")
    h.deliver("c", "b:1", "a:1")
    assert h.broken() == {"causal"}


def test_a_cause_of_a_cause_is_a_cause() -> None:
    h = Peers().view(1, "a b c d").send("a", CAUSAL).deliver("a b", "a:1").send("b", CAUSAL)
    h.deliver("a b", "b:1").deliver("c", "a:1", "b:1").send("c", CAUSAL).deliver("a b c", "c:1")
    assert h.deliver("d", "c:1", "a:1", "b:1").broken() == {"causal"}


def test_an_agreed_message_does_not_come_before_its_cause() -> None:
    h = three().send("a", CAUSAL).deliver("a b", "a:1").send("b", AGREED).deliver("a b", "b:1")
    assert h.deliver("c", "b:1", "a:1").broken() == {"causal"}


def test_a_causal_message_may_overtake_an_agreed_cause() -> None:
    h = three().send("a", AGREED).deliver("a b", "a:1").send("b", CAUSAL).deliver("a b", "b:1")
    assert h.deliver("c", "b:1", "a:1").findings() == []


def test_a_cause_that_somebody_has_is_not_missing() -> None:
    h = three().send("a", CAUSAL).deliver("a b", "a:1").send("b", CAUSAL).deliver("a b c", "b:1")
    h.view(2, "a b").view(2, "c", primary=False)
    assert h.broken() == {"causal"}


def test_a_cause_does_not_come_in_a_later_view() -> None:
    h = three().send("a", AGREED).deliver("a", "a:1").send("a", AGREED).deliver("a b c", "a:2")
    h.view(2, "a", primary=False).view(2, "b c", primary=False).deliver("b c", "a:1")
    assert "causal" in h.broken()


def test_what_is_sent_again_may_come_behind_what_it_has_caused_elsewhere() -> None:
    h = Peers().view(1, "a b").send("a").deliver("b", "a:1").view(2, "b c", primary=False).send("b")
    h.deliver("b c", "b:1").view(3, "a b c").deliver("a c", "a:1")
    assert "causal" not in h.broken()


def test_messages_without_relation_come_in_any_order() -> None:
    h = three().send("a", CAUSAL).send("b", CAUSAL).deliver("a c", "a:1", "b:1")
    assert h.deliver("b", "b:1", "a:1").findings() == []


def test_messages_below_the_causal_level_are_no_causes() -> None:
    h = three().send("a", FIFO).deliver("a b", "a:1").send("b", CAUSAL).deliver("a b", "b:1")
    assert h.deliver("c", "b:1", "a:1").findings() == []


def test_two_that_send_at_once_wait_for_each_other_in_vain() -> None:
    """Histories of which each part needs the other's to be read."""
    h = three().send("a", CAUSAL).send("b", CAUSAL).deliver("a", "a:1", "b:1").send("a", CAUSAL)
    h.deliver("b", "b:1", "a:1").send("b", CAUSAL).deliver("a", "a:2", "b:2")
    assert h.deliver("b", "a:2", "b:2").deliver("c", "b:1", "a:1", "b:2", "a:2").findings() == []


# -- Total and safe --------------------------------------------------------------------------------


@pytest.mark.parametrize("primary", [True, False])
def test_agreed_messages_have_one_order(primary: bool) -> None:
    h = Peers().view(1, "a b c", primary=primary).send("a").send("b")
    assert h.deliver("a b", "a:1", "b:1").deliver("c", "b:1", "a:1").broken() == {"total"}


def test_the_total_order_has_no_holes() -> None:
    h = Peers().view(1, "a b c", primary=False).send("a").send("b")
    h.deliver("a b", "a:1", "b:1").deliver("c", "b:1").end("c")
    assert h.broken() == {"total"}


def test_lower_levels_are_not_part_of_the_total_order() -> None:
    h = three().send("a").send("b", CAUSAL).deliver("a b", "a:1", "b:1").deliver("c", "b:1", "a:1")
    assert h.findings() == []


def test_safe_and_agreed_messages_are_in_one_order() -> None:
    h = three().send("a", SAFE).send("b").receive("a b c", "a:1")
    assert h.deliver("a b", "a:1", "b:1").deliver("c", "b:1", "a:1").broken() == {"total"}


def test_a_safe_message_is_with_all_members() -> None:
    h = three().send("a", SAFE).receive("a b", "a:1").deliver("a", "a:1").end("a b c")
    assert h.broken() == {"safe"}
    h = three().send("a", SAFE).receive("a b c", "a:1").deliver("a", "a:1").end("a b c")
    assert h.findings() == []


def test_at_the_end_of_a_view_a_safe_message_is_with_those_that_go_on() -> None:
    h = three().send("a", SAFE).deliver("a b", "a:1", closing=True).view(2, "a b").end("c")
    assert h.findings() == []


# -- Messages for some -----------------------------------------------------------------------------


def test_messages_for_some_have_no_place_that_others_see() -> None:
    h = three().send("a", to="a b").send("a").deliver("a b", "a:1").deliver("a b c", "a:2")
    assert h.findings() == []


def test_a_safe_message_for_some_is_with_nobody_else() -> None:
    h = three().send("a", Level.SAFE, to="b").receive("b", "a:1").deliver("b", "a:1")
    assert h.findings() == []


def test_nothing_waits_for_a_message_for_some() -> None:
    h = three().send("a", Level.CAUSAL).send("a", Level.CAUSAL, to="b").deliver("b", "a:2")
    h.send("b", Level.CAUSAL).deliver("c", "b:1").deliver("a b c", "a:1").deliver("a b", "b:1")
    assert h.findings() == []


# -- Senders that are cut off ----------------------------------------------------------------------


@pytest.mark.parametrize(("before", "broken"), [(Level.AGREED, set()), (Level.FIFO, {"one view"})])
def test_what_was_sent_behind_an_agreed_message_is_ordered_with_it(
    before: Level, broken: set[str]
) -> None:
    h = three().send("c", before, Level.FIFO).deliver("a b", "c:1", "c:2").view(2, "a b")
    h.view(2, "c", primary=False).deliver("c", "c:1", "c:2")
    assert h.broken() == broken


def test_what_others_delivered_in_a_minority_is_part_of_their_state() -> None:
    h = Peers().view(1, "a b c", primary=False).send("a").view(2, "a", primary=False)
    h.deliver("b c", "a:1").view(3, "a b c", primary=False)
    assert h.findings() == []
