"""Values with a JMS type that Python does not have: short, int, long, double and char.

They are numbers and text like any other, but keep their type on their way. Python's own int stands
for the smallest JMS type that holds it, and its float for a float if it is one exactly: a byte and
a float need no class here. The codes stand for the types in bodies (`formats/values.py`) and beside
properties (`formats/columns.py`).
"""

from __future__ import annotations


class Short(int):
    """A number of 16 bits."""

    __slots__ = ()


class Int(int):
    """A number of 32 bits."""

    __slots__ = ()


class Long(int):
    """A number of 64 bits."""

    __slots__ = ()


class Double(float):
    """A float that was stated to be one of 64 bits."""

    __slots__ = ()


class Char(str):
    """One character of 16 bits, as Java has them."""

    __slots__ = ()


CODES: dict[type, int] = {Short: 13, Int: 14, Long: 15, Double: 16, Char: 17}


def is_char(text: str) -> bool:
    """Return whether a text is one character of 16 bits."""
    return len(text) == 1 and text <= "\uffff"


def fits(value: int, bits: int) -> bool:
    """Return whether a signed number of this many bits can hold the value."""
    return -(1 << bits - 1) <= value < 1 << bits - 1
