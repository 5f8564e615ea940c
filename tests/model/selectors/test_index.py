"""The index of selectors: the same answer as one by one, for less."""

from random import Random
from typing import Any

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from antiphon.model.selectors.evaluate import Selector, parse
from antiphon.model.selectors.index import Probe, SelectorIndex, probe_of
from tests.model.selectors.support import random_selectors


def parsed(text: str) -> Selector:
    selector = parse(text)
    assert selector is not None
    return selector


def index_of(*texts: str) -> SelectorIndex[int]:
    """Keys count from 0."""
    index: SelectorIndex[int] = SelectorIndex()
    for key, text in enumerate(texts):
        index.add(key, parse(text))
    return index


def test_keys_come_in_the_order_added() -> None:
    index = index_of("a = 1", "b = 2", "", "a > 0", "a = 1", "b IN ('x')", "a = 1 OR a = 2")
    assert index.matching({"a": 1, "b": 2}) == [0, 1, 2, 3, 4, 6]
    assert index.matching({"a": 2, "b": "x"}) == [2, 3, 5, 6]
    assert index.matching({}) == [2]
    assert len(index) == 7


def test_keys_are_never_compared() -> None:
    index: SelectorIndex[object] = SelectorIndex()
    keys = [object(), "x", 5, None]
    for key in keys:
        index.add(key, parse("a = 1"))
    index.add((), parse("a > 0"))
    assert index.matching({"a": 1}) == [*keys, ()]


def test_removed_keys_are_gone() -> None:
    texts = ("a = 1", "a = 1", "a IN ('x', 'y')", "a > 0", "", "a = 2 OR a = 3")
    index = index_of(*texts)
    index.remove(0)
    assert index.matching({"a": 1}) == [1, 3, 4]
    index.remove(3)
    index.remove(1)
    assert index.matching({"a": 1}) == [4]
    assert index.matching({"a": "y"}) == [2, 4]
    for key in (2, 4, 5):
        index.remove(key)
    assert index.matching({"a": "y"}) == []
    assert len(index) == 0
    assert not index._probed
    assert not index._unprobed
    assert not index._entries
    with pytest.raises(KeyError):
        index.remove(4)


def test_a_key_that_comes_again_is_the_last() -> None:
    index = index_of("a = 1", "a = 1", "a = 1")
    index.remove(0)
    index.add(0, parse("a = 1"))
    assert index.matching({"a": 1}) == [1, 2, 0]


@pytest.mark.parametrize(
    ("text", "field", "values"),
    [
        ("a = 4", "a", {4.0}),
        ("4.0 = a", "a", {4.0}),
        ("a = 'x'", "a", {"x"}),
        ("a = TRUE", "a", {(True,)}),
        ("a IN ('x', 'y')", "a", {"x", "y"}),
        ("a = 4 OR 5 = a OR a IN ('x')", "a", {4.0, 5.0, "x"}),
    ],
)
def test_what_is_looked_up(text: str, field: str, values: set[Any]) -> None:
    assert probe_of(parsed(text).tree) == Probe(field, frozenset(values))


@pytest.mark.parametrize(
    "text",
    [
        "a <> 4",
        "a > 4",
        "a NOT IN ('x')",
        "a = b",
        "a = 4 OR b = 5",
        "a = 4 OR a > 5",
        "a LIKE 'x'",
        "NOT a = 4",
        "a + 0 = 4",
        "a = 9007199254740992",
        "a = -9223372036854775808",
        "a",
    ],
)
def test_what_is_not(text: str) -> None:
    assert probe_of(parsed(text).tree) is None


@pytest.mark.parametrize(
    ("text", "value", "fits"),
    [
        ("a = 1", 1, True),
        ("a = 1", 1.0, True),
        ("a = 1.0", 1, True),
        ("a = 1", True, False),
        ("a = 1", "1", False),
        ("a = TRUE", 1, False),
        ("a = TRUE", True, True),
        ("a = TRUE", False, False),
        ("a = 'x'", "x", True),
        ("a = 0", -0.0, True),
        ("a = 0", None, False),
        ("a = 0", float("nan"), False),
        ("a = 9007199254740993", 9007199254740993, True),
        ("a = 9007199254740993", 9007199254740992, False),
        ("a = 9007199254740992", 9007199254740993, False),
        ("a = 9007199254740993", 9007199254740992.0, True),
        ("a = 9007199254740992.0", 9007199254740993, True),
        ("a = 9007199254740991", 9007199254740991.0, True),
    ],
)
def test_values_are_equal_as_in_selectors(text: str, value: object, fits: bool) -> None:
    for spelled in (text, f"{text} AND TRUE", f"b IS NULL AND {text}"):
        assert index_of(spelled).matching({"a": value}) == ([0] if fits else [])
        assert parsed(spelled).matches({"a": value}) is fits


class Counted(dict[str, object]):
    """How often was each field asked for?"""

    def __init__(self, **fields: object) -> None:
        super().__init__(fields)
        self.asked: dict[str, int] = {}

    def get(self, name: str, default: object = None) -> Any:
        self.asked[name] = self.asked.get(name, 0) + 1
        return super().get(name, default)


def test_what_is_looked_up_is_not_evaluated() -> None:
    floors = [f"floor = {k}" for k in range(100)]
    index = index_of(*floors, "x = 1 AND y > 0", "(y > 0 AND (x = 2)) AND TRUE")
    fields = Counted(floor=17, x=2, y=5)
    assert index.matching(fields) == [17, 101]
    assert fields.asked == {"floor": 1, "x": 1, "y": 1}


def test_equal_selectors_are_evaluated_once() -> None:
    index = index_of(*["a > 1", "a>1", " a  > 1"] * 10)
    fields = Counted(a=2)
    assert index.matching(fields) == list(range(30))
    assert fields.asked == {"a": 1}


def test_a_term_that_all_share_does_not_gather_them() -> None:
    index = index_of(*(f"kind = 'call' AND floor = {k}" for k in range(100)))
    fields = Counted(kind="call", floor=17)
    assert index.matching(fields) == [17]
    assert sum(fields.asked.values()) <= 4


@given(st.integers(0, 1 << 32))
@settings(max_examples=200)
def test_the_answer_is_that_of_one_by_one(seed: int) -> None:
    random = Random(seed)
    index: SelectorIndex[int] = SelectorIndex()
    known: dict[int, Selector | None] = {}
    spellings = ["", *(some_text(random) for _ in range(12))]
    for key in range(30):
        if known and random.random() < 0.3:
            gone = random.choice(list(known))
            del known[gone]
            index.remove(gone)
        known[key] = parse(random.choice(spellings))
        index.add(key, known[key])
    note(repr(known))
    for _ in range(10):
        fields = random_selectors.random_fields(random)
        note(repr(fields))
        expected = [key for key, one in known.items() if one is None or one.matches(fields)]
        assert index.matching(fields) == expected


def some_text(random: Random) -> str:
    """Often with terms that can be looked up."""
    join = random.choice((" AND ", " AND ", " OR "))
    terms = [random_selectors.condition(random, random.randint(1, 2)) for _ in range(3)]
    return join.join(
        f"({random_selectors.spell(t, random)})" for t in terms[: random.randint(1, 3)]
    )
