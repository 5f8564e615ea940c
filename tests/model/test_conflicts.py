"""Conflict relations: who must be ordered with whom."""

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.errors import FormatError
from antiphon.model.conflicts import TAGS_MAX, ConflictRelation

TAGS = ("a", "b", "c")
tags = st.none() | st.sampled_from(TAGS)
keys = st.none() | st.sampled_from(("x", "y"))
pairs = st.lists(st.tuples(st.sampled_from(TAGS), st.sampled_from(TAGS)))
relations = st.builds(ConflictRelation, st.just(TAGS), pairs, st.booleans())
presets = st.sampled_from(
    (ConflictRelation.RELIABLE, ConflictRelation.ATOMIC, ConflictRelation.RELIABLE_ATOMIC)
)


@given(relations | presets, tags, keys, tags, keys)
def test_it_is_symmetric(
    r: ConflictRelation, tag: str | None, key: str | None, other: str | None, other_key: str | None
) -> None:
    assert r.conflict(tag, key, other, other_key) == r.conflict(other, other_key, tag, key)


@given(relations, tags, keys)
def test_who_says_nothing_conflicts_with_everything(
    r: ConflictRelation, tag: str | None, key: str | None
) -> None:
    assert r.conflict(None, None, tag, key)


@given(relations, keys, keys)
def test_different_keys_do_not_conflict_if_keys_count(
    r: ConflictRelation, key: str | None, other: str | None
) -> None:
    different = key is not None and other is not None and key != other
    for one, two in r.conflicts:
        assert r.conflict(one, key, two, other) == (not (r.keyed and different))


@given(relations | presets)
def test_it_survives_json_and_pickle(r: ConflictRelation) -> None:
    assert ConflictRelation.from_json(r.to_json()) == r
    assert pickle.loads(pickle.dumps(r)) == r
    assert hash(ConflictRelation.from_json(r.to_json())) == hash(r)


def test_the_order_of_what_is_said_does_not_matter() -> None:
    one = ConflictRelation(("a", "b"), [("a", "b"), ("b", "b")])
    two = ConflictRelation(("b", "a", "a"), [("b", "b"), ("b", "a"), ("a", "b")])
    assert one == two
    assert one.to_json() == two.to_json()
    assert one != ConflictRelation(("a", "b"), [("a", "b")])


def test_figure_4_1() -> None:
    relation = ConflictRelation.RELIABLE_ATOMIC
    assert not relation.conflict("rbcast", None, "rbcast", None)
    assert relation.conflict("rbcast", None, "abcast", None)
    assert relation.conflict("abcast", None, "abcast", None)


def test_reliable_and_atomic() -> None:
    assert not ConflictRelation.RELIABLE.conflict(None, None, None, None)
    assert ConflictRelation.ATOMIC.conflict(None, "x", None, "y")


def test_a_tag_that_is_not_known_is_refused_with_those_that_are() -> None:
    with pytest.raises(ValueError, match="no tag 'c'; it has 'a', 'b'"):
        ConflictRelation(("b", "a"), []).check_tag("c")
    with pytest.raises(ValueError, match="it has none"):
        ConflictRelation.ATOMIC.check_tag("c")
    ConflictRelation.ATOMIC.check_tag(None)
    ConflictRelation.RELIABLE_ATOMIC.check_tag("rbcast")


def test_a_tag_that_the_relation_does_not_know_conflicts_with_everything() -> None:
    """Its message was under way when the relation changed."""
    assert ConflictRelation.ATOMIC.conflict("put", "x", "get", "y")
    assert ConflictRelation(("a",), []).conflict("a", None, "b", None)
    assert not ConflictRelation.RELIABLE.conflict("put", None, "get", None)


def test_a_conflict_is_between_tags_of_the_relation() -> None:
    with pytest.raises(ValueError, match="'c' conflicts, but is none of the tags"):
        ConflictRelation(("a",), [("a", "c")])


def test_tags_are_bounded() -> None:
    ConflictRelation(map(str, range(TAGS_MAX)), [])
    with pytest.raises(ValueError, match="at most 256 tags, not 257"):
        ConflictRelation(map(str, range(TAGS_MAX + 1)), [])


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "1",
        '{"tags": ["a"]}',
        '{"tags": [1], "conflicts": []}',
        '{"tags": ["a"], "conflicts": [["a"]]}',
        '{"tags": ["a"], "conflicts": [["a", "b"]]}',
        "[" * 100_000,
    ],
)
def test_what_is_no_relation_is_refused(text: str) -> None:
    with pytest.raises(FormatError, match="not a conflict relation"):
        ConflictRelation.from_json(text)
