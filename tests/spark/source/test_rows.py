"""Rows become the messages that a program would send, and what cannot be one is refused."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import types as t

from antiphon.api.messages.destinations import Queue, Topic
from antiphon.api.messages.message import Message
from antiphon.api.messages.sending import outgoing
from antiphon.errors import InvalidDestinationError, MessageFormatError
from antiphon.formats import columns, pack
from antiphon.formats.columns import Columns, Extra, decode_extra
from antiphon.formats.pack import FULL_BYTES, FULL_MESSAGES
from antiphon.spark.source import rows

ARROW = {
    "topic": pa.string(),
    "body": pa.binary(),
    "text": pa.string(),
    "kind": pa.string(),
    "key": pa.string(),
    "tag": pa.string(),
    "type": pa.string(),
    "correlation_id": pa.string(),
    "reply_to": pa.string(),
    "priority": pa.int32(),
    "time_to_live": pa.float64(),
    "delivery_delay": pa.int64(),
    "properties": pa.map_(pa.string(), pa.string()),
    "position": pa.int64(),
}
Sent = tuple[str, int, bytes, Extra]


def batch(*given: dict[str, Any]) -> pa.RecordBatch:
    names = [name for name in ARROW if any(name in row for row in given)] or ["position"]
    arrays = [pa.array([row.get(name) for row in given], ARROW[name]) for name in names]
    return pa.record_batch(arrays, names=names)


def sent(*given: dict[str, Any], topic: str | None = "t") -> list[Sent]:
    """Destination, kind, body and headers of each message."""
    return [message for _, found in _packs(batch(*given), topic) for message in found]


def _packs(table: pa.RecordBatch, topic: str | None = "t") -> list[tuple[int, list[Sent]]]:
    """The flags and the messages of each pack."""
    found = []
    for destination, packed in rows.packs(table, topic):
        body, flags = columns.join(packed, 1)
        data = pack.encode(destination.text, len(packed.kinds), body, flags=flags)
        columns.check(data)
        read = Columns(data)
        messages = [
            (destination.text, read.kinds[i], read.body(i), decode_extra(read.extra(i)))
            for i in range(read.count)
        ]
        found.append((flags, messages))
    return found


def test_a_row_has_a_text_or_bytes_or_nothing() -> None:
    assert sent({"text": "é"}, {"body": b"\xff"}, {"body": b""}, {"text": ""}, {"key": None}) == [
        ("topic:t", columns.TEXT, "é".encode(), Extra()),
        ("topic:t", columns.BYTES, b"\xff", Extra()),
        ("topic:t", columns.BYTES, b"", Extra()),
        ("topic:t", columns.TEXT, b"", Extra()),
        ("topic:t", columns.MESSAGE, b"", Extra()),
    ]


def test_a_text_message_that_was_read_has_its_body_twice() -> None:
    assert sent({"body": b"abc", "text": "abc"}) == [("topic:t", columns.TEXT, b"abc", Extra())]
    with pytest.raises(MessageFormatError, match="a body and another text"):
        sent({"body": b"abc", "text": "abc"}, {"body": b"abc", "text": "ABC"})


def test_bodies_that_only_programs_make_are_passed_on() -> None:
    made = outgoing({"a": 1}, now_ms=1)
    row = {"kind": "map", "body": made.body, "text": '{"a": 1}'}
    assert sent(row) == [("topic:t", columns.MAP, made.body, Extra())]
    with pytest.raises(MessageFormatError, match="cannot be read"):
        sent({**row, "body": b"\xc1"})
    with pytest.raises(MessageFormatError, match="pickled"):
        sent({"kind": "pickle", "body": b"x"})


def test_a_message_without_a_body_that_was_read_has_none() -> None:
    kinds = [kind for _, kind, *_ in sent(
        {"kind": "message", "body": b""}, {"kind": "bytes", "body": b""}, {"kind": "message"},
        {"kind": "message", "body": b"x"}, {"kind": "message", "body": b"", "text": ""},
    )]  # fmt: skip
    nothing, data = columns.MESSAGE, columns.BYTES
    assert kinds == [nothing, data, nothing, data, columns.TEXT]


def test_headers_are_those_of_the_row() -> None:
    every: dict[str, Any] = {
        "key": "k",
        "tag": "g",
        "type": "y",
        "correlation_id": "c",
        "reply_to": "queue:r",
        "priority": 7,
        "time_to_live": 1.5,
        "delivery_delay": 2,
        "properties": [("a", "1"), ("b", None)],
    }
    (flags, [one]), (none, [other]) = _packs(batch({"text": "x", **every}, {"text": "y"}))
    expected = Extra(
        {"a": "1", "b": None}, "c", "queue:r", "y", 7, time_to_live=1500, delivery_delay=2000,
        tag="g", key="k",
    )  # fmt: skip
    assert one == ("topic:t", columns.TEXT, b"x", expected)
    assert flags == pack.EXTRAS | pack.SPECIAL | pack.DELAYED
    assert (none, other[3]) == (0, Extra())


NUMBERS: list[tuple[t.DataType, pa.DataType]] = [
    (t.ByteType(), pa.int8()),
    (t.ShortType(), pa.int16()),
    (t.IntegerType(), pa.int32()),
    (t.LongType(), pa.int64()),
    (t.FloatType(), pa.float32()),
    (t.DoubleType(), pa.float64()),
    (t.DecimalType(10, 2), pa.decimal128(10, 2)),
    (t.DecimalType(38, 0), pa.decimal128(38, 0)),
]


@pytest.mark.parametrize(("sql", "arrow"), NUMBERS)
def test_a_number_may_be_of_any_type_of_sql(sql: t.DataType, arrow: pa.DataType) -> None:
    names = ("priority", "time_to_live", "delivery_delay")
    rows.check_columns(t.StructType([t.StructField(name, sql) for name in names]), "t")
    for name, value, found in (
        ("priority", 7, Extra(priority=7)),
        ("time_to_live", 5, Extra(time_to_live=5000)),
        ("delivery_delay", 2, Extra(delivery_delay=2000)),
    ):
        given = Decimal(value) if pa.types.is_decimal(arrow) else value
        numbers = pa.array([None, given, None], arrow)
        table = pa.record_batch([numbers], names=[name])
        extras = [extra for _, pack in _packs(table) for *_, extra in pack]
        assert extras == [Extra(), found, Extra()]
        nothing = pa.record_batch([pa.nulls(2, arrow)], names=[name])
        assert [flags for flags, _ in _packs(nothing)] == [0]


def test_a_part_of_a_second_may_be_a_decimal_and_a_priority_is_whole() -> None:
    half = pa.array([Decimal("1.50")], pa.decimal128(10, 2))
    ((_, [one]),) = _packs(pa.record_batch([half], names=["time_to_live"]))
    assert one[3] == Extra(time_to_live=1500)
    for wrong in (half, half.cast(pa.float64())):
        with pytest.raises(MessageFormatError, match="column 'priority' is not a whole number"):
            _packs(pa.record_batch([wrong], names=["priority"]))


@pytest.mark.parametrize(
    ("row", "special"),
    [
        ({"priority": 4, "key": "k"}, False),
        ({"priority": 5}, True),
        ({"time_to_live": 5.0}, True),
        ({"properties": [("JMSXGroupID", "g")]}, True),
        ({"properties": [("a", "g")]}, False),
    ],
)
def test_servers_look_at_headers_only_if_they_must(row: dict[str, Any], special: bool) -> None:
    ((flags, _),) = _packs(batch(row))
    assert flags == pack.EXTRAS | (pack.SPECIAL if special else 0)


def test_the_priority_that_all_have_is_no_header() -> None:
    assert _packs(batch({"text": "x", "priority": 4, "properties": []}))[0][0] == 0


def test_each_row_goes_where_it_says_in_the_order_of_rows() -> None:
    names = ["a", "a", None, "queue:q", "topic:a", "a"]
    found = _packs(batch(*({"topic": name} for name in names)), topic="rest")
    places = [[message[0] for message in messages] for _, messages in found]
    assert places == [["topic:a"] * 2, ["topic:rest"], ["queue:q"], ["topic:a"], ["topic:a"]]


def test_a_destination_is_written_in_full_or_is_a_topic() -> None:
    assert rows.destination("a.b") == rows.destination("topic:a.b") == Topic("a.b")
    assert rows.destination("queue:q") == Queue("q")
    assert rows.destination("x:y") == Topic("x:y")
    for wrong in ("a.*", "queue:", ""):
        with pytest.raises(InvalidDestinationError):
            rows.destination(wrong)
    with pytest.raises(InvalidDestinationError, match="no topic"):
        sent({"topic": None}, topic=None)


@pytest.mark.parametrize(
    ("row", "error"),
    [
        ({"priority": 10}, "from 0 to 9, not 10"),
        ({"time_to_live": -1.0}, "time_to_live"),
        ({"properties": [("a-b", "1")]}, "'a-b' cannot name a property"),
        ({"reply_to": "queue:"}, "not a name"),
    ],
)
def test_a_wrong_value_says_which(row: dict[str, Any], error: str) -> None:
    with pytest.raises((MessageFormatError, InvalidDestinationError, ValueError), match=error):
        sent(row)


texts = st.none() | st.text(max_size=5)
row = st.fixed_dictionaries(
    {},
    optional={
        "topic": st.sampled_from([None, "a", "b"]),
        "text": texts,
        "key": texts,
        "priority": st.none() | st.integers(0, 9),
        "delivery_delay": st.sampled_from([None, 0, 1, 2]),
        "properties": st.none() | st.lists(st.tuples(st.sampled_from("ab"), texts), max_size=2),
    },
)


@given(st.lists(row, max_size=12), st.integers(0, 3), st.integers(0, 12))
def test_rows_are_what_a_program_would_send(
    given: list[dict[str, Any]], start: int, count: int
) -> None:
    """Also rows from the middle of a batch."""
    expected = []
    for values in given[start : start + count]:
        headers = {k: v for k, v in values.items() if k not in ("topic", "text")}
        headers["properties"] = dict(headers.get("properties") or ())
        text = values.get("text")
        kind, body, extra, _ = outgoing(Message() if text is None else text, now_ms=1, **headers)
        place = f"topic:{values.get('topic') or 't'}"
        expected.append((place, kind, body, decode_extra(extra)))
    found = _packs(batch(*given).slice(start, count)) if given else []
    assert [message for _, messages in found for message in messages] == expected
    for flags, messages in found:
        delays = {extra.delivery_delay for *_, extra in messages}
        assert len(delays) == 1
        assert bool(flags & pack.DELAYED) == bool(delays.pop())


QUARTER = FULL_BYTES // 4


@pytest.mark.parametrize(
    ("given", "sizes"),
    [
        ([{"body": b"x"}] * (FULL_MESSAGES + 1), [FULL_MESSAGES, 1]),
        ([{"body": b"x" * QUARTER}] * 9, [4, 4, 1]),
        ([{"body": b"x" * (5 * QUARTER)}] * 2 + [{"body": b"x"}] * 3, [1, 1, 3]),
        ([{"key": "x" * QUARTER}] * 7, [3, 3, 1]),
    ],
)
def test_packs_are_of_the_usual_size(given: list[dict[str, Any]], sizes: list[int]) -> None:
    assert [len(packed.kinds) for _, packed in rows.packs(batch(*given), "t")] == sizes


# -- Columns ---------------------------------------------------------------------------------------


def schema(text: str) -> t.StructType:
    names = {"string": t.StringType(), "binary": t.BinaryType(), "int": t.IntegerType()}
    names["map"] = t.MapType(t.StringType(), t.StringType())
    names["date"] = t.DateType()
    names["wrong map"] = t.MapType(t.StringType(), t.IntegerType())
    fields = (field.split(": ") for field in text.split(", "))
    return t.StructType([t.StructField(name, names[kind]) for name, kind in fields])


def test_columns_that_reading_gives_can_be_written() -> None:
    rows.check_columns(
        schema(
            "position: int, topic: string, message_id: string, timestamp: int, stamp: int, "
            "session: string, sequence: int, kind: string, type: string, priority: int, "
            "correlation_id: string, reply_to: string, tag: string, key: string, view_id: int, "
            "properties: map, body: binary, text: string"
        ),
        None,
    )


@pytest.mark.parametrize(
    ("columns", "error"),
    [
        ("text: string, keys: string", "'keys' has no meaning for a message. Columns: topic, body"),
        ("body: string", "'body' is string, but must be binary"),
        ("text: binary", "'text' is binary, but must be string"),
        ("priority: string", "'priority' is string, but must be tinyint or smallint or int"),
        ("time_to_live: date", "'time_to_live' is date, but must be .* or double or decimal"),
        ("properties: wrong map", "'properties' is map<string,int>, but must be map<string,str"),
    ],
)
def test_a_wrong_column_is_named(columns: str, error: str) -> None:
    with pytest.raises(MessageFormatError, match=error):
        rows.check_columns(schema(columns), "t")


def test_rows_must_go_somewhere() -> None:
    with pytest.raises(InvalidDestinationError, match="option or a column 'topic'"):
        rows.check_columns(schema("text: string"), None)
    rows.check_columns(schema("text: string"), "t")
    rows.check_columns(schema("text: string, topic: string"), None)
