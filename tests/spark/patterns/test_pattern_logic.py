"""Patterns, without Spark: they find what the definitions say, however the events come."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.spark import patterns
from antiphon.spark.patterns.events import Event, Match, Pattern, described, milliseconds, moment
from antiphon.spark.patterns.timeline import Timeline
from tests.spark.support import pattern_oracle as oracle
from tests.spark.support.pattern_oracle import Happened

END = 10_000
"""After everything that happens here, and all that is waited for."""


def find(pattern: Pattern[Any], batches: Sequence[Sequence[Happened]]) -> list[Match]:
    """One key's events, batch by batch. The watermark follows what has come, as in Spark: all
    batches but the last may be followed by events that are as late as is allowed."""
    timeline, stored, found = Timeline(pattern), None, []
    for number, batch in enumerate(batches):
        memory = timeline.read(stored)
        memory.held_back += [Event(*one) for one in batch]
        coming = [time for later in batches[number + 1 :] for time, _, _ in later]
        watermark = min(coming) - 1 if coming else END
        found += timeline.advance(memory, watermark)
        due = timeline.due(memory)
        assert due is None or due > watermark
        stored = None if due is None else timeline.stored(memory)
    assert stored is None, "a key that is silent is forgotten"
    return found


def positions(match: Match) -> tuple[int, ...]:
    return tuple(part["position"] for part in match.found.values())


def told(matches: Sequence[Match]) -> list[oracle.Told]:
    return [oracle.Told(match.time, positions(match)) for match in matches]


@st.composite
def histories(draw: st.DrawFn, fields: st.SearchStrategy[dict[str, Any]]) -> list[Happened]:
    """Times that are close together and often equal, positions in the order of arrival."""
    steps = draw(st.lists(st.tuples(st.integers(-15, 30), fields), max_size=30))
    time, history = 100, []
    for position, (step, values) in enumerate(steps):
        history.append((max(time + step, 0), position, values))
        time += max(step, 0)
    return history


@st.composite
def cuts(draw: st.DrawFn, history: list[Happened]) -> list[list[Happened]]:
    """As batches, each at a place of its own in the order of arrival."""
    ends = sorted(draw(st.lists(st.integers(0, len(history)), max_size=4)))
    edges = [0, *ends, len(history)]
    return [history[begin:end] for begin, end in pairwise(edges)]


prices = st.sampled_from([80.0, 90.0, 95.0, 99.0, 100.0, 101.0, 105.0, 110.0, 120.0, 1e-3])
ticks = histories(st.fixed_dictionaries({"price": prices}))
levels = histories(st.fixed_dictionaries({"place": st.sampled_from("abcd"), "level": prices}))
steps = histories(st.fixed_dictionaries({"step": st.sampled_from(["order", "pay", "other", None])}))


@given(st.data(), ticks, st.sampled_from([1, 20, 60, 200]))
def test_rises(data: st.DataObject, history: list[Happened], within: int) -> None:
    pattern = patterns.rises_by("price", rise=0.1, within=f"{within} milliseconds")
    found = find(pattern, data.draw(cuts(history)))
    assert told(found) == oracle.rises_by(history, 0.1, "price", within)


@given(st.data(), ticks, st.sampled_from([1, 20, 60, 200]), st.sampled_from([0.01, 0.05, 0.2]))
def test_rises_and_falls(
    data: st.DataObject, history: list[Happened], within: int, fall: float
) -> None:
    limit = f"{within} milliseconds"
    pattern = patterns.rise_and_fall("price", rise=0.05, fall=fall, within=limit)
    found = find(pattern, data.draw(cuts(history)))
    assert told(found) == oracle.rise_and_fall(history, "price", 0.05, fall, within)


@given(st.data(), levels, st.integers(1, 4), st.sampled_from([20, 100]))
def test_rises_in_several_places(
    data: st.DataObject, history: list[Happened], count: int, within: int
) -> None:
    rises = patterns.rises_by("level", rise=0.05, within="50 milliseconds")
    limit = f"{within} milliseconds"
    pattern = patterns.at_least(count, of="place", where=rises, within=limit)
    found = find(pattern, data.draw(cuts(history)))
    in_places = {
        place: oracle.rises_by([e for e in history if e[2]["place"] == place], 0.05, "level", 50)
        for place in "abcd"
    }
    expected = oracle.at_least(count, in_places, within, by_time=False)
    assert [(match.time, frozenset(match.found["place"])) for match in found] == expected


@given(st.data(), levels, st.integers(1, 4), st.sampled_from([20, 100]))
def test_silence_in_several_places(
    data: st.DataObject, history: list[Happened], count: int, within: int
) -> None:
    silent = patterns.absence(patterns.event(), within="40 milliseconds")
    limit = f"{within} milliseconds"
    pattern = patterns.at_least(count, of="place", where=silent, within=limit)
    found = find(pattern, data.draw(cuts(history)))
    in_places = {
        place: oracle.absence(
            [e for e in history if e[2]["place"] == place],
            lambda _: True,
            lambda _: True,
            40,
            END,
        )
        for place in "abcd"
    }
    expected = oracle.at_least(count, in_places, within, by_time=True)
    assert [(match.time, frozenset(match.found["place"])) for match in found] == expected


@given(st.data(), steps, st.sampled_from([1, 20, 60, 200]))
def test_absence_after_another(data: st.DataObject, history: list[Happened], within: int) -> None:
    paid, ordered = patterns.event(step="pay"), patterns.event(step="order")
    pattern = patterns.absence(paid, after=ordered, within=f"{within} milliseconds")
    found = find(pattern, data.draw(cuts(history)))
    assert told(found) == oracle.absence(
        history, lambda e: e["step"] == "pay", lambda e: e["step"] == "order", within, END
    )


@given(st.data(), steps, st.sampled_from([1, 20, 60, 200]))
def test_absence_since_the_last(data: st.DataObject, history: list[Happened], within: int) -> None:
    pattern = patterns.absence(patterns.event(step="pay"), within=f"{within} milliseconds")
    found = find(pattern, data.draw(cuts(history)))

    def is_paid(fields: dict[str, Any]) -> bool:
        return bool(fields["step"] == "pay")

    assert told(found) == oracle.absence(history, is_paid, is_paid, within, END)


def new_record(state: list[float] | None, event: Event) -> tuple[list[float], Iterator[Any]]:
    """The highest price so far, told when it is beaten."""
    (best,) = state or [0.0]
    price = event.number("price")
    beaten = ({"price": price, "before": best} for _ in range(price > best > 0))
    return [max(best, price)], beaten


@given(st.data(), ticks)
def test_a_function_of_the_user(data: st.DataObject, history: list[Happened]) -> None:
    pattern = patterns.stateful(new_record, fields={"price": float}, forget_after="1 second")
    found = find(pattern, data.draw(cuts(history)))
    best, expected = 0.0, []
    for time, _, fields in oracle.in_order(history):
        if fields["price"] > best > 0:
            expected.append((time, {"price": fields["price"], "before": best}))
        best = max(best, fields["price"])
    assert [(match.time, match.found) for match in found] == expected
    assert pattern.name == "new_record"


def test_a_function_begins_anew_after_silence() -> None:
    pattern = patterns.stateful(new_record, fields={"price": float}, forget_after="1 second")
    history: list[Happened] = [(0, 0, {"price": 9.0}), (1000, 1, {"price": 10.0})]
    assert len(find(pattern, [history])) == 1  # just in time
    assert find(pattern, [[history[0], (1001, 1, {"price": 10.0})]]) == []


# -- By example ------------------------------------------------------------------------------------


def quotes(*values: tuple[int, float]) -> list[Happened]:
    return [
        (time, position, {"price": float(price)}) for position, (time, price) in enumerate(values)
    ]


FALLEN = patterns.rise_and_fall("price", rise=0.05, fall=0.03, within="100 milliseconds")


def test_a_fall_before_the_rise_is_none() -> None:
    assert find(FALLEN, [quotes((0, 110), (10, 100), (20, 105))]) == []


def test_what_takes_longer_is_none() -> None:
    assert len(find(FALLEN, [quotes((0, 100), (50, 110), (100, 100))])) == 1
    assert find(FALLEN, [quotes((0, 100), (50, 110), (101, 100))]) == []


def test_a_later_low_goes_on_when_the_first_is_too_old() -> None:
    found = find(FALLEN, [quotes((0, 90), (60, 100), (90, 106), (120, 100))])
    assert told(found) == [(120, (1, 2, 3))]


def test_what_was_told_is_not_told_again() -> None:
    found = find(FALLEN, [quotes((0, 100), (10, 110), (20, 106), (30, 100), (40, 95))])
    assert told(found) == [(20, (0, 1, 2))]


def test_the_same_time_is_ordered_by_position() -> None:
    found = find(FALLEN, [list(reversed(quotes((5, 100), (5, 110), (5, 100))))])
    assert told(found) == [(5, (0, 1, 2))]


def test_what_comes_just_in_time_is_not_absent() -> None:
    paid, ordered = patterns.event(step="pay"), patterns.event(step="order")
    pattern = patterns.absence(paid, after=ordered, within="100 milliseconds")
    order: Happened = (0, 0, {"step": "order"})
    assert find(pattern, [[order, (100, 1, {"step": "pay"})]]) == []
    assert told(find(pattern, [[order, (101, 1, {"step": "pay"})]])) == [(100, (0,))]


def test_places_are_told_once_while_there_are_enough() -> None:
    rises = patterns.rises_by("level", rise=0.2, within="50 milliseconds")
    pattern = patterns.at_least(2, of="place", where=rises, within="10 milliseconds")
    path = [(0, "a", 10), (0, "b", 10), (0, "c", 10), (1, "a", 12), (2, "b", 12), (3, "c", 12)]
    path += [(30, "a", 15), (31, "c", 15)]
    history: list[Happened] = [
        (time, position, {"place": place, "level": float(level)})
        for position, (time, place, level) in enumerate(path)
    ]
    found = [(match.time, set(match.found["place"])) for match in find(pattern, [history])]
    assert found == [(2, {"a", "b"}), (31, {"a", "c"})]


@pytest.mark.parametrize(
    ("written", "wanted"), [("7", 7), ("7.0", 7), ("true", True), ("mill", "mill"), ("1", "1")]
)
def test_a_kind_is_compared_by_what_is_wanted(written: str, wanted: str | float | bool) -> None:
    assert patterns.event(field=wanted).has(Event(0, 0, {"field": written}))


@pytest.mark.parametrize(
    ("written", "wanted"), [(None, 7), ("x", 7), ("", 0), ("1", True), ("True", True), (None, "")]
)
def test_another_kind(written: str | None, wanted: str | float | bool) -> None:
    assert not patterns.event(field=wanted).has(Event(0, 0, {"field": written}))


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: patterns.rises_by("v", rise=0, within="1 hour"), "rise is above zero"),
        (lambda: patterns.rises_by("v", rise=0.1, within="soon"), "like '10 minutes'"),
        (lambda: patterns.rises_by("v", rise=0.1, within="0 hours"), "longer than nothing"),
        (
            lambda: patterns.rise_and_fall("v", rise=0.1, fall=1, within="1 hour"),
            "falls by 100%",
        ),
        (
            lambda: patterns.at_least(0, of="p", where=FALLEN, within="1 hour"),
            "counts from 1",
        ),
        (
            lambda: patterns.at_least(
                2, of="p", where=patterns.absence(patterns.event(), within="1 day", key="p"),
                within="1 hour",
            ),
            "has no key",
        ),
        (
            lambda: patterns.stateful(new_record, fields={"a": int}, forget_after="1 day"),
            "str or float: a",
        ),
        (
            lambda: patterns.at_least(2, of="price", where=FALLEN, within="1 hour").fields,
            "'price' cannot be a number here and a text there",
        ),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused(make: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        make()


def test_times() -> None:
    assert milliseconds("x", "1 minute") == milliseconds("x", "60 seconds") == 60_000
    assert moment(1_500) == "1970-01-01T00:00:01.500Z"
    assert moment(-1) == "1969-12-31T23:59:59.999Z"


def count(state: Any, event: Event) -> tuple[Any, list[Any]]:
    return None, []


class OfAUser(Pattern[Any]):
    name, fields, state_type = "of a user", (), int

    def __init__(self, key: str | None) -> None:
        self.key = key

    def on_event(self, state: Any, event: Event) -> tuple[Any, list[Match]]:
        return None, []

    def due(self, state: Any) -> int:
        return 0

    def on_time(self, state: Any, now: int) -> tuple[Any, list[Match]]:
        return None, []


def test_patterns_that_differ_are_described_otherwise() -> None:
    def every() -> list[Pattern[Any]]:
        a, b = patterns.event(kind="a"), patterns.event(kind="b")
        rise = patterns.rises_by("level", rise=0.2, within="1 hour")
        return [
            rise,
            patterns.rises_by("level", rise=0.3, within="1 hour"),
            patterns.rises_by("other", rise=0.2, within="1 hour"),
            patterns.rises_by("level", rise=0.2, within="2 hours"),
            patterns.rises_by("level", rise=0.2, within="1 hour", key="k"),
            patterns.rise_and_fall("level", rise=0.2, fall=0.1, within="1 hour"),
            patterns.at_least(3, of="place", where=rise, within="1 hour"),
            patterns.at_least(4, of="place", where=rise, within="1 hour"),
            patterns.absence(a, after=b, within="1 hour"),
            patterns.absence(b, after=a, within="1 hour"),
            patterns.stateful(count, fields={"a": str}, forget_after="1 day"),
            patterns.stateful(count, fields={"a": float}, forget_after="1 day"),
            OfAUser(None),
            OfAUser("k"),
        ]

    told = [described(pattern) for pattern in every()]
    assert len(set(told)) == len(told)
    assert told == [described(pattern) for pattern in every()], "the same in every process"
    assert not any(" at 0x" in text for text in told)
