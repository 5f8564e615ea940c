"""Patterns of LIKE, matched in time that grows with the text and never explodes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from antiphon.model.selectors.tree import ANY_MANY, ANY_ONE


def compile_pattern(pattern: tuple[str, ...]) -> Callable[[str], bool]:
    """Return a function that says whether a whole text fits. No regular expressions: theirs could
    take exponential time."""
    if ANY_ONE in pattern:
        return _stepwise(pattern)
    pieces = [""]
    for item in pattern:
        if item == ANY_MANY:
            pieces.append("")
        else:
            pieces[-1] += item
    return partial(_has_in_order, pieces) if len(pieces) > 1 else pieces[0].__eq__


def _has_in_order(pieces: list[str], text: str) -> bool:
    """The first at the beginning, the last at the end, each of the others as early as it can be."""
    first, *others, last = pieces
    if not text.startswith(first):
        return False
    at = len(first)
    for piece in others:
        at = text.find(piece, at)
        if at < 0:
            return False
        at += len(piece)
    return at + len(last) <= len(text) and text.endswith(last)


def _stepwise(pattern: tuple[str, ...]) -> Callable[[str], bool]:
    """All ways to fit at once, as the bits of a number.

    Bit `i` says that the text so far fits the first `i` items, not counting `%`. A character moves
    each bit up whose next item it fits; a bit with a `%` before its next item also stays.
    """
    items = [item for item in pattern if item != ANY_MANY]
    stays, count = 0, 0
    for item in pattern:
        if item == ANY_MANY:
            stays |= 1 << count
        else:
            count += 1
    any_character = sum(1 << i for i, item in enumerate(items) if item == ANY_ONE)
    fitting = dict.fromkeys(items, any_character)
    for i, item in enumerate(items):
        fitting[item] |= 1 << i

    def fits(text: str) -> bool:
        state = 1
        for character in text:
            state = (state & fitting.get(character, any_character)) << 1 | state & stays
            if not state:
                return False
        return bool(state >> count & 1)

    return fits
