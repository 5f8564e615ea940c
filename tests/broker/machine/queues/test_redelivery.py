"""A message that could not be handled waits in the log's time, and comes again with the next
count."""

import msgspec
import pytest

from antiphon.broker.machine.machine import Broker
from antiphon.formats import protocol as cw
from antiphon.formats.columns import Extra
from antiphon.model.redelivery import DEFAULT, Redelivery
from tests.broker.support.bare_broker import BareBroker
from tests.broker.support.homes import Homes, open_consumer, publish

A, B, C = 0xA, 0xB, 0xC
Q, DEAD = "queue:q", "queue:DLQ"


@pytest.fixture
def bare() -> BareBroker:
    bare = BareBroker()
    for session in (A, B, C):
        bare.attach(session)
    return bare


def failed(first: int, last: int, *, deliveries: int = 1, wait: int = 500) -> cw.AckRow:
    return cw.AckRow(1, first, last, kind=cw.FAILED, deliveries=deliveries, wait=wait)


def test_what_failed_comes_again_when_its_wait_is_over_and_not_before(
    bare: BareBroker,
) -> None:
    bare.open(A, 1, Q, prefetch=1)
    bare.publish(C, Q, 2)
    assert bare.holds(A, 1) == [(1, 1, 1)]
    bare.ack(A, failed(1, 1))
    assert bare.assigned() == [(A, 1, 2, 2, 1)]  # the other one need not wait
    due = bare.stamp + 500
    assert bare.broker.next_deadline() == due
    bare.ack(A, (1, 2, 2))
    bare.wait(due - 1 - bare.stamp)
    assert bare.holds(A, 1) == []
    assert bare.wait(1) != ()
    assert bare.stamp == due
    assert bare.assigned() == [(A, 1, 1, 1, 2)]
    bare.ack(A, (1, 1, 1))
    assert Q in bare.broker.queues
    assert list(bare.broker.queues[Q].spans()) == []


def test_it_goes_to_whoever_is_there_then(bare: BareBroker) -> None:
    bare.open(A, 1, Q)
    bare.publish(C, Q, 3)
    bare.ack(A, failed(1, 3))
    bare.close_consumer(A, 1)
    assert Q in bare.broker.queues  # although nobody is there, and nothing waits
    assert bare.broker.queues[Q].count == 0
    bare.open(B, 1, Q)
    assert bare.holds(B, 1) == []
    bare.wait(1000)
    assert bare.holds(B, 1) == [(1, 3, 2)]


def test_a_late_copy_of_the_word_changes_nothing(bare: BareBroker) -> None:
    bare.open(A, 1, Q)
    bare.publish(C, Q)
    row = failed(1, 1)
    bare.ack(A, row)
    bare.ack(A, row)
    bare.wait(1000)
    assert bare.holds(A, 1) == [(1, 1, 2)]
    bare.ack(A, row)
    assert bare.holds(A, 1) == [(1, 1, 2)]
    bare.ack(B, failed(1, 1, deliveries=9))  # not its own
    assert bare.holds(A, 1) == [(1, 1, 2)]
    bare.ack(A, failed(1, 1, deliveries=4))  # it had it again without the servers
    bare.wait(1000)
    assert bare.holds(A, 1) == [(1, 1, 5)]


def test_no_wait_is_no_deadline(bare: BareBroker) -> None:
    bare.open(A, 1, Q)
    bare.publish(C, Q)
    before = bare.broker.next_deadline()
    bare.ack(A, failed(1, 1, wait=0))
    assert bare.assigned() == [(A, 1, 1, 1, 2)]
    bare.ack(A, failed(1, 1, deliveries=2, wait=-5))
    assert bare.assigned() == [(A, 1, 1, 1, 3)]
    assert bare.broker.next_deadline() == before


def test_waits_end_in_their_own_order(bare: BareBroker) -> None:
    bare.open(A, 1, Q)
    bare.publish(C, Q, 4)
    bare.ack(A, failed(1, 1, wait=900), failed(2, 2, wait=300), failed(3, 3, wait=600))
    assert bare.broker.queues[Q].held_count == 3
    came = [(bare.stamp, row) for _ in range(3) if bare.wait(300) for row in bare.assigned()]
    assert [row for _, row in came] == [(A, 1, 2, 2, 2), (A, 1, 3, 3, 2), (A, 1, 1, 1, 2)]


def test_an_expired_message_does_not_come_again(bare: BareBroker) -> None:
    bare.open(A, 1, Q)
    bare.publish_each(C, Q, Extra(time_to_live=400))
    bare.ack(A, failed(1, 1))
    assert list(bare.broker.queues[Q].live()) == [(1, 1)]
    bare.wait(1000)
    assert bare.holds(A, 1) == []
    assert list(bare.broker.queues[Q].live()) == []


def test_it_waits_through_a_snapshot_and_a_new_leader(bare: BareBroker) -> None:
    bare.open(A, 1, Q, redelivery=Redelivery(delay_ms=70, dead_letters="queue:bad"))
    bare.publish(C, Q, 3)
    bare.ack(A, failed(2, 2, wait=900), failed(1, 1, wait=300))
    chunks = bare.snapshot()
    other = BareBroker(Broker())
    other.broker.restore(iter(chunks))
    assert other.snapshot() == chunks
    assert other.broker.next_deadline() == bare.broker.next_deadline()
    other.stamp, other.entries = bare.stamp, list(bare.entries)
    for one in (bare, other):
        one.new_leader()
        one.wait(1000)
        assert one.holds(A, 1) == [(1, 2, 2), (3, 3, 1)]
        assert one.broker.queues[Q].redelivery.delay_ms == 70
    assert other.broker.digest == bare.broker.digest


def test_a_snapshot_of_0_1_is_read(bare: BareBroker) -> None:
    """Without what has come since then."""
    bare.attach(0xD, client_id="d")
    bare.open(A, 1, Q)
    bare.open(0xD, 1, "topic:t", durable="kept")
    bare.publish(C, Q, 3)
    old = []
    for part, rows in map(msgspec.msgpack.decode, bare.snapshot()):
        cut = {"queue": 6, "subscription": 12}.get(part)
        old.append(msgspec.msgpack.encode((part, [row[:cut] for row in rows] if cut else rows)))
    broker = Broker()
    broker.restore(iter(old))
    assert list(broker.snapshot()) == bare.snapshot()


@pytest.mark.timeout(10)
def test_a_failure_costs_the_same_however_much_its_consumer_has(bare: BareBroker) -> None:
    """It takes a fifth of a second. When each looked at all that is assigned, it took 24."""
    bare.open(A, 1, Q, prefetch=20_000)
    bare.publish(C, Q, 20_000)
    bare.ack(A, *(failed(position, position) for position in range(19_999, 0, -2)))
    assert bare.broker.queues[Q].held_count == 10_000


# -- What goes back with its consumer -------------------------------------------------------------


def test_what_failed_in_a_loop_waits_and_the_rest_does_not(bare: BareBroker) -> None:
    bare.open(A, 1, Q)
    bare.publish(C, Q, 3)
    bare.open(B, 1, Q)
    bare.close_consumer(A, 1, back=(cw.Kept(1, 1, 1, 1, wait=500),))
    assert bare.holds(B, 1) == [(2, 3, 1)]
    bare.wait(500)
    assert bare.holds(B, 1) == [(1, 1, 2), (2, 3, 1)]


def test_what_failed_waits_too_when_its_session_is_closed(bare: BareBroker) -> None:
    bare.open(A, 1, Q)
    bare.publish(C, Q, 3)
    bare.open(B, 1, Q)
    bare.close(A, cw.Kept(1, 1, 1, 1, wait=500), cw.Kept(1, 2, 2, 1))
    assert bare.holds(B, 1) == [(2, 2, 2), (3, 3, 1)]
    bare.wait(500)
    assert bare.holds(B, 1) == [(1, 2, 2), (3, 3, 1)]


def test_a_lost_session_s_messages_come_again_at_once(bare: BareBroker) -> None:
    bare.open(A, 1, Q)
    bare.publish(C, Q, 2)
    bare.open(B, 1, Q)
    bare.detach(A)
    bare.wait(10_000)
    assert bare.holds(B, 1) == [(1, 2, 2)]


def test_who_goes_on_with_a_subscription_is_told_to_wait(bare: BareBroker) -> None:
    bare.attach(0xD, client_id="d")
    bare.open(0xD, 1, "topic:t", durable="kept")
    bare.publish(C, "topic:t", 2)
    bare.close_consumer(0xD, 1, back=(cw.Kept(1, 1, 1, 1, wait=500),))
    bare.wait(200)
    assert 290 <= bare.open(0xD, 2, "topic:t", durable="kept").wait <= 300
    bare.close_consumer(0xD, 2)
    assert bare.open(0xD, 3, "topic:t", durable="kept").wait > 280  # that one saw nothing
    bare.wait(300)
    bare.close_consumer(0xD, 3)
    assert bare.open(0xD, 4, "topic:t", durable="kept").wait == 0


# -- What is asked for ----------------------------------------------------------------------------


def test_what_is_asked_for_a_queue_counts_for_all_of_its_consumers(bare: BareBroker) -> None:
    one = Redelivery(delay_ms=10, deliveries=3)
    assert bare.open(A, 1, Q, redelivery=one).redelivery == one
    assert bare.open(B, 1, Q).redelivery == one
    two = Redelivery(delay_ms=10, dead_letters="queue:bad")
    both = Redelivery(delay_ms=10, deliveries=3, dead_letters="queue:bad")
    assert bare.open(C, 1, Q, redelivery=two).redelivery == both
    refused = bare.open(C, 2, Q, redelivery=Redelivery(deliveries=4))
    assert refused.code == "IllegalStateError"
    assert "3" in refused.text
    assert "4" in refused.text
    assert bare.open(C, 3, "queue:other").redelivery is None
    for session in (A, B, C):
        bare.close(session)
    assert Q not in bare.broker.queues  # nobody decides for those who come later


@pytest.mark.parametrize(
    "asked",
    [
        Redelivery(delay_ms=-1),
        Redelivery(most_ms=1 << 40),
        Redelivery(factor=0.5),
        Redelivery(deliveries=0),
        Redelivery(dead_letters=Q),
        Redelivery(dead_letters="topic:t"),
        Redelivery(dead_letters="temp-queue:a.1"),
    ],
)
def test_what_makes_no_sense_is_refused(bare: BareBroker, asked: Redelivery) -> None:
    assert bare.open(A, 1, Q, redelivery=asked).code
    assert bare.broker.queues == {}


def test_dead_letters_go_where_the_queue_says_and_stay_there(bare: BareBroker) -> None:
    bare.open(A, 1, Q, redelivery=Redelivery(dead_letters="queue:bad"))
    bare.publish(C, Q)
    bare.ack(A, cw.AckRow(1, 1, 1, kind=cw.DEAD, reason="hopeless"))
    bare.open(B, 1, "queue:bad")
    assert bare.holds(B, 1) == [(1, 1, 1)]
    bare.ack(B, cw.AckRow(1, 1, 1, kind=cw.DEAD, reason="again", deliveries=1, wait=50))
    assert DEAD not in bare.broker.queues
    bare.wait(50)
    assert bare.holds(B, 1) == [(1, 1, 2)]


def test_a_server_gives_up_what_the_queue_gives_up() -> None:
    """A program that dies of a message never says so."""
    homes = Homes()
    sender = homes.attached(C)
    for session in (0x10, 0x11, 0x12):
        client = homes.attached(session)
        client.say(open_consumer(1, 1, Q, redelivery=Redelivery(deliveries=2)))
        if session == 0x10:
            sender.say(publish(C, 1, destination=Q))
        client.lose()
        homes.wait(11_000)
    assert list(homes.servers[1].broker.queues[DEAD].live()) == [(1, 1)]


# -- How long ------------------------------------------------------------------------------------


def test_the_default_survives_an_outage_of_a_minute() -> None:
    assert DEFAULT.deliveries is not None
    waits = [DEFAULT.wait_ms(n) for n in range(1, DEFAULT.deliveries)]
    assert waits[:3] == [250, 500, 1000]
    assert max(waits) <= 60_000
    assert sum(waits) > 90_000


def test_a_wait_grows_up_to_its_limit() -> None:
    told = Redelivery(delay_ms=100, factor=1.0).over(DEFAULT)
    assert [told.wait_ms(n) for n in (1, 2, 1 << 31)] == [100, 100, 100]
    told = Redelivery(delay_ms=100, factor=1000.0, most_ms=5000).over(DEFAULT)
    assert [told.wait_ms(n) for n in (1, 2, 1 << 31)] == [100, 5000, 5000]
    told = Redelivery(delay_ms=100, most_ms=50).over(DEFAULT)
    assert told.wait_ms(1) == 50
    assert Redelivery(delay_ms=0).over(DEFAULT).wait_ms(9) == 0
