"""A queue by itself: who gets what, and when; and at random, against a plain list of messages."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from antiphon.broker.machine.queues import queue as queues
from antiphon.broker.machine.queues.lanes import PLAIN, Special
from antiphon.broker.machine.queues.queue import Queue, QueueConsumer, Taker
from antiphon.broker.machine.ranges import Span
from antiphon.formats.columns import PRIORITY

A, B, C = (1, 1), (2, 1), (3, 1)


def queue_with(**takers: QueueConsumer) -> Queue:
    """Of consumers `a`, `b`, `c`."""
    queue = Queue("queue:q")
    for name, consumer in takers.items():
        queue.open({"a": A, "b": B, "c": C}[name], consumer)
    return queue


def given(queue: Queue, stamp: int = 0) -> list[tuple[Taker, Span]]:
    return list(queue.assign(stamp))


def positions(spans: Sequence[Span]) -> list[int]:
    return [p for first, last, _ in spans for p in range(first, last + 1)]


def got(queue: Queue, taker: Taker, stamp: int = 0) -> list[int]:
    """What this consumer gets now, in this order."""
    return positions([span for to, span in given(queue, stamp) if to == taker])


def leave(queue: Queue, taker: Taker) -> None:
    """A session is lost: what was assigned counts as delivered."""
    queue.leave(taker)
    gone = queue.takers.pop(taker)
    queue.give_back(gone.assigned.clear())


def acknowledge(queue: Queue, taker: Taker, first: int, last: int) -> None:
    for one, two, _ in queue.takers[taker].assigned.take(first, last):
        queue.forget(one, two)


def waiting(queue: Queue) -> list[int]:
    return [p for one, two in queue.waiting_after(0) for p in range(one, two + 1)]


def restored(queue: Queue) -> Queue:
    """By way of a snapshot."""
    other = Queue.from_state(queue.state())
    for row in queue.waiting():
        other.restore_waiting(*row)
    for until, first, last, deliveries in queue.held:
        other.hold(until, (first, last, deliveries))
    for one, two, special in queue.special:
        other.restore_special(one, two, special)
    for one, two, reason in queue.reasons:
        other.reasons.add(one, two, reason)
    return other


# -- Priorities ------------------------------------------------------------------------------------


def test_greater_priorities_go_first_and_equals_in_their_order() -> None:
    queue = queue_with(a=QueueConsumer(10))
    queue.put(1, 2)
    queue.put(3, 5, [Special(priority=9), Special(priority=0), Special(priority=9)])
    assert got(queue, A) == [3, 5, 1, 2, 4]


def test_what_comes_back_has_the_place_that_it_had() -> None:
    queue = queue_with(a=QueueConsumer(3))
    queue.put(1, 4, [Special(priority=p) for p in (4, 9, 4, 9)])
    assert got(queue, A) == [2, 4, 1]
    queue.put(5, 5, [Special(priority=9)])
    leave(queue, A)
    queue.open(B, QueueConsumer(9))
    assert given(queue) == [
        (B, (2, 2, 2)),
        (B, (4, 4, 2)),
        (B, (5, 5, 1)),
        (B, (1, 1, 2)),
        (B, (3, 3, 1)),
    ]


def test_plain_messages_that_came_back_go_before_those_that_came_later() -> None:
    queue = queue_with(a=QueueConsumer(2))
    queue.put(1, 5)
    assert got(queue, A) == [1, 2]
    queue.give_back(queue.takers[A].assigned.clear())
    assert given(queue) == [(A, (1, 2, 2))]


# -- Expiry ----------------------------------------------------------------------------------------


def test_an_expired_message_is_not_assigned_and_nothing_of_it_is_left() -> None:
    queue = Queue("queue:q")
    queue.put(1, 3, [Special(expires=10), Special(expires=20), PLAIN])
    assert queue.next_expiry() == 10
    queue.open(A, QueueConsumer(9))
    assert got(queue, A, stamp=10) == [2, 3]
    assert [p for first, last, _ in queue.special for p in (first, last)] == [2, 2]


def test_what_expires_goes_without_a_consumer_too() -> None:
    queue = Queue("queue:q")
    queue.put(1, 2, [Special(expires=10), Special(priority=7, expires=10)])
    queue.expire(9)
    assert waiting(queue) == [1, 2]
    queue.expire(10)
    assert queue.idle
    assert not queue.special
    assert queue.next_expiry() is None


def test_what_a_consumer_has_does_not_expire_but_it_does_when_it_comes_back() -> None:
    queue = queue_with(a=QueueConsumer(9))
    queue.put(1, 1, [Special(expires=10)])
    assert got(queue, A) == [1]
    queue.expire(20)
    assert positions(list(queue.takers[A].assigned)) == [1]
    leave(queue, A)
    assert given(queue, stamp=20) == []
    assert queue.idle


def test_what_is_reserved_expires() -> None:
    queue = queue_with(a=QueueConsumer(1), b=QueueConsumer(9))
    queue.put(1, 2, [Special(group="g"), Special(group="g", expires=10)])
    assert positions([span for _, span in given(queue)]) == [1]
    assert queue.takers[A].reserved.count == 1
    queue.expire(10)
    assert queue.takers[A].reserved.count == 0
    assert len(queue.special) == 1  # of the message that is being handled


def test_the_next_expiry_is_that_of_a_message_which_is_still_here() -> None:
    queue = queue_with(a=QueueConsumer(1))
    queue.put(1, 2, [Special(expires=10), Special(expires=20)])
    assert got(queue, A) == [1]
    assert queue.next_expiry() == 10  # it may come back
    acknowledge(queue, A, 1, 1)
    assert queue.next_expiry() == 20


def test_messages_that_are_done_with_leave_nothing_behind_until_they_would_have_expired() -> None:
    queue = queue_with(a=QueueConsumer(9))
    for position in range(1, 1000):
        queue.put(position, position, [Special(expires=10_000 + position)])
        assert got(queue, A) == [position]
        acknowledge(queue, A, position, position)
    assert len(queue._expiring) <= queues.STALE_MAX + 2


# -- Groups ----------------------------------------------------------------------------------------


def group(name: str, count: int = 1) -> list[Special]:
    return [Special(group=name)] * count


def test_a_group_goes_to_one_consumer_while_it_is_there() -> None:
    queue = queue_with(a=QueueConsumer(9), b=QueueConsumer(9))
    for position, name in enumerate(("g", "h"), 1):
        queue.put(position, position, group(name))
        given(queue)
    queue.put(3, 6, [*group("h"), *group("g", 3)])
    shares = given(queue)
    assert positions([span for to, span in shares if to == A]) == [4, 5, 6]
    assert positions([span for to, span in shares if to == B]) == [3]
    leave(queue, A)
    queue.put(7, 7, group("g"))
    assert got(queue, B) == [1, 4, 5, 6, 7]


def test_what_has_no_room_at_its_consumer_is_reserved_and_holds_up_nobody() -> None:
    queue = queue_with(a=QueueConsumer(1), b=QueueConsumer(9))
    queue.put(1, 1, group("g"))
    assert got(queue, A) == [1]
    queue.put(2, 4, [*group("g", 2), PLAIN])
    assert given(queue) == [(B, (4, 4, 1))]
    assert waiting(queue) == []
    acknowledge(queue, A, 1, 1)
    assert given(queue) == [(A, (2, 2, 1))]
    leave(queue, A)
    assert given(queue) == [(B, (2, 2, 2)), (B, (3, 3, 1))]


def test_the_last_message_of_a_group_ends_it() -> None:
    queue = queue_with(a=QueueConsumer(9), b=QueueConsumer(9))
    queue.put(1, 2, [Special(group="g"), Special(group="g", closes=True)])
    assert [to for to, _ in given(queue)] == [A, A]
    queue.put(3, 3, group("g"))
    assert [to for to, _ in given(queue)] == [B]  # whose turn it is


def test_the_last_message_of_a_group_does_not_end_the_next_one_when_it_comes_again() -> None:
    queue = queue_with(a=QueueConsumer(9), b=QueueConsumer(9), c=QueueConsumer(9))
    queue.put(1, 1, [Special(group="g", closes=True)])
    assert got(queue, A) == [1]
    queue.put(2, 2, group("g"))
    assert got(queue, B) == [2]
    leave(queue, A)
    assert got(queue, B) == [1]
    queue.put(3, 3, group("g"))
    assert got(queue, B) == [3]


def test_of_too_many_groups_the_oldest_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queues, "GROUPS_MAX", 2)
    queue = queue_with(a=QueueConsumer(1), b=QueueConsumer(9))
    for position, name in enumerate(("g", "h", "i"), 1):
        queue.put(position, position, group(name))
        given(queue)
    owners = queue.state()[5]
    assert [name for name, *_ in owners] == ["h", "i"]
    queue.put(4, 4, group("g"))
    assert given(queue) == [(B, (4, 4, 1))]  # it was `a`'s, which has no room


# -- Selectors -------------------------------------------------------------------------------------


def test_one_with_a_selector_gets_what_is_claimed_and_no_more_than_its_window() -> None:
    queue = queue_with(a=QueueConsumer(3, selective=True))
    queue.put(1, 6)
    assert given(queue) == []
    assert list(queue.claim(A, 2, 3)) == [(2, 3, 1)]
    assert list(queue.claim(A, 1, 6)) == [(1, 1, 1)]
    assert list(queue.claim(A, 4, 6)) == []
    assert waiting(queue) == [4, 5, 6]
    queue.open(B, QueueConsumer(9))
    assert got(queue, B) == [4, 5, 6]


def test_a_claim_takes_greater_priorities_first() -> None:
    queue = queue_with(a=QueueConsumer(2, selective=True))
    queue.put(1, 3, [Special(priority=1), Special(priority=8), Special(priority=3)])
    assert list(queue.claim(A, 1, 3)) == [(2, 2, 1), (3, 3, 1)]


def test_what_another_has_got_is_not_claimed() -> None:
    queue = queue_with(a=QueueConsumer(9, selective=True), b=QueueConsumer(2))
    queue.put(1, 4)
    assert got(queue, B) == [1, 2]
    assert list(queue.claim(A, 1, 4)) == [(3, 4, 1)]
    assert list(queue.claim((9, 9), 1, 4)) == []  # who is not here


def test_a_group_that_another_consumer_has_is_not_claimed_before_that_one_leaves() -> None:
    queue = queue_with(a=QueueConsumer(9, selective=True), b=QueueConsumer(1))
    queue.put(1, 3, [*group("g", 2), PLAIN])
    assert given(queue) == [(B, (1, 1, 1))]
    looked = queue.returned
    assert list(queue.claim(A, 1, 3)) == [(3, 3, 1)]
    assert waiting(queue) == [2]
    leave(queue, B)
    assert queue.returned > looked  # so its server looks again
    assert list(queue.claim(A, 1, 3)) == [(1, 1, 2), (2, 2, 1)]


def test_who_looks_for_messages_is_told_of_dead_letters() -> None:
    queue = Queue("queue:DLQ")
    looked = queue.returned
    queue.put_dead([(5, 7, 3)], "hopeless")
    assert (queue.last, queue.waiting_after(0)) == (7, [(5, 7)])
    assert queue.returned > looked


# -- Exclusive consumers ---------------------------------------------------------------------------


def test_an_exclusive_consumer_gets_everything_while_it_is_open() -> None:
    queue = queue_with(a=QueueConsumer(9), b=QueueConsumer(2, exclusive=True))
    queue.put(1, 4)
    assert given(queue) == [(B, (1, 2, 1))]
    queue.open(C, QueueConsumer(9, exclusive=True))
    acknowledge(queue, B, 1, 1)
    assert given(queue) == [(B, (3, 3, 1))]  # it was there first
    leave(queue, B)
    assert given(queue) == [(C, (2, 3, 2)), (C, (4, 4, 1))]
    leave(queue, C)
    assert got(queue, A) == [2, 3, 4]


def test_nothing_is_claimed_from_an_exclusive_consumer() -> None:
    queue = queue_with(a=QueueConsumer(9, selective=True), b=QueueConsumer(1, exclusive=True))
    queue.put(1, 3)
    assert given(queue) == [(B, (1, 1, 1))]
    assert list(queue.claim(A, 1, 3)) == []
    looked = queue.returned
    leave(queue, B)
    assert queue.returned > looked
    assert list(queue.claim(A, 1, 3)) == [(1, 1, 2), (2, 3, 1)]


def test_an_exclusive_consumer_takes_over_the_groups_of_others() -> None:
    queue = queue_with(a=QueueConsumer(1))
    queue.put(1, 1, group("g"))
    assert got(queue, A) == [1]
    queue.open(B, QueueConsumer(9))
    queue.put(2, 2, group("g"))
    assert given(queue) == []  # reserved
    queue.open(C, QueueConsumer(9, exclusive=True))
    queue.put(3, 3, group("g"))
    assert got(queue, C) == [2, 3]


# -- Shares ----------------------------------------------------------------------------------------


def test_those_who_have_room_get_equal_shares_in_turn() -> None:
    queue = queue_with(a=QueueConsumer(9), b=QueueConsumer(2), c=QueueConsumer(9))
    queue.put(1, 10)
    assert given(queue) == [
        (A, (1, 4, 1)),
        (B, (5, 6, 1)),
        (C, (7, 10, 1)),
    ]
    queue.put(11, 11)
    assert given(queue) == [(A, (11, 11, 1))]


# -- At random -------------------------------------------------------------------------------------

SPECIALS = (
    PLAIN,
    Special(priority=9),
    Special(priority=1),
    Special(group="g"),
    Special(group="h", priority=6),
    Special(group="ends", closes=True),
    Special(group="ends"),
)


class Walk:
    """A queue, and the plain thing beside it: each message by itself."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.queue = Queue("queue:q")
        self.stamp = 1
        self.last = 0
        self.special: dict[int, Special] = {}
        self.count: dict[int, int] = {}  # of messages that are here: deliveries
        self.holder: dict[int, Taker] = {}  # of those that somebody has
        self.until: dict[int, int] = {}  # of those that are held
        self.owner: dict[str, Taker] = {}  # by group
        self.consumers = 0

    def step(self) -> None:
        steps = (self.put, self.put, self.open, self.acknowledge, self.acknowledge)
        more = (self.give_back, self.leave, self.pass_time, self.claim, self.skip, self.restore)
        self.draw.choice((*steps, *more, self.fail))()
        self.release()
        self.assign()
        self.check()

    # -- What happens ----------------------------------------------------------------------------

    def put(self) -> None:
        count = self.draw.randrange(1, 6)
        first, self.last = self.last + 1, self.last + count
        specials = [self.any_special() for _ in range(count)] if self.draw.random() < 0.7 else []
        self.queue.put(first, self.last, specials)
        for at in range(count):
            self.special[first + at] = specials[at] if specials else PLAIN
            self.count[first + at] = 0

    def any_special(self) -> Special:
        special = self.draw.choice(SPECIALS)
        if self.draw.random() < 0.3:
            expires = self.stamp + self.draw.randrange(1, 12)
            return Special(special.priority, expires, special.group, special.closes)
        return special

    def open(self) -> None:
        if len(self.queue.takers) < 4:
            self.consumers += 1
            selective, exclusive = self.draw.random() < 0.3, self.draw.random() < 0.15
            consumer = QueueConsumer(self.draw.randrange(1, 6), selective, exclusive)
            self.queue.open((self.consumers, 1), consumer)
            if exclusive:
                self.owner.clear()

    def some_taker(self) -> Taker | None:
        return self.draw.choice([None, *self.queue.takers])

    def some_of(self, taker: Taker) -> tuple[int, int]:
        held = [p for p, holder in self.holder.items() if holder == taker] or [1]
        first = self.draw.choice(held)
        return first, first + self.draw.randrange(4)

    def acknowledge(self) -> None:
        if (taker := self.some_taker()) is not None:
            first, last = self.some_of(taker)
            acknowledge(self.queue, taker, first, last)
            for position in [p for p, holder in self.holder.items() if holder == taker]:
                if first <= position <= last:
                    self.is_gone(position)

    def give_back(self) -> None:
        """A closed consumer's, that the application saw."""
        if (taker := self.some_taker()) is not None:
            spans = self.queue.takers[taker].assigned.take(*self.some_of(taker))
            self.queue.give_back([(one, two, d + 1) for one, two, d in spans])
            for position in positions(spans):
                self.count[position] += 1
                del self.holder[position]

    def fail(self) -> None:
        """What it could not handle is held for a while."""
        if (taker := self.some_taker()) is not None:
            until = self.stamp + self.draw.randrange(1, 8)
            for span in self.queue.takers[taker].assigned.take(*self.some_of(taker)):
                self.queue.hold(until, span)
                for position in positions([span]):
                    self.until[position] = until
                    del self.holder[position]

    def release(self) -> None:
        self.queue.release(self.stamp)
        self.until = {p: until for p, until in self.until.items() if until > self.stamp}
        assert self.queue.next_release == min(self.until.values(), default=None)
        assert self.queue.held_count == len(self.until)

    def leave(self) -> None:
        if (taker := self.some_taker()) is not None:
            leave(self.queue, taker)
            self.holder = {p: holder for p, holder in self.holder.items() if holder != taker}
            self.owner = {g: owner for g, owner in self.owner.items() if owner != taker}

    def pass_time(self) -> None:
        self.stamp += self.draw.randrange(1, 5)

    def claim(self) -> None:
        if (taker := self.some_taker()) is None or not self.queue.takers[taker].selective:
            return
        first = self.draw.randrange(1, self.last + 2)
        last = first + self.draw.randrange(8)
        # Nothing has expired that waits: servers claim at an entry, whose time has come.
        self.queue.expire(self.stamp)
        self.drop_expired()
        free = [p for p in waiting(self.queue) if first <= p <= last and self.is_free(p, taker)]
        free = free if taker in self.entitled() else []
        room = self.queue.takers[taker].room
        granted = list(self.queue.claim(taker, first, last))
        assert set(positions(granted)) <= set(free)
        assert len(positions(granted)) == min(room, len(free))
        self.handed_out(granted, taker)

    def is_free(self, position: int, taker: Taker) -> bool:
        name = self.special[position].group
        owners = {group: tuple(owner) for group, *owner, _ in self.queue.state()[5]}
        return owners.get(name, taker) == taker

    def skip(self) -> None:
        first = self.draw.randrange(1, self.last + 2)
        if self.draw.random() < 0.3:
            for position in [p for p in waiting(self.queue) if first <= p <= first + 2]:
                self.is_gone(position)
            self.queue.skip(first, first + 2)

    def restore(self) -> None:
        self.queue = restored(self.queue)
        self.queue.expire(self.stamp)

    def assign(self) -> None:
        self.drop_expired()
        entitled = self.entitled()
        order = []
        for taker, span in self.queue.assign(self.stamp):
            assert taker in entitled
            for position in positions([span]):
                special = self.special[position]
                if special.group in ("g", "h"):
                    assert self.owner.setdefault(special.group, taker) == taker
                if not special.group:
                    order.append((-special.priority, position))
            self.handed_out([span], taker)
        left = [p for p in waiting(self.queue) if not self.special[p].group]
        if order:
            assert order == sorted(order)
            assert all((-self.special[p].priority, p) > order[-1] for p in left)

    # -- What is true ----------------------------------------------------------------------------

    def handed_out(self, spans: Sequence[Span], taker: Taker) -> None:
        for first, last, deliveries in spans:
            for position in range(first, last + 1):
                assert position not in self.holder
                assert not 0 < self.special[position].expires <= self.stamp
                self.count[position] += 1
                assert self.count[position] == deliveries
                self.holder[position] = taker

    def is_gone(self, position: int) -> None:
        del self.count[position]
        self.holder.pop(position, None)

    def drop_expired(self) -> None:
        for position in [p for p in self.count if p not in self.holder | self.until]:
            if 0 < self.special[position].expires <= self.stamp:
                self.is_gone(position)

    def entitled(self) -> list[Taker]:
        exclusive = [(c.opened, t) for t, c in self.queue.takers.items() if c.exclusive]
        return [min(exclusive)[1]] if exclusive else list(self.queue.takers)

    def check(self) -> None:
        queue = self.queue
        assert sorted(positions(list(queue.spans()))) == sorted(self.count)  # each at one place
        held: dict[int, Taker] = {}
        for taker, consumer in queue.takers.items():
            assert consumer.assigned.count <= consumer.prefetch
            held.update(dict.fromkeys(positions(list(consumer.assigned)), taker))
            idle = consumer.room > 0 and taker in self.entitled()
            assert not (idle and (consumer.reserved or (queue.count and not consumer.selective)))
        assert held == self.holder
        assert sorted(p for _, *one in queue.held for p in range(one[0], one[1] + 1)) == sorted(
            self.until
        )
        assert queue.count == len(waiting(queue))
        assert {p: s for one, two, s in queue.special for p in range(one, two + 1)} == {
            p: self.special[p] for p in self.count if self.special[p] != PLAIN
        }
        self.check_restored()

    def check_restored(self) -> None:
        other = restored(self.queue)
        other.expire(self.stamp)
        assert other.state() == self.queue.state()
        assert list(other.waiting()) == list(self.queue.waiting())
        assert list(other.special) == list(self.queue.special)
        assert other.next_expiry() == self.queue.next_expiry()
        expiries = [s.expires for s in map(self.special.get, self.count) if s and s.expires]
        assert other.next_expiry() == min((e for e in expiries if e > self.stamp), default=None)


@pytest.mark.parametrize("seed", range(60))
def test_every_message_is_at_one_place_or_gone_for_a_reason(seed: int) -> None:
    walk = Walk(seed)
    for _ in range(150):
        walk.step()


def test_the_walk_meets_everything() -> None:
    met: set[str] = set()
    for seed in range(10):
        walk = Walk(seed)
        for _ in range(150):
            walk.step()
            met |= {"reserved" for c in walk.queue.takers.values() if c.reserved}
            met |= {"exclusive" for c in walk.queue.takers.values() if c.exclusive}
            met |= {"held" for _ in walk.until}
            met |= {"again" for count in walk.count.values() if count > 2}
            met |= {"waits" for row in walk.queue.waiting() if row[3] != PRIORITY}
    assert met == {"reserved", "exclusive", "held", "again", "waits"}
