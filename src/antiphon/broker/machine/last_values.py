"""Last-value topics: they keep the last message of each key for later subscribers.

The state machine knows their positions; they stay live, so that the journal has them. A new
subscription begins with them, in the order in which they were sent, and goes on with new messages.
A message without a key is treated as on any topic. No message deletes a key.

Of these topics alone the state machine looks into packs. The number of keys is bounded: a pack that
would exceed it is refused, before any change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from antiphon.broker.machine.ranges import Range
from antiphon.errors import FormatError, InvalidDestinationError, ResourceAllocationError
from antiphon.formats.columns import Columns, extra_of
from antiphon.model import destinations as names

TOPICS_MAX = 1_000
KEYS_MAX = 100_000
"""Limit of the keys of one topic."""

KEY_MAX = 1024
"""Limit of the characters of a key."""

Keys = dict[str, int]  # -> its last message: the position, or the index in a pack


class LastValues:
    """The topics that keep last values, and the position of the last message of each key."""

    def __init__(self) -> None:
        self._topics: dict[str, Keys] = {}  # by destination

    def __contains__(self, destination: str) -> bool:
        return destination in self._topics

    def declare(self, destination: str) -> None:
        """Make a topic a last-value topic, if it is not one yet."""
        kind, name = names.parse(destination)
        if kind != names.TOPIC or names.is_pattern(name):
            raise InvalidDestinationError(
                f"{destination!r} cannot keep last values: only a topic without wildcards can"
            )
        if destination not in self._topics and len(self._topics) >= TOPICS_MAX:
            raise ResourceAllocationError(f"there are at most {TOPICS_MAX} last-value topics")
        self._topics.setdefault(destination, {})

    def why_not(self, destination: str, keys: Keys) -> str:
        """Return why a pack with these keys cannot be taken; empty: it can."""
        known = self._topics[destination]
        if any(len(key) > KEY_MAX for key in keys):
            return f"a key has at most {KEY_MAX} characters in {destination!r}, which keeps keys"
        if len(known) + sum(key not in known for key in keys) > KEYS_MAX:
            return f"{destination!r} keeps the last message of at most {KEYS_MAX} keys"
        return ""

    def take(self, destination: str, keys: Keys, first: int) -> None:
        """Note the last message of each key in a pack. `first`: the position of its first
        message."""
        known = self._topics[destination]
        for key, i in keys.items():
            # A pack that was stored before it became visible cannot be refused any more.
            if key in known or len(known) < KEYS_MAX:
                known[key] = first + i

    def positions(self, matches: Callable[[str], bool]) -> list[int]:
        """Return the positions of all last messages in topics that match, in ascending order."""
        found = (keys.values() for topic, keys in self._topics.items() if matches(topic))
        return sorted(position for positions in found for position in positions)

    def live(self) -> Iterator[Range]:
        """The positions that must stay readable."""
        for keys in self._topics.values():
            for position in keys.values():
                yield position, position

    def topics(self) -> Iterator[str]:
        """The topics, for the snapshot."""
        return iter(self._topics)

    def rows(self) -> Iterator[tuple[str, str, int]]:
        """Topic, key and position of each last value, for the snapshot."""
        for topic, keys in self._topics.items():
            yield from ((topic, key, position) for key, position in keys.items())

    def restore_topics(self, topics: list[str]) -> None:
        """Take topics from a snapshot."""
        self._topics.update((topic, {}) for topic in topics)

    def restore_rows(self, rows: list[Any]) -> None:
        """Take last values from a snapshot."""
        for topic, key, position in rows:
            self._topics[topic][key] = position


def keys_in(pack: bytes) -> Keys:
    """Return the keys in a pack, each with the index of its last message."""
    try:
        columns = Columns(pack)
    except FormatError:
        return {}  # servers check the packs of clients
    extras = (extra_of(columns, i) for i in range(columns.count))
    return {extra.key: i for i, extra in enumerate(extras) if extra.key is not None}
