"""Which messages of a pack somebody is to have."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.broker.dispatch.audience import Audience
from antiphon.broker.dispatch.filtering import Contents, Sieve, headers_in, matching
from antiphon.formats import columns, pack
from antiphon.formats.columns import TEXT, Columns, Extra, Outgoing, message_id
from antiphon.formats.journal import Row
from antiphon.model.selectors.evaluate import Selector, parse

SESSION, SEQUENCE, STAMP, SENT_MS = 0xABC, 7, 5_000, 1_790_000_000_123


def selector(text: str) -> Selector:
    parsed = parse(text)
    assert parsed is not None
    return parsed


def packed(*extras: Extra | bytes, flags: int = 0, destination: str = "topic:t") -> bytes:
    written = [e if isinstance(e, bytes) else columns.encode_extra(e) for e in extras]
    body, found = columns.encode([Outgoing(TEXT, b"x", extra, SENT_MS) for extra in written])
    count = len(extras)
    return pack.encode(destination, count, body, SESSION, SEQUENCE, flags=flags | found)


def with_properties(*properties: dict[str, Any]) -> bytes:
    return packed(*(Extra(properties=p) for p in properties))


def wanted(text: str, data: bytes) -> list[int]:
    """Indexes in the pack."""
    contents = Contents(data, STAMP)
    ranges = matching(selector(text), contents, 0, contents.count - 1)
    return [i for first, last in ranges for i in range(first, last + 1)]


def test_properties_are_selected_by() -> None:
    data = with_properties({"floor": 4}, {}, {"floor": 2}, {"floor": "4"}, {"floor": 5.5})
    assert wanted("floor > 3", data) == [0, 4]
    assert wanted("floor IS NULL", data) == [1]


@pytest.mark.parametrize(
    ("text", "extra"),
    [
        ("JMSCorrelationID = 'order 1'", Extra(correlation_id="order 1")),
        ("JMSType = 'alarm'", Extra(type="alarm")),
        ("JMSPriority = 9", Extra(priority=9)),
        ("JMSXGroupID = 'g'", Extra(properties={"JMSXGroupID": "g"})),
    ],
)
def test_headers_are_selected_by(text: str, extra: Extra) -> None:
    assert wanted(text, packed(extra, Extra())) == [0]


def test_what_all_messages_have_is_selected_by() -> None:
    """[8] [9]"""
    data = packed(Extra(), Extra())
    shown = message_id(Columns(data).header, 1)
    assert wanted(f"JMSMessageID = '{shown}'", data) == [1]
    assert wanted(f"JMSTimestamp = {SENT_MS}", data) == [0, 1]
    assert wanted("JMSPriority = 4", data) == [0, 1]
    assert wanted("JMSDeliveryMode = 'PERSISTENT'", data) == [0, 1]
    early = packed(Extra(), flags=pack.NON_PERSISTENT)
    assert wanted("JMSDeliveryMode = 'NON_PERSISTENT'", early) == [0]
    assert wanted("JMSDeliveryMode = 'PERSISTENT'", early) == []


def test_the_id_of_a_message_in_a_cut_pack_is_the_same() -> None:
    data = packed(Extra(), Extra(), Extra())
    shown = message_id(Columns(data).header, 2)
    assert wanted(f"JMSMessageID = '{shown}'", columns.slice_of(data, 1, 2)) == [1]


def test_a_property_cannot_pass_for_a_header() -> None:
    data = with_properties({"JMSPriority": 9, "JMSType": "fake"})
    assert wanted("JMSPriority = 9 OR JMSType = 'fake'", data) == []


def test_headers_that_cannot_be_read_count_as_none() -> None:
    data = packed(b"\xc1", Extra(properties={"a": 1}), flags=pack.SPECIAL)
    assert wanted("a = 1", data) == [1]
    assert wanted("a IS NULL", data) == [0]
    assert Contents(data, STAMP).fresh(0, 1, 1 << 60) == [(0, 1)]


def test_only_the_headers_that_are_read_are_made() -> None:
    assert headers_in(selector("a = 1 AND JMSType = 'x'")) == {"JMSType"}
    assert headers_in(selector("JMSXGroupID = 'x' OR a = 1")) == frozenset()


# -- Time ------------------------------------------------------------------------------------------


def test_a_message_expires_so_long_after_it_was_accepted() -> None:
    data = packed(Extra(time_to_live=100), Extra(), Extra(time_to_live=50), flags=pack.SPECIAL)
    contents = Contents(data, STAMP)
    assert contents.fresh(0, 2, STAMP + 49) == [(0, 2)]
    assert contents.fresh(0, 2, STAMP + 50) == [(0, 1)]
    assert contents.fresh(0, 2, STAMP + 100) == [(1, 1)]
    assert contents.fresh(2, 2, STAMP + 100) == []


def test_a_delay_belongs_to_the_time_to_live() -> None:
    extra = Extra(time_to_live=100, delivery_delay=80)
    contents = Contents(packed(extra, flags=pack.SPECIAL), STAMP)
    assert contents.fresh(0, 0, STAMP + 19) == [(0, 0)]
    assert contents.fresh(0, 0, STAMP + 20) == []


def row_of(data: bytes, position: int, view: int = 0) -> Row:
    return Row(1, position, Columns(data).count, 0, STAMP, view, "topic:t")


def test_a_sieve_lets_through_what_is_wanted_and_not_over() -> None:
    extras = [Extra(properties={"n": n}, time_to_live=10 * n) for n in range(6)]
    data = packed(*extras, flags=pack.SPECIAL)
    sieve = Sieve(lambda: STAMP + 20)
    row = row_of(data, 101)
    assert sieve.wanted(row, data, 102) == [(104, 106)]
    matched = [(0, 2), (4, 4)]
    assert sieve.wanted(row, data, 101, matched) == [(101, 101), (105, 105)]
    assert sieve.wanted(row, data, 105, matched) == [(105, 105)]
    assert sieve.age(row) == 20


def test_nothing_expires_in_a_group() -> None:
    data = packed(Extra(time_to_live=1), flags=pack.SPECIAL)
    sieve = Sieve(lambda: 1 << 60)
    assert sieve.wanted(row_of(data, 1, view=3), data, 1) == [(1, 1)]
    assert sieve.age(row_of(data, 1, view=3)) == 0


def test_a_plain_pack_is_not_looked_into() -> None:
    sieve = Sieve(lambda: 0)
    broken = b"\0" * 40
    assert sieve.wanted(Row(1, 5, 3, 0, STAMP, 0, "topic:t"), broken, 6) == [(6, 7)]


# -- Many ------------------------------------------------------------------------------------------

TEXTS = ("a = 1", "a = 2 AND b = 'x'", "a > 1", "JMSType = 'x'", "b IN ('x', 'y')", "a = 1")
properties = st.fixed_dictionaries(
    {}, optional={"a": st.integers(0, 3), "b": st.sampled_from(["x", "y", "z"])}
)
messages = st.lists(
    st.builds(Extra, properties, type=st.sampled_from([None, "x", "y"])), min_size=1, max_size=12
)


@given(messages, st.sets(st.integers(0, len(TEXTS) - 1)))
def test_an_audience_is_given_what_each_would_get_alone(
    extras: list[Extra], gone: set[int]
) -> None:
    audience: Audience[int] = Audience()
    for key, text in enumerate(TEXTS):
        audience.add(key, selector(text))
    for key in gone:
        audience.remove(key)
    data = packed(*extras)
    contents = Contents(data, STAMP)
    alone = {
        key: ranges
        for key, text in enumerate(TEXTS)
        if key not in gone and (ranges := matching(selector(text), contents, 0, contents.count - 1))
    }
    assert audience.wanted(contents) == alone


def test_an_audience_knows_who_is_in_it() -> None:
    audience: Audience[str] = Audience()
    assert not audience
    audience.add("plain", None)
    assert not audience.selects
    audience.add("choosy", selector("JMSPriority > 4"))
    assert audience.selects
    assert list(audience) == ["plain", "choosy"]
    audience.remove("plain")
    audience.remove("choosy")
    assert not audience
    assert not audience.selects
