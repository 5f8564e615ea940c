"""Queues in the state machine, where they are more than a row of messages: expiry, selectors, dead
letters, shared subscriptions."""

from __future__ import annotations

import pytest

from antiphon.broker.machine import events as ev
from antiphon.broker.machine.machine import Broker
from antiphon.formats import commands
from antiphon.formats import protocol as cw
from antiphon.formats.columns import Extra
from tests.broker.support.rig import Rig

A, B, C = 1, 2, 3
DEAD = "queue:DLQ"


def rig_with_sessions(**options: int) -> Rig:
    rig = Rig()
    for session in (A, B, C):
        rig.attach(session, client_id=f"c{session}", **{"lease_ms": 100_000, **options})
    return rig


# -- Expiry ----------------------------------------------------------------------------------------


def test_messages_expire_by_ticks_alone() -> None:
    rig = rig_with_sessions()
    for ttl in (300, 100, 200):
        rig.publish_each(A, "queue:q", Extra(time_to_live=ttl))
    rig.publish(A, "queue:q")
    queue = rig.broker.queues["queue:q"]
    assert [(rig.wait(100), queue.count)[1] for _ in range(3)] == [3, 2, 1]
    assert rig.broker.next_deadline() is None or rig.broker.next_deadline() > rig.stamp


def test_a_queue_of_which_everything_has_expired_is_gone() -> None:
    rig = rig_with_sessions()
    rig.publish_each(A, "queue:q", Extra(time_to_live=100))
    rig.wait(200)
    assert rig.broker.queues == {}


def test_nothing_is_overdue_in_a_snapshot_also_not_with_a_new_leader() -> None:
    rig = rig_with_sessions()
    rig.publish_each(A, "queue:q", Extra(time_to_live=100))
    rig.stamp += 500  # nobody led, so nobody told the time
    rig.new_leader()
    assert rig.broker.queues == {}
    other = Broker()
    other.restore(iter(rig.snapshot()))
    assert list(other.snapshot()) == rig.snapshot()


def test_what_comes_back_after_its_time_is_gone_and_later_ones_expire_all_the_same() -> None:
    rig = rig_with_sessions(lease_ms=1000)
    rig.open(B, 1, "queue:q", prefetch=1)
    rig.publish_each(A, "queue:q", Extra(time_to_live=100))
    assert rig.holds(B, 1) == [(1, 1, 1)]
    rig.wait(500)
    rig.detach(B)
    rig.publish_each(A, "queue:q", Extra(time_to_live=5000))
    rig.wait(2000)
    assert B not in rig.broker.sessions
    assert list(rig.broker.queues["queue:q"].live()) == [(2, 2)]
    rig.wait(5000)
    assert rig.broker.queues == {}


def test_a_deadline_that_was_passed_over_is_found_again() -> None:
    rig = rig_with_sessions()
    rig.open(B, 1, "queue:q", prefetch=1)
    rig.publish_each(A, "queue:q", Extra(time_to_live=100))
    rig.publish_each(A, "queue:q", Extra(time_to_live=300))
    rig.publish_each(A, "queue:q", Extra(time_to_live=200))
    rig.ack(B, (1, 1, 1))
    assert rig.holds(B, 1) == [(2, 2, 1)]
    rig.ack(B, (1, 2, 2))
    assert rig.broker.next_deadline() == rig.broker.queues["queue:q"].next_expiry()
    rig.close_consumer(B, 1)
    rig.wait(1000)
    assert rig.broker.queues == {}


# -- What comes back -------------------------------------------------------------------------------


def test_what_a_lost_session_gives_back_counts_once_however_many_consumers_it_had() -> None:
    rig = rig_with_sessions(lease_ms=1000)
    for consumer in range(1, 6):
        rig.open(A, consumer, "queue:q", prefetch=10)
    rig.publish(B, "queue:q", 10)
    assert sum(last - first + 1 for n in range(1, 6) for first, last, _ in rig.holds(A, n)) == 10
    rig.detach(A)
    rig.wait(2000)
    rig.attach(C, client_id="c3", attempt=2)
    rig.numbers[C] = 0
    rig.open(C, 1, "queue:q", prefetch=100)
    assert rig.holds(C, 1) == [(1, 10, 2)]


def test_a_session_that_closes_gives_nothing_to_itself() -> None:
    rig = rig_with_sessions()
    for consumer in (1, 2):
        rig.open(A, consumer, "queue:q", prefetch=2)
    rig.publish(B, "queue:q", 4)
    told = rig.command(commands.Request(A, 3, cw.CloseSession((cw.Kept(1, 1, 1, 1),))))
    assert [e for e in told if isinstance(e, ev.Assigned)] == []
    rig.open(B, 1, "queue:q")
    assert rig.holds(B, 1) == [(1, 1, 2), (2, 4, 1)]


# -- Selectors -------------------------------------------------------------------------------------


def claim(consumer: int, first: int, last: int) -> cw.AckRow:
    return cw.AckRow(consumer, first, last, kind=cw.CLAIM)


def test_what_a_server_claims_is_assigned() -> None:
    rig = rig_with_sessions()
    rig.open(A, 1, "queue:q", prefetch=2, selector="a = 1")
    rig.publish(B, "queue:q", 5)
    assert rig.assigned() == []
    rig.ack(A, claim(1, 2, 2), claim(1, 4, 5))
    assert rig.assigned() == [(A, 1, 2, 2, 1), (A, 1, 4, 4, 1)]
    assert rig.holds(A, 1) == [(2, 2, 1), (4, 4, 1)]
    rig.ack(A, (1, 2, 2))
    rig.ack(B, claim(1, 1, 5))  # it has no such consumer
    assert rig.holds(A, 1) == [(4, 4, 1)]


def test_nothing_is_skipped_in_a_queue() -> None:
    rig = rig_with_sessions()
    rig.open(A, 1, "queue:q", selector="a = 1")
    rig.publish(B, "queue:q", 2)
    rig.ack(A, cw.AckRow(1, 1, 2, kind=cw.SKIP))
    assert list(rig.broker.queues["queue:q"].live()) == [(1, 2)]


def test_a_browser_takes_nothing() -> None:
    rig = rig_with_sessions()
    rig.publish(B, "queue:q", 2)
    rig.open(A, 1, "queue:q", browse=True)
    rig.ack(A, cw.AckRow(1, 1, 2), claim(1, 1, 2), cw.AckRow(1, 1, 2, kind=cw.DEAD))
    assert list(rig.broker.queues["queue:q"].live()) == [(1, 2)]
    assert DEAD not in rig.broker.queues
    rig.close_consumer(A, 1)
    assert rig.broker.sessions[A].consumers == {}


# -- Dead letters ----------------------------------------------------------------------------------


def dead(consumer: int, first: int, last: int, reason: str = "bad") -> cw.AckRow:
    return cw.AckRow(consumer, first, last, kind=cw.DEAD, reason=reason)


def letters(rig: Rig) -> list[tuple[int, int, str]]:
    queue = rig.broker.queues.get(DEAD)
    return list(queue.reasons) if queue is not None else []


def test_a_dead_letter_leaves_its_queue_and_says_why() -> None:
    rig = rig_with_sessions()
    rig.open(A, 1, "queue:q", prefetch=2)
    rig.publish_each(B, "queue:q", *[Extra(priority=9, time_to_live=100)] * 3)
    rig.ack(A, dead(1, 1, 1, "x" * 2000))
    assert rig.holds(A, 1) == [(2, 3, 1)]  # its place is free
    assert letters(rig) == [(1, 1, "x" * 1000)]
    rig.wait(1000)  # nothing is special about it any more
    rig.open(C, 1, DEAD)
    assert rig.holds(C, 1) == [(1, 1, 1)]
    rig.ack(C, (1, 1, 1))
    assert letters(rig) == []


def test_only_what_a_consumer_has_can_it_give_up() -> None:
    rig = rig_with_sessions()
    rig.open(A, 1, "queue:q", prefetch=1)
    rig.publish(B, "queue:q", 3)
    rig.publish(B, "queue:r", 3)
    rig.ack(A, dead(1, 1, 6))
    assert letters(rig) == [(1, 1, "bad")]


def test_what_is_given_up_twice_is_one_letter() -> None:
    rig = rig_with_sessions()
    rig.open(A, 1, "topic:t", durable="d")
    rig.publish(B, "topic:t", 5)
    rig.open(C, 1, DEAD)
    for _ in range(2):  # a command may be in the log twice
        rig.ack(A, dead(1, 3, 3))
        rig.ack(C, (1, 3, 3))
    assert rig.holds(C, 1) == []
    assert letters(rig) == []
    assert list(rig.subscription(A, 1).acked) == [(3, 3, 1)]


def test_one_message_of_two_subscriptions_is_one_letter() -> None:
    rig = rig_with_sessions()
    for session in (A, B):
        rig.open(session, 1, "topic:t", durable="d")
    rig.publish(C, "topic:t", 2)
    rig.ack(A, dead(1, 1, 2, "mine"))
    rig.ack(B, dead(1, 1, 2, "yours"))
    assert letters(rig) == [(1, 2, "mine")]
    assert list(rig.broker.queues[DEAD].live()) == [(1, 2)]


def test_a_topics_consumer_gives_up_no_more_than_there_is_for_it() -> None:
    rig = rig_with_sessions()
    rig.publish(B, "queue:q", 2)
    rig.open(A, 1, "topic:t")
    rig.publish(B, "topic:t", 2)
    rig.publish(B, "queue:q", 2)
    rig.ack(A, (1, 0, 3))
    rig.ack(A, dead(1, 0, 6))  # "everything up to here" are not messages that it has
    assert letters(rig) == []
    rig.publish(B, "topic:t", 1)
    rig.ack(A, dead(1, 1, 7))
    assert letters(rig) == [(7, 7, "bad")]


def test_who_is_no_longer_served_gives_up_nothing() -> None:
    rig = rig_with_sessions()
    rig.open(A, 1, "topic:t", durable="d")
    rig.publish(B, "topic:t", 2)
    rig.close_consumer(A, 1, cw.Kept(1, 1, 1, 1))
    rig.open(A, 2, "topic:t", durable="d")
    rig.ack(A, dead(1, 1, 1))
    assert letters(rig) == []
    assert rig.subscription(A, 2).floor == 0


def test_dead_letters_do_not_die_again_and_members_give_up_nothing() -> None:
    rig = rig_with_sessions()
    rig.open(A, 1, "queue:q")
    rig.publish(B, "queue:q")
    rig.ack(A, dead(1, 1, 1))
    rig.open(C, 1, DEAD)
    rig.ack(C, dead(1, 1, 1))
    assert (letters(rig), rig.holds(C, 1)) == ([(1, 1, "bad")], [(1, 1, 2)])  # it comes again
    rig.ack(C, (1, 1, 1))
    rig.ask(A, cw.Join(2, "topic:g", 100, "a"))
    assert share(rig, C, 2, topic="topic:g") == ""
    rig.publish(B, "topic:g")
    rig.ack(A, dead(2, 2, 2))
    rig.ack(C, dead(2, 2, 2))
    assert (letters(rig), rig.holds(C, 2)) == ([], [(2, 2, 2)])
    assert rig.subscription(A, 2).floor < 2


# -- Shared subscriptions --------------------------------------------------------------------------


def share(rig: Rig, session: int, consumer: int, *, durable: bool = False, **more: object) -> str:
    options = {"shared": "s", "durable": "s" if durable else "", **more}
    return rig.open(session, consumer, str(options.pop("topic", "topic:t")), **options).code


def shared_rig(durable: bool = False) -> Rig:
    """Two sessions without a client id share a subscription; the third one publishes."""
    rig = Rig()
    for session in (A, B, C):
        rig.attach(session, lease_ms=1000)
    for session in (A, B):
        assert share(rig, session, 1, durable=durable) == ""
    return rig


@pytest.mark.parametrize("durable", [False, True])
def test_the_messages_of_a_topic_are_divided_among_those_who_share(durable: bool) -> None:
    rig = shared_rig(durable)
    rig.open(C, 1, "topic:>")
    rig.publish(C, "topic:t", 4)
    rig.publish(C, "topic:other", 4)
    assert (rig.holds(A, 1), rig.holds(B, 1)) == ([(1, 2, 1)], [(3, 4, 1)])
    assert rig.subscription(C, 1).floor == 0  # its own copies are its own business


@pytest.mark.parametrize("durable", [False, True])
def test_a_shared_subscription_survives_any_one_of_its_consumers(durable: bool) -> None:
    rig = shared_rig(durable)
    rig.publish(C, "topic:t", 4)
    rig.detach(A)
    rig.wait(2000)
    assert A not in rig.broker.sessions
    assert rig.holds(B, 1) == [(1, 2, 2), (3, 4, 1)]
    rig.close_consumer(B, 1)
    rig.publish(C, "topic:t")
    kept = [(1, 4), (5, 5)] if durable else []
    live = sorted(r for queue in rig.broker.queues.values() for r in queue.live())
    assert sorted(p for one, two in live for p in range(one, two + 1)) == [
        p for one, two in kept for p in range(one, two + 1)
    ]


def test_a_shared_subscription_lasts_while_something_may_yet_come_back() -> None:
    rig = shared_rig()
    rig.publish(C, "topic:t", 2)
    rig.close_consumer(B, 1)
    rig.close_consumer(A, 1, cw.Kept(1, 1, 1, 1))
    assert len(rig.broker.queues) == 1
    assert share(rig, B, 2) == ""
    assert rig.holds(B, 2) == [(2, 2, 1)]
    rig.ask(A, cw.Return((cw.Kept(1, 1, 1, 3),)))
    assert rig.holds(B, 2) == [(1, 1, 4), (2, 2, 1)]


def test_what_no_consumer_of_a_shared_subscription_wants_is_skipped() -> None:
    rig = Rig()
    rig.attach(A)
    share(rig, A, 1, selector="a = 1")
    rig.publish(A, "topic:t", 5)
    rig.ack(A, cw.AckRow(1, 1, 2, kind=cw.SKIP), claim(1, 3, 3), cw.AckRow(1, 4, 4, kind=cw.SKIP))
    (queue,) = rig.broker.queues.values()
    assert sorted(queue.live()) == [(3, 3), (5, 5)]


def test_with_another_topic_or_selector_it_is_another_one_or_refused() -> None:
    rig = shared_rig(durable=True)
    rig.publish(C, "topic:t", 2)
    assert share(rig, C, 1, durable=True, topic="topic:u") == "IllegalStateError"
    assert share(rig, C, 1, durable=True, selector="a = 1") == "IllegalStateError"
    for session in (A, B):
        rig.close_consumer(session, 1, cw.Kept(1, 1, 2, 1))
    assert share(rig, C, 1, durable=True, topic="topic:u") == ""
    (queue,) = rig.broker.queues.values()
    assert (queue.pattern, list(queue.live())) == ("topic:u", [])
    assert [s.consumers for s in rig.broker.sessions.values()] == [
        {},
        {},
        rig.broker.sessions[C].consumers,
    ]
    rig.publish(C, "topic:t")
    assert rig.holds(C, 1) == []


def test_names_of_shared_and_unshared_durable_subscriptions_do_not_meet() -> None:
    rig = rig_with_sessions()
    assert share(rig, A, 1, durable=True) == ""
    assert rig.open(A, 2, "topic:t", durable="s").code == "IllegalStateError"
    assert share(rig, A, 3) == ""  # not durable: another one
    assert rig.open(A, 4, "topic:t", durable="x").code == ""
    assert rig.open(A, 5, "topic:t", durable="x", shared="x").code == "IllegalStateError"
    assert rig.open(A, 6, "topic:t", durable="y", shared="z").code == "IllegalStateError"


def test_clients_with_ids_do_not_share_with_each_other() -> None:
    rig = Rig()
    rig.attach(A, client_id="a b")
    rig.attach(B, client_id="a")
    for session, name in ((A, "c"), (B, "b c")):
        assert rig.open(session, 1, "topic:t", shared=name).code == ""
    rig.publish(A, "topic:t", 2)
    assert rig.holds(A, 1) == rig.holds(B, 1) == [(1, 2, 1)]


def test_a_shared_durable_subscription_is_unsubscribed_when_nobody_has_it() -> None:
    rig = shared_rig(durable=True)
    assert rig.ask(A, cw.Unsubscribe("s")).code == "IllegalStateError"
    rig.publish(C, "topic:t", 2)
    for session in (A, B):
        rig.close_consumer(session, 1, cw.Kept(1, 1, 2, 1))
    assert rig.ask(A, cw.Unsubscribe("s")).code == ""
    assert (rig.broker.queues, rig.broker.sessions[A].consumers) == ({}, {})
    assert rig.ask(A, cw.Unsubscribe("s")).code == "InvalidDestinationError"


def test_a_topic_that_is_shared_is_no_group() -> None:
    rig = shared_rig()
    assert rig.ask(C, cw.CreateGroup("topic:t")).code == "InvalidDestinationError"


def test_a_commit_goes_to_those_who_share_and_what_is_special_about_it_counts() -> None:
    rig = shared_rig()
    rig.close_consumer(A, 1)
    sent = [rig.stage(C, "topic:t", Extra(priority=p)) for p in (1, 9)]
    rig.close_consumer(B, 1)
    share(rig, A, 2, durable=True, prefetch=1)
    rig.commit(C, *sent)
    assert rig.holds(A, 2) == [(2, 2, 1)]  # all of it is there before any of it is handed out
    rig.ack(A, (2, 2, 2))
    assert rig.holds(A, 2) == [(1, 1, 1)]


# -- Snapshots -------------------------------------------------------------------------------------


def test_a_snapshot_has_something_of_everything_about_queues() -> None:
    rig = rig_with_sessions()
    rig.open(A, 1, "queue:q", prefetch=1)
    rig.open(B, 1, "queue:q", prefetch=1, exclusive=True)
    rig.open(B, 2, "queue:r", selector="a = 1")
    rig.close_consumer(B, 1)
    group = Extra(properties={"JMSXGroupID": "g"})
    rig.publish_each(C, "queue:q", group)
    rig.open(C, 2, "queue:q", prefetch=1)
    rig.publish_each(C, "queue:q", group)  # is reserved
    rig.publish_each(C, "queue:q", Extra(priority=9), Extra(time_to_live=500))
    rig.publish(C, "queue:r", 3)
    rig.ack(B, claim(2, 6, 6))
    rig.ack(B, dead(2, 6, 6))
    share(rig, C, 1, durable=True)
    queue = rig.broker.queues["queue:q"]
    assert (queue.takers[A, 1].reserved.count, queue.count) == (1, 1)
    assert queue.state()[5] == [("g", A, 1, 1)]
    chunks = rig.snapshot()
    other = Broker()
    other.restore(iter(chunks))
    assert list(other.snapshot()) == chunks
    assert other.next_deadline() == rig.broker.next_deadline()
    assert list(other.queues[DEAD].reasons) == [(6, 6, "bad")]
