"""What clients and servers say to each other is read as it was written, or refused."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.errors import FormatError
from antiphon.formats import client_wire as cw
from tests.formats.test_wire import with_arrays_in_arrays
from tests.formats.values import of_type

SIDES = [(cw.Request, cw.decode_request), (cw.Answer, cw.decode_answer)]
sides = st.sampled_from(SIDES)


@given(sides, st.data())
def test_a_message_is_read_as_it_was_written(side, data: st.DataObject) -> None:
    kinds, decode = side
    message = data.draw(of_type(kinds))
    assert decode(cw.encode(message)) == message


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
