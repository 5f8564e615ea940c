"""Messages between clients and servers are read as they were written, or refused."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.errors import FormatError
from antiphon.formats import protocol as cw
from tests.formats.support.values import of_type
from tests.formats.test_frames import with_arrays_in_arrays

SIDES = [(cw.Request, cw.decode_request), (cw.Answer, cw.decode_answer)]
sides = st.sampled_from(SIDES)


@given(sides, st.data())
def test_a_message_is_read_as_it_was_written(side, data: st.DataObject) -> None:
    kinds, decode = side
    message = data.draw(of_type(kinds))
    assert decode(cw.encode(message)) == message


@pytest.mark.parametrize("size", [0, 1, 255, 256, 65535, 65536, 1 << 20])
def test_the_parts_of_a_message_are_the_same_bytes(size: int) -> None:
    pack = bytes(size)
    deliver = cw.Deliver(3, 1 << 40, 1_790_000_000_000, 1, pack, age=7, reason="too old")
    for message in (cw.Publish(pack), deliver, cw.Delivered(5, 6, pack, 2)):
        parts = cw.encode_parts(message)
        assert b"".join(parts) == cw.encode(message)
        assert len(parts) == 1 or parts[1] is pack
    assert cw.encode_parts(cw.Pong()) == (cw.encode(cw.Pong()),)


@given(sides, st.data())
def test_a_message_cut_at_any_byte_is_refused(side, data: st.DataObject) -> None:
    kinds, decode = side
    body = cw.encode(data.draw(of_type(kinds)))
    cut = data.draw(st.integers(0, len(body) - 1))
    with pytest.raises(FormatError, match="not a"):
        decode(body[:cut])


@given(sides, st.binary(max_size=60))
def test_garbage_is_refused_and_nothing_worse(side, garbage: bytes) -> None:
    with contextlib.suppress(FormatError):
        side[1](garbage)


@pytest.mark.parametrize(
    ("message", "decode"), [(cw.Credit(1), cw.decode_request), (cw.Asked(), cw.decode_answer)]
)
def test_arrays_in_arrays_are_refused(message, decode) -> None:
    with pytest.raises(FormatError):
        decode(with_arrays_in_arrays(cw.encode(message)))
