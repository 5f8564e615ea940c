"""`FrameReader`: the same frames however the bytes arrive."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.errors import FormatError
from antiphon.formats import wire
from antiphon.io.frames import FrameReader


@given(st.lists(st.binary(max_size=50), max_size=10), st.data())
def test_frames_do_not_depend_on_how_the_bytes_arrive(
    bodies: list[bytes], data: st.DataObject
) -> None:
    stream = b"".join(map(wire.frame, bodies))
    reader = FrameReader(50)
    seen: list[bytes] = []
    at = 0
    while at < len(stream):
        size = data.draw(st.integers(1, len(stream) - at))
        seen += reader.feed(stream[at : at + size])
        at += size
    assert seen == bodies


def test_a_frame_above_the_limit_is_refused_by_its_announcement() -> None:
    head = wire.frame(bytes(51))[: wire.PREFIX_SIZE]
    with pytest.raises(FormatError, match="51 bytes announced; the limit is 50"):
        list(FrameReader(50).feed(head))


def test_the_limit_may_change_between_two_frames_of_one_read() -> None:
    reader = FrameReader(1)
    sizes = []
    for body in reader.feed(wire.frame(b"1") + wire.frame(b"22")):
        sizes.append(len(body))
        reader.limit = 2
    assert sizes == [1, 2]


def test_a_changed_byte_is_noticed() -> None:
    good = wire.frame(b"some words")
    for at in range(wire.PREFIX_SIZE, len(good)):
        bad = bytearray(good)
        bad[at] ^= 1
        with pytest.raises(FormatError, match="checksum"):
            list(FrameReader(100).feed(bytes(bad)))


def test_a_large_frame_in_small_pieces_is_cheap() -> None:
    body = bytes(8 << 20)
    stream = wire.frame(body)
    reader = FrameReader(len(body))
    pieces = [stream[at : at + 4096] for at in range(0, len(stream), 4096)]
    assert [b for piece in pieces for b in reader.feed(piece)] == [body]
