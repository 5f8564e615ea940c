"""Columns: the messages of a pack are read as they were packed, whole or cut."""

import contextlib
from itertools import accumulate, groupby
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.errors import FormatError
from antiphon.formats import columns, pack
from antiphon.formats.columns import TEXT, Columns, Extra, Outgoing, Packed
from antiphon.formats.pack import EXTRAS, NON_PERSISTENT, PackHeader
from tests.formats.support.values import U32, U64

NOW = 1_700_000_000_000
U32_MS = st.integers(NOW, NOW + U32)
properties = st.dictionaries(
    st.text(max_size=10),
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.text(max_size=10),
    max_size=4,
)
texts = st.none() | st.text(max_size=10)
times = st.integers(0, 2**63 - 1)
types = st.dictionaries(st.text(max_size=10), st.integers(0, 127), max_size=2)
extras = st.builds(
    Extra, properties, texts, texts, texts, st.integers(0, 9), times, times, texts, texts, types
)
plain = st.builds(Outgoing, st.integers(0, 255), st.binary(max_size=30), st.just(b""), U32_MS)
rich = st.builds(
    Outgoing, st.integers(0, 255), st.binary(max_size=30), st.binary(max_size=9), U32_MS
)
messages = st.lists(plain, min_size=1, max_size=12) | st.lists(rich, min_size=1, max_size=12)


def packed(messages: list[Outgoing], flags: int = 0) -> bytes:
    body, more = columns.encode(messages)
    return pack.encode("topic:a", len(messages), body, 7, 41, 3, flags | more)


def in_columns(messages: list[Outgoing]) -> Packed:
    """The columns that somebody who has no single messages would have."""
    ends, extra_ends = (
        b"".join(end.to_bytes(4, "little") for end in accumulate(map(len, blobs)))
        for blobs in ([m.body for m in messages], [m.extra for m in messages])
    )
    bodies, extras = b"".join(m.body for m in messages), b"".join(m.extra for m in messages)
    kinds = bytes(m.kind for m in messages)
    return Packed(kinds, ends, bodies, *((extra_ends, extras) if extras else ()))


def unpacked(data: bytes) -> list[Outgoing]:
    read = Columns(data)
    return [
        Outgoing(read.kinds[i], read.body(i), read.extra(i), read.timestamp(i))
        for i in range(read.count)
    ]


SMALL = packed([Outgoing(TEXT, b"one", b"x", NOW), Outgoing(TEXT, b"two", b"yz", NOW + 1)])
PLAIN = packed([Outgoing(TEXT, b"one", b"", NOW), Outgoing(TEXT, b"two", b"", NOW)])


@given(messages, st.sampled_from([0, NON_PERSISTENT]))
def test_messages_are_read_as_they_were_packed(messages: list[Outgoing], flags: int) -> None:
    data = packed(messages, flags)
    assert unpacked(data) == messages
    more = EXTRAS if any(message.extra for message in messages) else 0
    header = PackHeader("topic:a", len(messages), 7, 41, 3, flags | more)
    assert Columns(data).header == columns.check(data) == header
    assert Columns(data).destination == "topic:a"


@given(messages)
def test_runs_are_read_as_they_were_packed(messages: list[Outgoing]) -> None:
    """Of messages that have some neighbours of the same kind and millisecond."""
    alike = [m._replace(kind=m.kind % 2, timestamp=NOW + m.timestamp % 2 * U32) for m in messages]
    groups = [list(group) for _, group in groupby(alike, lambda m: (m.kind, m.timestamp))]
    firsts = accumulate(map(len, groups), initial=0)
    runs = [columns.Run(n, g[0].kind, g[0].timestamp) for n, g in zip(firsts, groups, strict=False)]
    extras = [m.extra for m in alike]
    encoded = columns.encode_runs(runs, [m.body for m in alike], extras if any(extras) else ())
    assert encoded == columns.encode(alike)


@given(messages, st.sampled_from([0, NON_PERSISTENT]), st.data())
def test_a_slice_is_a_pack_of_those_messages(
    messages: list[Outgoing], flags: int, data: st.DataObject
) -> None:
    first = data.draw(st.integers(0, len(messages) - 1))
    count = data.draw(st.integers(1, len(messages) - first))
    whole = packed(messages, flags)
    part = columns.slice_of(whole, first, count)
    header = columns.check(part)
    assert unpacked(part) == messages[first : first + count]
    assert (header.session, header.producer, header.sequence) == (7, 3, 41 + first)
    assert header.flags == pack.read_header(whole).flags
    ids = [columns.message_id(Columns(whole).header, i) for i in range(len(messages))]
    assert [columns.message_id(header, i) for i in range(count)] == ids[first : first + count]


@given(messages, st.data())
def test_a_slice_of_a_slice_is_a_slice(messages: list[Outgoing], data: st.DataObject) -> None:
    first = data.draw(st.integers(0, len(messages) - 1))
    count = data.draw(st.integers(1, len(messages) - first))
    inner = data.draw(st.integers(0, count - 1))
    whole = packed(messages)
    twice = columns.slice_of(columns.slice_of(whole, first, count), inner, count - inner)
    assert twice == columns.slice_of(whole, first + inner, count - inner)


def test_the_whole_pack_is_not_copied() -> None:
    assert columns.slice_of(SMALL, 0, 2) is SMALL


@pytest.mark.parametrize(("first", "count"), [(0, 0), (0, 3), (2, 1), (-1, 1), (1, -1)])
def test_a_slice_lies_within_its_pack(first: int, count: int) -> None:
    with pytest.raises(AssertionError):
        columns.slice_of(SMALL, first, count)


def test_the_columns_are_where_they_are_drawn() -> None:
    body = pack.body(SMALL)
    assert body[:8] == NOW.to_bytes(8, "little")
    assert body[8:16].hex() == "0000000001000000"
    assert list(body[16:18]) == [TEXT, TEXT]
    assert body[18:26].hex() == "0300000006000000"
    assert body[26:34].hex() == "0100000003000000"
    assert body[34:] == b"onetwo" + b"xyz"
    assert pack.body(PLAIN)[26:] == b"onetwo"


def test_a_clock_that_jumps_by_months_does_not_keep_a_pack_from_leaving() -> None:
    early, late = Outgoing(TEXT, b"", b"", 5), Outgoing(TEXT, b"", b"", NOW)
    read = Columns(packed([early, late, early]))
    runs = [columns.Run(n, TEXT, m.timestamp) for n, m in enumerate((early, late, early))]
    assert columns.encode_runs(runs, [b""] * 3) == columns.encode([early, late, early])
    assert read.timestamp(1) == NOW
    assert read.timestamp(0) == read.timestamp(2) == NOW - U32


# -- Bytes from strangers --------------------------------------------------------------------------


def with_body(body: bytes, count: int, flags: int) -> bytes:
    return pack.encode("topic:a", count, body, 7, 41, 3, flags)


@given(st.binary(max_size=120), st.integers(1, 5), st.sampled_from([0, EXTRAS]))
def test_a_garbage_body_is_refused_and_nothing_worse(body: bytes, count: int, flags: int) -> None:
    data = with_body(body, count, flags)
    with contextlib.suppress(FormatError):
        unpacked(data)
    with contextlib.suppress(FormatError):
        columns.slice_of(data, count - 1, 1)


@given(messages, st.data())
def test_an_altered_byte_gives_messages_or_is_refused(
    messages: list[Outgoing], data: st.DataObject
) -> None:
    body, flags = columns.encode(messages)
    at = data.draw(st.integers(0, len(body) - 1))
    bad = body[:at] + bytes([data.draw(st.integers(0, 255))]) + body[at + 1 :]
    with contextlib.suppress(FormatError):
        assert len(unpacked(with_body(bad, len(messages), flags))) == len(messages)


@pytest.mark.parametrize("small", [SMALL, PLAIN])
def test_a_body_cut_at_any_byte_is_refused(small: bytes) -> None:
    header, body = pack.read_header(small), pack.body(small)
    for cut in range(len(body)):
        with pytest.raises(FormatError):
            Columns(with_body(body[:cut], header.count, header.flags))
    with pytest.raises(FormatError, match="messages up to"):
        Columns(with_body(body + b"\0", header.count, header.flags))


@pytest.mark.parametrize("table", [18, 26])
def test_a_message_that_ends_before_it_begins_is_refused(table: int) -> None:
    body = pack.body(SMALL)
    bad = with_body(body[:table] + b"\x07\0\0\0" + body[table + 4 :], 2, EXTRAS)
    with pytest.raises(FormatError, match="ends before it begins"):
        Columns(bad)
    with pytest.raises(FormatError, match="ends before it begins"):
        columns.slice_of(bad, 1, 1)


def test_a_count_beyond_the_pack_is_refused_at_once() -> None:
    with pytest.raises(FormatError, match="no room for 1048576 messages"):
        Columns(with_body(pack.body(SMALL), pack.COUNT_MAX, EXTRAS))


def test_check_verifies_the_checksum_and_the_columns() -> None:
    with pytest.raises(FormatError, match="checksum"):
        columns.check(SMALL[:-1] + b"!")
    with pytest.raises(FormatError, match="no room"):
        columns.check(with_body(b"no columns", 1, 0))


# -- Extras and ids --------------------------------------------------------------------------------


@given(extras)
def test_headers_are_read_as_they_were_written(extra: Extra) -> None:
    assert columns.decode_extra(columns.encode_extra(extra)) == extra


def test_headers_that_say_nothing_take_no_room() -> None:
    assert columns.encode_extra(Extra()) == b""
    assert columns.decode_extra(b"") == Extra()
    assert columns.encode_extra(Extra(priority=5)) != b""


@pytest.mark.parametrize("value", [True, 1, 1.0, "1", None])
def test_properties_keep_their_types(value: Any) -> None:
    read = columns.decode_extra(columns.encode_extra(Extra({"a": value}))).properties["a"]
    assert (type(read), read) == (type(value), value)


@given(st.binary(max_size=60))
def test_garbage_headers_are_refused_and_nothing_worse(garbage: bytes) -> None:
    with contextlib.suppress(FormatError):
        columns.decode_extra(garbage)


def test_fields_of_a_later_release_are_passed_over() -> None:
    later = columns.encode_extra(Extra({}, "id"))
    assert later[0] == 0x9A
    assert columns.decode_extra(b"\x9b" + later[1:] + b"\xc3") == Extra({}, "id")


def test_fields_of_an_earlier_release_have_their_defaults() -> None:
    assert columns.decode_extra(b"\x92\x80\xa2id") == Extra({}, "id")


@given(st.integers(0, U64), st.integers(0, U32), st.integers(0, 2**63), st.integers(0, 99))
def test_an_id_tells_session_producer_and_sequence(
    session: int, producer: int, sequence: int, i: int
) -> None:
    header = PackHeader("topic:a", 100, session, sequence, producer)
    sender, number = columns.message_id(header, i).removeprefix("ID:").split(".")
    assert int(number) == sequence + i
    assert [int(part, 16) for part in sender.split("-")] == [session, producer][
        : 1 + bool(producer)
    ]


@given(messages)
def test_columns_that_are_joined_are_the_messages_encoded(messages: list[Outgoing]) -> None:
    at_once = [m._replace(timestamp=NOW) for m in messages]
    in_one = in_columns(at_once)
    assert columns.join(in_one, NOW) == columns.encode(at_once)
    if in_one.extra_ends:
        assert in_one.each_extra() == [m.extra for m in messages]


@pytest.mark.parametrize(
    "wrong",
    [
        Packed(b"", b"", b""),
        Packed(b"\1\1", b"\1\0\0\0", b"a"),
        Packed(b"\1", b"\1\0\0\0", b"ab"),
        Packed(b"\1", b"\1\0\0\0", b"a", b"\1\0\0\0", b""),
    ],
)
def test_columns_that_do_not_fit_together_are_refused(wrong: Packed) -> None:
    with pytest.raises(FormatError, match="do not fit together"):
        columns.join(wrong, NOW)
