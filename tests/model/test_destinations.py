"""Destinations: which names there are, and which topics a pattern stands for."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.errors import InvalidDestinationError
from antiphon.model import destinations as d


@pytest.mark.parametrize(
    ("text", "kind", "name"),
    [
        ("topic:Alarms", "topic", "Alarms"),
        ("topic:a.b.*", "topic", "a.b.*"),
        ("topic:>", "topic", ">"),
        ("queue:orders:eu", "queue", "orders:eu"),
        ("temp-queue:5f3a.2", "temp-queue", "5f3a.2"),
        ("temp-topic:5f3a.1", "temp-topic", "5f3a.1"),
        ("topic:Zoë.a*b", "topic", "Zoë.a*b"),
        ("queue:" + "x" * d.NAME_MAX, "queue", "x" * d.NAME_MAX),
    ],
)
def test_kind_and_name_are_read(text: str, kind: str, name: str) -> None:
    assert d.parse(text) == (kind, name)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("Alarms", "write it as"),
        ("", "write it as"),
        ("Topic:a", "write it as"),
        ("topic:", "1 to 1024"),
        ("topic:" + "x" * (d.NAME_MAX + 1), "1 to 1024"),
        ("topic:a b", "blanks"),
        ("topic:a\n", "blanks"),
        ("topic:a..b", "empty"),
        ("topic:.a", "empty"),
        ("topic:a.", "empty"),
        ("topic:>.a", "nothing may follow"),
        ("queue:a.*", "only topics"),
        ("temp-topic:a.>", "only topics"),
    ],
)
def test_what_is_no_destination_is_refused(text: str, complaint: str) -> None:
    with pytest.raises(InvalidDestinationError, match=complaint):
        d.parse(text)


@given(st.text(max_size=30))
def test_any_text_is_a_destination_or_refused(text: str) -> None:
    for candidate in (text, "topic:" + text):
        with contextlib.suppress(InvalidDestinationError):
            d.matcher(candidate)(candidate)


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("a.b", ["a.b"], ["a", "a.b.c", "a.c", "A.b"]),
        ("a.*", ["a.b", "a.c"], ["a", "a.b.c", "b.a", "ab"]),
        ("*.b", ["a.b"], ["b", "a.b.b", "a.c"]),
        ("a.*.c", ["a.b.c"], ["a.c", "a.b.b.c", "a.b.d"]),
        ("a.>", ["a.b", "a.b.c"], ["a", "b.a", "ab.c"]),
        (">", ["a", "a.b"], []),
        ("*", ["a"], ["a.b"]),
        ("*.>", ["a.b", "a.b.c"], ["a"]),
        ("a.x*", ["a.x*"], ["a.xy"]),
    ],
)
def test_a_pattern_stands_for_these_topics(
    pattern: str, matching: list[str], others: list[str]
) -> None:
    matches = d.matcher("topic:" + pattern)
    assert [name for name in matching + others if matches("topic:" + name)] == matching
    assert not any(
        matches(kind + ":" + name) for kind in ("queue", "temp-topic") for name in matching
    )


names = st.lists(st.sampled_from(["a", "b", "c*"]), min_size=1, max_size=4)


@given(names, st.data())
def test_a_name_with_parts_replaced_by_wildcards_matches_it(
    parts: list[str], data: st.DataObject
) -> None:
    pattern = [data.draw(st.sampled_from([part, "*"])) for part in parts]
    if data.draw(st.booleans()):
        pattern = [*pattern[: data.draw(st.integers(0, len(parts) - 1))], ">"]
    assert d.matcher("topic:" + ".".join(pattern))("topic:" + ".".join(parts))


def test_kinds_are_told_apart_by_their_text() -> None:
    texts = ["topic:a", "queue:a", "temp-topic:1.1", "temp-queue:1.2"]
    assert [d.is_queue(text) for text in texts] == [False, True, False, True]
    assert [d.is_temporary(text) for text in texts] == [False, False, True, True]
    assert [d.is_pattern(name) for name in ("a", "a*", "a.*", ">", "a.>b")] == [
        *(False, False),
        *(True, True, False),
    ]


def test_a_temporary_destination_names_its_session() -> None:
    assert d.owner("temp-queue:5f3a.2") == 0x5F3A
    for wrong in ("temp-queue:orders.2", "temp-queue:"):
        with pytest.raises(InvalidDestinationError, match="names no session"):
            d.owner(wrong)
