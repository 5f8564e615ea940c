"""The side of the coordinator in a change."""

from antiphon.model.peer_views import MemberId, PeerView, ViewId
from antiphon.peers.layers.layer import Down
from antiphon.peers.membership.coordinator import Coordinator
from antiphon.peers.membership.messages import Installed, Show, Told
from antiphon.peers.membership.records import Kept, Report

A, B = (MemberId(name, 1) for name in "ab")


def report(process: MemberId) -> Report:
    """Return what a process says that has only just begun."""
    return Report(Kept(PeerView(ViewId(0, process), (process,), process), (0,), (0,)))


def coordinator() -> Coordinator:
    """The coordinator A, with a change of A and B under way."""
    made = Coordinator(A, (), ())
    made.begin(((A, B),), 0, 0)
    return made


def change_of(made: Coordinator) -> ViewId:
    assert made.attempt is not None
    return made.attempt.change


def test_a_report_counts_for_its_own_change() -> None:
    made = coordinator()
    first = change_of(made)
    made.give_up()
    made.begin(((A, B),), 0, 0)
    for process in (A, B):
        assert made.told(Told(first, report(process)), process, 0) == []
    assert made.attempt is not None
    assert made.attempt.reports == {}


def test_a_change_is_above_all_that_its_coordinator_has_seen() -> None:
    made = coordinator()
    made.seen_round = 7
    made.begin(((A, B),), 1, 0)
    assert change_of(made).round > 7
    made.begin(((A, B),), 20, 0)
    assert change_of(made).round > 20


def test_all_others_are_told_to_show_the_view_before_the_coordinator_shows_it() -> None:
    """It may leave with this view, and it may send in it."""
    made = coordinator()
    change = change_of(made)
    for process in (A, B):
        made.told(Told(change, report(process)), process, 0)
    assert made.installed(Installed(change), A) == []
    shows = made.installed(Installed(change), B)
    assert [(effect.to, effect.frame.headers) for effect in shows if isinstance(effect, Down)] == [
        ((B,), (Show(change),)),
        ((A,), (Show(change),)),
    ]
