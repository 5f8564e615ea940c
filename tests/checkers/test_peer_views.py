"""The promises of views: each has histories that keep it, and some that must fail."""

import pytest

from antiphon.checkers.peer_histories import Delivery, Showing
from antiphon.checkers.peer_views import CHECKS, check
from antiphon.model.peer_views import Level, PeerView, ViewId
from tests.checkers.support.peer_histories import Peers, life, lives, three


def test_a_partition_and_a_merge_break_nothing() -> None:
    h = three().send("a", Level.AGREED, Level.FIFO).deliver("a b c", "a:1").deliver("a b c", "a:2")
    h.view(2, "a b").view(2, "c", primary=False).send("c").deliver("c", "c:1")
    h.send("b", Level.SAFE).receive("a b", "b:1").deliver("a b", "b:1")
    h.view(3, "a b c").send("c").deliver("a b c", "c:2")
    assert h.findings() == []


def test_one_history_may_break_several_promises_and_only_those_asked_for_are_checked() -> None:
    h = three().deliver("a", "b:1").view(1, "a b c")
    assert {"rising", "once"} <= h.broken()
    assert {f.rule for f in check(h.events, ["rising"])} == {"rising"}
    assert set(CHECKS) >= h.broken()


# -- Views by themselves ---------------------------------------------------------------------------


def test_a_process_is_in_its_views() -> None:
    assert three().view(2, "a b", "c", together="c").broken() >= {"inside"}


def test_the_leader_of_a_view_is_a_member() -> None:
    h = Peers()
    view = PeerView(ViewId(1, life("a")), lives("a b"), life("c"))
    h.events[life("a")].append(Showing(view, lives("a")))
    assert h.broken() == {"inside"}


def test_what_comes_from_outside_of_the_view_is_not_delivered() -> None:
    h = three().view(2, "a b").send("c").deliver("a b", "c:1")
    assert "inside" in h.broken()


def test_what_belongs_to_another_view_is_not_delivered() -> None:
    h = three().send("a")
    old = h.view_of(life("a")).id
    h.view(2, "a b c")
    for process in lives("a b c"):
        h.events[process].append(Delivery(life("a"), 1, Level.AGREED, old))
    assert h.broken() == {"inside"}


@pytest.mark.parametrize("round", [1, 2])
def test_ids_rise(round: int) -> None:
    h = Peers().view(2, "a b c")
    assert "rising" in h.view(round, "a b c").broken()


def test_ids_of_one_round_rise_by_their_coordinators() -> None:
    assert Peers().view(1, "a b c").view(1, "b c").findings() == []
    assert "rising" in Peers().view(1, "b c").view(1, "a b c", "b c").broken()


@pytest.mark.parametrize(("members", "primary"), [("a b", True), ("a b c", False)])
def test_an_id_means_one_view(members: str, primary: bool) -> None:
    h = Peers().view(1, "a b c", "a c").view(1, members, "b", primary=primary)
    assert h.broken() == {"one meaning"}


def test_seats_are_a_part_of_a_view() -> None:
    h = Peers().view(1, "a b", "a")
    view = h.view_of(life("a"))
    seated = PeerView(view.id, view.members, view.leader, True, view.members)
    h.events[life("b")].append(Showing(seated, lives("b")))
    assert h.broken() == {"one meaning"}


@pytest.mark.parametrize(
    "together",
    [
        "a b",  # without itself
        "a b c",  # with one that comes from elsewhere
        "c d",  # with one that is not in the new view
    ],
)
def test_who_comes_together_is_named(together: str) -> None:
    h = Peers().view(1, "a b").view(1, "c d", primary=False)
    h.view(2, "a b c", "a b", merged=(ViewId(1, life("a")), ViewId(1, life("c"))))
    assert h.findings() == []
    h.view(2, "a b c", "c", together=together)
    assert h.broken() == {"together"}


def test_who_comes_together_names_the_same() -> None:
    h = three().view(2, "a b c", "a b").view(2, "a b c", "c", together="b c")
    assert h.broken() == {"together"}


# -- Primary views ---------------------------------------------------------------------------------


def test_two_founders_make_two_chains() -> None:
    assert Peers().view(1, "a").view(1, "b").broken() == {"one chain"}


def test_a_fork_is_not_a_chain() -> None:
    h = three().view(2, "a").view(2, "b c")
    assert h.broken() == {"one chain"}


def test_a_chain_may_lead_through_views_that_are_not_primary() -> None:
    h = three().view(2, "a b", primary=False).view(3, "a b c")
    assert h.findings() == []


def test_a_chain_may_lead_through_a_view_that_a_newcomer_knows_as_merged() -> None:
    """Of view 2 only the newcomer lives long enough to be shown it."""
    h = three().end("a b c")
    assert h.view(2, "d a b c", "d", together="d").broken() == {"one chain"}
    h = three().end("a b c")
    merged = (ViewId(1, life("a")), ViewId(0, life("d")))
    assert h.view(2, "d a b c", "d", together="d", merged=merged).broken() == set()


# -- The ends of views -----------------------------------------------------------------------------


@pytest.mark.parametrize("level", [Level.NONE, Level.FIFO, Level.CAUSAL, Level.AGREED])
def test_who_goes_on_together_has_delivered_the_same(level: Level) -> None:
    h = three().send("a", level).deliver("a c", "a:1").view(2, "a b c")
    assert "virtual synchrony" in h.broken()


def test_who_ends_together_has_delivered_the_same() -> None:
    h = three().send("a", Level.FIFO).deliver("a c", "a:1")
    assert h.broken(complete=False) == set()
    assert h.broken() == {"virtual synchrony"}
    assert h.end("b").broken() == set()


def test_a_message_for_one_is_delivered_by_it_alone() -> None:
    h = three().send("a", Level.FIFO, to="b").deliver("b", "a:1").view(2, "a b c")
    assert h.findings() == []


def test_who_leaves_the_primary_view_has_missed_the_end_at_most() -> None:
    h = three().send("a").send("b").deliver("a b c", "a:1").deliver("a b", "b:1")
    h.view(2, "a b").view(2, "c", primary=False)
    assert h.findings() == []


def test_who_leaves_the_primary_view_has_not_delivered_more() -> None:
    h = three().send("a").send("c").deliver("a b c", "a:1").deliver("c", "c:1")
    h.view(2, "a b").view(2, "c", primary=False)
    assert h.broken() >= {"prefix"}


def test_who_leaves_the_primary_view_has_not_missed_the_middle() -> None:
    h = three().send("a").send("b", Level.AGREED).deliver("a b", "a:1").deliver("a b c", "b:1")
    h.view(2, "a b").view(2, "c", primary=False)
    assert h.broken() >= {"prefix", "total"}


def test_of_two_that_go_on_to_primary_views_one_has_the_first_part_of_the_other() -> None:
    """As `c`, that missed view 2, and is alone before it comes to view 3."""
    h = three().send("a").deliver("a b c", "a:1").view(2, "a b c", "a b").view(3, "a b c", "a b")
    h.view(3, "a b c", "c", together="c")
    assert "prefix" not in h.broken()
    h = three().send("a").send("b").deliver("a b", "a:1").deliver("c", "b:1")
    h.view(2, "a b c", "a b").view(3, "a b c", "a b").view(3, "a b c", "c", together="c")
    assert "prefix" in h.broken()


def test_two_that_leave_the_primary_view_may_have_delivered_unlike_parts() -> None:
    h = three().send("a").deliver("a", "a:1").view(2, "a", primary=False)
    h.view(2, "b c", primary=False)
    assert h.findings() == []


def test_what_a_crashed_one_has_delivered_is_not_forgotten() -> None:
    h = three().send("a").deliver("a", "a:1").end("a").view(2, "b c")
    assert h.broken() == {"uniform"}
    h = three().send("a").deliver("a b c", "a:1").end("a").view(2, "b c")
    assert h.findings() == []


def test_in_a_view_that_is_not_primary_a_crashed_one_may_have_delivered_more() -> None:
    h = Peers().view(1, "a b", primary=False).send("a").deliver("a", "a:1").end("a")
    assert h.view(2, "b", primary=False).findings() == []


# -- Merges ----------------------------------------------------------------------------------------

ONE, TWO = ViewId(2, life("a")), ViewId(2, life("c"))
HIDDEN = ViewId(3, life("c"))


def parted() -> Peers:
    return three().view(2, "a b").view(2, "c", primary=False)


def test_all_are_told_of_the_same_merged_views() -> None:
    assert parted().view(3, "a b c", merged=(ONE, TWO)).findings() == []
    h = parted().view(3, "a b c", "a b", merged=(ONE, TWO))
    assert h.view(3, "a b c", "c", merged=(TWO,)).broken() == {"merges"}


def test_each_comes_from_a_merged_view() -> None:
    assert parted().view(3, "a b c", merged=(TWO, ViewId(1, life("a")))).broken() == {"merges"}
    assert parted().view(3, "a b c", merged=(ONE,)).broken() == {"merges"}


def test_who_had_a_hidden_view_meanwhile_comes_from_that() -> None:
    def merged(before: Peers, origin: ViewId | None) -> Peers:
        """The members a and b come together to view 4, and c by itself."""
        views = (before.view_of(life("a")).id, HIDDEN)
        before.view(4, "a b c", "a b", together="a b", merged=views)
        return before.view(4, "a b c", "c", together="c", merged=views, origin=origin)

    assert merged(three().view(2, "a b"), HIDDEN).findings() == []
    assert merged(three().view(2, "a b"), None).broken() == {"merges"}
    assert merged(three(), HIDDEN).findings() == []  # a and b were shown no other view meanwhile
    assert merged(three(), None).broken() == {"together"}
    assert merged(three(), ViewId(3, life("b"))).broken() == {"merges"}


def test_a_chain_may_lead_through_what_a_primary_view_says_is_its_past() -> None:
    h = Peers().view(1, "a b c").view(2, "a b", "a").view(3, "b c")
    assert h.broken() == {"one chain"}
    view = PeerView(ViewId(3, life("b")), lives("b c"), life("b"), True)
    for process in lives("b c"):
        h.events[process][-1] = Showing(view, lives("b c"), (), (ONE,))
    assert h.findings() == []


def test_what_is_older_than_its_past_belongs_to_the_past_of_that() -> None:
    def forked(past: ViewId) -> Peers:
        return Peers().view(1, "a b c").view(2, "a b", "a").view(4, "b c", past=(past,))

    assert forked(ViewId(3, life("c"))).findings() == []
    assert forked(ViewId(1, life("a"))).broken() == {"one chain"}


def test_a_group_that_is_founded_anew_has_another_chain() -> None:
    h = Peers().view(1, "a", founding=ViewId(1, life("a")))
    assert h.view(1, "b", founding=ViewId(1, life("b"))).findings() == []


def hidden(*delivered: str) -> Peers:
    """Return a history of `c`, which has missed the end of view 1, and whose views in between were
    hidden."""
    h = three().send("a", Level.AGREED, Level.AGREED).deliver("a b", "a:1", "a:2")
    h.deliver("c", *delivered).view(2, "a b")
    merged = (ONE, HIDDEN)
    h.view(4, "a b c", "a b", merged=merged)
    return h.view(4, "a b c", "c", merged=merged, origin=HIDDEN)


def test_who_had_hidden_views_has_delivered_the_first_part() -> None:
    assert hidden("a:1").findings() == []
    assert "prefix" in hidden("a:2").broken()


def test_two_with_hidden_views_may_have_delivered_unlike_parts() -> None:
    h = Peers().view(1, "a b c d").send("a", Level.AGREED, Level.AGREED)
    h.deliver("a b", "a:1", "a:2").deliver("c", "a:1").view(2, "a b")
    alone = ViewId(3, life("d"))
    merged = (ONE, HIDDEN, alone)
    h.view(4, "a b c d", "a b", together="a b", merged=merged)
    for process, origin in (("c", HIDDEN), ("d", alone)):
        h.view(4, "a b c d", process, together=process, merged=merged, origin=origin)
    assert h.findings() == []
