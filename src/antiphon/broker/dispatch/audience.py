"""The audience of a pattern: all cursors at one server that want its messages.

Those without a selector get every pack. Those with one are asked together (`SelectorIndex`): who
wants nothing of a pack costs nothing, not even a number that says how far it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator
from itertools import chain
from typing import Generic, TypeVar

from antiphon.broker.dispatch.filtering import Contents, headers_in, matching_each
from antiphon.broker.machine.ranges import Range
from antiphon.model.selectors.evaluate import Selector
from antiphon.model.selectors.index import SelectorIndex

Cursor = TypeVar("Cursor", bound=Hashable)


class Audience(Generic[Cursor]):
    """The cursors of one pattern at one server: those without selectors, and those with."""

    def __init__(self) -> None:
        self.plain: dict[Cursor, None] = {}
        self.passed = 0  # a message up to here was looked at for those with selectors
        self.selecting: dict[Cursor, Selector] = {}  # those with one
        self._index: SelectorIndex[Cursor] = SelectorIndex()
        self._headers: Counter[str] = Counter()  # that selectors read

    def __iter__(self) -> Iterator[Cursor]:
        return chain(self.plain, self.selecting)

    def __bool__(self) -> bool:
        return bool(self.plain or self.selecting)

    @property
    def selects(self) -> bool:
        """Whether a consumer here has a selector."""
        return bool(self.selecting)

    def add(self, cursor: Cursor, selector: Selector | None) -> None:
        """Serve this cursor from now on."""
        if selector is None:
            self.plain[cursor] = None
            return
        self.selecting[cursor] = selector
        self._index.add(cursor, selector)
        self._headers.update(headers_in(selector))

    def remove(self, cursor: Cursor) -> None:
        """Serve this cursor no longer."""
        selector = self.selecting.pop(cursor, None)
        if selector is None:
            self.plain.pop(cursor, None)
            return
        self._index.remove(cursor)
        self._headers -= Counter(headers_in(selector))  # none stays with a count of 0

    def wanted(self, contents: Contents) -> dict[Cursor, list[Range]]:
        """Return, for those with selectors, the ranges that they want, by the index in the pack."""
        return matching_each(self._index, contents, self._headers)
