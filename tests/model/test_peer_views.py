"""Quorums of views."""

from itertools import combinations

import pytest

from antiphon.model.peer_views import MemberId, PeerView, ViewId, held_by_quorum, is_quorum


def view(names: str, seats: str = "") -> PeerView:
    members = tuple(MemberId(name, 1) for name in names)
    return PeerView(
        ViewId(1, members[0]), members, members[0], True, tuple(MemberId(s, 1) for s in seats)
    )


def ids(names: str) -> list[MemberId]:
    return [MemberId(name, 1) for name in names]


@pytest.mark.parametrize(
    ("members", "seats", "present", "enough"),
    [
        ("a", "", "a", True),
        ("ab", "", "a", True),
        ("ab", "", "b", False),
        ("abc", "", "bc", True),
        ("abc", "", "a", False),
        ("abcd", "", "ab", True),
        ("abcd", "", "bc", False),
        ("abcd", "", "bcd", True),
        ("abc", "", "", False),
        ("abc", "", "axyz", False),
        ("abc", "abcde", "ab", False),
        ("abc", "abcde", "abc", True),
        ("abcd", "cde", "ab", False),
        ("abcd", "cde", "bcd", True),
        ("ab", "abc", "a", False),
        ("ab", "abc", "ac", True),
        ("a", "abc", "ab", True),
    ],
)
def test_a_quorum_is_a_majority_or_half_with_the_first_and_has_most_seats(
    members: str, seats: str, present: str, enough: bool
) -> None:
    assert is_quorum(view(members, seats), ids(present)) == enough


@pytest.mark.parametrize(("members", "seats"), [("abcd", ""), ("abcde", ""), ("abcd", "bcd")])
def test_two_quorums_have_a_process_in_common(members: str, seats: str) -> None:
    everybody = ids(members)
    sets = [set(c) for n in range(6) for c in combinations(everybody, n)]
    quorums = [some for some in sets if is_quorum(view(members, seats), some)]
    assert quorums
    assert all(one & other for one in quorums for other in quorums)


def test_a_quorum_holds_the_highest_number_that_enough_have_reached() -> None:
    a, b, c, d = ids("abcd")
    assert held_by_quorum(view("abc"), {a: 7, b: 4, c: 1}) == 4
    assert held_by_quorum(view("abcd"), {a: 7, b: 4, c: 1}) == 4
    assert held_by_quorum(view("abcd"), {a: 1, b: 4, c: 7, d: 7}) == 4
    assert held_by_quorum(view("abcd"), {a: 1, b: 0, c: 7, d: 7}) == 1
    assert held_by_quorum(view("abc", "abcde"), {a: 7, b: 4, c: 1}) == 1
