"""Identifiers as in Java: they name properties, and stand for them in selectors.

They begin with a letter, `_`, `$` or another sign of currency or connection, and go on with these,
digits and marks. Java takes invisible characters too, which readers could not tell apart: not here.
"""

from __future__ import annotations

from unicodedata import category

_BEGINNING = frozenset(("Lu", "Ll", "Lt", "Lm", "Lo", "Nl", "Sc", "Pc"))
_INSIDE = _BEGINNING | {"Nd", "Mn", "Mc"}


def begins(character: str) -> bool:
    """Return whether an identifier can begin with this character."""
    return category(character) in _BEGINNING


def continues(character: str) -> bool:
    """Return whether an identifier can have this character inside."""
    return category(character) in _INSIDE


def is_identifier(name: str) -> bool:
    """Return whether a text is an identifier."""
    return name != "" and begins(name[0]) and all(map(continues, name))
