"""A consumer of a session, as the state machine knows it."""

from __future__ import annotations

from typing import Any

from antiphon.broker.machine.keys import SubscriptionKey
from antiphon.broker.machine.ranges import Span, Spans
from antiphon.broker.machine.topics import RESERVE


class Consumer:
    """One consumer of a session, of a topic (`subscription`) or of a queue."""

    def __init__(
        self,
        session: int,
        number: int,
        destination: str,
        prefetch: int,
        slow: str,
        subscription: SubscriptionKey | None,
        selector: str = "",
        browses: int | None = None,
    ) -> None:
        self.session = session
        self.number = number
        self.destination = destination
        self.prefetch = prefetch
        self.slow = slow
        self.subscription = subscription  # None: of a queue
        self.selector = selector  # of a queue's
        self.browses = browses  # only looks at the messages of a queue, up to this one
        self.closed = False
        self.kept = Spans()  # after closing, of a topic: seen, and may yet be acknowledged

    @property
    def seen_most(self) -> int:
        """The largest number of messages that it may have seen without the state machine
        knowing."""
        return self.prefetch * RESERVE

    def close(self, kept: Spans | None = None) -> None:
        """Note that it gets no more messages. `kept`: those of a durable subscription that its
        application saw."""
        self.closed = True
        if kept is not None:
            self.kept = kept

    def take_kept(self, first: int, last: int) -> list[Span]:
        """Remove and return the kept messages in this range: they are acknowledged, or given
        back."""
        return self.kept.take(first, last)

    def widen(self, prefetch: int) -> None:
        """Raise its window."""
        self.prefetch = prefetch

    def set_apart(self, key: SubscriptionKey) -> None:
        """Go on with its subscription under this key, for it was removed from its group."""
        self.subscription = key

    def state(self) -> tuple[Any, ...]:
        """Return its fields for a snapshot."""
        return (
            self.number,
            self.destination,
            self.prefetch,
            self.slow,
            self.subscription.encoded if self.subscription is not None else None,
            self.closed,
            list(self.kept),
            self.selector,
            self.browses,
        )

    @classmethod
    def from_state(cls, session: int, state: Any) -> Consumer:
        """Return the consumer of this session that a snapshot has."""
        number, destination, prefetch, slow, key, closed, kept, selector, browses = state
        subscription = SubscriptionKey.decoded(key) if key is not None else None
        one = cls(session, number, destination, prefetch, slow, subscription, selector, browses)
        one.closed, one.kept = closed, Spans(map(tuple, kept))
        return one
