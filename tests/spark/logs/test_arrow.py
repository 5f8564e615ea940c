"""Packs as Arrow: the same rows as when every message is decoded by itself."""

import contextlib
import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from antiphon.api.messages.arriving import arrived
from antiphon.api.messages.message import Arrival
from antiphon.errors import FormatError, MessageFormatError
from antiphon.formats import columns as formats
from antiphon.formats import pack as packs
from antiphon.formats import values
from antiphon.formats.columns import Columns, Extra, Outgoing
from antiphon.formats.pack import EXTRAS, LogPack
from antiphon.model.jms_scalars import Char, Double, Int, Long
from antiphon.spark.logs import arrow
from antiphon.spark.logs.arrow import SCHEMA, batches, schema

NOW = 1_700_000_000_000
KINDS = ("message", "text", "bytes", "map", "stream", "object", "pickle")
ALL = SCHEMA.names


def to_arrow(log: list[LogPack], first: int, last: int, columns: Sequence[str]) -> pa.RecordBatch:
    """The rows of all batches as one."""
    found = list(batches(log, first, last, columns))
    whole = pa.Table.from_batches(found, schema(columns)).combine_chunks().to_batches()
    return whole[0] if whole else pa.RecordBatch.from_pylist([], schema(columns))


texts = st.text(max_size=8)
items = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | texts
bodies = st.one_of(
    st.just((formats.MESSAGE, b"")),
    st.tuples(st.just(formats.TEXT), texts.map(str.encode)),
    st.tuples(st.just(formats.BYTES), st.binary(max_size=20)),
    st.tuples(st.just(formats.MAP), st.dictionaries(texts, items, max_size=3).map(values.encode)),
    st.tuples(st.just(formats.STREAM), st.lists(items, max_size=3).map(values.encode)),
    st.tuples(st.just(formats.OBJECT), items.map(values.encode)),
    st.tuples(st.just(formats.PICKLE), st.binary(max_size=20)),
)
properties = st.dictionaries(
    texts,
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats() | texts,
    max_size=3,
)
headers = st.none() | texts
extras = st.builds(
    Extra,
    properties=properties,
    correlation_id=headers,
    reply_to=st.sampled_from([None, "queue:answers", "temp-topic:5f.1"]),
    type=headers,
    priority=st.integers(0, 9),
    tag=headers,
    key=headers,
).map(formats.encode_extra)
no_extras = st.just(b"")
times = st.integers(NOW, NOW + 2**31)
outgoing = st.builds(lambda body, extra, time: Outgoing(*body, extra, time), bodies, extras, times)
plain = st.builds(lambda body, extra, time: Outgoing(*body, extra, time), bodies, no_extras, times)
text_only = st.builds(
    lambda text, time: Outgoing(formats.TEXT, text.encode(), b"", time), texts, times
)
messages = st.one_of(
    *(st.lists(kind, min_size=1, max_size=9) for kind in (outgoing, plain, text_only))
)


@st.composite
def logs(draw: st.DrawFn) -> list[LogPack]:
    """Packs one after the other, with gaps where other topics' messages are."""
    position, stamp, log = 1, NOW, []
    for content in draw(st.lists(messages, max_size=5)):
        position += draw(st.integers(0, 3))
        stamp += draw(st.integers(0, 1000))
        destination = draw(st.sampled_from(["topic:a.b", "topic:é", "queue:q"]))
        sender = (draw(st.integers(0, 2**64 - 1)), draw(st.integers(0, 2**62)))
        producer = draw(st.sampled_from([0, 0, 7, 2**32 - 1]))
        view = draw(st.sampled_from([0, 0, 3]))
        log.append(LogPack(position, stamp, view, packed(content, destination, *sender, producer)))
        position += len(content)
    return log


def packed(
    content: Sequence[Outgoing],
    destination: str = "topic:a.b",
    session: int = 7,
    sequence: int = 41,
    producer: int = 0,
) -> bytes:
    body, flags = formats.encode(content)
    return packs.encode(destination, len(content), body, session, sequence, producer, flags)


def one(kind: int, body: bytes, extra: bytes = b"", time: int = NOW) -> LogPack:
    return LogPack(1, NOW, 0, packed([Outgoing(kind, body, extra, time)]))


def value(log_pack: LogPack, column: str) -> Any:
    return to_arrow([log_pack], 1, 1, [column])[column][0].as_py()


# -- Message by message ---------------------------------------------------------------------------


def plainly(log: Sequence[LogPack], first: int, last: int) -> list[dict[str, Any]]:
    return [
        row_of(log_pack, i)
        for log_pack in log
        for i in range(packs.read_header(log_pack.pack).count)
        if first <= log_pack.position + i <= last
    ]


def row_of(log_pack: LogPack, i: int) -> dict[str, Any]:
    read = Columns(log_pack.pack)
    message = next(arrived(Arrival(read, log_pack.position, 1), (i,)))
    return {
        "position": message.position,
        "topic": read.destination.removeprefix("topic:"),
        "message_id": message.id,
        "timestamp": time_of(read.timestamp(i)),
        "stamp": time_of(log_pack.stamp),
        "session": str(message.id).removeprefix("ID:").partition(".")[0].partition("-")[0],
        "sequence": int(str(message.id).partition(".")[2]),
        "kind": KINDS[read.kinds[i]],
        "type": message.type,
        "priority": message.priority,
        "correlation_id": message.correlation_id,
        "reply_to": None if message.reply_to is None else message.reply_to.text,
        "tag": message.tag,
        "key": message.key,
        "view_id": log_pack.view or None,
        "properties": [(name, message.get_string_property(name)) for name in message.properties],
        "body": read.body(i),
        "text": text_of(read.kinds[i], message),
    }


def time_of(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=milliseconds)


def text_of(kind: int, message: Any) -> str | None:
    if kind in (formats.MAP, formats.STREAM):
        return json.dumps(message.body, ensure_ascii=False, separators=(",", ":"))
    return message.body if kind == formats.TEXT else None


def alike(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """JSON has many ways to write the same."""
    for row in rows:
        if row["kind"] in ("map", "stream"):
            row["text"] = json.loads(row["text"])
    return rows


@given(logs(), st.data())
@settings(max_examples=300)
def test_rows_are_what_receivers_see(log: list[LogPack], data: st.DataObject) -> None:
    end = log[-1].position + 9 if log else 5
    first = data.draw(st.integers(0, end))
    last = data.draw(st.integers(first - 1, end))
    batch = to_arrow(log, first, last, ALL)
    batch.validate(full=True)
    assert batch.schema == SCHEMA
    assert alike(batch.to_pylist()) == alike(plainly(log, first, last))


def test_a_pack_may_be_cut_at_both_ends() -> None:
    content = [Outgoing(formats.TEXT, text, b"", NOW) for text in (b"one", b"two", b"", b"four")]
    batch = to_arrow([LogPack(11, NOW, 0, packed(content))], 12, 13, ["position", "text", "body"])
    assert batch.to_pydict() == {"position": [12, 13], "text": ["two", ""], "body": [b"two", b""]}


@given(logs(), st.lists(st.sampled_from(ALL), unique=True))
def test_only_the_named_columns_come_in_their_order(log: list[LogPack], names: list[str]) -> None:
    batch = to_arrow(log, 0, 10_000, names)
    assert batch.schema.names == names
    whole = to_arrow(log, 0, 10_000, ALL)
    assert batch.to_pydict() == {name: whole[name].to_pylist() for name in names}


@given(logs(), st.integers(1, 12))
def test_many_batches_are_the_same_rows(log: list[LogPack], most: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arrow, "ROWS_MAX", most)
        parts = list(batches(log, 2, 30, ALL))
    rows = [row for batch in parts for row in batch.to_pylist()]
    assert rows == to_arrow(log, 2, 30, ALL).to_pylist()
    assert all(batch.num_rows < most + 9 for batch in parts)


def test_a_batch_of_great_bodies_ends_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow, "BYTES_MAX", 1000)
    log = [one(formats.BYTES, bytes(600))._replace(position=1 + i) for i in range(5)]
    assert [batch.num_rows for batch in batches(log, 1, 5, ["body"])] == [2, 2, 1]


def test_spark_takes_the_columns_as_they_are() -> None:
    assert to_arrow_schema(from_arrow_schema(SCHEMA), timezone="UTC") == SCHEMA


# -- Odd things -----------------------------------------------------------------------------------


def test_json_has_the_nearest_that_it_knows() -> None:
    content = [Int(5), Long(6), Double(1.5), Char("x"), Decimal("1.50"), b"ab", float("nan"), 2**70]
    text = value(one(formats.STREAM, values.encode(content)), "text")
    assert json.loads(text) == [5, 6, 1.5, "x", "1.50", "YWI=", None, 2**70]
    odd = {"a": {(1, 2): {3}}, "b": 1 + 2j, "c": time_of(NOW)}
    text = value(one(formats.MAP, values.encode(odd)), "text")
    assert json.loads(text) == {"a": {"(1, 2)": [3]}, "b": "(1+2j)", "c": "2023-11-14T22:13:20Z"}


@pytest.mark.parametrize("kind", [formats.TEXT, formats.MAP, formats.STREAM])
def test_a_body_that_is_not_what_it_says_has_no_text(kind: int) -> None:
    log_pack = one(kind, b"\xff\xfe")
    assert value(log_pack, "text") is None
    assert value(log_pack, "body") == b"\xff\xfe"
    with pytest.raises(MessageFormatError):
        next(arrived(Arrival(Columns(log_pack.pack), 1, 1), (0,))).body  # noqa: B018


def test_one_bad_text_does_not_spoil_the_others() -> None:
    content = [Outgoing(formats.TEXT, body, b"", NOW) for body in (b"a", b"\xff", "é".encode())]
    batch = to_arrow([LogPack(1, NOW, 0, packed(content))], 1, 3, ["text"])
    assert batch["text"].to_pylist() == ["a", None, "é"]


def test_what_this_release_does_not_know_has_a_body() -> None:
    later = one(9, b"later")
    assert [value(later, name) for name in ("kind", "text", "body")] == [None, None, b"later"]


def test_headers_that_cannot_be_read_count_as_not_given() -> None:
    for extra in (b"\xc1", formats.encode_extra(Extra(priority=1 << 40))):
        log_pack = one(formats.TEXT, b"a", extra)
        assert value(log_pack, "priority") == formats.PRIORITY
        assert value(log_pack, "properties") == []


def test_a_clock_at_the_end_of_time_is_no_error() -> None:
    (time,) = to_arrow([one(formats.TEXT, b"", b"", 2**64 - 1)], 1, 1, ["timestamp"])["timestamp"]
    assert time.cast(pa.int64()).as_py() > 2**62


# -- Damage ---------------------------------------------------------------------------------------


@given(st.binary(max_size=120), st.integers(1, 5), st.sampled_from([0, EXTRAS]), st.data())
def test_a_garbage_body_is_refused_and_nothing_worse(
    body: bytes, count: int, flags: int, data: st.DataObject
) -> None:
    log_pack = LogPack(1, NOW, 0, packs.encode("topic:a", count, body, 7, 41, 3, flags))
    first = data.draw(st.integers(1, count))
    last = data.draw(st.integers(first, count))
    with contextlib.suppress(FormatError):
        to_arrow([log_pack], first, last, ALL).validate(full=True)


@given(messages, st.data())
def test_an_altered_byte_gives_rows_or_is_refused(
    content: list[Outgoing], data: st.DataObject
) -> None:
    body, flags = formats.encode(content)
    at = data.draw(st.integers(0, len(body) - 1))
    bad = body[:at] + bytes([data.draw(st.integers(0, 255))]) + body[at + 1 :]
    log_pack = LogPack(1, NOW, 0, packs.encode("topic:a", len(content), bad, 7, 41, 0, flags))
    first = data.draw(st.integers(1, len(content)))
    last = data.draw(st.integers(first, len(content)))
    with contextlib.suppress(FormatError):
        batch = to_arrow([log_pack], first, last, ALL)
        batch.validate(full=True)
        assert batch.num_rows == last - first + 1


@pytest.mark.parametrize("ends", [(1, 9, 3), (2, 1, 3)])
def test_ends_out_of_order_are_refused(ends: tuple[int, ...]) -> None:
    body, flags = formats.encode([Outgoing(formats.TEXT, b"x", b"", NOW)] * 3)
    table = b"".join(end.to_bytes(4, "little") for end in ends)
    bad = packs.encode("topic:a", 3, body[:23] + table + body[35:], 7, 41, 0, flags)
    with pytest.raises(FormatError, match="ends be"):
        to_arrow([LogPack(1, NOW, 0, bad)], 1, 2, ["body"])


def test_numbers_beyond_what_a_log_counts_are_refused() -> None:
    with pytest.raises(FormatError, match="counts up to"):
        to_arrow(
            [LogPack(1, NOW, 0, packed([Outgoing(1, b"", b"", NOW)], "topic:a", 7, 2**63))],
            1,
            1,
            ["sequence"],
        )
