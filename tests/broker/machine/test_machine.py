"""The broker's rules, one by one."""

import msgspec
import pytest

from antiphon.broker.machine import events as ev
from antiphon.broker.machine.machine import Broker
from antiphon.broker.machine.sessions import producers, registry
from antiphon.formats import commands, pack
from antiphon.formats import protocol as cw
from antiphon.formats.entry import Kind
from tests.broker.support.bare_broker import BareBroker

A, B, C = 0xA, 0xB, 0xC


def bare(*sessions: int) -> BareBroker:
    one = BareBroker()
    for session in sessions:
        one.attach(session, client_id=f"c{session:x}")
    return one


# -- Publishing ---------------------------------------------------------------------------------


def test_a_pack_counts_once() -> None:
    r = bare(A)
    data = pack.encode("topic:t", 3, b"", A, 1)
    r.entry(Kind.PACK, data)
    assert [(a.position, a.count) for a in r.accepted] == [(1, 3)]
    r.entry(Kind.PACK, data)
    assert r.accepted == []
    r.entry(Kind.PACK, pack.encode("topic:t", 1, b"", A, 6))
    assert r.accepted == []  # leaves a gap
    r.entry(Kind.PACK, pack.encode("topic:t", 1, b"", A, 4))
    assert r.accepted[0].position == 4
    assert r.broker.last_sequence(A) == 4


def test_a_pack_of_an_unknown_session_is_nobodys() -> None:
    r = bare(A)
    r.entry(Kind.PACK, pack.encode("topic:t", 1, b"", B, 1))
    assert r.accepted == []
    r.close(A)
    assert r.publish(A, "topic:t") == 0


@pytest.mark.parametrize(
    "destination", ["topic:a.*", "nowhere", "topic:", "temp-queue:a.1", "temp-queue:x.1"]
)
def test_what_cannot_be_sent_to_is_refused_and_remembered(destination: str) -> None:
    r = bare(A)
    assert r.publish(A, destination, 2) == 0
    (refused,) = [e.refusal for e in r.events if isinstance(e, ev.PackRefused)]
    assert (refused.first, refused.last, refused.code) == (1, 2, "InvalidDestinationError")
    assert r.broker.sessions[A].refusals == [refused]
    assert r.publish(A, "topic:a") == 1  # the sequence goes on


def test_a_client_that_comes_back_goes_on_behind_what_was_answered_early() -> None:
    r = bare(A)
    r.publish(A, "topic:t")
    r.attach(A, resume=True, attempt=2, sequences=((0, 5),))  # 2 to 4 were lost
    assert r.broker.last_sequence(A) == 4
    r.attach(A, resume=True, attempt=3, sequences=((0, 2),))  # it had not heard
    assert r.broker.last_sequence(A) == 4


@pytest.mark.parametrize(
    "payload", [b"", b"x" * 40, b"\0\0\0\0\x81\xff", commands.encode([])[:-1] + b"\x91"]
)
def test_garbage_in_the_log_is_nobodys_problem(payload: bytes) -> None:
    r = bare(A)
    r.entry(Kind.PACK, payload)
    assert r.accepted == []
    assert r.events == ()


def test_numbers_stay_within_the_formats() -> None:
    r = bare(A)
    r.attach(A, resume=True, attempt=2, sequences=((0, (1 << 63) - 1),))
    last = r.broker.last_sequence(A)
    r.entry(Kind.PACK, pack.encode("topic:t", 5, b"", A, last + 1))
    r.open(A, 1, "queue:q")
    r.publish(A, "queue:q")
    r.close_consumer(A, 1, cw.Kept(1, 1, 1, (1 << 63)))
    assert r.snapshot()


# -- Topics -------------------------------------------------------------------------------------


def test_a_subscription_begins_where_it_is_made_and_ends_with_its_consumer() -> None:
    r = bare(A)
    r.publish(A, "topic:t", 4)
    assert r.open(A, 1, "topic:t").value == 4
    assert r.broker.live() == ()
    r.publish(A, "topic:t", 2)
    assert r.broker.live() == ((5, 6),)
    r.ack(A, (1, 0, 5))
    assert r.broker.live() == ((6, 6),)
    r.ack(A, (1, 0, 6))
    assert r.broker.live() == ()
    r.publish(A, "topic:t")
    r.close_consumer(A, 1)
    assert r.broker.live() == ()
    assert not r.broker.topics.subscriptions


def test_other_topics_keep_nothing_alive() -> None:
    r = bare(A)
    r.open(A, 1, "topic:a.*")
    r.publish(A, "topic:b", 100)
    assert r.broker.live() == ()
    r.publish(A, "topic:a.x")
    assert r.broker.live() == ((1, 101),)


def test_acknowledgements_out_of_order_meet() -> None:
    r = bare(A)
    r.open(A, 1, "topic:t")
    r.publish(A, "topic:t", 10)
    r.ack(A, (1, 4, 5), (1, 7, 8))
    subscription = r.subscription(A, 1)
    assert subscription.floor == 0
    assert subscription.runs(1, 10, 0) == [(1, 3, 1), (6, 6, 1), (9, 10, 1)]
    r.ack(A, (1, 1, 3))
    assert subscription.floor == 5
    r.ack(A, (1, 0, 6))
    assert subscription.floor == 8
    assert list(subscription.acked) == []


def test_a_durable_subscription_outlives_its_consumer_and_its_session() -> None:
    r = bare(A, B)
    r.open(A, 1, "topic:t", durable="mail")
    r.close(A)
    r.publish(B, "topic:t", 3)
    assert r.broker.live() == ((1, 3),)
    r.attach(C, client_id="ca")
    assert r.open(C, 1, "topic:t", durable="mail").value == 0
    assert r.subscription(C, 1).runs(1, 3, 0) == [(1, 3, 1)]


def test_a_durable_subscription_needs_a_client_id() -> None:
    r = BareBroker()
    r.attach(A)
    assert r.open(A, 1, "topic:t", durable="mail").code == "IllegalStateError"


def test_an_active_durable_subscription_is_neither_opened_again_nor_removed() -> None:
    r = bare(A)
    r.open(A, 1, "topic:t", durable="mail")
    assert r.open(A, 2, "topic:t", durable="mail").code == "IllegalStateError"
    assert r.ask(A, cw.Unsubscribe("mail")).code == "IllegalStateError"
    r.close_consumer(A, 1)
    assert r.ask(A, cw.Unsubscribe("mail")).code == ""
    assert r.ask(A, cw.Unsubscribe("mail")).code == "InvalidDestinationError"


def test_a_durable_subscription_to_another_topic_is_a_new_one() -> None:
    r = bare(A)
    r.open(A, 1, "topic:t", durable="mail")
    r.publish(A, "topic:t", 3)
    r.close_consumer(A, 1)
    assert r.open(A, 2, "topic:u", durable="mail").value == 3
    assert r.broker.live() == ()


def test_only_what_the_application_saw_is_flagged_after_a_close() -> None:
    r = bare(A)
    r.open(A, 1, "topic:t", durable="mail")
    r.publish(A, "topic:t", 5)
    r.ack(A, (1, 0, 1))
    r.close(A, cw.Kept(1, 2, 3, 1))
    r.attach(B, client_id="ca")
    r.open(B, 1, "topic:t", durable="mail")
    assert r.subscription(B, 1).runs(1, 5, 0) == [(2, 3, 2), (4, 5, 1)]


def test_after_a_lost_session_all_that_may_have_been_seen_is_flagged() -> None:
    r = bare(A, B)
    r.open(A, 1, "topic:t", durable="mail", prefetch=2)
    r.publish(B, "topic:t", 20)
    r.detach(A)
    assert any(isinstance(e, ev.SessionEnded) for e in r.wait(10_000))
    r.publish(B, "topic:t", 1)
    r.attach(C, client_id="ca")
    r.open(C, 1, "topic:t", durable="mail", prefetch=2)
    subscription = r.subscription(C, 1)
    assert subscription.runs(1, 21, 0) == [(1, 8, 2), (9, 21, 1)]
    assert subscription.runs(7, 10, 6) == [(7, 8, 2), (9, 10, 1)]
    r.ack(C, (1, 0, 20))
    assert subscription.runs(21, 21, 20) == [(21, 21, 1)]
    assert subscription.lost == (0, 0, 0)


def test_a_closed_durable_consumer_may_still_acknowledge_what_it_saw() -> None:
    r = bare(A)
    r.open(A, 1, "topic:t", durable="mail")
    r.publish(A, "topic:t", 3)
    r.close_consumer(A, 1, cw.Kept(1, 1, 2, 1))
    assert 1 in r.broker.sessions[A].consumers
    r.ack(A, (1, 0, 2))
    assert 1 not in r.broker.sessions[A].consumers
    assert r.broker.live() == ((3, 3),)


def test_a_late_acknowledgement_does_not_move_the_cursor_of_who_came_after() -> None:
    r = bare(A)
    r.open(A, 1, "topic:t", durable="mail")
    r.publish(A, "topic:t", 3)
    r.close_consumer(A, 1, cw.Kept(1, 1, 2, 1))
    r.open(A, 2, "topic:t", durable="mail")
    r.ack(A, (1, 0, 3))
    assert r.subscription(A, 2).runs(1, 3, 0) == [(1, 2, 2), (3, 3, 1)]


def test_a_closed_durable_consumer_may_give_back_at_once_what_it_saw() -> None:
    r = bare(A)
    r.open(A, 1, "topic:t", durable="mail")
    r.publish(A, "topic:t", 3)
    r.close_consumer(A, 1, back=(cw.Kept(1, 1, 2, 1),))
    assert 1 not in r.broker.sessions[A].consumers
    r.open(A, 2, "topic:t", durable="mail")
    assert r.subscription(A, 2).runs(1, 3, 0) == [(1, 2, 2), (3, 3, 1)]


# -- Queues -------------------------------------------------------------------------------------


def test_what_a_closed_consumer_gives_back_goes_before_what_it_did_not_see() -> None:
    r = bare(A, B)
    r.open(A, 1, "queue:q")
    r.publish(A, "queue:q", 5)
    r.open(B, 1, "queue:q")
    r.close_consumer(A, 1, cw.Kept(1, 3, 3, 1), back=(cw.Kept(1, 1, 2, 1),))
    assert r.assigned() == [(B, 1, 1, 2, 2), (B, 1, 4, 5, 1)]
    assert r.holds(A, 1) == [(3, 3, 1)]


def test_a_queue_is_divided_among_its_consumers() -> None:
    r = bare(A, B)
    r.open(A, 1, "queue:q")
    r.open(B, 1, "queue:q")
    r.publish(A, "queue:q", 4)
    assert r.assigned() == [(A, 1, 1, 2, 1), (B, 1, 3, 4, 1)]
    r.publish(A, "queue:q")
    assert r.assigned() == [(A, 1, 5, 5, 1)]
    r.publish(A, "queue:q")
    assert r.assigned() == [(B, 1, 6, 6, 1)]


def test_a_window_that_is_full_gets_nothing_until_it_acknowledges() -> None:
    r = bare(A, B)
    r.open(A, 1, "queue:q", prefetch=2)
    r.open(B, 1, "queue:q", prefetch=10)
    r.publish(A, "queue:q", 20)
    assert r.holds(A, 1) == [(1, 2, 1)]
    assert r.holds(B, 1) == [(3, 12, 1)]
    r.ack(A, (1, 1, 1))
    assert r.assigned() == [(A, 1, 13, 13, 1)]
    assert r.broker.live() == ((2, 20),)


def test_only_who_has_a_message_can_acknowledge_it() -> None:
    r = bare(A, B)
    r.open(A, 1, "queue:q")
    r.open(B, 1, "queue:q")
    r.publish(A, "queue:q", 2)
    r.ack(A, (1, 1, 2))
    assert r.holds(A, 1) == []
    assert r.holds(B, 1) == [(2, 2, 1)]


def test_what_a_closed_consumer_did_not_see_goes_to_others_unflagged() -> None:
    r = bare(A, B)
    r.open(A, 1, "queue:q")
    r.publish(B, "queue:q", 5)
    r.open(B, 1, "queue:q")
    r.close_consumer(A, 1, cw.Kept(1, 1, 2, 1))
    assert r.assigned() == [(B, 1, 3, 5, 1)]
    assert r.holds(A, 1) == [(1, 2, 1)]  # still the session's to acknowledge
    r.ask(A, cw.Return((cw.Kept(1, 2, 2, 3),)))
    assert r.assigned() == [(B, 1, 2, 2, 4)]
    r.ack(A, (1, 1, 1))
    assert 1 not in r.broker.sessions[A].consumers
    r.ack(B, (1, 2, 5))
    assert r.broker.live() == ()


def test_a_lost_session_gives_everything_back_flagged_and_first() -> None:
    r = bare(A, B)
    r.open(A, 1, "queue:q", prefetch=3)
    r.publish(B, "queue:q", 5)
    r.open(B, 1, "queue:q", prefetch=1)
    r.detach(A)
    r.wait(10_000)
    assert r.holds(B, 1) == [(4, 4, 1)]
    r.ack(B, (1, 4, 4))
    assert r.assigned() == [(B, 1, 1, 1, 2)]


def test_a_queue_without_content_and_consumers_leaves_nothing() -> None:
    r = bare(A)
    r.open(A, 1, "queue:q")
    r.publish(A, "queue:q")
    r.ack(A, (1, 1, 1))
    r.close_consumer(A, 1)
    assert r.broker.queues == {}


# -- Sessions -----------------------------------------------------------------------------------


def test_a_session_resumes_on_any_server_within_its_lease() -> None:
    r = bare(A)
    r.open(A, 1, "queue:q")
    r.detach(A)
    r.wait(9_000)
    event = r.attach(A, node=2, life=7, resume=True, attempt=2)
    assert isinstance(event, ev.Attached)
    assert (event.attachment, event.node) == (2, 2)
    r.command(commands.Renew(2, 7))
    for _ in range(10):
        r.wait(1000)
        r.command(commands.Renew(2, 7))
    assert A in r.broker.sessions


def test_a_session_is_not_opened_again_by_a_late_copy_of_the_command_that_opened_it() -> None:
    r = bare()
    attach = commands.Attach(A, b"t", False, 2, 1, 1, 7, "", 10_000, ())
    r.command(attach)
    r.close(A)
    assert r.command(attach, msgspec.structs.replace(attach, attempt=1, link=6)) == ()
    assert A not in r.broker.sessions
    resumed = msgspec.structs.replace(attach, attempt=3, link=8, resume=True)
    assert isinstance(r.command(resumed)[0], ev.AttachRefused)
    # Who never heard of its session, and tries again, has one.
    assert isinstance(r.command(msgspec.structs.replace(attach, attempt=3))[0], ev.Attached)


def test_ended_sessions_are_remembered_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "ENDED_MAX", 2)
    r = bare(A, B, C)
    for session in (A, B, C):
        r.close(session)
    assert list(r.broker.sessions.ended) == [B, C]
    r.wait(registry.ENDED_MS)
    r.attach(0xD)
    r.close(0xD)
    assert list(r.broker.sessions.ended) == [0xD]


def test_a_session_that_is_over_is_not_resumed() -> None:
    r = bare(A)
    r.detach(A)
    r.wait(10_000)
    event = r.attach(A, resume=True, attempt=2)
    assert isinstance(event, ev.AttachRefused)
    assert event.code == "ConnectionLostError"


def test_an_older_attempt_does_not_win_a_session_back() -> None:
    r = bare(A)
    r.attach(A, node=2, life=2, resume=True, attempt=5)
    r.command(commands.Attach(A, b"t", False, 1, 1, 1, 1, "", 1000, ()))
    assert r.events == ()
    assert r.broker.sessions[A].node == 2


def test_the_same_attempt_proposed_twice_is_one_attachment() -> None:
    r = BareBroker()
    attach = commands.Attach(A, b"t", False, 1, 1, 1, 1, "", 1000, ())
    first = r.command(attach)
    assert r.command(attach) == first
    assert r.broker.sessions[A].attachment == 1


def test_a_wrong_token_opens_nothing() -> None:
    r = bare(A)
    event = r.attach(A, token=b"other", resume=True, attempt=2)
    assert isinstance(event, ev.AttachRefused)
    assert event.code == "SecurityError"


def test_a_client_id_is_unique_and_free_when_its_connection_is_lost() -> None:
    r = bare(A)
    refused = r.attach(B, client_id="ca")
    assert isinstance(refused, ev.AttachRefused)
    assert refused.code == "InvalidClientIDError"
    r.detach(A)
    assert isinstance(r.attach(B, client_id="ca"), ev.Attached)
    assert A not in r.broker.sessions
    assert isinstance(r.attach(A, client_id="ca", attempt=2), ev.AttachRefused)


def test_a_detach_of_an_earlier_attachment_is_ignored() -> None:
    r = bare(A)
    r.attach(A, resume=True, attempt=2)
    r.command(commands.Detach(A, 1))
    assert not r.broker.sessions[A].detached


def test_a_server_that_falls_silent_loses_its_clients() -> None:
    r = bare(A)
    r.attach(B, node=2, life=2)
    for _ in range(20):
        r.wait(1000)
        r.command(commands.Renew(2, 2))
    assert list(r.broker.sessions) == [B]


def test_a_server_that_starts_anew_has_lost_its_clients() -> None:
    r = bare(A)
    r.command(commands.Renew(1, 2))
    assert r.broker.sessions[A].detached


def test_a_new_leader_renews_all_leases() -> None:
    r = bare(A, B)
    r.detach(A)
    r.stamp += 60_000  # without a leader
    r.new_leader()
    assert list(r.broker.sessions) == [A, B]
    r.wait(9_000)
    assert A in r.broker.sessions
    assert r.broker.sessions[B].detached  # its server has not renewed since
    r.wait(5_000)
    assert list(r.broker.sessions) == []


def test_a_request_asked_again_gets_the_same_answer() -> None:
    r = bare(A)
    request = commands.Request(A, 1, cw.OpenConsumer(1, "topic:t", 10))
    first = r.command(request)
    r.publish(A, "topic:t")
    assert r.command(request) == first
    assert r.command(commands.Request(A, 3, cw.Unsubscribe("x"))) == ()
    assert len(r.broker.sessions[A].consumers) == 1


def test_nothing_is_left_of_a_closed_session() -> None:
    r = bare(A)
    empty = BareBroker()
    empty.attach(B, client_id="cb")
    r.ask(A, cw.CreateTemporary(f"temp-queue:{A:x}.1"))
    r.open(A, 1, f"temp-queue:{A:x}.1")
    r.publish(A, f"temp-queue:{A:x}.1", 3)
    r.open(A, 2, "topic:a.>")
    r.open(A, 3, "queue:q")
    r.publish(A, "topic:a.b")
    r.close(A)
    b = r.broker
    assert (b.sessions, b.queues, b.topics.subscriptions, b.topics.last) == ({}, {}, {}, {})
    assert b.live() == ()


# -- Temporary destinations and producers -------------------------------------------------------


def test_others_send_to_a_temporary_queue_and_only_its_owner_consumes() -> None:
    r = bare(A, B)
    name = f"temp-queue:{A:x}.1"
    assert r.publish(B, name) == 0
    assert r.ask(A, cw.CreateTemporary(name)).code == ""
    assert r.publish(B, name) == 1
    assert r.open(B, 1, name).code == "InvalidDestinationError"
    assert r.ask(B, cw.CreateTemporary(name)).code == "InvalidDestinationError"
    assert r.open(A, 1, name).code == ""
    assert r.ask(A, cw.DeleteTemporary(name)).code == "IllegalStateError"
    r.close_consumer(A, 1)
    assert r.ask(A, cw.DeleteTemporary(name)).code == ""
    assert r.publish(B, name) == 0


def test_a_named_producer_goes_on_in_another_session() -> None:
    r = bare(A, B)
    assert r.ask(A, cw.OpenProducer(1, "p")).value == 0
    r.publish(A, "topic:t", 3, producer=1)
    assert r.ask(B, cw.OpenProducer(1, "p")).code == "IllegalStateError"
    r.detach(A)
    assert r.ask(B, cw.OpenProducer(1, "p")).value == 3
    r.attach(A, resume=True, attempt=2)
    assert r.publish(A, "topic:t", producer=1) == 0
    assert [e.refusal.code for e in r.events if isinstance(e, ev.PackRefused)] == [
        "IllegalStateError"
    ]
    r.entry(Kind.PACK, pack.encode("topic:t", 1, b"", B, 4, 1))
    assert r.accepted
    r.close(B)
    r.wait(producers.RETENTION_MS - 10)
    r.attach(C)
    assert r.ask(C, cw.OpenProducer(1, "p")).value == 4
    r.close(C)
    r.wait(producers.RETENTION_MS)
    r.attach(C)
    r.numbers.clear()
    assert r.ask(C, cw.OpenProducer(1, "p")).value == 0


@pytest.mark.parametrize(
    "body",
    [
        cw.OpenConsumer(1, "topic:t", 0),
        cw.OpenConsumer(1, "topic:t", 1 << 40),
        cw.OpenConsumer(1, "topic:a..b", 1),
        cw.OpenConsumer(1, "queue:a.*", 1),
        cw.OpenConsumer(1, "queue:q", 1, durable="x"),
        cw.OpenConsumer(1, "topic:t", 1, slow="faster"),
        cw.OpenConsumer(1, "topic:t", 1, selector="floor >"),
        cw.OpenConsumer(1, "queue:q", 1, no_local=True),
        cw.CreateTopic("queue:q"),
        cw.CreateTopic("topic:t.*"),
        cw.OpenProducer(0, "p"),
        cw.OpenProducer(1, ""),
        cw.DeleteTemporary("temp-queue:a.9"),
    ],
)
def test_wrong_requests_get_an_error_and_change_nothing(body: cw.Body) -> None:
    r = bare(A)
    before = r.broker.sessions[A].state()[15:]
    result = r.ask(A, body)
    assert result.code
    assert result.text
    assert r.broker.sessions[A].state()[15:] == before


def test_retained_messages_stay_readable() -> None:
    assert Broker(None).live() == ()
    r = BareBroker(Broker(2))
    r.attach(A)
    r.publish(A, "topic:t", 5)
    assert r.broker.live() == ((4, 5),)


def test_a_window_can_be_widened_but_not_narrowed() -> None:
    r = bare(A)
    r.open(A, 1, "queue:q", prefetch=2)
    r.publish(A, "queue:q", 5)
    assert r.ask(A, cw.Widen(1, 4)).code == ""
    assert r.holds(A, 1) == [(1, 4, 1)]
    assert r.ask(A, cw.Widen(1, 3)).code == "ResourceAllocationError"
    assert r.ask(A, cw.Widen(1, 1 << 21)).code == "ResourceAllocationError"
    assert r.ask(A, cw.Widen(9, 100)).code == ""  # closed meanwhile
    r.open(A, 2, "topic:t", prefetch=2)
    r.ask(A, cw.Widen(2, 8))
    assert r.broker.sessions[A].consumers[2].prefetch == 8
