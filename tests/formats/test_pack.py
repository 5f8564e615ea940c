"""Packs: what was packed is read, and nothing else is taken for a pack."""

import contextlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.errors import FormatError
from antiphon.formats import columns, pack, values
from antiphon.formats.columns import (
    BYTES,
    MAP,
    MESSAGE,
    OBJECT,
    PICKLE,
    STREAM,
    TEXT,
    Columns,
    Extra,
)
from antiphon.formats.pack import COUNT_MAX, EXTRAS, NON_PERSISTENT, PackHeader
from tests.formats.support.values import U32, U64, with_flipped_bit

FIXTURES = Path(__file__).parent.parent / "fixtures"

Parts = tuple[str, int, bytes, int, int, int, int]
parts = st.tuples(
    st.text(max_size=20),
    st.integers(1, COUNT_MAX),
    st.binary(max_size=60),
    st.integers(0, U64),
    st.integers(0, U64),
    st.integers(0, U32),
    st.sampled_from([0, NON_PERSISTENT, EXTRAS, NON_PERSISTENT | EXTRAS]),
)
SMALL = pack.encode("orders", 2, b"two bodies", 7, 41)


@given(parts)
def test_what_was_packed_is_read(parts: Parts) -> None:
    destination, count, body, session, sequence, producer, flags = parts
    packed = pack.encode(*parts)
    header = PackHeader(destination, count, session, sequence, producer, flags)
    assert pack.read_header(packed) == pack.check(packed) == header
    assert pack.body(packed) == body


@given(parts, st.integers(0, 10_000))
def test_any_flipped_bit_is_noticed(parts: Parts, bit: int) -> None:
    bad = with_flipped_bit(pack.encode(*parts), bit)
    with pytest.raises(FormatError):
        pack.check(bad)


def test_a_pack_cut_at_any_byte_is_refused() -> None:
    for cut in range(len(SMALL)):
        with pytest.raises(FormatError):
            pack.check(SMALL[:cut])


@given(st.binary(max_size=80))
def test_garbage_is_refused_and_nothing_worse(garbage: bytes) -> None:
    with pytest.raises(FormatError):
        pack.check(garbage)
    with contextlib.suppress(FormatError):
        pack.read_header(garbage)


@pytest.mark.parametrize("count", [0, -1, COUNT_MAX + 1])
def test_a_pack_has_at_least_one_message_and_a_limit(count: int) -> None:
    with pytest.raises(FormatError, match=f"not {count}"):
        pack.encode("q", count, b"")


def test_a_header_that_claims_no_messages_is_refused() -> None:
    bad = SMALL[:24] + bytes(4) + SMALL[28:]
    with pytest.raises(FormatError, match="count 0"):
        pack.read_header(bad)


def test_a_destination_has_a_limit() -> None:
    with pytest.raises(FormatError, match="65535"):
        pack.encode("x" * 65536, 1, b"")


def test_a_destination_is_utf_8() -> None:
    bad = SMALL[:32] + b"\xff" * 6 + SMALL[38:]
    with pytest.raises(FormatError, match="UTF-8"):
        pack.read_header(bad)


@pytest.mark.parametrize("at", [4, 5])
def test_another_version_is_refused_by_its_number(at: int) -> None:
    bad = SMALL[:at] + b"\x49" + SMALL[at + 1 :]
    with pytest.raises(FormatError, match="73"):
        pack.read_header(bad)


def test_the_last_sequence_is_that_of_the_last_message() -> None:
    assert pack.read_header(SMALL).last == 42


def test_version_1_is_refused_by_its_number() -> None:
    with pytest.raises(FormatError, match="pack version 1"):
        pack.read_header(SMALL[:4] + b"\x01" + SMALL[5:])


def test_version_2_decodes_for_ever() -> None:
    packed = (FIXTURES / "pack-v2.bin").read_bytes()
    assert columns.check(packed) == PackHeader(
        "topic:orders.Zoë", 8, 2**63 + 5, 4_000_000_000_000, 7, NON_PERSISTENT | EXTRAS
    )
    read = Columns(packed)
    assert list(read.kinds) == [TEXT, MESSAGE, BYTES, MAP, STREAM, OBJECT, PICKLE, TEXT]
    assert [read.timestamp(i) - 1_700_000_000_000 for i in range(8)] == [0, 1, 5, 5, 5, 5, 6, 99]
    assert [read.body(i) for i in (0, 1, 2, 7)] == ["Zoë".encode(), b"", bytes(range(256)), b""]
    assert values.decode(read.body(3)) == {"floor": 4, "open": True}
    assert values.decode(read.body(4)) == [1, 2.5, "three", b"four", None]
    assert values.decode(read.body(5)) == {(1, 2): {frozenset([3]), 1 << 70}}
    assert read.body(6) == b"pickled"
    assert [i for i in range(8) if read.extra(i)] == [1, 7]
    assert columns.decode_extra(read.extra(1)) == Extra(
        {"floor": 4, "fire": True, "heat": 0.5, "name": "Zoë", "none": None},
        "correlation",
        "temp-queue:5f.1",
        "alarm",
        9,
        1_700_000_060_000,
        1_700_000_010_000,
        "tag",
        "key",
    )
    assert columns.decode_extra(read.extra(7)) == Extra(priority=0)
