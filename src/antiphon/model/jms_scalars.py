"""Values with a JMS type that Python does not have: short, int, long, double and char.

They are numbers and text like any other, but keep their type on their way. Python's own int stands
for the smallest JMS type that holds it, and its float for a float if it is one exactly: a byte and
a float need no class here. The codes stand for the types in bodies (`values.py`) and beside
properties (`columns.py`).
"""

from __future__ import annotations


class Short(int):
    __slots__ = ()


class Int(int):
    __slots__ = ()


class Long(int):
    __slots__ = ()


class Double(float):
    __slots__ = ()


class Char(str):
    """One character of 16 bits, as Java has them."""

    __slots__ = ()


CODES: dict[type, int] = {Short: 13, Int: 14, Long: 15, Double: 16, Char: 17}


def is_char(text: str) -> bool:
    return len(text) == 1 and text <= "\uffff"


def fits(value: int, bits: int) -> bool:
    return -(1 << bits - 1) <= value < 1 << bits - 1
