"""Checksums from those of the parts are the same as by reading everything."""

import pytest
from crc32c import crc32c
from hypothesis import example, given
from hypothesis import strategies as st

from antiphon.errors import FormatError
from antiphon.formats import frames, journal, pack
from antiphon.formats import protocol as cw
from antiphon.formats.checksums import READ_BYTES, crc_with_nested, joined
from antiphon.formats.entry import Entry, Kind

LARGE = pack.encode("topic:x", 1, bytes(range(256)) * (READ_BYTES // 128))


@given(st.binary(max_size=50), st.binary(max_size=5000))
@example(b"", bytes((1 << 20) + 77))
def test_of_two_pieces(first: bytes, second: bytes) -> None:
    assert joined(crc32c(first), crc32c(second), len(second)) == crc32c(first + second)


@given(st.binary(max_size=50), st.sampled_from([LARGE, pack.encode("topic:x", 1, b"small")]))
def test_of_a_pack_behind_something(before: bytes, behind: bytes) -> None:
    assert crc_with_nested(behind, crc32c(before)) == crc32c(before + behind)


def received(*parts: bytes) -> bytes:
    head, body = frames.frame_head(*parts), b"".join(parts)
    return frames.unframe(body, frames.PREFIX.unpack(head)[1])


def test_a_frame_with_a_large_pack_is_good() -> None:
    parts = cw.encode_parts(cw.Publish(LARGE))
    assert len(parts) > 1
    assert cw.decode_request(received(*parts)) == cw.Publish(LARGE)


def test_a_record_with_a_large_pack_is_good() -> None:
    entry = Entry(7, 2, 3, Kind.PACK, LARGE)
    record = journal.encode_entry(entry)
    assert crc32c(record[4:]) == int.from_bytes(record[:4], "little")


def test_what_was_damaged_on_its_way_through_a_server_is_noticed() -> None:
    """It would not be if servers summed what they pass on again."""
    damaged = bytearray(LARGE)
    damaged[1000] ^= 1
    with pytest.raises(FormatError, match="checksum"):
        received(*cw.encode_parts(cw.Deliver(1, 1, 0, 1, bytes(damaged))))
