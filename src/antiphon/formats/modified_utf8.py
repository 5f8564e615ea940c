"""Text as Java's `DataOutputStream.writeUTF` has it: UTF-8, but for two things.

The character 0 takes two bytes, so that no byte is 0, and a character above U+FFFF is written as
the two surrogates that it has in UTF-16, three bytes each.
"""

from __future__ import annotations

from antiphon.errors import FormatError

_ZERO = b"\xc0\x80"  # no byte 0xc0 stands anywhere else in UTF-8


def encode(text: str) -> bytes:
    """Return a text in Java's modified UTF-8."""
    if not text.isascii():
        units = text.encode("utf-16-be", "surrogatepass")
        text = "".join(chr(int.from_bytes(units[at : at + 2])) for at in range(0, len(units), 2))
    return text.encode("utf-8", "surrogatepass").replace(b"\0", _ZERO)


def decode(data: bytes) -> str:
    """Return the text of such bytes. Raise `FormatError`."""
    try:
        text = data.replace(_ZERO, b"\0").decode("utf-8", "surrogatepass")
    except UnicodeDecodeError as error:
        raise FormatError(f"not a text as Java writes it: {error}") from None
    # Two surrogates become the character that they stand for.
    return text.encode("utf-16-be", "surrogatepass").decode("utf-16-be", "surrogatepass")
