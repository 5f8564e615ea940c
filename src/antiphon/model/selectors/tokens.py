"""The words of JMS selectors: names, keywords, literals and symbols, each with its place.

Keywords ignore case, names do not. Literals are those of Java, as JMS says: `29`, `035`, `0x1D`,
`0b11101`, `1_000`, `7L`; `7.`, `.5`, `1.5e3`, `2f`, `2d`, `0x1p4`; `'it''s'`. Where JMS leaves a
choice:

- An exact number is a long, with or without `L`. One that is not a long is refused, also in another
  base than ten, where Java would take some for negative ones. -9223372036854775808 is fine.
- `f` rounds to a float, as in Java: `0.1f` is not `0.1`. A number too large for its type is
  refused; one too small is 0.
- A name is as that of a property.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable
from typing import Literal as OneOf
from typing import NamedTuple, NoReturn

from antiphon.errors import InvalidSelectorError
from antiphon.model.identifiers import begins, continues

LONG_MIN, LONG_MAX = -(1 << 63), (1 << 63) - 1

KEYWORDS = frozenset(
    ("NULL", "TRUE", "FALSE", "NOT", "AND", "OR", "BETWEEN", "LIKE", "IN", "IS", "ESCAPE")
)


class Token(NamedTuple):
    """A word of a selector, and where it is."""

    kind: OneOf["keyword", "name", "number", "string", "symbol", "end"]
    text: str  # as in `canonical`
    at: int  # from 0
    value: int | float | str = ""


BLANKS = " \t\f\r\n"
_BLANK = re.compile(f"[{BLANKS}]*")
_SYMBOL = re.compile(r"<>|<=|>=|[=<>+\-*/(),]")
_STRING = re.compile(r"'(?:[^']|'')*+'")
_SURROGATE = re.compile("[\ud800-\udfff]")
# Anything that begins like a number, so that `089` and `1x` are wrong numbers, not two tokens.
_NUMBER_LIKE = re.compile(
    r"0[xX](?:[\w.]|(?<=[pP])[+-])*+|\.?[0-9](?:[\w.]|(?<=[eE])[+-])*+", re.ASCII
)
_DIGITS = "[0-9](?:_*[0-9])*"
_HEX = "[0-9a-f](?:_*[0-9a-f])*"
_EXACT = re.compile(
    rf"(?:0x({_HEX})|0b([01](?:_*[01])*)|0_*([0-7](?:_*[0-7])*)|(0|[1-9](?:_*[0-9])*))l?"
)
_DECIMAL = re.compile(
    rf"((?:{_DIGITS}\.(?:{_DIGITS})?|\.{_DIGITS})(?:e[+-]?{_DIGITS})?|{_DIGITS}e[+-]?{_DIGITS}"
    rf"|{_DIGITS}(?=[fd]))([fd]?)"
)
_HEX_FLOAT = re.compile(rf"(0x(?:{_HEX}\.?(?:{_HEX})?|\.{_HEX})p[+-]?{_DIGITS})([fd]?)")


def tokens(text: str) -> list[Token]:
    """Return the words of a selector. Raise `InvalidSelectorError`."""
    found = []
    at = _skip_blanks(text, 0)
    while at < len(text):
        token, at = _token(text, at)
        found.append(token)
        at = _skip_blanks(text, at)
    found.append(Token("end", "", at))
    return found


def _skip_blanks(text: str, at: int) -> int:
    blanks = _BLANK.match(text, at)
    assert blanks is not None
    return blanks.end()


def _token(text: str, at: int) -> tuple[Token, int]:
    if (end := _name_end(text, at)) > at:
        word = text[at:end]
        if word.isascii() and word.upper() in KEYWORDS:
            return Token("keyword", word.upper(), at), end
        return Token("name", word, at), end
    if symbol := _SYMBOL.match(text, at):
        return Token("symbol", symbol[0], at), symbol.end()
    if string := _STRING.match(text, at):
        if half := _SURROGATE.search(string[0]):
            wrong(at + half.start(), "expected text, found half of a surrogate pair")
        value = string[0][1:-1].replace("''", "'")
        return Token("string", string[0], at, value), string.end()
    if number := _NUMBER_LIKE.match(text, at):
        written = number[0].lower()
        return Token("number", written, at, _number(written, at)), number.end()
    if text[at] == "'":
        wrong(at, "expected a ' that ends the string, found none")
    wrong(at, f"expected no {text[at]!r} outside of strings")


def _name_end(text: str, at: int) -> int:
    """As in `antiphon.api.messages.properties`: selectors know all names that a property can
    have."""
    if not begins(text[at]):
        return at
    while at < len(text) and continues(text[at]):
        at += 1
    return at


def _number(written: str, at: int) -> int | float:
    if exact := _EXACT.fullmatch(written):
        for digits, base in zip(exact.groups(), (16, 2, 8, 10), strict=True):
            if digits is not None:
                return _long(digits.replace("_", ""), base, written, at)
    if decimal := _DECIMAL.fullmatch(written):
        return _floating(float, decimal, at)
    if hexadecimal := _HEX_FLOAT.fullmatch(written):
        return _floating(float.fromhex, hexadecimal, at)
    wrong(at, f"expected a number as in Java, found {shortened(written)}")


def _long(digits: str, base: int, written: str, at: int) -> int:
    # Longer ones are too large for certain, and Python does not read decimals of any length.
    value = int(digits, base) if len(digits.lstrip("0")) <= 64 else LONG_MAX + 2
    if value > LONG_MAX + 1:
        wrong(at, f"expected a number that a long can hold, found {shortened(written)}")
    return value  # LONG_MAX + 1 is for `_Parser.signed` to judge


def _floating(convert: Callable[[str], float], literal: re.Match[str], at: int) -> float:
    try:
        value = convert(literal[1].replace("_", ""))
        if literal[2] == "f":
            (value,) = struct.unpack("<f", struct.pack("<f", value))
    except OverflowError:
        value = math.inf
    if math.isinf(value):
        kind = "float" if literal[2] == "f" else "double"
        wrong(at, f"expected a number that a {kind} can hold, found {shortened(literal[0])}")
    return value


def canonical(parsed: list[Token]) -> str:
    """Return the tokens with a blank only where two would run into one, so never longer than the
    text."""
    pieces: list[str] = []
    before = " "
    for token in parsed[:-1]:
        if (continues(before) or before == ".") and continues(token.text[0]):
            pieces.append(" ")
        pieces.append(token.text)
        before = token.text[-1]
    return "".join(pieces)


def wrong(at: int, complaint: str) -> NoReturn:
    """Raise `InvalidSelectorError` for this position."""
    raise InvalidSelectorError(f"the selector is wrong at position {at + 1}: {complaint}")


def shortened(text: str) -> str:
    """Return a text that is short enough to be quoted."""
    return text if len(text) <= 40 else text[:37] + "..."
