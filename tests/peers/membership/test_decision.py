"""How a change ends: who is in the view, and what belongs to the views before it."""

from antiphon.model.peer_views import MemberId, PeerView, ViewId
from antiphon.peers.membership.decision import decide
from antiphon.peers.membership.records import Decision, Kept, Report

A, B, C = (MemberId(name, 1) for name in "abc")
CHANGE = ViewId(10, B)


def view(round_: int, *members: MemberId) -> PeerView:
    return PeerView(ViewId(round_, members[0]), members, members[0])


def report(now: PeerView, *held: int) -> Report:
    return Report(Kept(now, held, (0,) * len(held)))


def decided(reports: dict[MemberId, Report]) -> Decision:
    decision = decide(CHANGE, reports, ())
    assert isinstance(decision, Decision)
    return decision


def test_views_that_overlap_are_put_together_with_each_member_once() -> None:
    # A has not heard that B and C went on without it.
    whole, rest = view(1, A, B, C), view(2, B, C)
    decision = decided({A: report(whole, 3, 0, 0), B: report(rest, 1, 0), C: report(rest, 1, 0)})
    assert decision.view.members == (B, C, A)
    assert [(source.view, source.members) for source in decision.sources] == [
        (rest, (B, C)),
        (whole, (A,)),
    ]


def test_who_comes_from_a_view_has_all_that_anybody_holds_who_comes_from_it() -> None:
    whole = view(1, A, B, C)
    decision = decided({A: report(whole, 3, 0, 1), B: report(whole, 2, 4, 0)})
    (source,) = decision.sources
    assert source.cut == (3, 4, 1)
