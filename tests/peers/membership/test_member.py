"""The side of a member in a change."""

from collections.abc import Mapping

from antiphon.model.peer_views import MemberId, PeerView, ViewId
from antiphon.peers.layers.layer import Down, Freeze, Install
from antiphon.peers.membership.member import REPEAT_MS, Member
from antiphon.peers.membership.messages import Ask, Decided, Installed, Refused, Show, Told
from antiphon.peers.membership.phases import Phase
from antiphon.peers.membership.records import Decision, Flagged, Source
from antiphon.peers.membership.shelf import NoStreams, Shelf

A, B, C = (MemberId(name, 1) for name in "abc")
ALL = (A, B, C)


def member() -> Member:
    """The member A, in a view of its own."""
    alone = PeerView(ViewId(0, A), (A,), A)
    return Member(A, alone, Shelf(NoStreams()), (), False)


def decision(change: ViewId, of: Member) -> Decided:
    view = PeerView(change, ALL, change.coordinator)
    return Decided(change, Decision(view, (Source(of.view, (A,), (0,)),)))


def test_a_change_freezes_tells_installs_and_shows() -> None:
    a, change = member(), ViewId(2, B)
    freeze, told = a.asked(Ask(change, ALL), B, True, 0)
    assert isinstance(freeze, Freeze)
    assert isinstance(told, Down)
    assert isinstance(told.frame.headers[-1], Told)
    (installed,) = a.decided(decision(change, a), B, 0)
    assert isinstance(installed, Down)
    assert installed.frame.headers == (Installed(change),)
    (install,) = a.show(Show(change), 0)
    assert isinstance(install, Install)
    assert install.view.members == ALL
    assert a.phase is Phase.IN_VIEW


def test_nothing_of_a_change_is_installed_after_a_higher_one_was_promised() -> None:
    a, lower, higher = member(), ViewId(2, B), ViewId(3, C)
    a.asked(Ask(lower, ALL), B, True, 0)
    a.asked(Ask(higher, ALL), C, True, 0)
    assert a.decided(decision(lower, a), B, 0) == []
    assert a.show(Show(lower), 0) == []
    assert (a.phase, a.promised) == (Phase.TOLD, higher)


def test_what_was_installed_is_not_shown_after_a_higher_change_was_promised() -> None:
    a, lower, higher = member(), ViewId(2, B), ViewId(3, C)
    a.asked(Ask(lower, ALL), B, True, 0)
    a.decided(decision(lower, a), B, 0)
    a.asked(Ask(higher, ALL), C, True, 0)
    a.decided(decision(higher, a), C, 0)
    assert a.show(Show(lower), 0) == []
    assert len(a.show(Show(higher), 0)) == 1


def test_a_primary_view_that_is_dead_is_forgotten() -> None:
    a, lower, higher = member(), ViewId(2, B), ViewId(4, C)
    flagged = Flagged(PeerView(lower, ALL, B, True), lower, None, (), (), ALL)
    source = Source(a.view, (A,), (0,))
    a.asked(Ask(lower, ALL), B, True, 0)
    a.decided(Decided(lower, Decision(flagged.view, (source,), flagged)), B, 0)
    a.asked(Ask(higher, ALL), C, True, 0)
    assert a.report().flagged == (flagged,)
    view = PeerView(higher, ALL, C)
    a.decided(Decided(higher, Decision(view, (source,), dead=(lower,))), C, 0)
    assert a.report().flagged == ()


class Lacking(NoStreams):
    """Streams of which this process holds nothing."""

    def held(self, view: ViewId) -> Mapping[MemberId, int]:
        return {A: 0}


def test_what_is_missing_is_not_asked_for_again_while_it_comes_in_pieces() -> None:
    alone, change = PeerView(ViewId(0, A), (A,), A), ViewId(2, B)
    a = Member(A, alone, Shelf(Lacking()), (), False)
    a.asked(Ask(change, ALL), B, True, 0)
    view = PeerView(change, ALL, B)
    fetch = a.decided(Decided(change, Decision(view, (Source(alone, (A,), (5,)),))), B, 0)
    assert a.phase is Phase.FETCHING
    assert a.tick(REPEAT_MS) == fetch
    a.comes(REPEAT_MS + 1)
    assert a.next_deadline_ms() == 2 * REPEAT_MS + 1
    assert a.tick(2 * REPEAT_MS) == []
    assert a.tick(2 * REPEAT_MS + 1) == fetch


def test_a_lower_change_is_refused_with_the_round_that_was_seen() -> None:
    a, lower, higher = member(), ViewId(2, B), ViewId(3, C)
    a.asked(Ask(higher, ALL), C, True, 0)
    (refused,) = a.asked(Ask(lower, ALL), B, True, 0)
    assert isinstance(refused, Down)
    assert refused.frame.headers == (Refused(lower, 3),)
