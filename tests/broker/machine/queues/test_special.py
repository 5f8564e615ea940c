"""Queues in the state machine, where they are more than a row of messages: expiry, selectors, dead
letters, shared subscriptions."""

from __future__ import annotations

import pytest

from antiphon.broker.machine import events as ev
from antiphon.broker.machine.machine import Broker
from antiphon.formats import commands
from antiphon.formats import protocol as cw
from antiphon.formats.columns import Extra
from tests.broker.support.bare_broker import BareBroker

A, B, C = 1, 2, 3
DEAD = "queue:DLQ"


def with_sessions(**options: int) -> BareBroker:
    bare = BareBroker()
    for session in (A, B, C):
        bare.attach(session, client_id=f"c{session}", **{"lease_ms": 100_000, **options})
    return bare


# -- Expiry ----------------------------------------------------------------------------------------


def test_messages_expire_by_ticks_alone() -> None:
    bare = with_sessions()
    for ttl in (300, 100, 200):
        bare.publish_each(A, "queue:q", Extra(time_to_live=ttl))
    bare.publish(A, "queue:q")
    queue = bare.broker.queues["queue:q"]
    assert [(bare.wait(100), queue.count)[1] for _ in range(3)] == [3, 2, 1]
    assert bare.broker.next_deadline() is None or bare.broker.next_deadline() > bare.stamp


def test_a_queue_of_which_everything_has_expired_is_gone() -> None:
    bare = with_sessions()
    bare.publish_each(A, "queue:q", Extra(time_to_live=100))
    bare.wait(200)
    assert bare.broker.queues == {}


def test_nothing_is_overdue_in_a_snapshot_also_not_with_a_new_leader() -> None:
    bare = with_sessions()
    bare.publish_each(A, "queue:q", Extra(time_to_live=100))
    bare.stamp += 500  # nobody led, so nobody told the time
    bare.new_leader()
    assert bare.broker.queues == {}
    other = Broker()
    other.restore(iter(bare.snapshot()))
    assert list(other.snapshot()) == bare.snapshot()


def test_what_comes_back_after_its_time_is_gone_and_later_ones_expire_all_the_same() -> None:
    bare = with_sessions(lease_ms=1000)
    bare.open(B, 1, "queue:q", prefetch=1)
    bare.publish_each(A, "queue:q", Extra(time_to_live=100))
    assert bare.holds(B, 1) == [(1, 1, 1)]
    bare.wait(500)
    bare.detach(B)
    bare.publish_each(A, "queue:q", Extra(time_to_live=5000))
    bare.wait(2000)
    assert B not in bare.broker.sessions
    assert list(bare.broker.queues["queue:q"].live()) == [(2, 2)]
    bare.wait(5000)
    assert bare.broker.queues == {}


def test_a_deadline_that_was_passed_over_is_found_again() -> None:
    bare = with_sessions()
    bare.open(B, 1, "queue:q", prefetch=1)
    bare.publish_each(A, "queue:q", Extra(time_to_live=100))
    bare.publish_each(A, "queue:q", Extra(time_to_live=300))
    bare.publish_each(A, "queue:q", Extra(time_to_live=200))
    bare.ack(B, (1, 1, 1))
    assert bare.holds(B, 1) == [(2, 2, 1)]
    bare.ack(B, (1, 2, 2))
    assert bare.broker.next_deadline() == bare.broker.queues["queue:q"].next_expiry()
    bare.close_consumer(B, 1)
    bare.wait(1000)
    assert bare.broker.queues == {}


# -- What comes back -------------------------------------------------------------------------------


def test_what_a_lost_session_gives_back_counts_once_however_many_consumers_it_had() -> None:
    bare = with_sessions(lease_ms=1000)
    for consumer in range(1, 6):
        bare.open(A, consumer, "queue:q", prefetch=10)
    bare.publish(B, "queue:q", 10)
    assert sum(last - first + 1 for n in range(1, 6) for first, last, _ in bare.holds(A, n)) == 10
    bare.detach(A)
    bare.wait(2000)
    bare.attach(C, client_id="c3", attempt=2)
    bare.numbers[C] = 0
    bare.open(C, 1, "queue:q", prefetch=100)
    assert bare.holds(C, 1) == [(1, 10, 2)]


def test_a_session_that_closes_gives_nothing_to_itself() -> None:
    bare = with_sessions()
    for consumer in (1, 2):
        bare.open(A, consumer, "queue:q", prefetch=2)
    bare.publish(B, "queue:q", 4)
    told = bare.command(commands.Request(A, 3, cw.CloseSession((cw.Kept(1, 1, 1, 1),))))
    assert [e for e in told if isinstance(e, ev.Assigned)] == []
    bare.open(B, 1, "queue:q")
    assert bare.holds(B, 1) == [(1, 1, 2), (2, 4, 1)]


# -- Selectors -------------------------------------------------------------------------------------


def claim(consumer: int, first: int, last: int) -> cw.AckRow:
    return cw.AckRow(consumer, first, last, kind=cw.CLAIM)


def test_what_a_server_claims_is_assigned() -> None:
    bare = with_sessions()
    bare.open(A, 1, "queue:q", prefetch=2, selector="a = 1")
    bare.publish(B, "queue:q", 5)
    assert bare.assigned() == []
    bare.ack(A, claim(1, 2, 2), claim(1, 4, 5))
    assert bare.assigned() == [(A, 1, 2, 2, 1), (A, 1, 4, 4, 1)]
    assert bare.holds(A, 1) == [(2, 2, 1), (4, 4, 1)]
    bare.ack(A, (1, 2, 2))
    bare.ack(B, claim(1, 1, 5))  # it has no such consumer
    assert bare.holds(A, 1) == [(4, 4, 1)]


def test_nothing_is_skipped_in_a_queue() -> None:
    bare = with_sessions()
    bare.open(A, 1, "queue:q", selector="a = 1")
    bare.publish(B, "queue:q", 2)
    bare.ack(A, cw.AckRow(1, 1, 2, kind=cw.SKIP))
    assert list(bare.broker.queues["queue:q"].live()) == [(1, 2)]


def test_a_browser_takes_nothing() -> None:
    bare = with_sessions()
    bare.publish(B, "queue:q", 2)
    bare.open(A, 1, "queue:q", browse=True)
    bare.ack(A, cw.AckRow(1, 1, 2), claim(1, 1, 2), cw.AckRow(1, 1, 2, kind=cw.DEAD))
    assert list(bare.broker.queues["queue:q"].live()) == [(1, 2)]
    assert DEAD not in bare.broker.queues
    bare.close_consumer(A, 1)
    assert bare.broker.sessions[A].consumers == {}


# -- Dead letters ----------------------------------------------------------------------------------


def dead(consumer: int, first: int, last: int, reason: str = "bad") -> cw.AckRow:
    return cw.AckRow(consumer, first, last, kind=cw.DEAD, reason=reason)


def letters(bare: BareBroker) -> list[tuple[int, int, str]]:
    queue = bare.broker.queues.get(DEAD)
    return list(queue.reasons) if queue is not None else []


def test_a_dead_letter_leaves_its_queue_and_says_why() -> None:
    bare = with_sessions()
    bare.open(A, 1, "queue:q", prefetch=2)
    bare.publish_each(B, "queue:q", *[Extra(priority=9, time_to_live=100)] * 3)
    bare.ack(A, dead(1, 1, 1, "x" * 2000))
    assert bare.holds(A, 1) == [(2, 3, 1)]  # its place is free
    assert letters(bare) == [(1, 1, "x" * 1000)]
    bare.wait(1000)  # nothing is special about it any more
    bare.open(C, 1, DEAD)
    assert bare.holds(C, 1) == [(1, 1, 1)]
    bare.ack(C, (1, 1, 1))
    assert letters(bare) == []


def test_only_what_a_consumer_has_can_it_give_up() -> None:
    bare = with_sessions()
    bare.open(A, 1, "queue:q", prefetch=1)
    bare.publish(B, "queue:q", 3)
    bare.publish(B, "queue:r", 3)
    bare.ack(A, dead(1, 1, 6))
    assert letters(bare) == [(1, 1, "bad")]


def test_what_is_given_up_twice_is_one_letter() -> None:
    bare = with_sessions()
    bare.open(A, 1, "topic:t", durable="d")
    bare.publish(B, "topic:t", 5)
    bare.open(C, 1, DEAD)
    for _ in range(2):  # a command may be in the log twice
        bare.ack(A, dead(1, 3, 3))
        bare.ack(C, (1, 3, 3))
    assert bare.holds(C, 1) == []
    assert letters(bare) == []
    assert list(bare.subscription(A, 1).acked) == [(3, 3, 1)]


def test_one_message_of_two_subscriptions_is_one_letter() -> None:
    bare = with_sessions()
    for session in (A, B):
        bare.open(session, 1, "topic:t", durable="d")
    bare.publish(C, "topic:t", 2)
    bare.ack(A, dead(1, 1, 2, "mine"))
    bare.ack(B, dead(1, 1, 2, "yours"))
    assert letters(bare) == [(1, 2, "mine")]
    assert list(bare.broker.queues[DEAD].live()) == [(1, 2)]


def test_a_topics_consumer_gives_up_no_more_than_there_is_for_it() -> None:
    bare = with_sessions()
    bare.publish(B, "queue:q", 2)
    bare.open(A, 1, "topic:t")
    bare.publish(B, "topic:t", 2)
    bare.publish(B, "queue:q", 2)
    bare.ack(A, (1, 0, 3))
    bare.ack(A, dead(1, 0, 6))  # "everything up to here" are not messages that it has
    assert letters(bare) == []
    bare.publish(B, "topic:t", 1)
    bare.ack(A, dead(1, 1, 7))
    assert letters(bare) == [(7, 7, "bad")]


def test_who_is_no_longer_served_gives_up_nothing() -> None:
    bare = with_sessions()
    bare.open(A, 1, "topic:t", durable="d")
    bare.publish(B, "topic:t", 2)
    bare.close_consumer(A, 1, cw.Kept(1, 1, 1, 1))
    bare.open(A, 2, "topic:t", durable="d")
    bare.ack(A, dead(1, 1, 1))
    assert letters(bare) == []
    assert bare.subscription(A, 2).floor == 0


def test_dead_letters_do_not_die_again_and_members_give_up_nothing() -> None:
    bare = with_sessions()
    bare.open(A, 1, "queue:q")
    bare.publish(B, "queue:q")
    bare.ack(A, dead(1, 1, 1))
    bare.open(C, 1, DEAD)
    bare.ack(C, dead(1, 1, 1))
    assert (letters(bare), bare.holds(C, 1)) == (
        [(1, 1, "bad")],
        [(1, 1, 2)],
    )  # it comes again
    bare.ack(C, (1, 1, 1))
    bare.ask(A, cw.Join(2, "topic:g", 100, "a"))
    assert share(bare, C, 2, topic="topic:g") == ""
    bare.publish(B, "topic:g")
    bare.ack(A, dead(2, 2, 2))
    bare.ack(C, dead(2, 2, 2))
    assert (letters(bare), bare.holds(C, 2)) == ([], [(2, 2, 2)])
    assert bare.subscription(A, 2).floor < 2


# -- Shared subscriptions --------------------------------------------------------------------------


def share(
    bare: BareBroker, session: int, consumer: int, *, durable: bool = False, **more: object
) -> str:
    options = {"shared": "s", "durable": "s" if durable else "", **more}
    return bare.open(session, consumer, str(options.pop("topic", "topic:t")), **options).code


def with_shared(durable: bool = False) -> BareBroker:
    """Two sessions without a client id share a subscription; the third one publishes."""
    bare = BareBroker()
    for session in (A, B, C):
        bare.attach(session, lease_ms=1000)
    for session in (A, B):
        assert share(bare, session, 1, durable=durable) == ""
    return bare


@pytest.mark.parametrize("durable", [False, True])
def test_the_messages_of_a_topic_are_divided_among_those_who_share(durable: bool) -> None:
    bare = with_shared(durable)
    bare.open(C, 1, "topic:>")
    bare.publish(C, "topic:t", 4)
    bare.publish(C, "topic:other", 4)
    assert (bare.holds(A, 1), bare.holds(B, 1)) == ([(1, 2, 1)], [(3, 4, 1)])
    assert bare.subscription(C, 1).floor == 0  # its own copies are its own business


@pytest.mark.parametrize("durable", [False, True])
def test_a_shared_subscription_survives_any_one_of_its_consumers(durable: bool) -> None:
    bare = with_shared(durable)
    bare.publish(C, "topic:t", 4)
    bare.detach(A)
    bare.wait(2000)
    assert A not in bare.broker.sessions
    assert bare.holds(B, 1) == [(1, 2, 2), (3, 4, 1)]
    bare.close_consumer(B, 1)
    bare.publish(C, "topic:t")
    kept = [(1, 4), (5, 5)] if durable else []
    live = sorted(r for queue in bare.broker.queues.values() for r in queue.live())
    assert sorted(p for one, two in live for p in range(one, two + 1)) == [
        p for one, two in kept for p in range(one, two + 1)
    ]


def test_a_shared_subscription_lasts_while_something_may_yet_come_back() -> None:
    bare = with_shared()
    bare.publish(C, "topic:t", 2)
    bare.close_consumer(B, 1)
    bare.close_consumer(A, 1, cw.Kept(1, 1, 1, 1))
    assert len(bare.broker.queues) == 1
    assert share(bare, B, 2) == ""
    assert bare.holds(B, 2) == [(2, 2, 1)]
    bare.ask(A, cw.Return((cw.Kept(1, 1, 1, 3),)))
    assert bare.holds(B, 2) == [(1, 1, 4), (2, 2, 1)]


def test_what_no_consumer_of_a_shared_subscription_wants_is_skipped() -> None:
    bare = BareBroker()
    bare.attach(A)
    share(bare, A, 1, selector="a = 1")
    bare.publish(A, "topic:t", 5)
    bare.ack(A, cw.AckRow(1, 1, 2, kind=cw.SKIP), claim(1, 3, 3), cw.AckRow(1, 4, 4, kind=cw.SKIP))
    (queue,) = bare.broker.queues.values()
    assert sorted(queue.live()) == [(3, 3), (5, 5)]


def test_with_another_topic_or_selector_it_is_another_one_or_refused() -> None:
    bare = with_shared(durable=True)
    bare.publish(C, "topic:t", 2)
    assert share(bare, C, 1, durable=True, topic="topic:u") == "IllegalStateError"
    assert share(bare, C, 1, durable=True, selector="a = 1") == "IllegalStateError"
    for session in (A, B):
        bare.close_consumer(session, 1, cw.Kept(1, 1, 2, 1))
    assert share(bare, C, 1, durable=True, topic="topic:u") == ""
    (queue,) = bare.broker.queues.values()
    assert (queue.pattern, list(queue.live())) == ("topic:u", [])
    assert [s.consumers for s in bare.broker.sessions.values()] == [
        {},
        {},
        bare.broker.sessions[C].consumers,
    ]
    bare.publish(C, "topic:t")
    assert bare.holds(C, 1) == []


def test_names_of_shared_and_unshared_durable_subscriptions_do_not_meet() -> None:
    bare = with_sessions()
    assert share(bare, A, 1, durable=True) == ""
    assert bare.open(A, 2, "topic:t", durable="s").code == "IllegalStateError"
    assert share(bare, A, 3) == ""  # not durable: another one
    assert bare.open(A, 4, "topic:t", durable="x").code == ""
    assert bare.open(A, 5, "topic:t", durable="x", shared="x").code == "IllegalStateError"
    assert bare.open(A, 6, "topic:t", durable="y", shared="z").code == "IllegalStateError"


def test_clients_with_ids_do_not_share_with_each_other() -> None:
    bare = BareBroker()
    bare.attach(A, client_id="a b")
    bare.attach(B, client_id="a")
    for session, name in ((A, "c"), (B, "b c")):
        assert bare.open(session, 1, "topic:t", shared=name).code == ""
    bare.publish(A, "topic:t", 2)
    assert bare.holds(A, 1) == bare.holds(B, 1) == [(1, 2, 1)]


def test_a_shared_durable_subscription_is_unsubscribed_when_nobody_has_it() -> None:
    bare = with_shared(durable=True)
    assert bare.ask(A, cw.Unsubscribe("s")).code == "IllegalStateError"
    bare.publish(C, "topic:t", 2)
    for session in (A, B):
        bare.close_consumer(session, 1, cw.Kept(1, 1, 2, 1))
    assert bare.ask(A, cw.Unsubscribe("s")).code == ""
    assert (bare.broker.queues, bare.broker.sessions[A].consumers) == ({}, {})
    assert bare.ask(A, cw.Unsubscribe("s")).code == "InvalidDestinationError"


def test_a_topic_that_is_shared_is_no_group() -> None:
    bare = with_shared()
    assert bare.ask(C, cw.CreateGroup("topic:t")).code == "InvalidDestinationError"


def test_a_commit_goes_to_those_who_share_and_what_is_special_about_it_counts() -> None:
    bare = with_shared()
    bare.close_consumer(A, 1)
    sent = [bare.stage(C, "topic:t", Extra(priority=p)) for p in (1, 9)]
    bare.close_consumer(B, 1)
    share(bare, A, 2, durable=True, prefetch=1)
    bare.commit(C, *sent)
    assert bare.holds(A, 2) == [(2, 2, 1)]  # all of it is there before any of it is handed out
    bare.ack(A, (2, 2, 2))
    assert bare.holds(A, 2) == [(1, 1, 1)]


# -- Snapshots -------------------------------------------------------------------------------------


def test_a_snapshot_has_something_of_everything_about_queues() -> None:
    bare = with_sessions()
    bare.open(A, 1, "queue:q", prefetch=1)
    bare.open(B, 1, "queue:q", prefetch=1, exclusive=True)
    bare.open(B, 2, "queue:r", selector="a = 1")
    bare.close_consumer(B, 1)
    group = Extra(properties={"JMSXGroupID": "g"})
    bare.publish_each(C, "queue:q", group)
    bare.open(C, 2, "queue:q", prefetch=1)
    bare.publish_each(C, "queue:q", group)  # is reserved
    bare.publish_each(C, "queue:q", Extra(priority=9), Extra(time_to_live=500))
    bare.publish(C, "queue:r", 3)
    bare.ack(B, claim(2, 6, 6))
    bare.ack(B, dead(2, 6, 6))
    share(bare, C, 1, durable=True)
    queue = bare.broker.queues["queue:q"]
    assert (queue.takers[A, 1].reserved.count, queue.count) == (1, 1)
    assert queue.state()[5] == [("g", A, 1, 1)]
    chunks = bare.snapshot()
    other = Broker()
    other.restore(iter(chunks))
    assert list(other.snapshot()) == chunks
    assert other.next_deadline() == bare.broker.next_deadline()
    assert list(other.queues[DEAD].reasons) == [(6, 6, "bad")]
