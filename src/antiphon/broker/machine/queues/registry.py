"""All queues, by name; among them the shared subscriptions of topics."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from antiphon.broker.machine import events as ev
from antiphon.broker.machine.deadlines import EXPIRY, Deadlines
from antiphon.broker.machine.queues.queue import Queue
from antiphon.model import destinations as names

MATCHES_MAX = 65536


class Queues(dict[str, Queue]):
    """The queues that have messages or consumers, or are durable.

    Promise: all messages that `assign` gives to a consumer are reported (`Assigned`), and a queue
    whose messages expire has a deadline. Needs: `settle` after messages came back or a consumer
    left.
    """

    def __init__(self, deadlines: Deadlines, events: list[ev.Event]) -> None:
        super().__init__()
        self._deadlines = deadlines
        self._events = events
        self._shared: dict[str, tuple[Queue, ...]] = {}  # topic -> shared subscriptions; a cache
        self._later: dict[str, None] | None = None  # to be assigned from at the end of `together`

    def named(self, name: str) -> Queue:
        """Return the queue of this name, which is new if there was none."""
        queue = self.get(name)
        if queue is None:
            queue = self[name] = Queue(name)
        return queue

    def drop(self, name: str) -> None:
        """Forget this queue with all its messages, if it exists."""
        gone = self.pop(name, None)
        if gone is not None and gone.pattern:
            self.shared_changed()

    def restore(self, queue: Queue) -> None:
        """Take a queue from a snapshot, without its waiting messages."""
        self[queue.name] = queue

    # -- Messages for consumers ----------------------------------------------------------------

    def assign(self, queue: Queue, stamp: int) -> None:
        """Assign waiting messages to the consumers that have room (`Queue.assign`)."""
        if self._later is not None:
            self._later[queue.name] = None
            return
        for (session, consumer), (first, last, deliveries) in queue.assign(stamp):
            self._events.append(ev.Assigned(session, consumer, first, last, deliveries))
        self.watch(queue)

    def settle(self, queue: Queue, stamp: int) -> None:
        """Assign, after messages came back or a consumer left; drop the queue if it is idle."""
        self.assign(queue, stamp)
        if queue.idle:
            self.drop(queue.name)

    @contextmanager
    def together(self, stamp: int) -> Iterator[None]:
        """Assign only at the end of the `with` block the messages that come, or come back,
        meanwhile: so they go in their order, seen ones before others, greater priorities first,
        whichever consumer had them."""
        later: dict[str, None] = {}
        self._later = later
        try:
            yield
        finally:
            self._later = None
        for name in later:
            if name in self:
                self.settle(self[name], stamp)

    # -- Expiry --------------------------------------------------------------------------------

    def watch(self, queue: Queue) -> None:
        """Set a deadline for the first of its messages that expires."""
        if (due := queue.watch()) is not None:
            self._deadlines.add(due, EXPIRY, queue.name)

    def watch_anew(self, queue: Queue, passed: int) -> None:
        """Set another deadline: the one at `passed` was taken from the heap."""
        if queue.watched == passed:
            queue.unwatch()
            self.watch(queue)

    def expire(self, name: str, stamp: int) -> None:
        """Drop expired messages of this queue, and set its next deadline."""
        queue = self[name]
        queue.unwatch()
        self.settle(queue, stamp)

    # -- Shared subscriptions ------------------------------------------------------------------

    def shared_by(self, destination: str) -> tuple[Queue, ...]:
        """Return the shared subscriptions of a topic."""
        found = self._shared.get(destination)
        if found is None:
            if len(self._shared) >= MATCHES_MAX:
                self._shared.clear()
            some = (q for q in self.values() if q.pattern)
            found = tuple(q for q in some if names.matcher(q.pattern)(destination))
            self._shared[destination] = found
        return found

    def is_shared(self, destination: str) -> bool:
        """Return whether there is a shared subscription to this very topic."""
        return any(queue.pattern == destination for queue in self.shared_by(destination))

    def shared_changed(self) -> None:
        """Empty the cache of shared subscriptions by topic: one of them has begun or ended."""
        self._shared.clear()
