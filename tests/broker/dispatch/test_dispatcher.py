"""Deliveries to consumers: windows, outlets, resumption, and consumers that do not keep up."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.broker.dispatch import dispatcher, outlets, topic_delivery
from antiphon.broker.machine.topics import RESERVE
from antiphon.formats import protocol as cw
from antiphon.formats.columns import Columns
from tests.broker.support.homes import Client, Homes, open_consumer, publish

A, B, C = 0xA, 0xB, 0xC


def ack(number: int, consumer: int, last: int, first: int = 0) -> cw.Ack:
    return cw.Ack(number, (cw.AckRow(consumer, first, last),))


# -- Topics ----------------------------------------------------------------------------------------


def test_a_pack_goes_out_as_it_came_to_whoever_is_subscribed() -> None:
    homes = Homes(servers=2)
    sender, here, there = homes.attached(A), homes.attached(B), homes.attached(C, node=2)
    here.say(open_consumer(1, 1, "topic:a.*"))
    here.say(open_consumer(2, 2, "topic:other"))
    there.say(open_consumer(1, 5, "topic:>"))
    one = publish(A, 1, 3, "topic:a.b")
    sender.say(one, publish(A, 4, 1, "topic:c"))
    assert here.deliveries() == [(1, 1, 3, 1)]
    assert here.told(cw.Deliver)[0].pack is not None
    assert here.told(cw.Deliver)[0].pack == one.pack
    assert there.deliveries() == [(5, 1, 3, 1), (5, 4, 4, 1)]


def test_a_consumer_that_keeps_up_reads_nothing_from_the_journal() -> None:
    homes = Homes()
    client = homes.attached(A)
    client.say(open_consumer(1, 1, "topic:t"))
    homes.servers[1].shelf.reads = 0
    for number in range(1, 20):
        client.say(publish(A, number))
        client.say(ack(number, 1, number))
    assert homes.servers[1].shelf.reads == 0
    assert len(client.deliveries()) == 19


def test_a_subscription_begins_where_it_was_opened() -> None:
    homes = Homes()
    client = homes.attached(A)
    client.say(publish(A, 1, 3))
    client.say(open_consumer(1, 1, "topic:t"))
    client.say(publish(A, 4))
    assert client.deliveries() == [(1, 4, 4, 1)]


def test_no_more_than_the_window_is_sent() -> None:
    homes = Homes()
    client = homes.attached(A)
    client.say(open_consumer(1, 1, "topic:t", prefetch=5))
    client.say(publish(A, 1, 3), publish(A, 4, 4), publish(A, 8))
    assert client.deliveries() == [(1, 1, 3, 1), (1, 4, 5, 1)]
    client.say(ack(1, 1, 2))
    assert client.deliveries()[2:] == [(1, 6, 7, 1)]
    client.say(ack(2, 1, 7))
    assert client.deliveries()[3:] == [(1, 8, 8, 1)]
    client.say(publish(A, 9))
    assert client.deliveries()[4:] == [(1, 9, 9, 1)]  # it has caught up


def test_acknowledging_in_the_middle_opens_the_window_too() -> None:
    homes = Homes()
    client = homes.attached(A)
    client.say(open_consumer(1, 1, "topic:t", prefetch=4))
    client.say(publish(A, 1, 10))
    client.say(ack(1, 1, 3, first=2))
    assert client.deliveries() == [(1, 1, 4, 1), (1, 5, 6, 1)]
    client.say(ack(2, 1, 3, first=2))  # twice is once
    assert len(client.deliveries()) == 2


def test_no_more_than_a_few_windows_beyond_what_the_log_knows() -> None:
    homes = Homes()
    client = homes.attached(A)
    client.say(open_consumer(1, 1, "topic:t", prefetch=2))
    client.say(publish(A, 1, 100))
    homes.paused = True
    for number in range(1, 20):
        client.say(ack(number, 1, client.deliveries()[-1][2]))
    assert client.deliveries()[-1][2] == 2 * RESERVE
    homes.paused = False
    homes.settle()
    assert client.deliveries()[-1][2] > 2 * RESERVE


def test_what_is_given_up_is_in_the_log_before_anything_later_is_sent() -> None:
    """Otherwise who acknowledges that would acknowledge the other, too, and it would be lost."""
    homes = Homes(deliveries_max=1)
    client = homes.attached(A, client_id="c")
    client.say(open_consumer(1, 1, "topic:t", durable="d", prefetch=2))
    client.say(publish(A, 1, 3))
    client.say(cw.Control(2, cw.CloseConsumer(1, back=(cw.Kept(1, 2, 2, 1),))))
    client.say(open_consumer(3, 2, "topic:t", durable="d", prefetch=1))
    assert client.deliveries()[1:] == [(2, 1, 1, 1)]
    homes.paused = True
    client.say(ack(1, 2, 1))  # 2 was delivered too often
    assert client.deliveries()[2:] == []
    homes.paused = False
    homes.settle()
    assert client.deliveries()[2:] == [(2, 3, 3, 1)]
    client.say(ack(2, 2, 3))
    client.say(open_consumer(4, 3, "queue:DLQ"))
    assert client.deliveries()[3:] == [(3, 2, 2, 1)]


def test_the_outlet_is_bounded_and_the_rest_follows() -> None:
    homes = Homes(delivery_bytes=5000)
    client, other = homes.attached(A), homes.attached(B)
    for one in (client, other):
        one.say(open_consumer(1, 1, "topic:t", prefetch=1000))
    client.reads = False
    other.say(*(publish(B, number, size=1000) for number in range(1, 21)))
    assert len(other.deliveries()) == 20
    assert len(client.deliveries()) == 5
    client.reads = True
    homes.settle()
    assert [d[1] for d in client.deliveries()] == list(range(1, 21))


def test_all_outlets_together_are_bounded_and_nobody_starves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(outlets, "ALL_DELIVERY_BYTES", 5000)
    homes = Homes()
    deaf = [homes.attached(session) for session in (A, B)]
    reader = homes.attached(C)
    for client in (*deaf, reader):
        client.say(open_consumer(1, 1, "topic:t", prefetch=1000))
    for client in deaf:
        client.reads = False
    reader.say(*(publish(C, number, size=1000) for number in range(1, 21)))
    assert [d[1] for d in reader.deliveries()] == list(range(1, 21))
    assert homes.servers[1].home.dispatcher.counts()["on_the_way_bytes"] < 7000
    for client in deaf:
        client.reads = True
    homes.settle()
    for client in deaf:
        assert [d[1] for d in client.deliveries()] == list(range(1, 21))
    assert homes.servers[1].home.dispatcher.counts()["on_the_way_bytes"] == 0


def test_a_resumed_consumer_goes_on_behind_what_the_client_has() -> None:
    homes = Homes(servers=2)
    client = homes.attached(A)
    client.say(open_consumer(1, 1, "topic:t", prefetch=6))
    client.say(publish(A, 1, 3), publish(A, 4, 5), publish(A, 9, 5))
    client.say(ack(1, 1, 2))
    assert client.deliveries()[-1][2] == 8
    seen = (cw.Seen(1, 5, ()),)  # 6 to 8 did not arrive
    again = homes.attached(A, node=2, attempt=2, sequences=((0, 14),), seen=seen)
    # 3 to 5 are with the client and not acknowledged: three more fit its window.
    assert again.deliveries() == [(1, 6, 8, 1)]
    again.say(ack(2, 1, 5))
    assert again.deliveries()[1:] == [(1, 9, 11, 1)]


def test_what_a_resumed_consumer_has_counts_in_its_window() -> None:
    homes, sender, again = comes_to_one_that_lags()
    # The messages, and the attachment that says who has them, are applied in one step.
    homes.servers[2].lags = False
    homes.settle()
    sender.say(publish(A, 3), publish(A, 4))
    assert again.deliveries() == [(1, 3, 3, 1)]
    again.say(ack(1, 1, 1, first=1))
    assert again.deliveries()[1:] == [(1, 4, 4, 1)]


def test_what_a_resumed_consumer_has_counts_though_more_comes_in_the_same_step() -> None:
    homes, sender, again = comes_to_one_that_lags()
    sender.say(publish(A, 3), publish(A, 4))
    homes.servers[2].lags = False
    homes.settle()
    assert again.deliveries() == [(1, 3, 3, 1)]


def comes_to_one_that_lags() -> tuple[Homes, Client, Client]:
    """A publisher, and a client that had messages 1 and 2 of a window of 3 when it came to server
    2, which knows nothing of all that yet."""
    homes = Homes(servers=2)
    sender, client = homes.attached(A), homes.attached(B)
    client.say(open_consumer(1, 1, "topic:t", prefetch=3))
    homes.servers[2].lags = True
    sender.say(publish(A, 1, 2))
    again = homes.connect(2)
    again.attach(B, attempt=2, seen=(cw.Seen(1, 2, ()),))
    return homes, sender, again


def test_what_is_in_memory_does_not_overtake_what_has_to_be_read() -> None:
    homes = Homes()
    homes.one_by_one = True
    homes.forgotten = {2}
    client = homes.attached(A)
    client.say(open_consumer(1, 1, "topic:t"))
    homes.paused = True
    client.say(*(publish(A, n) for n in (1, 2, 3)))
    homes.paused = False
    homes.settle()
    assert client.deliveries() == [(1, 1, 1, 1), (1, 2, 2, 1), (1, 3, 3, 1)]


def test_who_claims_to_have_everything_gets_nothing_old_and_does_no_harm() -> None:
    homes = Homes()
    client = homes.attached(A)
    client.say(open_consumer(1, 1, "topic:t", prefetch=2))
    client.say(*(publish(A, n) for n in range(1, 50)))
    seen = (cw.Seen(1, 1 << 62, ()), cw.Seen(9, 3, ()))
    again = homes.attached(A, attempt=2, sequences=((0, 50),), seen=seen)
    assert again.deliveries() == []
    again.say(ack(1, 1, 49), publish(A, 50))
    assert again.deliveries() == [(1, 50, 50, 1)]


def test_a_durable_subscription_gets_what_it_missed_and_what_was_seen_is_flagged() -> None:
    homes = Homes()
    first = homes.attached(A, client_id="c")
    first.say(open_consumer(1, 1, "topic:t", durable="d"))
    sender = homes.attached(B)
    sender.say(publish(B, 1, 6))
    first.say(ack(1, 1, 2))
    first.say(cw.Control(2, cw.CloseSession((cw.Kept(1, 3, 4, 1),))))
    sender.say(publish(B, 7, 2))
    second = homes.attached(C, client_id="c")
    second.say(open_consumer(1, 9, "topic:t", durable="d"))
    assert second.deliveries() == [(9, 3, 4, 2), (9, 5, 6, 1), (9, 7, 8, 1)]


def test_acknowledged_holes_are_not_sent_again() -> None:
    homes = Homes()
    first = homes.attached(A, client_id="c")
    first.say(open_consumer(1, 1, "topic:t", durable="d"))
    first.say(publish(A, 1, 6))
    first.say(cw.Ack(1, (cw.AckRow(1, 2, 2), cw.AckRow(1, 4, 5))))
    first.say(cw.Control(2, cw.CloseSession()))
    second = homes.attached(C, client_id="c")
    second.say(open_consumer(1, 1, "topic:t", durable="d"))
    assert [d[1:3] for d in second.deliveries()] == [(1, 1), (3, 3), (6, 6)]


def test_a_closed_consumer_gets_nothing_more() -> None:
    homes = Homes()
    client = homes.attached(A)
    client.say(open_consumer(1, 1, "topic:t"))
    client.say(publish(A, 1))
    client.say(cw.Control(2, cw.CloseConsumer(1)))
    client.say(publish(A, 2))
    assert client.deliveries() == [(1, 1, 1, 1)]
    assert homes.servers[1].home.dispatcher.counts()["consumers"] == 0


def test_a_long_backlog_is_read_in_turns_and_nobody_waits_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dispatcher, "TURN_BYTES", 3000)
    monkeypatch.setattr(topic_delivery, "TURN_BYTES", 3000)
    homes = Homes()
    first = homes.attached(A, client_id="c")
    first.say(open_consumer(1, 1, "topic:t", durable="d", prefetch=1000))
    first.say(cw.Control(2, cw.CloseSession()))
    sender = homes.attached(B)
    sender.say(*(publish(B, n, size=1000) for n in range(1, 201)))
    late = homes.attached(C, client_id="c")
    late.say(open_consumer(1, 1, "topic:t", durable="d", prefetch=1000))
    assert [d[1] for d in late.deliveries()] == list(range(1, 201))


# -- Consumers that do not keep up -----------------------------------------------------------------


def fall_behind(slow: str) -> tuple[Homes, list[tuple[int, int, int, int]], str | None]:
    homes = Homes(slow_quota=10)
    client, sender = homes.attached(A), homes.attached(B)
    client.say(open_consumer(1, 1, "topic:t", prefetch=2, slow=slow))
    sender.say(*(publish(B, n) for n in range(1, 21)))
    client.say(ack(1, 1, 2))
    sender.say(publish(B, 21))
    return homes, client.deliveries(), client.cut


def test_spill_keeps_everything() -> None:
    _, deliveries, cut = fall_behind("spill")
    assert deliveries == [(1, 1, 1, 1), (1, 2, 2, 1), (1, 3, 3, 1), (1, 4, 4, 1)]
    assert cut is None


def test_drop_goes_on_with_the_newest() -> None:
    homes, deliveries, cut = fall_behind("drop")
    assert cut is None
    positions = [d[1] for d in deliveries]
    assert positions[:2] == [1, 2]
    assert positions[2] > 10
    assert homes.servers[1].home.dispatcher.counts()["dropped_messages"] > 10


def test_disconnect_ends_the_session_for_the_client() -> None:
    homes, deliveries, cut = fall_behind("disconnect")
    assert len(deliveries) == 2
    assert cut is not None
    assert "is 11 messages behind" in cut
    assert homes.servers[1].broker.sessions[A].detached


# -- Queues ----------------------------------------------------------------------------------------


def test_a_queue_is_divided_as_assigned() -> None:
    homes = Homes(servers=2)
    one, two = homes.attached(A), homes.attached(B, node=2)
    one.say(open_consumer(1, 1, "queue:q", prefetch=3))
    two.say(open_consumer(1, 1, "queue:q", prefetch=3))
    one.say(publish(A, 1, 10, "queue:q"))
    got = [d[1:3] for d in one.deliveries()], [d[1:3] for d in two.deliveries()]
    assert sorted(n for some in got for a, b in some for n in range(a, b + 1)) == [*range(1, 7)]
    first, last = got[0][0]
    one.say(ack(1, 1, last, first=first))
    assert one.deliveries()[-1][1] == 7
    columns = [Columns(d.pack) for d in one.told(cw.Deliver)]
    assert [c.header.sequence for c in columns] == [d[1] for d in one.deliveries()]


def test_what_is_assigned_while_a_consumer_is_opened_is_sent_once() -> None:
    homes = Homes()
    client, other = homes.attached(A), homes.attached(B)
    homes.paused = True
    client.say(open_consumer(1, 1, "queue:q"))
    other.say(publish(B, 1, 2, "queue:q"))
    homes.paused = False  # both are applied in one step
    homes.settle()
    assert client.deliveries() == [(1, 1, 2, 1)]


def test_a_resumed_queue_consumer_gets_what_did_not_arrive() -> None:
    homes = Homes(servers=2)
    client = homes.attached(A)
    client.say(open_consumer(1, 1, "queue:q", prefetch=8))
    client.say(publish(A, 1, 4, "queue:q"), publish(A, 5, 4, "queue:q"))
    seen = (cw.Seen(1, 0, ((2, 3), (8, 8))),)
    again = homes.attached(A, node=2, attempt=2, sequences=((0, 9),), seen=seen)
    assert again.deliveries() == [(1, 1, 1, 1), (1, 4, 4, 1), (1, 5, 7, 1)]


def test_what_a_lost_client_had_goes_to_another_and_is_flagged() -> None:
    homes = Homes()
    lost, other = homes.attached(A, lease_ms=1000), homes.attached(B)
    lost.say(open_consumer(1, 1, "queue:q"), publish(A, 1, 3, "queue:q"))
    other.say(open_consumer(1, 1, "queue:q"))
    lost.lose()
    homes.wait(2000)
    assert other.deliveries() == [(1, 1, 3, 2)]


def test_a_queue_consumer_is_bounded_by_its_outlet() -> None:
    homes = Homes(delivery_bytes=3000)
    client = homes.attached(A)
    client.say(open_consumer(1, 1, "queue:q", prefetch=100))
    client.reads = False
    client.say(*(publish(A, n, 1, "queue:q", size=1000) for n in range(1, 11)))
    assert len(client.deliveries()) == 3
    client.reads = True
    homes.settle()
    assert [d[1] for d in client.deliveries()] == list(range(1, 11))


# -- Whatever happens ------------------------------------------------------------------------------

steps = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.integers(1, 6)),
        st.tuples(st.just("ack"), st.integers(1, 8)),
        st.tuples(st.just("resume"), st.integers(0, 8)),
        st.tuples(st.just("stop reading"), st.just(0)),
        st.tuples(st.just("read"), st.just(0)),
    ),
    max_size=30,
)


@given(steps, st.integers(1, 7))
def test_a_topic_is_delivered_once_and_in_order(plan: list[tuple[str, int]], window: int) -> None:
    homes = Homes(delivery_bytes=200)
    sender = homes.attached(B)
    client = homes.attached(A)
    client.say(open_consumer(1, 1, "topic:t", prefetch=window))
    published, acked, attempt = 0, 0, 1
    got: list[int] = []  # by the client, over all its connections

    def take() -> None:
        for _, first, last, deliveries in client.deliveries():
            assert deliveries == 1
            got.extend(range(first, last + 1))
        client.heard.clear()
        assert len(got) - acked <= window

    for what, number in plan:
        if what == "publish":
            sender.say(publish(B, published + 1, number))
            published += number
        elif what == "ack" and len(got) > acked:
            acked = min(len(got), acked + number)
            client.say(ack(acked, 1, acked))
        elif what == "resume":
            take()
            del got[max(acked, len(got) - number) :]  # these were lost with the connection
            attempt += 1
            seen = (cw.Seen(1, len(got), ()),)
            client = homes.attached(A, attempt=attempt, seen=seen)
        elif what in ("stop reading", "read"):
            client.reads = what == "read"
            homes.settle()
        take()
    client.reads = True
    homes.settle()
    take()
    while acked < published:
        acked = len(got)
        client.say(ack(acked, 1, acked))
        take()
        assert len(got) > acked or acked == published
    assert got == list(range(1, published + 1))
