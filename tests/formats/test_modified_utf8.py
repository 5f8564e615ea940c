"""Text as Java writes it: there and back, and what is no text is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.errors import FormatError
from antiphon.formats import modified_utf8

# Lone surrogates are characters of Java too.
characters = st.characters(codec=None, exclude_categories=())


@given(st.text(characters))
def test_text_comes_back(text: str) -> None:
    units = text.encode("utf-16-be", "surrogatepass")
    encoded = modified_utf8.encode(text)
    assert b"\0" not in encoded
    assert modified_utf8.decode(encoded).encode("utf-16-be", "surrogatepass") == units


@given(st.text(st.characters(min_codepoint=1, max_codepoint=0xD7FF)))
def test_most_text_is_utf_8(text: str) -> None:
    assert modified_utf8.encode(text) == text.encode()


def test_the_two_differences() -> None:
    assert modified_utf8.encode("\0") == b"\xc0\x80"
    assert modified_utf8.encode("\U0001f525").hex() == "eda0bdedb4a5"
    assert modified_utf8.decode(bytes.fromhex("eda0bdedb4a5c080")) == "\U0001f525\0"


@pytest.mark.parametrize("garbage", [b"\xff", b"\xc0\x81", b"\xe2\x82", b"a\xc3"])
def test_what_is_no_text_is_refused(garbage: bytes) -> None:
    with pytest.raises(FormatError, match="Java"):
        modified_utf8.decode(garbage)
