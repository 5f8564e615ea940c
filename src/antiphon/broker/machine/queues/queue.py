"""Queues: which messages wait, and to which consumer the others are assigned (`Queue.assign`).

Every replica makes the same assignments at the same entries, as ranges of packs, so no server asks
another where a message is. A message is for one consumer at a time; it comes back when that
consumer returns it, closes, or loses its session.

Greater priorities go first, and among equals the message that came first, even if it came back.
Messages of one group (`JMSXGroupID`) go to one consumer while it is there: those that come when it
has no room are *reserved*, and go to it before all others. An expired message that no consumer has
is dropped. An exclusive consumer gets everything while it is open. One with a selector gets the
messages that its server claims for it (`claim`), for only servers look into messages; it has no
message groups, since the state machine does not know which of their messages it wants, and it gets
no message of a group that another consumer has.

A message that a consumer could not handle is *held*: no consumer gets it until its time has come
(`redelivery.py`), and then it waits like others that came back.

A shared subscription is a queue too, filled by a topic (`pattern`).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from itertools import chain, groupby
from typing import Any

import msgspec

from antiphon.broker.machine.queues.lanes import PLAIN, Lane, Special
from antiphon.broker.machine.ranges import Range, Ranges, Span, Spans
from antiphon.formats.columns import PRIORITY
from antiphon.model.redelivery import Redelivery

Taker = tuple[int, int]  # session and consumer

GROUPS_MAX = 100_000
"""Message groups of one queue whose consumer is known. Beyond that the one that began first is
forgotten: its later messages may go to another consumer."""

STALE_MAX = 64
"""The heap of expiries is cleaned of messages that are gone when it is longer than this, and more
than twice as long as there are messages that may expire."""


class QueueConsumer:
    """One consumer of a queue: the messages that it has and has not acknowledged."""

    def __init__(self, prefetch: int, selective: bool = False, exclusive: bool = False) -> None:
        self.prefetch = prefetch
        self.selective = selective  # has a selector
        self.exclusive = exclusive
        self.opened = 0  # its number, of all consumers that this queue had
        self.assigned = Spans()
        self.reserved = Spans()  # of its message groups, for when it has room
        self.closed = False

    @property
    def room(self) -> int:
        """The number of messages that it may still be given."""
        return 0 if self.closed else self.prefetch - self.assigned.count


class Queue:
    """One queue: its waiting messages, those of each consumer, and whose turn it is.

    Promises: each message is in one place: it waits, is held, is reserved, or is assigned to one
    consumer. `assign` gives no consumer more than its window.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.takers: dict[Taker, QueueConsumer] = {}  # in the order of their turns
        self.opened = 0  # consumers so far
        self.last = 0  # the last position that was put in
        self.returned = 0  # grows when messages come back; then readers must look again
        # Of a shared subscription:
        self.pattern = ""
        self.selector = ""
        self.durable = False
        self.redelivery = Redelivery()  # as its consumers have asked
        self.held: list[tuple[int, int, int, int]] = []  # a heap: until when, and a span
        self.special: Ranges[Special] = Ranges()  # of messages that are not plain
        self.reasons: Ranges[str] = Ranges()  # of dead letters
        self._plain = Lane()
        self._lanes: dict[int, Lane] = {PRIORITY: self._plain}  # the greatest priority first
        self._owners: dict[str, tuple[Taker, int]] = {}  # by group, and from which message on
        # A heap: stamp, positions. All messages that may expire are in it, and some that are gone.
        self._expiring: list[tuple[int, int, int]] = []
        self.watched: int | None = None  # the first expiry that there is a deadline for

    @property
    def idle(self) -> bool:
        """Whether it can be forgotten without a loss."""
        return not (self.takers or self.count or self.held or self.durable)

    @property
    def count(self) -> int:
        """Return how many messages are neither held, reserved nor assigned."""
        return sum(lane.count for lane in self._lanes.values())

    def _lane(self, priority: int) -> Lane:
        lane = self._lanes.get(priority)
        if lane is None:
            lane = self._lanes[priority] = Lane()
            self._lanes = dict(sorted(self._lanes.items(), reverse=True))
        return lane

    # -- In -------------------------------------------------------------------------------------

    def put(self, first: int, last: int, specials: Sequence[Special] = ()) -> None:
        """Add new messages. `specials`: the headers of each message; empty: they are plain."""
        self.last = last
        if not specials:
            self._plain.append(first, last)
            return
        for special, run in groupby(specials):
            count = len(list(run))
            self._put(first, first + count - 1, special)
            first += count

    def _put(self, first: int, last: int, special: Special) -> None:
        if special == PLAIN:
            self._plain.append(first, last)
            return
        self.special.add(first, last, special)
        self._wait(first, last, 0, special)

    def put_dead(self, spans: list[Span], reason: str) -> None:
        """Add dead letters, as plain messages."""
        for begin, end, _ in spans:
            self.returned += 1
            self.last = max(self.last, end)
            for first, last in self.reasons.gaps(begin, end):  # another consumer's may be in here
                self.reasons.add(first, last, reason)
                self._plain.add(first, last, 0)

    def give_back(self, spans: list[Span]) -> None:
        """Let messages that were assigned wait again, with their counts of deliveries."""
        for first, last, deliveries in spans:
            self.returned += 1
            for low, high, special in self._runs(first, last):
                self._wait(low, high, deliveries, special)

    def hold(self, until: int, span: Span) -> None:
        """Give these messages to no consumer before this stamp."""
        heapq.heappush(self.held, (until, *span))

    def release(self, stamp: int) -> None:
        """Let messages that were held until this stamp wait for a consumer again."""
        while self.held and self.held[0][0] <= stamp:
            _, *span = heapq.heappop(self.held)
            self.give_back([(span[0], span[1], span[2])])

    @property
    def held_count(self) -> int:
        """Return how many messages are held."""
        return sum(last - first + 1 for _, first, last, _ in self.held)

    @property
    def next_release(self) -> int | None:
        """Return the stamp until which the first held messages wait; None: none are held."""
        return self.held[0][0] if self.held else None

    def _runs(self, first: int, last: int) -> Iterator[tuple[int, int, Special]]:
        """Divide this range into parts with the same headers."""
        while first <= last:
            special, end = self.special.run(first)
            upto = last if end is None else min(end, last)
            yield first, upto, special or PLAIN
            first = upto + 1

    def _wait(self, first: int, last: int, deliveries: int, special: Special) -> None:
        self._lane(special.priority).add(first, last, deliveries)
        self._note_expiry(first, last, special)

    # -- Consumers ------------------------------------------------------------------------------

    def share(self, pattern: str, selector: str, durable: bool) -> None:
        """Make it a shared subscription of this topic."""
        self.pattern, self.selector, self.durable = pattern, selector, durable

    def agree(self, redelivery: Redelivery) -> None:
        """Take these terms, for which its consumers have asked."""
        self.redelivery = redelivery

    def open(self, taker: Taker, consumer: QueueConsumer) -> None:
        """Add a consumer, last in turn."""
        self.opened += 1
        consumer.opened = self.opened
        self.takers[taker] = consumer
        if consumer.exclusive:  # it gets everything, even what is reserved for others
            self._owners.clear()
            for other in self.takers.values():
                self.give_back(other.reserved.clear())

    def widen(self, taker: Taker, prefetch: int) -> None:
        """Raise the window of a consumer."""
        self.takers[taker].prefetch = prefetch

    def close(self, taker: Taker) -> None:
        """Give this consumer nothing more; its messages stay with it."""
        self.takers[taker].closed = True
        self.leave(taker)

    def leave(self, taker: Taker) -> None:
        """Give this consumer nothing more, and free its message groups and reserved messages."""
        consumer = self.takers[taker]
        self.returned += 1
        self._owners = {g: owned for g, owned in self._owners.items() if owned[0] != taker}
        self.give_back(consumer.reserved.clear())

    def keep_only(self, taker: Taker, spans: list[Span]) -> None:
        """Leave these with a consumer that is closed; its other messages come back as they were,
        unseen."""
        assigned = self.takers[taker].assigned
        self.give_back([(low, high, d - 1) for low, high, d in assigned.clear()])
        for span in spans:
            assigned.add(*span)

    def lose(self, taker: Taker) -> None:
        """Forget a consumer; its messages come back, as delivered once more."""
        self.leave(taker)
        self.give_back(self.takers.pop(taker).assigned.clear())

    def remove(self, taker: Taker) -> None:
        """Forget a consumer that has nothing."""
        del self.takers[taker]

    # -- Out ------------------------------------------------------------------------------------

    def assign(self, stamp: int) -> Iterator[tuple[Taker, Span]]:
        """Assign the waiting messages that have not expired to the consumers that have room: each
        in turn gets an equal share, as far as its window goes."""
        self.expire(stamp)
        while able := self._able():
            room = sum(self.takers[taker].room for taker in able)
            share = -(-min(self.count, room) // len(able))
            for taker in able:
                consumer = self.takers[taker]
                if not (self.count or consumer.reserved):
                    continue
                self.takers[taker] = self.takers.pop(taker)  # its next turn comes after all others
                yield from ((taker, span) for span in self._take(taker, consumer, share))

    def _able(self) -> list[Taker]:
        """Return the consumers that could be given a message now."""
        waiting = self.count > 0
        return [
            taker
            for taker in self._entitled()
            if (consumer := self.takers[taker]).room > 0
            and ((waiting and not consumer.selective) or consumer.reserved)
        ]

    def _entitled(self) -> list[Taker]:
        """Return the consumers that may get messages: all, or the exclusive one that came first."""
        exclusive = [taker for taker, c in self.takers.items() if c.exclusive and not c.closed]
        return [min(exclusive, key=self._opened)] if exclusive else list(self.takers)

    def _opened(self, taker: Taker) -> int:
        return self.takers[taker].opened

    def _take(self, taker: Taker, consumer: QueueConsumer, share: int) -> Iterator[Span]:
        while consumer.room > 0 and (own := consumer.reserved.take_first(consumer.room)):
            yield self._give(consumer, own)
        left = 0 if consumer.selective else min(share, consumer.room)
        while left > 0 and (lane := self._next_lane()) is not None:
            span = self._within_run(lane, left)
            if self._is_others(taker, span):
                continue
            left -= span[1] - span[0] + 1
            yield self._give(consumer, span)

    def _next_lane(self) -> Lane | None:
        return next((lane for lane in self._lanes.values() if lane.count), None)

    def _within_run(self, lane: Lane, most: int) -> Span:
        """Remove and return the next messages of a lane that have the same headers."""
        _, end = self.special.run(lane.first)
        return lane.take(most if end is None else min(most, end - lane.first + 1))

    def _give(self, consumer: QueueConsumer, span: Span) -> Span:
        first, last, deliveries = span
        consumer.assigned.add(first, last, deliveries + 1)
        return first, last, deliveries + 1

    def _is_others(self, taker: Taker, span: Span) -> bool:
        """Return whether these messages belong to a message group of another consumer; then reserve
        them for that one."""
        special = self.special.of(span[0])
        if special is None or not special.group:
            return False
        owner, since = self._owners.setdefault(special.group, (taker, span[0]))
        # One that comes again may have ended an earlier group of the same name.
        if special.closes and since <= span[0]:
            del self._owners[special.group]
        elif len(self._owners) > GROUPS_MAX:
            del self._owners[next(iter(self._owners))]
        if owner != taker:
            self.takers[owner].reserved.add(*span)
        return owner != taker

    def claim(self, taker: Taker, first: int, last: int) -> Iterator[Span]:
        """Assign these to a consumer with a selector, if they still wait and belong to no other
        consumer's message group, as far as its window goes."""
        if taker not in self._entitled():
            return
        for lane in self._lanes.values():
            for span in lane.remove(first, last):
                yield from self._grant(taker, lane, span)

    def _grant(self, taker: Taker, lane: Lane, span: Span) -> Iterator[Span]:
        """Assign the messages of this span that it may have; the others go on waiting."""
        consumer = self.takers[taker]
        for first, last, special in self._runs(span[0], span[1]):
            theirs = self._owners.get(special.group, (taker, 0))[0] != taker
            upto = first - 1 if theirs else min(last, first + consumer.room - 1)
            if first <= upto:
                yield self._give(consumer, (first, upto, span[2]))
            if upto < last:
                lane.add(upto + 1, last, span[2])

    def waiting_after(self, position: int) -> list[Range]:
        """Return the messages beyond a position that no consumer has."""
        spans = (span for lane in self._lanes.values() for span in lane.after(position))
        return sorted((first, last) for first, last, _ in spans)

    def take_from(self, taker: Taker, first: int, last: int) -> list[Span]:
        """Remove and return a consumer's messages in this range."""
        return self.takers[taker].assigned.take(first, last)

    def acknowledge(self, taker: Taker, first: int, last: int) -> bool:
        """Drop a consumer's messages in this range. Return whether it had any."""
        taken = self.take_from(taker, first, last)
        for low, high, _ in taken:
            self.forget(low, high)
        return bool(taken)

    def skip(self, first: int, last: int) -> None:
        """Drop waiting messages of a shared subscription that none of its consumers wants."""
        for lane in self._lanes.values():
            for low, high, _ in lane.remove(first, last):
                self.forget(low, high)

    def forget(self, first: int, last: int) -> None:
        """Forget the headers of these messages."""
        if self.special:
            self.special.take(first, last)
        if self.reasons:
            self.reasons.take(first, last)

    # -- Time -----------------------------------------------------------------------------------

    def _note_expiry(self, first: int, last: int, special: Special) -> None:
        if not special.expires:
            return
        heapq.heappush(self._expiring, (special.expires, first, last))
        if len(self._expiring) > 2 * len(self.special) + STALE_MAX:
            self._expiring = [(s.expires, low, high) for low, high, s in self.special if s.expires]
            heapq.heapify(self._expiring)

    def next_expiry(self) -> int | None:
        """Return when the next message expires; None: none does."""
        while self._expiring:
            expires, first, last = self._expiring[0]
            if any(s.expires == expires for _, _, s in self.special.between(first, last)):
                return expires
            heapq.heappop(self._expiring)  # it is gone
        return None

    def watch(self) -> int | None:
        """Return when the next message expires, if there is no deadline for that yet; else None."""
        due = self.next_expiry()
        if due is None or (self.watched is not None and self.watched <= due):
            return None
        self.watched = due
        return due

    def unwatch(self) -> None:
        """Note that the deadline has passed."""
        self.watched = None

    def expire(self, stamp: int) -> None:
        """Drop expired messages that no consumer has."""
        while self._expiring and self._expiring[0][0] <= stamp:
            expires, first, last = heapq.heappop(self._expiring)
            for low, high, special in self.special.between(first, last):
                if special.expires == expires:
                    self._drop_waiting(low, high, self._lane(special.priority))

    def _drop_waiting(self, first: int, last: int, lane: Lane) -> None:
        reserved = (c.reserved.take(first, last) for c in self.takers.values() if c.reserved)
        for low, high, _ in chain(lane.remove_special(first, last), *reserved):
            self.forget(low, high)

    # -- All of it ------------------------------------------------------------------------------

    def spans(self) -> Iterator[Span]:
        """Return all messages, in no order."""
        for lane in self._lanes.values():
            yield from lane.spans()
        for consumer in self.takers.values():
            yield from consumer.assigned
            yield from consumer.reserved
        yield from ((first, last, deliveries) for _, first, last, deliveries in self.held)

    def live(self) -> Iterator[Range]:
        """Return the ranges of positions that must stay readable, in no order."""
        return ((first, last) for first, last, _ in self.spans())

    def waiting(self) -> Iterator[tuple[int, int, int, int, bool]]:
        """Return first, last, deliveries, priority, and whether they are fresh, for the
        snapshot."""
        for priority, lane in self._lanes.items():
            yield from ((*span, priority, False) for span in lane.sorted)
            yield from ((*span, priority, True) for span in lane.fresh)

    def restore_waiting(
        self, first: int, last: int, deliveries: int, priority: int, fresh: bool
    ) -> None:
        """Take waiting messages from a snapshot."""
        if fresh:
            self._lane(priority).append(first, last)
        else:
            self._lane(priority).add(first, last, deliveries)

    def restore_special(self, first: int, last: int, special: Special) -> None:
        """Take special headers of messages from a snapshot."""
        self.special.add(first, last, special)
        self._note_expiry(first, last, special)

    def restore_reason(self, first: int, last: int, reason: str) -> None:
        """Take the reason of dead letters from a snapshot."""
        self.reasons.add(first, last, reason)

    def state(self) -> tuple[Any, ...]:
        """Return its fields for a snapshot, without the messages that wait or are held, and their
        headers: these may be many, and are parts of their own."""
        takers = [
            (
                *taker,
                c.prefetch,
                c.selective,
                c.exclusive,
                c.opened,
                c.closed,
                list(c.assigned),
                list(c.reserved),
            )
            for taker, c in self.takers.items()
        ]
        owners = [(group, *taker, since) for group, (taker, since) in self._owners.items()]
        shared = (self.pattern, self.selector, self.durable)
        return self.name, self.opened, self.last, shared, takers, owners, self.redelivery

    @classmethod
    def from_state(cls, state: Any) -> Queue:
        """Return the queue that a snapshot has, without its waiting messages."""
        name, opened, last, shared, takers, owners, *later = state
        one = cls(name)
        one.opened, one.last = opened, last
        one.pattern, one.selector, one.durable = shared
        if later:  # not in a snapshot of 0.1
            one.redelivery = msgspec.convert(later[0], Redelivery)
        for session, number, prefetch, selective, exclusive, opened, closed, *spans in takers:
            taker = one.takers[session, number] = QueueConsumer(prefetch, selective, exclusive)
            taker.opened, taker.closed = opened, closed
            taker.assigned, taker.reserved = (Spans(map(tuple, some)) for some in spans)
        one._owners = {g: ((session, number), since) for g, session, number, since in owners}
        return one
