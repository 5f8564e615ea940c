"""How a change ends, from what its processes report."""

from antiphon.model.peer_views import MemberId, PeerView, ViewId, is_quorum
from antiphon.peers.membership.decision import Decision, Lagging, decide
from antiphon.peers.membership.records import Flagged, Kept, Known, Marks, Report

A, B, C = (MemberId(name, 1) for name in "abc")
FIRST = PeerView(ViewId(2, A), (A, B, C), A, True)
ACTIVE = Known(FIRST, FIRST.id)
BROKEN_OFF = Flagged(
    PeerView(ViewId(4, A), (A, B), A, True),
    FIRST.id,
    FIRST.id,
    (3, 0, 1),
    (FIRST.id,),
    (A, B),
)
"""A primary view without `c`: `a` and `b` have installed it, and nobody knows who has shown it."""


def report(held: Marks, *flagged: Flagged) -> Report:
    kept = Kept(FIRST, held, held)
    return Report(kept, kept, (ACTIVE,), flagged)


def end(held_by_c: Marks) -> Decision | Lagging:
    cut = BROKEN_OFF.cut
    reports = {A: report(cut, BROKEN_OFF), B: report(cut, BROKEN_OFF), C: report(held_by_c)}
    return decide(ViewId(6, A), reports, ())


def test_what_may_have_been_shown_decides_what_belongs_to_the_view_before() -> None:
    decision = end((2, 0, 1))
    assert isinstance(decision, Decision)
    assert [source.cut for source in decision.sources] == [BROKEN_OFF.cut]
    assert decision.flagged is not None
    assert decision.flagged.past == (FIRST.id, BROKEN_OFF.view.id)


def test_a_later_change_keeps_the_cut_though_somebody_holds_more() -> None:
    more = Kept(FIRST, (4, 0, 1), BROKEN_OFF.cut)
    reports = {
        A: Report(more, more, (ACTIVE,), (BROKEN_OFF,)),
        B: report(BROKEN_OFF.cut, BROKEN_OFF),
        C: report((2, 0, 1)),
    }
    decision = decide(ViewId(6, A), reports, ())
    assert isinstance(decision, Decision)
    assert [source.cut for source in decision.sources] == [BROKEN_OFF.cut]


def test_what_anybody_holds_belongs_to_a_view_that_ends() -> None:
    reports = {A: report((3, 0, 0)), B: report((1, 2, 0)), C: report((1, 0, 5))}
    decision = decide(ViewId(6, A), reports, ())
    assert isinstance(decision, Decision)
    assert [source.cut for source in decision.sources] == [(3, 2, 5)]


def test_what_one_holds_that_was_in_a_minority_since_belongs_to_it_too() -> None:
    alone = Kept(PeerView(ViewId(3, B), (B,), B), (0,), (0,))
    came_back = Report(alone, Kept(FIRST, (4, 0, 0), (1, 0, 0)), (ACTIVE,))
    reports = {A: report((3, 0, 0)), B: came_back, C: report((3, 0, 0))}
    decision = decide(ViewId(6, A), reports, ())
    assert isinstance(decision, Decision)
    assert decision.sources[0].view == FIRST
    assert decision.sources[0].cut == (4, 0, 0)


def test_who_has_handed_out_more_of_the_view_has_to_show_that_it_was_not_there() -> None:
    assert end((2, 0, 2)) == Lagging((C,), ACTIVE)


def test_a_view_that_one_of_its_processes_has_not_installed_is_dead_for_all() -> None:
    founding = ViewId(3, B)  # it was broken off
    other = Flagged(PeerView(founding, (B, A), B, True), founding, None, (), (), (B, A))
    reports = {A: report((1, 0, 0), other), C: report((1, 0, 0))}
    decision = decide(ViewId(6, A), reports, ())
    assert isinstance(decision, Decision)
    assert decision.dead == ()  # without the word of `b` it may have been shown
    decision = decide(ViewId(6, A), {**reports, B: report((1, 0, 0))}, ())
    assert isinstance(decision, Decision)
    assert decision.dead == (founding,)
    assert decision.flagged is not None
    assert decision.flagged.founding == FIRST.id


def test_a_view_that_a_later_one_follows_is_not_called_dead() -> None:
    later = Known(PeerView(ViewId(5, A), (A, B), A, True), FIRST.id)
    kept = Kept(later.view, (0, 0), (0, 0))
    knows = Report(kept, kept, (later,))
    decision = decide(ViewId(6, A), {A: knows, B: report((1, 0, 0), BROKEN_OFF)}, ())
    assert isinstance(decision, Lagging)
    fresh = PeerView(ViewId(0, B), (B,), B)
    alone = Report(Kept(fresh, (0,), (0,)), None, (ACTIVE,), (BROKEN_OFF,))
    decision = decide(ViewId(6, A), {A: knows, B: alone}, ())
    assert isinstance(decision, Decision)
    assert decision.dead == ()


def test_a_coordinator_that_leaves_does_not_lead() -> None:
    kept = Kept(FIRST, (0, 0, 0), (0, 0, 0))
    reports = {one: Report(kept, kept, (ACTIVE,), leaving=one == A) for one in (A, B, C)}
    decision = decide(ViewId(4, A), reports, ())
    assert isinstance(decision, Decision)
    assert decision.view.members == (B, C)
    assert decision.view.leader == B


def test_who_holds_the_founding_record_founds_alone() -> None:
    fresh = {one: Kept(PeerView(ViewId(0, one), (one,), one), (0,), (0,)) for one in (A, B)}
    reports = {A: Report(fresh[A], founder=True), B: Report(fresh[B])}
    together = decide(ViewId(2, A), reports, ())
    assert isinstance(together, Decision)
    assert not together.view.primary
    alone = decide(ViewId(2, A), {A: reports[A]}, ())
    assert isinstance(alone, Decision)
    assert alone.view.primary


def test_who_lacks_the_state_does_not_count() -> None:
    first = PeerView(ViewId(2, A), (A,), A, True)
    known = Known(first, first.id)
    has, lacks = Kept(first, (0,), (0,)), PeerView(ViewId(0, B), (B,), B)
    reports = {
        A: Report(has, has, (known,), learns=False),
        B: Report(Kept(lacks, (0,), (0,)), learns=True),
    }
    joined = decide(ViewId(4, A), reports, ())
    assert isinstance(joined, Decision)
    assert joined.view.primary
    assert joined.view.learners == (B,)
    assert not is_quorum(joined.view, {B})
    assert is_quorum(joined.view, {A})
