"""Thin links between simulated servers: a large message takes long, and later ones wait for it.

As with TCP on a slow network. Parts of a message arrive all the time; a driver sees them, and
reports them to its node (`Node.alive`). A server that is far behind gets no messages, as with a
full queue.
"""

from __future__ import annotations

from antiphon.formats.server_messages import (
    Append,
    AppendNamed,
    Forward,
    ForwardNamed,
    Message,
    Piece,
    Via,
)

PART_US = 20_000
QUEUE_US = 4_000_000
"""A message that would wait longer than this is lost."""

SMALL_BYTES = 50


def size_of(message: Message) -> int:
    if isinstance(message, AppendNamed):
        message = message.append
    if isinstance(message, Append):
        return SMALL_BYTES + sum(len(entry.payload) for entry in message.entries)
    if isinstance(message, Forward | ForwardNamed):
        return SMALL_BYTES + sum(map(len, message.packs))
    if isinstance(message, Piece):
        return SMALL_BYTES + len(message.data)
    if isinstance(message, Via):
        return SMALL_BYTES + len(message.body)
    return SMALL_BYTES


class ThinLinks:
    """The bandwidth of all links between servers."""

    def __init__(self, bandwidth: int) -> None:
        """`bandwidth`: bytes in a millisecond; 0: everything arrives at once."""
        self._bandwidth = bandwidth
        self._free_us: dict[tuple[int, int], int] = {}  # when all earlier messages have left

    def takes(self, link: tuple[int, int], message: Message, now_us: int) -> range | None:
        """Return the time from now in which a message is on its way; its steps are the arrivals of
        its parts. None: there is no room for it."""
        if not self._bandwidth:
            return range(0, 0, PART_US)
        begins_us = max(now_us, self._free_us.get(link, 0))
        if begins_us - now_us > QUEUE_US:
            return None
        ends_us = begins_us + size_of(message) * 1000 // self._bandwidth
        self._free_us[link] = ends_us
        return range(begins_us - now_us, ends_us - now_us, PART_US)
