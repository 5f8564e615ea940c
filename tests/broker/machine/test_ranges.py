"""Ranges of positions, against the plain thing: a dictionary of positions."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.broker.machine import ranges as spans
from antiphon.broker.machine.ranges import Spans, coarse

SOME = st.tuples(st.integers(1, 40), st.integers(0, 12)).map(lambda t: (t[0], t[0] + t[1]))
STEPS = st.lists(
    st.tuples(st.sampled_from(("add", "take", "take_first", "look")), SOME, st.integers(1, 3)),
    max_size=30,
)


def as_dict(ranges: Spans | list[tuple[int, int, int]]) -> dict[int, int]:
    return {p: d for first, last, d in ranges for p in range(first, last + 1)}


@given(STEPS)
def test_ranges_hold_exactly_what_was_put_in(steps: list[tuple[str, tuple[int, int], int]]) -> None:
    some = Spans()
    model: dict[int, int] = {}
    for what, (first, last), number in steps:
        inside = {p: d for p, d in model.items() if first <= p <= last}
        if what == "add" and not inside:
            some.add(first, last, number)
            model.update(dict.fromkeys(range(first, last + 1), number))
        elif what == "take":
            assert as_dict(some.take(first, last)) == inside
            model = {p: d for p, d in model.items() if p not in inside}
        elif what == "take_first" and model:
            taken = some.take_first(number)
            assert taken is not None
            assert taken[0] == min(model)
            assert 1 <= taken[1] - taken[0] + 1 <= number
            for position, deliveries in as_dict([taken]).items():
                assert model.pop(position) == deliveries
        else:
            assert as_dict(some.between(first, last)) == inside
            assert some.deliveries(first) == model.get(first, 0)
        assert as_dict(some) == model
        assert some.count == len(model)
        for one, two in pairwise(some):
            assert one[1] < two[0]
            assert one[1] + 1 < two[0] or one[2] != two[2], "neighbours that are alike"
        restored = Spans(list(some))
        assert (list(restored), restored.count) == (list(some), some.count)


def test_nothing_comes_first_of_nothing() -> None:
    some = Spans([(3, 4, 1)])
    assert some.clear() == [(3, 4, 1)]
    assert some.take_first(5) is None
    assert some.count == 0


def test_many_ranges_become_few_that_hold_them_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spans, "SPANS_MAX", 4)
    ranges = [(n, n + 1) for n in range(1, 100, 5)]
    few = coarse(ranges)
    assert len(few) <= 4
    assert all(any(one <= first and last <= two for one, two in few) for first, last in ranges)
    assert coarse([(5, 6), (1, 2), (3, 3)]) == ((1, 3), (5, 6))
