"""Which membership holds where: the newest one in the log at or before that place."""

from hypothesis import given
from hypothesis import strategies as st

from antiphon.formats.entry import ClusterMember, Membership
from antiphon.log.membership import NOBODY, MembershipHistory


def cluster(number: int) -> Membership:
    return Membership(number, (ClusterMember(number, 1, True),))


starts = st.lists(st.integers(1, 30), unique=True, max_size=6).map(sorted)


def history(starts: list[int]) -> MembershipHistory:
    made = MembershipHistory([])
    for start in starts:
        made.append(start, cluster(start))
    return made


def expected(starts: list[int], index: int) -> Membership:
    return (
        cluster(max(s for s in starts if s <= index)) if starts and starts[0] <= index else NOBODY
    )


@given(starts, st.integers(0, 31))
def test_the_newest_at_or_before_an_index_holds_there(starts: list[int], index: int) -> None:
    assert history(starts).at(index) == expected(starts, index)


@given(starts, st.integers(1, 31))
def test_a_truncated_entry_takes_its_membership_back(starts: list[int], first: int) -> None:
    made = history(starts)
    made.truncate(first)
    left = [s for s in starts if s < first]
    assert made.current == expected(left, 31)
    assert made.index == max(left, default=0)
    made.append(first, cluster(first))
    assert made.current == cluster(first)


@given(starts, st.integers(0, 31), st.integers(0, 31))
def test_forgetting_keeps_what_holds_from_there_on(
    starts: list[int], forgotten: int, index: int
) -> None:
    made = history(starts)
    made.forget_before(forgotten)
    assert made.at(max(forgotten, index)) == expected(starts, max(forgotten, index))
    assert made.current == expected(starts, 31)


def test_a_recovered_history_goes_on() -> None:
    made = MembershipHistory([(4, cluster(4)), (9, cluster(9))])
    assert (made.current, made.index) == (cluster(9), 9)
    made.truncate(5)
    assert (made.current, made.index) == (cluster(4), 4)


def test_the_base_of_the_history_is_never_truncated() -> None:
    made = MembershipHistory([(4, cluster(4))])
    made.truncate(1)
    assert made.current == cluster(4)
