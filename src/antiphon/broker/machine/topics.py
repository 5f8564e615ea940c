"""Topics: their subscriptions, and how far each of them is.

A subscription is a place in the order of everything (its *floor*), not a list of messages: all
messages behind the floor that match its pattern still have to be acknowledged. So publishing costs
the same with one subscription as with ten thousand; the servers of the consumers read the messages
from the journal.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from antiphon.broker.machine.keys import Owner, SubscriptionKey
from antiphon.broker.machine.ranges import Range, Span, Spans
from antiphon.model.destinations import is_pattern, matcher

RESERVE = 4
"""A server sends at most this many windows (`prefetch`) beyond what the state machine knows to be
acknowledged: after the loss of a session, that many messages may have been seen."""

MATCHES_MAX = 65536


class Subscription:
    """One cursor. A durable one is known by client id and name, a member's by group and name,
    others by their consumer."""

    def __init__(
        self,
        key: SubscriptionKey,
        durable: bool,
        pattern: str,
        selector: str,
        floor: int,
        no_local: Owner | None = None,
    ) -> None:
        self.key = key
        self.durable = durable
        self.pattern = pattern
        self.selector = (
            selector  # the consumer's server passes over messages that it does not match
        )
        self.no_local = no_local  # messages of this owner are not for it
        self.matches = matcher(pattern)
        self.floor = floor  # everything up to here is acknowledged, or was never for us
        self.acked = Spans()  # above the floor, out of order
        self.returned = Spans()  # above the floor: seen by an application, and handed back
        # After a session was lost: the position at that moment, how many messages behind the floor
        # may have been seen, and how often that happened.
        self.lost: tuple[int, int, int] = (0, 0, 0)
        self.consumer: tuple[int, int] | None = None  # session and number, while one is open
        self.ends: int | None = None  # of a member that was removed: the last that is for it
        # Of a member that has taken over a state and not acknowledged it: the floor before that.
        self.base: int | None = None
        # A stamp: handling the first message has failed, and the next consumer waits until then.
        self.waits = 0

    def serve(self, consumer: tuple[int, int] | None) -> None:
        """Be served through this consumer (session and number) from now on; None: through none."""
        self.consumer = consumer

    def end(self, position: int) -> None:
        """End at this position, for its member was removed."""
        self.ends = position

    def wait(self, stamp: int) -> None:
        """Let the next consumer wait until then: handling the first message has failed."""
        self.waits = stamp

    def keep_state(self) -> None:
        """Note that the state that was taken over is acknowledged, and not put back any more."""
        self.base = None

    def acknowledge(self, first: int, last: int) -> None:
        """Acknowledge these messages. `first` 0: all up to `last`."""
        if last <= self.floor:
            return
        self.base = None  # a member that has handled a message has the state before it
        if first <= self.floor + 1:
            self.floor = last
            self._absorb()
        else:
            self.acked.take(first, last)
            self.acked.add(first, last, 1)
        self.returned.take(1, self.floor)
        if self.lost[0] <= self.floor:
            self.lost = (0, 0, 0)

    def _absorb(self) -> None:
        self.acked.take(1, self.floor)
        while (span := next(iter(self.acked), None)) is not None and span[0] == self.floor + 1:
            self.floor = span[1]
            self.acked.take(1, self.floor)

    def pass_over(self, after: int, last: int) -> None:
        """Acknowledge messages that are not for it. `after`: the last message that was for it; so
        there is one range for many messages that it passes over, whatever lies between them in the
        order."""
        self.acknowledge(max(after, self.floor) + 1, last)

    def begin_with(self, positions: list[int], upto: int) -> None:
        """Deliver of all messages up to `upto` those at these ascending positions, and no
        others."""
        if not positions:
            return
        self.floor = positions[0] - 1
        for low, high in pairwise([*positions, upto + 1]):
            if low + 1 < high:
                self.acked.add(low + 1, high - 1, 1)

    def take_over(self, cut: int) -> None:
        """Note that a member has got a state that has all messages up to the cut."""
        # It may be put back; then the flags of earlier messages still apply.
        base, lost, returned = self.floor, self.lost, Spans(self.returned)
        self.acknowledge(0, cut)
        self.base, self.lost, self.returned = base, lost, returned

    def put_back(self) -> bool:
        """Undo `take_over`, if the state that was taken over is lost and was not acknowledged;
        return whether there was one."""
        if self.base is None:
            return False
        self.floor, self.base = self.base, None
        return True

    def give_back(self, spans: list[Span]) -> None:
        """Take back messages that an application saw, and whose consumer is closed."""
        for first, last, deliveries in spans:
            self.returned.take(first, last)
            if last > self.floor:
                self.returned.add(max(first, self.floor + 1), last, deliveries)

    def lose(self, position: int, seen: int) -> None:
        """Flag the messages that the consumer may have seen, for its session is lost. `seen`: how
        many at most."""
        if position > self.floor:
            if self.base is not None:
                seen += self.floor - self.base  # in the state, and perhaps to be delivered before
            self.lost = (position, max(self.lost[1], seen), self.lost[2] + 1)

    def runs(self, first: int, last: int, rank: int) -> list[Span]:
        """Return which of these messages of one pack the consumer gets, with their delivery counts.
        `rank`: how many were sent to this consumer before them."""
        if self.ends is not None:
            last = min(last, self.ends)
        if first > last:
            return []
        if first > max(self.floor, self.acked.last, self.returned.last, self.lost[0]):
            return [(first, last, 1)]
        found: list[Span] = []
        for low, high in self._unacknowledged(first, last):
            found += self._flagged(low, high, rank)
            rank += high - low + 1
        return found

    def is_done(self, first: int, last: int) -> bool:
        """Return whether all of these messages are acknowledged."""
        return next(self._unacknowledged(first, last), None) is None

    def _unacknowledged(self, first: int, last: int) -> Iterator[Range]:
        first = max(first, self.floor + 1)
        for low, high, _ in self.acked.between(first, last):
            if first < low:
                yield first, low - 1
            first = high + 1
        if first <= last:
            yield first, last

    def _flagged(self, first: int, last: int, rank: int) -> list[Span]:
        if first > max(self.returned.last, self.lost[0]):
            return [(first, last, 1)]
        found: list[Span] = []
        for position in range(first, last + 1):
            deliveries = self._deliveries(position, rank)
            rank += 1
            if found and found[-1][2] == deliveries:
                found[-1] = (found[-1][0], position, deliveries)
            else:
                found.append((position, position, deliveries))
        return found

    def _deliveries(self, position: int, rank: int) -> int:
        upto, limit, times = self.lost
        maybe = times if position <= upto and rank < limit else 0
        return 1 + max(maybe, self.returned.deliveries(position))

    def state(self) -> tuple[Any, ...]:
        """Return what snapshots have of it."""
        return (
            self.key.encoded,
            self.durable,
            self.pattern,
            self.selector,
            self.floor,
            list(self.acked),
            list(self.returned),
            self.lost,
            self.consumer,
            self.ends,
            self.base,
            self.no_local.encoded if self.no_local is not None else "",
            self.waits,
        )

    @classmethod
    def from_state(cls, state: Any) -> Subscription:
        """Return the subscription that a snapshot has."""
        key, durable, pattern, selector, floor, acked, returned, lost, consumer = state[:9]
        no_local = Owner.decoded(state[11]) if state[11] else None
        one = cls(SubscriptionKey.decoded(key), durable, pattern, selector, floor, no_local)
        one.acked = Spans(map(tuple, acked))
        one.returned = Spans(map(tuple, returned))
        one.lost = tuple(lost)
        one.consumer = tuple(consumer) if consumer is not None else None
        one.ends, one.base = state[9:11]
        one.waits = state[12] if len(state) > 12 else 0  # not in a snapshot of 0.1
        return one


class Topics:
    """All subscriptions of topics that are not shared, and the last message of each topic."""

    def __init__(self) -> None:
        self.subscriptions: dict[SubscriptionKey, Subscription] = {}
        self.last: dict[str, int] = {}  # destination -> its last message, if it has subscriptions
        self._exact: dict[str, int] = {}  # pattern without wildcards -> subscriptions
        self._wide: dict[SubscriptionKey, Subscription] = {}  # those with wildcards
        self._wide_matches: dict[str, bool] = {}  # a cache
        # By the owner whose messages are not for them.
        self.no_local: dict[Owner, dict[SubscriptionKey, Subscription]] = {}

    def add(self, subscription: Subscription) -> None:
        """Add a subscription, in the place of one with its key."""
        if subscription.key in self.subscriptions:
            self.remove(subscription.key)
        self.subscriptions[subscription.key] = subscription
        if subscription.no_local:
            self.no_local.setdefault(subscription.no_local, {})[subscription.key] = subscription
        if is_pattern(subscription.pattern.partition(":")[2]):
            self._wide[subscription.key] = subscription
            self._wide_matches.clear()
        else:
            self._exact[subscription.pattern] = self._exact.get(subscription.pattern, 0) + 1

    def remove(self, key: SubscriptionKey) -> None:
        """Forget a subscription."""
        gone = self.subscriptions.pop(key)
        self._forget_no_local(gone, key)
        if key in self._wide:
            del self._wide[key]
            self._wide_matches.clear()
            self.last = {d: p for d, p in self.last.items() if self._wanted(d)}
            return
        self._exact[gone.pattern] -= 1
        if not self._exact[gone.pattern]:
            del self._exact[gone.pattern]
            if not self._wanted(gone.pattern):
                self.last.pop(gone.pattern, None)

    def _forget_no_local(self, subscription: Subscription, key: SubscriptionKey) -> None:
        if subscription.no_local:
            own = self.no_local[subscription.no_local]
            del own[key]
            if not own:
                del self.no_local[subscription.no_local]

    def rename(self, old: SubscriptionKey, new: SubscriptionKey) -> Subscription:
        """Give a subscription another key, and free the old one. It takes no more messages, so
        their owners do not matter."""
        subscription = self.subscriptions[new] = self.subscriptions.pop(old)
        self._forget_no_local(subscription, old)
        subscription.key, subscription.no_local = new, None
        if old in self._wide:
            self._wide[new] = self._wide.pop(old)
        return subscription

    def discard(self, key: SubscriptionKey | None) -> None:
        """Remove it, if it is still there."""
        if key in self.subscriptions:
            self.remove(key)

    def is_used(self, destination: str) -> bool:
        """Return whether there is a subscription to this very topic."""
        return destination in self._exact

    def published(self, destination: str, position: int) -> None:
        """Note that a pack is accepted. `position`: of its last message."""
        if self._wanted(destination):
            self.last[destination] = position

    def _wanted(self, destination: str) -> bool:
        return destination in self._exact or (bool(self._wide) and self._widely(destination))

    def _widely(self, destination: str) -> bool:
        wanted = self._wide_matches.get(destination)
        if wanted is None:
            if len(self._wide_matches) >= MATCHES_MAX:
                self._wide_matches.clear()
            wanted = any(s.matches(destination) for s in self._wide.values())
            self._wide_matches[destination] = wanted
        return wanted

    def forget(self, destination: str) -> None:
        """Forget a temporary topic that is gone."""
        self.last.pop(destination, None)

    def restore_last(self, rows: list[Any]) -> None:
        """Take the last messages of topics from a snapshot."""
        self.last.update(rows)

    def live(self) -> Iterator[Range]:
        """Return the ranges that subscriptions may still read: each from its floor on, once a
        message is behind it. So a range can come to include positions that were in none before; but
        no message there was for the subscription."""
        found: dict[str, int] = {}  # by pattern: one with wildcards takes a look at every topic
        for subscription in self.subscriptions.values():
            if subscription.pattern not in found:
                found[subscription.pattern] = self.last_for(subscription)
            last = found[subscription.pattern]
            if subscription.ends is not None:
                last = min(last, subscription.ends)
            floor = subscription.floor if subscription.base is None else subscription.base
            if last > floor:
                yield floor + 1, last

    def last_for(self, subscription: Subscription) -> int:
        """Return the last known message that matches its pattern; 0: there is none."""
        if subscription.key not in self._wide:
            return self.last.get(subscription.pattern, 0)
        return max((p for d, p in self.last.items() if subscription.matches(d)), default=0)
