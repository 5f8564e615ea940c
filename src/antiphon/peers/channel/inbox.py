"""A channel's inbox: packs, views and places of states that its program has not taken yet, in one
order.

The stack's thread puts in, the program's threads take out. The bytes that wait are bounded, not
here but by those who send: above `BEHIND_BYTES` the program counts as *behind*, and the others get
no leave to send more (`Layer.behind`); what they had leave for still arrives.
"""

from __future__ import annotations

from collections import deque
from typing import TypeAlias

from antiphon.api.protocol.inbox_items import PeerColumns
from antiphon.model.peer_views import ViewId
from antiphon.peers.channel.states import StatePlace, StateWanted
from antiphon.peers.channel.views import Occurrence

BEHIND_BYTES = 16 << 20
"""With this many bytes waiting the program is behind; below half of it, it has caught up."""


Item: TypeAlias = PeerColumns | Occurrence | StateWanted


class Inbox:
    """The items that wait. `put` belongs to one thread, `take` to callers with a lock."""

    def __init__(self) -> None:
        self._items: deque[tuple[Item | StatePlace, int]] = deque()
        # Two counts, of which each has one writer: so neither needs the other's lock.
        self._came_bytes = 0
        self._taken_bytes = 0
        self.was_behind = False  # as the stack was told last; written by whoever tells it

    def put(self, item: Item | StatePlace, size: int = 0) -> None:
        """Take an item that was received; `size`: its bytes."""
        self._came_bytes += size
        self._items.append((item, size))

    def take(self) -> Item | None:
        """Return what comes next; None: nothing is here, or it waits for a state."""
        while self._items:
            item, size = self._items[0]
            if not isinstance(item, StatePlace):
                self._items.popleft()
                self._taken_bytes += size
                return item
            if item.holds:
                return None
            self._items.popleft()
        return None

    def go_to_state(self) -> list[ViewId]:
        """Drop the packs before the place of a state that has come: it has them. Views stay. Return
        the places as of which the program was to hand out its own state, which it has no more."""
        views: list[tuple[Item | StatePlace, int]] = []
        wanted: list[ViewId] = []
        while self._items:
            item, size = self._items.popleft()
            self._taken_bytes += size
            if isinstance(item, StatePlace) and item.holds:
                break
            if isinstance(item, Occurrence):
                views.append((item, 0))
            elif isinstance(item, StateWanted):
                wanted.append(item.place)
        self._items.extendleft(reversed(views))
        return wanted

    @property
    def has_next(self) -> bool:
        """Return whether `take` would return something."""
        if not self._items:
            return False
        item, _ = self._items[0]
        return not (isinstance(item, StatePlace) and item.holds)

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
