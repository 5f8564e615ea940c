"""Filters of the messages in a pack: those that a selector wants, and none that has expired.

Servers pass packs on unread. Only a consumer with a selector, or a message that may expire, makes
one look inside; it does so once for a pack (`Contents`), however many consumers there are. Messages
are named by their index in the pack, unless the text says positions. A header that a client wrote
wrongly counts as absent: nothing in here raises.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

from antiphon.broker.machine.ranges import Range
from antiphon.formats import columns as formats
from antiphon.formats.columns import Columns, Extra
from antiphon.formats.journal import Row
from antiphon.formats.pack import NON_PERSISTENT, SPECIAL, flags_of
from antiphon.model.redelivery import DEAD_REASON
from antiphon.model.selectors.evaluate import Fields, Selector
from antiphon.model.selectors.index import SelectorIndex

Key = TypeVar("Key", bound=Hashable)


class Contents:
    """The messages of a pack that became visible with the entry of this stamp."""

    __slots__ = ("_columns", "_deadlines", "_extras", "_first_deadline", "_given")

    def __init__(self, pack: bytes, stamp: int, reason: str = "") -> None:
        """`reason`: why those of them that are asked about are dead letters."""
        self._given = {DEAD_REASON: reason} if reason else {}  # properties that no sender sets
        self._columns = columns = Columns(pack)
        self._extras = [formats.extra_of(columns, i) for i in range(columns.count)]
        extras = self._extras if columns.header.flags & SPECIAL else ()
        self._deadlines = [formats.expires(extra, stamp) for extra in extras]  # 0: never
        self._first_deadline = min(filter(None, self._deadlines), default=0)

    @property
    def count(self) -> int:
        return self._columns.count

    def fields(self, i: int, headers: Iterable[str]) -> Fields:
        """For a selector: the properties, and of the headers those that are asked for."""
        extra = self._extras[i]
        if not headers and not self._given:
            return extra.properties
        found = {name: _HEADERS[name](self._columns, i, extra) for name in headers}
        return {**extra.properties, **self._given, **found}

    def fresh(self, first: int, last: int, now: int) -> list[Range]:
        """Return which of these messages have not expired by this stamp."""
        if not 0 < self._first_deadline <= now:
            return [(first, last)]
        deadlines = self._deadlines
        return _ranges(i for i in range(first, last + 1) if not 0 < deadlines[i] <= now)


class Sieve:
    """Finds the messages of a pack that a consumer is to have. It remembers the last pack, since
    each is looked up for one consumer after the other."""

    def __init__(self, time: Callable[[], int]) -> None:
        """`time`: the servers' time, or a little less; never more."""
        self._time = time
        self._looked: tuple[int, Contents] | None = None  # a position, and the content there

    def look_into(self, row: Row, pack: bytes) -> Contents:
        if self._looked is None or self._looked[0] != row.position:
            self._looked = (row.position, Contents(pack, row.stamp))
        return self._looked[1]

    def wanted(
        self, row: Row, pack: bytes, first: int, matched: list[Range] | None = None
    ) -> list[Range]:
        """Return the messages of a pack from position `first` on that have not expired, as
        positions. `matched`: the messages that the selector wants, by their index in the pack;
        None: there is no selector."""
        end, perishes = row.count - 1, _perishes(row, pack)
        if matched is None and not perishes:
            return [(first, row.position + end)]
        start = first - row.position
        ranges = [(start, end)]
        if matched is not None:
            ranges = [(max(low, start), high) for low, high in matched if high >= start]
        if perishes:
            contents, now = self.look_into(row, pack), self._time()
            ranges = [fresh for low, high in ranges for fresh in contents.fresh(low, high, now)]
        return [(row.position + low, row.position + high) for low, high in ranges]

    def age(self, row: Row) -> int:
        """The time by which the servers' time is past that of a pack with messages that may
        expire."""
        return 0 if row.view else max(0, self._time() - row.stamp)


def _perishes(row: Row, pack: bytes) -> bool:
    """Return whether a message in it may expire. In a group none does: all members get the same."""
    return bool(flags_of(pack) & SPECIAL) and not row.view


_HEADERS: dict[str, Callable[[Columns, int, Extra], object]] = {
    "JMSCorrelationID": lambda columns, i, extra: extra.correlation_id,
    "JMSDeliveryMode": lambda columns, i, extra: (
        "NON_PERSISTENT" if columns.header.flags & NON_PERSISTENT else "PERSISTENT"
    ),
    "JMSMessageID": lambda columns, i, extra: formats.message_id(columns.header, i),
    "JMSPriority": lambda columns, i, extra: extra.priority,
    "JMSTimestamp": lambda columns, i, extra: columns.timestamp(i),
    "JMSType": lambda columns, i, extra: extra.type,
}


def headers_in(selector: Selector) -> frozenset[str]:
    """The headers that it reads: they are not at hand, as properties are."""
    return selector.names & _HEADERS.keys()


def matching(selector: Selector, contents: Contents, first: int, last: int) -> list[Range]:
    """Return which of these messages the selector wants."""
    headers = headers_in(selector)
    fields, matches = contents.fields, selector.matches
    return _ranges(i for i in range(first, last + 1) if matches(fields(i, headers)))


def matching_each(
    index: SelectorIndex[Key], contents: Contents, headers: Iterable[str]
) -> dict[Key, list[Range]]:
    """Return, for each key that wants a part of the pack, the messages that it wants. `headers`:
    all that selectors in the index read."""
    found: dict[Key, list[Range]] = {}
    for i in range(contents.count):
        for key in index.matching(contents.fields(i, headers)):
            ranges = found.get(key)
            if ranges is None:
                found[key] = [(i, i)]
            else:
                _extend(ranges, i)
    return found


def _ranges(indexes: Iterable[int]) -> list[Range]:
    found: list[Range] = []
    for i in indexes:
        _extend(found, i)
    return found


def _extend(ranges: list[Range], i: int) -> None:
    """`i` is beyond all that is in there."""
    if ranges and ranges[-1][1] == i - 1:
        ranges[-1] = (ranges[-1][0], i)
    else:
        ranges.append((i, i))
