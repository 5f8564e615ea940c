"""Queues: which messages wait, and for which consumer the others are.

Every replica makes the same assignments at the same entries, as ranges of packs, so no server asks
another who has what. A message is for one consumer at a time; it comes back when that consumer
returns it, closes, or loses its session.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

from antiphon.broker.spans import Range, Span, Spans

Taker = tuple[int, int]  # session and consumer


class QueueConsumer:
    """What one consumer of a queue has and has not acknowledged."""

    def __init__(self, prefetch: int) -> None:
        self.prefetch = prefetch
        self.assigned = Spans()
        self.closed = False

    @property
    def credit(self) -> int:
        return 0 if self.closed else self.prefetch - self.assigned.count


class Queue:
    def __init__(self, name: str) -> None:
        self.name = name
        self.waiting: deque[Span] = deque()  # as they came
        self.waiting_count = 0
        self.back = Spans()  # given back; before all that never was assigned
        self.takers: dict[Taker, QueueConsumer] = {}  # the one whose turn it is comes first

    @property
    def idle(self) -> bool:
        return not (self.takers or self.waiting or self.back)

    @property
    def count(self) -> int:
        return self.waiting_count + self.back.count

    def put(self, first: int, last: int) -> None:
        self.waiting.append((first, last, 0))
        self.waiting_count += last - first + 1

    def give_back(self, spans: list[Span]) -> None:
        for span in spans:
            self.back.add(*span)

    def assign(self) -> Iterator[tuple[Taker, Span]]:
        """Divide what waits among those who have room: each in turn gets an equal share, as far as
        its window goes."""
        able = [taker for taker, consumer in self.takers.items() if consumer.credit > 0]
        if not able or not self.count:
            return
        room = sum(self.takers[taker].credit for taker in able)
        share = -(-min(self.count, room) // len(able))
        for taker in able:
            if not self.count:
                return
            consumer = self.takers.pop(taker)
            self.takers[taker] = consumer  # its next turn is after all the others
            yield from ((taker, span) for span in self._take(consumer, share))
        if self.count and any(c.credit > 0 for c in self.takers.values()):
            yield from self.assign()  # some windows were smaller than a share

    def _take(self, consumer: QueueConsumer, share: int) -> Iterator[Span]:
        left = min(share, consumer.credit)
        while left > 0 and (span := self._first(left)) is not None:
            first, last, deliveries = span
            consumer.assigned.add(first, last, deliveries + 1)
            left -= last - first + 1
            yield first, last, deliveries + 1

    def _first(self, most: int) -> Span | None:
        if self.back:
            return self.back.take_first(most)
        if not self.waiting:
            return None
        first, last, deliveries = self.waiting.popleft()
        upto = min(last, first + most - 1)
        if upto < last:
            self.waiting.appendleft((upto + 1, last, deliveries))
        self.waiting_count -= upto - first + 1
        return first, upto, deliveries

    def live(self) -> Iterator[Range]:
        for first, last, _ in self.waiting:
            yield first, last
        for spans in (self.back, *(taker.assigned for taker in self.takers.values())):
            for first, last, _ in spans:
                yield first, last

    def state(self) -> tuple[Any, ...]:
        """Without what waits, which may be long (`waiting`)."""
        takers = [(*t, c.prefetch, c.closed, list(c.assigned)) for t, c in self.takers.items()]
        return self.name, list(self.back), takers

    @classmethod
    def from_state(cls, state: Any) -> Queue:
        name, back, takers = state
        one = cls(name)
        one.back = Spans(map(tuple, back))
        for session, number, prefetch, closed, assigned in takers:
            taker = one.takers[session, number] = QueueConsumer(prefetch)
            taker.closed = closed
            taker.assigned = Spans(map(tuple, assigned))
        return one
