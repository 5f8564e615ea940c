"""Which messages the simulator asks a journal for, and that it finds those given up too soon."""

import pytest

from antiphon.formats import protocol as cw
from antiphon.sim.judges.message_ledger import Ledger
from antiphon.sim.judges.needs import GivenUp, is_needed
from antiphon.sim.violations import ViolationError
from tests.broker.support.bare_broker import BareBroker

A, B = 0xA, 0xB


class Log:
    """A broker, and what is known of its messages outside of it."""

    def __init__(self) -> None:
        self.bare = BareBroker()
        self.bare.attach(A, client_id="a")
        self.bare.attach(B, client_id="b")
        self._ledger = Ledger(lambda: 0)
        self._given_up = GivenUp(self._ledger)

    def publish(self, destination: str, count: int = 1) -> None:
        last = self.bare.publish(A, destination, count)
        for position in range(last - count + 1, last + 1):
            self._ledger.destinations[position] = destination
        self.look()

    def acknowledge(self, consumer: int, first: int, last: int) -> None:
        self.bare.ack(A, cw.AckRow(consumer, first, last))
        self.look()

    def look(self) -> None:
        self._given_up.applied(self.bare.broker)

    @property
    def live(self) -> tuple[tuple[int, int], ...]:
        return self.bare.broker.live()

    @property
    def needed(self) -> list[int]:
        known = self._ledger.destinations.items()
        return [p for p, to in known if is_needed(self.bare.broker, p, to)]


def test_a_range_that_comes_back_asks_for_nothing_that_is_gone() -> None:
    log = Log()
    log.bare.open(A, 1, "topic:t", durable="busy")
    log.bare.open(A, 2, "topic:quiet", durable="quiet")
    log.bare.open(A, 3, "queue:q")
    log.publish("topic:t", 3)
    log.publish("queue:q", 2)
    assert (log.live, log.needed) == (((1, 5),), [1, 2, 3, 4, 5])
    log.acknowledge(1, 0, 3)
    log.acknowledge(3, 4, 5)
    assert (log.live, log.needed) == ((), [])
    log.publish("topic:quiet")
    assert (log.live, log.needed) == (((1, 6),), [6])
    log.acknowledge(2, 0, 6)
    assert log.live == ()


def test_what_is_acknowledged_out_of_order_is_not_asked_for() -> None:
    log = Log()
    log.bare.open(A, 1, "topic:t", durable="d")
    log.publish("topic:t", 4)
    log.acknowledge(1, 2, 3)
    assert (log.live, log.needed) == (((1, 4),), [1, 4])


def test_last_values_and_dead_letters_are_asked_for() -> None:
    log = Log()
    log.bare.open(A, 1, "topic:t", durable="d")
    log.publish("topic:t", 2)
    log.bare.ack(A, cw.AckRow(1, 1, 1, kind=cw.DEAD), cw.AckRow(1, 2, 2))
    assert log.needed == [1]
    log.bare.ask(A, cw.CreateTopic("topic:last"))
    log.bare.publish_keys(A, "topic:last", "k", "k")
    assert log.live == ((1, 1), (4, 4))
    assert [is_needed(log.bare.broker, p, "topic:last") for p in (3, 4)] == [False, True]


def test_what_was_given_up_must_not_be_needed_again() -> None:
    log = Log()
    log.bare.open(A, 1, "topic:t", durable="d")
    log.publish("topic:t", 3)
    log.acknowledge(1, 0, 2)
    log.bare.subscription(A, 1).floor = 1  # what no entry may do
    with pytest.raises(ViolationError, match=r"position 2 of topic:t was in no live range, and is"):
        log.look()
