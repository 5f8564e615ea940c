"""Packs: what was packed is read, and nothing else is taken for a pack."""

import contextlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.errors import FormatError
from antiphon.formats import pack
from antiphon.formats.pack import COUNT_MAX, PackHeader
from tests.formats.values import U64, with_flipped_bit

FIXTURES = Path(__file__).parent.parent / "fixtures"

parts = st.tuples(
    st.text(max_size=20),
    st.integers(1, COUNT_MAX),
    st.binary(max_size=60),
    st.integers(0, U64),
    st.integers(0, U64),
)
SMALL = pack.encode("orders", 2, b"two bodies", 7, 41)


@given(parts)
def test_what_was_packed_is_read(parts: tuple[str, int, bytes, int, int]) -> None:
    destination, count, body, session, sequence = parts
    packed = pack.encode(*parts)
    header = PackHeader(destination, count, session, sequence)
    assert pack.read_header(packed) == pack.check(packed) == header
    assert pack.body(packed) == body


@given(parts, st.integers(0, 10_000))
def test_any_flipped_bit_is_noticed(parts: tuple[str, int, bytes, int, int], bit: int) -> None:
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
    bad = SMALL[:28] + b"\xff" * 6 + SMALL[34:]
    with pytest.raises(FormatError, match="UTF-8"):
        pack.read_header(bad)


@pytest.mark.parametrize("at", [4, 5])
def test_another_version_is_refused_by_its_number(at: int) -> None:
    bad = SMALL[:at] + b"\x09" + SMALL[at + 1 :]
    with pytest.raises(FormatError, match="9"):
        pack.read_header(bad)


def test_version_1_decodes_for_ever() -> None:
    packed = (FIXTURES / "pack-v1.bin").read_bytes()
    assert pack.check(packed) == PackHeader("orders/Zoë", 3, 2**63 + 5, 4_000_000_000_000)
    assert pack.body(packed) == bytes(range(256))
