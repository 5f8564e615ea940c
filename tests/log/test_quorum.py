"""Majorities overlap, and what one holds is counted right."""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.formats.entry import ReplicaId
from antiphon.log.quorum import held_by_majority, majority


def servers(count: int) -> tuple[ReplicaId, ...]:
    return tuple(ReplicaId(node, 7) for node in range(1, count + 1))


@pytest.mark.parametrize("size", range(1, 8))
def test_any_two_majorities_share_a_server(size: int) -> None:
    voters = servers(size)
    some = list(combinations(voters, majority(voters)))
    assert all(set(a) & set(b) for a in some for b in some)


@pytest.mark.parametrize("size", range(1, 7))
def test_majorities_before_and_after_one_change_share_a_server(size: int) -> None:
    before, after = servers(size), servers(size + 1)
    for old in combinations(before, majority(before)):
        for new in combinations(after, majority(after)):
            assert set(old) & set(new)


@given(st.integers(1, 7), st.dictionaries(st.integers(1, 9), st.integers(0, 5)))
def test_what_a_majority_holds(size: int, reached: dict[int, int]) -> None:
    voters = servers(size)
    held = {ReplicaId(node, 7): index for node, index in reached.items()}

    def by_majority(index: int) -> bool:
        return sum(held.get(v, 0) >= index for v in voters) >= majority(voters)

    answer = held_by_majority(voters, held)
    assert by_majority(answer)
    assert not by_majority(answer + 1)


def test_another_incarnation_of_a_voter_does_not_count() -> None:
    voters = servers(3)
    held = {voters[0]: 5, ReplicaId(2, 8): 5, ReplicaId(3, 9): 5}
    assert held_by_majority(voters, held) == 0


def test_nobody_holds_anything() -> None:
    assert held_by_majority((), {ReplicaId(1, 7): 3}) == 0
