"""Every phase of a process in a change with everything that can happen to it."""

from collections.abc import Callable, Mapping, Sequence
from itertools import product

import pytest

from antiphon.model.peer_views import MemberId, PeerView, ViewId
from antiphon.peers.membership import member as members
from antiphon.peers.membership.member import REPEAT_MS, Member
from antiphon.peers.membership.messages import Ask, Behind, Decided, Fetch, Frames, Show
from antiphon.peers.membership.phases import TRANSITIONS, Cause, Phase, next_phase
from antiphon.peers.membership.records import Decision, Flagged, Known, Source
from antiphon.peers.membership.shelf import NoStreams, Shelf

A, B, C = (MemberId(name, 1) for name in "abc")
ALL = (A, B, C)
ALONE = PeerView(ViewId(0, A), (A,), A)
OLDER, CHANGE, NEWER = ViewId(2, A), ViewId(4, B), ViewId(6, C)
IN_VIEW, TOLD, FETCHING, INSTALLED, WAITING, OUT = Phase


class OneStream(NoStreams):
    """The stream of A, of which this process holds as much as it was handed."""

    def __init__(self) -> None:
        self.count = 0

    def held(self, view: ViewId) -> Mapping[MemberId, int]:
        return {A: self.count}

    def add(self, view: ViewId, stream: MemberId, first: int, frames: Sequence[bytes]) -> None:
        self.count = max(self.count, first - 1 + len(frames))


def decided(change: ViewId, cut: int, *, primary: bool = True) -> Decided:
    view = PeerView(change, ALL, change.coordinator, primary)
    flagged = Flagged(view, CHANGE, None, (), (), ALL) if primary else None
    return Decided(change, Decision(view, (Source(ALONE, (A,), (cut,)),), flagged))


def asked(change: ViewId, *, willing: bool = True) -> Callable[[Member], object]:
    return lambda a: a.asked(Ask(change, ALL), change.coordinator, willing, 0)


def decides(change: ViewId, cut: int, *, primary: bool = True) -> Callable[[Member], object]:
    return lambda a: a.decided(decided(change, cut, primary=primary), change.coordinator, 0)


def brings(change: ViewId, *frames: bytes) -> Callable[[Member], object]:
    return lambda a: a.fetched(Frames(change, A, ALONE.id, A, 1, frames), 0)


def shows(change: ViewId) -> Callable[[Member], object]:
    return lambda a: a.show(Show(change), 0)


def falls_behind(change: ViewId) -> Callable[[Member], object]:
    known = Known(decided(CHANGE, 0).decision.view, CHANGE)
    return lambda a: a.behind(Behind(change, known), 0)


def reads(change: ViewId) -> Callable[[Member], object]:
    return lambda a: a.read(Fetch(change, B, ALONE.id, A, 1, 1), change.coordinator)


def wants_to_leave(a: Member) -> None:
    a.leaving = True


INPUTS: dict[str, Callable[[Member], object]] = {
    "asked for a newer change": asked(NEWER),
    "asked for the same change": asked(CHANGE),
    "asked for an older change": asked(OLDER),
    "asked by somebody whom it does not want": asked(NEWER, willing=False),
    "asked for a change without it": lambda a: a.asked(Ask(NEWER, (B, C)), C, True, 0),
    "decided": decides(CHANGE, 0),
    "decided, one frame is missing": decides(CHANGE, 1),
    "decided, not primary": decides(CHANGE, 0, primary=False),
    "decided in another change": decides(OLDER, 0),
    "the missing frame": brings(CHANGE, b"x"),
    "not the missing frame": brings(CHANGE),
    "the missing frame in another change": brings(OLDER, b"x"),
    "show": shows(CHANGE),
    "show another change": shows(OLDER),
    "behind": falls_behind(CHANGE),
    "behind in another change": falls_behind(OLDER),
    "asked for its frames": reads(CHANGE),
    "time": lambda a: a.tick(REPEAT_MS),
    "it wants to leave": wants_to_leave,
    "it leaves": lambda a: a.left(0),
}

WAYS: dict[Phase, list[str]] = {
    TOLD: ["asked for the same change"],
    FETCHING: ["asked for the same change", "decided, one frame is missing"],
    INSTALLED: ["asked for the same change", "decided"],
    OUT: ["it leaves"],
}
"""How a process comes to a phase."""

FROM_HIDDEN = WAYS | {IN_VIEW: ["asked for the same change", "decided", "show"]}
"""The same for a process that hides views: it begins in `WAITING`."""

KINDS = {"shows every view": False, "hides views that are not primary": True}
CASES = [case for case in product(Phase, KINDS) if case != (WAITING, "shows every view")]


def in_phase(phase: Phase, hides: bool) -> Member:
    """Return a process that has come to this phase."""
    a = Member(A, ALONE, Shelf(OneStream()), (), hides)
    for step in (FROM_HIDDEN if hides else WAYS).get(phase, []):
        INPUTS[step](a)
    assert a.phase is phase
    return a


EXPECTED: dict[tuple[Phase, str], Phase] = {
    **{(phase, "asked for a newer change"): TOLD for phase in Phase if phase is not OUT},
    **{(phase, "it leaves"): OUT for phase in Phase},
    (IN_VIEW, "asked for the same change"): TOLD,
    (WAITING, "asked for the same change"): TOLD,
    (IN_VIEW, "asked for an older change"): TOLD,
    (WAITING, "asked for an older change"): TOLD,
    (TOLD, "decided"): INSTALLED,
    (TOLD, "decided, one frame is missing"): FETCHING,
    (TOLD, "decided, not primary"): INSTALLED,
    (TOLD, "behind"): IN_VIEW,
    (FETCHING, "the missing frame"): INSTALLED,
    (INSTALLED, "show"): IN_VIEW,
}
OF_WHO_HIDES = EXPECTED | {
    (TOLD, "behind"): WAITING,
    # It has come there by this very change.
    (IN_VIEW, "asked for the same change"): IN_VIEW,
    (IN_VIEW, "asked for an older change"): IN_VIEW,
}


@pytest.mark.parametrize("happens", INPUTS)
@pytest.mark.parametrize(("phase", "kind"), CASES, ids=str)
def test_every_phase_with_every_input(phase: Phase, kind: str, happens: str) -> None:
    hides = KINDS[kind]
    a = in_phase(phase, hides)
    INPUTS[happens](a)
    expected = OF_WHO_HIDES if hides else EXPECTED
    assert a.phase is expected.get((phase, happens), phase)


def test_a_view_that_is_not_primary_is_hidden() -> None:
    a = in_phase(TOLD, hides=True)
    INPUTS["decided, not primary"](a)
    INPUTS["show"](a)
    assert a.phase is WAITING
    assert a.view == ALONE


def test_who_is_not_in_the_view_that_it_asked_to_leave_is_out() -> None:
    a = in_phase(TOLD, hides=False)
    a.leaving = True
    without = PeerView(CHANGE, (B, C), B)
    a.decided(Decided(CHANGE, Decision(without, (Source(ALONE, (A,), (0,)),))), B, 0)
    INPUTS["show"](a)
    assert a.phase is OUT


def test_nothing_else_happens_and_all_that_the_table_has(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: set[tuple[Phase, Cause]] = set()

    def noted(phase: Phase, cause: Cause) -> Phase:
        seen.add((phase, cause))
        return next_phase(phase, cause)

    monkeypatch.setattr(members, "next_phase", noted)
    for (phase, kind), happens in product(CASES, INPUTS):
        test_every_phase_with_every_input(phase, kind, happens)
    test_a_view_that_is_not_primary_is_hidden()
    test_who_is_not_in_the_view_that_it_asked_to_leave_is_out()
    assert seen == set(TRANSITIONS)


IMPOSSIBLE = sorted(set(product(Phase, Cause)) - set(TRANSITIONS), key=str)


@pytest.mark.parametrize("pair", IMPOSSIBLE, ids=str)
def test_what_is_not_in_the_table_is_an_error(pair: tuple[Phase, Cause]) -> None:
    with pytest.raises(AssertionError):
        next_phase(*pair)
