"""`FrameReader`: the same frames however the bytes arrive."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.errors import FormatError
from antiphon.formats import frames
from antiphon.io.frame_reader import AHEAD, SHARED_BYTES, FrameReader


def feed(reader: FrameReader, data: bytes) -> Iterator[frames.Body]:
    """As if these bytes were read, as many at a time as there is room for."""
    while data:
        room = reader.room()
        count = min(len(room), len(data))
        room[:count] = data[:count]
        yield from reader.arrived(count)
        data = data[count:]


@given(st.lists(st.binary(max_size=50), max_size=10), st.data())
def test_frames_do_not_depend_on_how_the_bytes_arrive(
    bodies: list[bytes], data: st.DataObject
) -> None:
    stream = b"".join(map(frames.frame, bodies))
    reader = FrameReader(50)
    seen: list[frames.Body] = []
    at = 0
    while at < len(stream):
        size = data.draw(st.integers(1, len(stream) - at))
        seen += feed(reader, stream[at : at + size])
        at += size
    assert seen == bodies


def test_a_frame_above_the_limit_is_refused_by_its_announcement() -> None:
    head = frames.frame(bytes(51))[: frames.PREFIX_SIZE]
    with pytest.raises(FormatError, match="51 bytes announced; the limit is 50"):
        list(feed(FrameReader(50), head))


def test_the_limit_may_change_between_two_frames_of_one_read() -> None:
    reader = FrameReader(1)
    sizes = []
    for body in feed(reader, frames.frame(b"1") + frames.frame(b"22")):
        sizes.append(len(body))
        reader.limit = 2
    assert sizes == [1, 2]


def test_a_changed_byte_is_noticed() -> None:
    good = frames.frame(b"some words")
    for at in range(frames.PREFIX_SIZE, len(good)):
        bad = bytearray(good)
        bad[at] ^= 1
        with pytest.raises(FormatError, match="checksum"):
            list(feed(FrameReader(100), bytes(bad)))


def test_a_large_frame_in_small_pieces_is_cheap() -> None:
    body = bytes(8 << 20)
    stream = frames.frame(body)
    reader = FrameReader(len(body))
    pieces = [stream[at : at + 4096] for at in range(0, len(stream), 4096)]
    assert [b for piece in pieces for b in feed(reader, piece)] == [body]


def test_large_frames_are_not_read_through_the_shared_buffer() -> None:
    body = bytes(10 * SHARED_BYTES)
    stream = frames.frame(body)
    reader = FrameReader(len(body))
    assert not list(feed(reader, stream[:SHARED_BYTES]))
    assert len(reader.room()) == len(stream) - SHARED_BYTES
    assert list(feed(reader, stream[SHARED_BYTES:] + frames.frame(b"next"))) == [body, b"next"]


def test_who_only_announces_a_large_frame_gets_little_room() -> None:
    reader = FrameReader(1 << 30)
    announced = frames.frame(bytes(1 << 20))[: frames.PREFIX_SIZE]
    assert not list(feed(reader, announced))
    assert len(reader.room()) <= AHEAD * len(announced)


def test_a_body_stays_as_it_is_when_more_is_read() -> None:
    reader = FrameReader(1 << 20)
    small, large = b"small", bytes(2 * SHARED_BYTES)
    bodies = list(feed(reader, frames.frame(small) + frames.frame(large)))
    list(feed(reader, frames.frame(b"other words" * SHARED_BYTES)))
    assert bodies == [small, large]


@pytest.mark.parametrize("at", [1, frames.PREFIX_SIZE + 1, SHARED_BYTES])
def test_a_large_frame_arrives_in_pieces_and_another_behind_it(at: int) -> None:
    large, small = bytes(range(251)) * (frames.LARGE_FRAME // 250), b"small"
    stream = frames.frame(large) + frames.frame(small)
    reader = FrameReader(frames.FRAME_MAX)
    bodies = list(feed(reader, stream[:at]))
    assert reader.room_kept <= 32 * at
    assert bodies == []
    found = [bytes(body) for body in feed(reader, stream[at:])]
    assert found == [large, small]
    assert (reader.room_kept, reader.announced) == (0, 0)


def test_who_only_announces_a_large_frame_costs_what_has_arrived() -> None:
    reader = FrameReader(frames.FRAME_MAX)
    assert list(feed(reader, frames.PREFIX.pack(frames.FRAME_MAX, 0) + bytes(1000))) == []
    assert (reader.room_kept, reader.announced) == (1000, frames.FRAME_MAX)
