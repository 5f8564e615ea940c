"""Subscriptions that do not want their own client's messages."""

import pytest

from antiphon.broker.machine import keys
from antiphon.broker.machine.machine import Broker
from antiphon.formats import pack
from antiphon.formats import protocol as cw
from tests.broker.support.bare_broker import BareBroker
from tests.broker.support.homes import Homes, open_consumer, publish

A, B, C = 0xA, 0xB, 0xC


def bare(**client_ids: str) -> BareBroker:
    one = BareBroker()
    one.attach(A, client_id=client_ids.get("a", ""))
    one.attach(B, client_id=client_ids.get("b", ""))
    return one


def test_own_messages_are_not_delivered_and_others_are() -> None:
    """[31] All consumers of a connection are meant, whoever of them had sent."""
    homes = Homes()
    one, two = homes.attached(A), homes.attached(B)
    one.say(open_consumer(1, 1, "topic:t", no_local=True))
    one.say(open_consumer(2, 2, "topic:t"))
    two.say(open_consumer(1, 1, "topic:*", no_local=True))
    one.say(publish(A, 1, 3))
    two.say(publish(B, 1, 2))
    one.say(publish(A, 4, 1))
    assert [d[:3] for d in one.deliveries() if d[0] == 1] == [(1, 4, 5)]
    assert [d[:3] for d in one.deliveries() if d[0] == 2] == [(2, 1, 3), (2, 4, 5), (2, 6, 6)]
    assert [d[1:3] for d in two.deliveries()] == [(1, 3), (6, 6)]


def test_a_client_id_is_what_counts() -> None:
    """[31] What a client sends through a later connection is its own, too."""
    r = bare(a="c", b="d")
    r.open(A, 1, "topic:t", durable="s", no_local=True)
    r.close(A)
    r.attach(C, client_id="c")
    r.publish(C, "topic:t", 3)
    r.open(C, 1, "topic:t", durable="s", no_local=True)
    assert r.subscription(C, 1).floor == 3
    r.publish(B, "topic:t", 2)
    assert r.subscription(C, 1).floor == 3


def test_a_later_connection_of_the_client_goes_on_with_what_others_sent() -> None:
    r = bare(a="c", b="d")
    r.open(A, 1, "topic:t", durable="s", no_local=True)
    r.close(A)
    r.publish(B, "topic:t", 1)
    r.attach(C, client_id="c")
    r.publish(C, "topic:t", 3)
    r.open(C, 1, "topic:t", durable="s", no_local=True)
    assert r.subscription(C, 1).runs(1, 4, 0) == [(1, 1, 1)]


def test_a_durable_subscription_with_another_no_local_is_a_new_one() -> None:
    """[24]"""
    r = bare(a="c")
    r.open(A, 1, "topic:t", durable="s")
    r.publish(B, "topic:t", 3)
    r.close_consumer(A, 1)
    r.open(A, 2, "topic:t", durable="s", no_local=True)
    assert r.subscription(A, 2).floor == 3
    r.publish(B, "topic:t", 1)
    r.close_consumer(A, 2)
    r.open(A, 3, "topic:t", durable="s", no_local=True)
    assert r.subscription(A, 3).floor == 3
    r.close_consumer(A, 3)
    r.open(A, 4, "topic:t", durable="s")
    assert r.subscription(A, 4).floor == 4


def test_own_messages_keep_nothing_alive() -> None:
    r = bare()
    r.open(A, 1, "topic:t", no_local=True)
    r.publish(A, "topic:t", 3)
    r.publish(B, "queue:q")
    r.publish(A, "topic:t", 3)
    assert r.subscription(A, 1).floor == 7
    assert r.broker.live() == ((4, 4),)


@pytest.mark.parametrize("pattern", ["topic:t", "topic:*"])
def test_what_was_sent_by_others_stays_and_the_rest_is_one_range(pattern: str) -> None:
    r = bare()
    r.open(A, 1, pattern, no_local=True)
    r.publish(B, "topic:t", 2)
    for _ in range(10):
        r.publish(A, "topic:t", 3)
        r.publish(B, "queue:q")
    subscription = r.subscription(A, 1)
    assert subscription.floor == 0
    assert list(subscription.acked) == [(3, 41, 1)]
    assert subscription.runs(1, 42, 0) == [(1, 2, 1), (42, 42, 1)]
    r.ack(A, (1, 0, 2))
    assert subscription.floor == 41
    r.publish(B, "topic:t", 1)
    r.publish(A, "topic:t", 1)
    assert subscription.floor == 41
    assert list(subscription.acked) == [(44, 44, 1)]


def test_other_topics_of_ones_own_do_not_matter() -> None:
    r = bare()
    r.open(A, 1, "topic:t", no_local=True)
    r.publish(A, "topic:u", 3)
    assert r.subscription(A, 1).floor == 0
    assert list(r.subscription(A, 1).acked) == []


def test_nothing_is_left_of_a_subscription_that_is_gone() -> None:
    r = bare(a="c")
    r.open(A, 1, "topic:t", no_local=True)
    r.open(A, 2, "topic:t", durable="s", no_local=True)
    assert len(r.broker.topics.no_local[keys.owner("c", A)]) == 2
    r.close_consumer(A, 1)
    r.close_consumer(A, 2)
    r.ask(A, cw.Unsubscribe("s"))
    assert r.broker.topics.no_local == {}


def test_it_is_in_the_snapshot() -> None:
    r = bare(a="c")
    r.open(A, 1, "topic:t", durable="s", no_local=True)
    other = Broker()
    other.restore(iter(r.snapshot()))
    r.publish(A, "topic:t", 2)
    other.apply(r.entries[-1])
    assert [s.floor for s in other.topics.subscriptions.values()] == [2]


def test_a_transaction_and_a_delay_do_not_hide_whose_messages_they_are() -> None:
    """[31]"""
    r = bare(a="c")
    r.open(B, 1, "topic:t")
    r.open(A, 1, "topic:t", durable="s", no_local=True)
    r.publish_keys(A, "topic:t", None, None, flags=pack.STAGED)
    handle = r.ask(A, cw.Stage(((0, 1, 2),))).data.decode()
    r.publish_keys(A, "topic:t", None, flags=pack.DELAYED, delay=5000)
    r.close(A)
    r.ask(B, cw.Commit((), (), staged=(handle,)))
    r.wait(6000)
    assert r.broker.position == 3
    (subscription,) = (s for s in r.broker.topics.subscriptions.values() if s.durable)
    assert subscription.floor == 3


def test_a_member_of_a_group_is_not_told_what_it_said() -> None:
    homes = Homes()
    one, two = homes.attached(A), homes.attached(B)
    one.say(cw.Control(1, cw.CreateGroup("topic:g")))
    one.say(open_consumer(2, 1, "topic:g", no_local=True))
    one.say(publish(A, 1, destination="topic:g"))
    two.say(publish(B, 1, destination="topic:g"))
    assert [d[1:3] for d in one.deliveries()] == [(2, 2)]
    one.say(cw.Control(3, cw.Leave(1)))
    assert homes.servers[1].broker.topics.no_local == {}


def test_a_member_that_was_removed_leaves_nothing() -> None:
    r = bare()
    r.ask(A, cw.CreateGroup("topic:g"))
    r.open(A, 1, "topic:g", no_local=True)
    name = next(iter(r.broker.groups["topic:g"].members))
    r.ask(B, cw.Unsubscribe(name, "topic:g"))
    assert r.broker.topics.no_local == {}
    r.close_consumer(A, 1)
    assert r.broker.topics.subscriptions == {}
