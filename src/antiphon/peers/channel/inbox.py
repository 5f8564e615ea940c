"""What a channel has received and its program has not taken: packs, views and other events, in one
order.

The stack's thread puts in, the program's threads take out. The bytes that wait are bounded, not
here but by those who send: above `BEHIND_BYTES` the program counts as *behind*, and the others get
no leave to send more (`Layer.behind`); what they had leave for still arrives.
"""

from __future__ import annotations

from collections import deque
from typing import TypeAlias

from antiphon.api.protocol.inbox_items import PeerColumns
from antiphon.peers.channel.views import Occurrence

BEHIND_BYTES = 16 << 20
"""With this many bytes waiting the program is behind; below half of it, it has caught up."""


Item: TypeAlias = PeerColumns | Occurrence


class Inbox:
    """What waits for the program. `put` belongs to one thread, `take` to callers with a lock."""

    def __init__(self) -> None:
        self._items: deque[tuple[Item, int]] = deque()
        # Two counts, of which each has one writer: so neither needs the other's lock.
        self._came_bytes = 0
        self._taken_bytes = 0
        self.was_behind = False  # as the stack was told last; written by whoever tells it

    def put(self, item: Item, size: int = 0) -> None:
        """Take what was received, of so many bytes."""
        self._came_bytes += size
        self._items.append((item, size))

    def take(self) -> Item | None:
        """Return what comes next; None: nothing is here."""
        if not self._items:
            return None
        item, size = self._items.popleft()
        self._taken_bytes += size
        return item

    @property
    def waiting(self) -> int:
        """Return how many packs and views wait for the program."""
        return len(self._items)

    @property
    def waiting_bytes(self) -> int:
        """Return how many bytes wait for the program."""
        return self._came_bytes - self._taken_bytes

    @property
    def taken_bytes(self) -> int:
        """Return how many bytes the program has taken, ever."""
        return self._taken_bytes

    @property
    def is_behind(self) -> bool:
        """Return whether the program is behind, now that it was or was not before."""
        return self.waiting_bytes > (BEHIND_BYTES // 2 if self.was_behind else BEHIND_BYTES)
