"""The client's side of the protocol, against scripted servers."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.api.protocol import attaching, effects
from antiphon.api.protocol import conversation as conv
from antiphon.api.protocol.attaching import Terms
from antiphon.api.protocol.conversation import Conversation
from antiphon.api.protocol.inbox_items import GroupColumns
from antiphon.api.protocol.outbox import ROOM_BYTES, Batch
from antiphon.api.protocol.packing import GROWING_IN_FLIGHT, LARGE_BYTES, PACKS_IN_FLIGHT
from antiphon.api.protocol.ticket import Ticket
from antiphon.api.protocol.transaction import Transaction
from antiphon.errors import (
    ConnectionLostError,
    IllegalStateError,
    InvalidClientIDError,
    InvalidDestinationError,
    JMSError,
    ResourceAllocationError,
    TransactionRolledBackError,
)
from antiphon.formats import columns, pack
from antiphon.formats import protocol as cw
from antiphon.formats.columns import TEXT, Columns, Outgoing
from antiphon.formats.pack import FULL_BYTES
from antiphon.formats.protocol.refusals import error_of

SESSION = 77
TOKEN = bytes(range(16))
HEARTBEAT_MS = 1000


def text(body: str | bytes) -> Outgoing:
    return Outgoing(TEXT, body if isinstance(body, bytes) else body.encode(), b"", 1)


def a_pack(destination: str, *bodies: str, session: int = 5, sequence: int = 1) -> bytes:
    body, flags = columns.encode([text(b) for b in bodies])
    return pack.encode(destination, len(bodies), body, session, sequence, 0, flags)


def bodies(data: bytes) -> list[str]:
    read = Columns(data)
    return [read.body(i).decode() for i in range(read.count)]


class Talk:
    """A conversation, its clock, and the server's end of it."""

    def __init__(self, **terms: Any) -> None:
        self.now = 0
        self.c = Conversation(SESSION, TOKEN, Random(1), 0, Terms(**terms))
        self.events: list[effects.Event] = []
        self.sent: list[cw.Request] = []

    def step(self, ms: int = 0) -> list[cw.Request]:
        """Let time pass; returns what the client says."""
        self.now += ms
        self.c.tick(self.now)
        said = [cw.decode_request(cw.encode(request)) for request in self.c.flush(self.now)]
        self.sent += said
        for event in self.c.take_events():
            self.events.append(event)
            if isinstance(event, effects.Settled):
                event.ticket.tell()
        return said

    def run_to_deadline(self) -> list[cw.Request]:
        deadline = self.c.next_deadline_ms()
        assert deadline is not None
        return self.step(max(0, deadline - self.now))

    def answer(self, *answers: cw.Answer) -> list[cw.Request]:
        for answer in answers:
            self.c.received(cw.encode(answer), self.now)
        return self.step()

    def dial(self) -> cw.Attach:
        """Wait until it wants a connection, and give it one."""
        for _ in range(10):
            self.run_to_deadline()
            if self.take(effects.Dial):
                break
        self.c.connected(self.now)
        (attach,) = self.step()
        assert isinstance(attach, cw.Attach)
        return attach

    def attach(
        self,
        published: Sequence[tuple[int, int]] = (),
        refused: Sequence[cw.NotPublished] = (),
    ) -> list[cw.Request]:
        """Returns what the client says at once."""
        self.dial()
        return self.answer(
            cw.Attached(SESSION, 1, tuple(published), tuple(refused), HEARTBEAT_MS, cw.PACK_MAX)
        )

    def lose(self) -> None:
        self.c.lost(self.now, "cut by the test")
        self.step()

    def take(self, kind: type[Any]) -> list[Any]:
        """The events of this kind since this was last asked."""
        found = [e for e in self.events if isinstance(e, kind)]
        self.events = [e for e in self.events if not isinstance(e, kind)]
        return found

    def send(self, body: str, destination: str = "topic:a", flags: int = 0) -> Batch:
        return self.c.send(self.c.stream, destination, flags, text(body))

    def open_consumer(self, destination: str = "topic:a", prefetch: int = 100) -> int:
        number = self.c.next_consumer()
        request = self.c.open_consumer(cw.OpenConsumer(number, destination, prefetch))
        self.step()
        self.answer(cw.Result(request.number))
        assert request.done
        return number

    def deliver(self, consumer: int, position: int, *texts: str, deliveries: int = 1) -> list[str]:
        """Returns what of it reaches the application."""
        data = a_pack("topic:a", *texts)
        self.answer(cw.Deliver(consumer, position, 0, deliveries, data))
        found = []
        for event in self.take(effects.Arrived):
            s = event.slice
            found += [s.columns.body(i).decode() for i in range(s.at, s.end)]
            assert s.deliveries == deliveries
        return found


@pytest.fixture
def talk() -> Talk:
    talk = Talk()
    talk.attach()
    return talk


def published_packs(requests: list[cw.Request]) -> list[list[str]]:
    return [bodies(r.pack) for r in requests if isinstance(r, cw.Publish)]


# -- Connecting -----------------------------------------------------------------------------------


def test_it_dials_at_once_and_attaches() -> None:
    talk = Talk(client_id="me", lease_ms=1234)
    talk.step()
    assert talk.take(effects.Dial)
    assert talk.step() == []
    talk.c.connected(0)
    assert talk.step() == [cw.Attach(SESSION, TOKEN, False, 1, "me", 1234, ((0, 1),), ())]
    assert not talk.c.ready.done
    talk.answer(cw.Attached(SESSION, 1, (), (), HEARTBEAT_MS, cw.PACK_MAX))
    assert talk.c.ready.done
    assert talk.c.attached


def test_who_is_let_in_nowhere_is_told_what_became_of_each_server() -> None:
    talk = Talk(connect_ms=12_000)
    talk.step()
    for at, reason in (
        ("a:1", "Connection refused"),
        ("b:2", ""),
        ("c:3", "it closed the connection"),
        ("d:4", ""),
    ):
        while not talk.take(effects.Dial):
            talk.run_to_deadline()
        talk.c.dials(at)
        if at == "a:1":
            talk.c.lost(talk.now, reason)
        elif at == "b:2":
            talk.c.connected(talk.now)
            talk.step(attaching.ATTACH_MS)
        elif at == "c:3":
            talk.c.connected(talk.now)
            talk.c.lost(talk.now, reason)
    talk.step(12_000 - talk.now)
    assert isinstance(talk.c.ready.error, ConnectionLostError)
    assert str(talk.c.ready.error) == (
        "no server took the connection within 12 s: a:1: Connection refused; "
        f"b:2: {attaching.NOT_LET_IN}; c:3: {attaching.NOT_LET_IN} (it closed the connection); "
        "d:4: it does not answer"
    )
    assert talk.c.ready.error.happened == "no"


def test_a_server_that_does_not_answer_is_left_for_another() -> None:
    talk = Talk()
    first = talk.dial()
    assert talk.step(attaching.ATTACH_MS - 1) == []
    talk.step(1)
    assert [e.reason for e in talk.take(effects.HangUp)] == [attaching.NOT_LET_IN]
    second = talk.dial()
    assert (first.attempt, second.attempt) == (1, 2)
    assert not second.resume


def test_an_attempt_that_does_not_end_is_given_up() -> None:
    talk = Talk()
    talk.step()
    talk.step(attaching.DIAL_MS)
    assert talk.take(effects.HangUp)


def test_pauses_between_attempts_grow_and_differ() -> None:
    talk = Talk(connect_ms=10**9)
    pauses = []
    for _ in range(12):
        talk.run_to_deadline()
        assert talk.take(effects.Dial)
        talk.lose()
        deadline = talk.c.next_deadline_ms()
        assert deadline is not None
        pauses.append(deadline - talk.now)
    assert pauses[0] < attaching.REDIAL_MIN_MS
    assert all(attaching.REDIAL_MAX_MS / 2 <= p < attaching.REDIAL_MAX_MS * 1.5 for p in pauses[6:])
    assert len(set(pauses[6:])) > 1
    other = Conversation(SESSION, TOKEN, Random(2), 0, Terms())
    other.tick(0)
    other.lost(0, "")
    assert other.next_deadline_ms() != pauses[0]


def test_without_a_server_it_gives_up_after_the_time_to_connect() -> None:
    talk = Talk(connect_ms=3000)
    while not talk.c.over:
        talk.run_to_deadline()
        if talk.take(effects.Dial):
            talk.c.lost(talk.now, "host:1: refused")
    assert talk.now == 3000
    with pytest.raises(ConnectionLostError, match=r"within 3 s.*host:1: refused") as caught:
        talk.c.ready.outcome()
    assert caught.value.happened == "no"


def test_a_refused_session_is_over() -> None:
    talk = Talk()
    talk.dial()
    talk.answer(cw.Ended("InvalidClientIDError", "in use"))
    assert talk.c.over
    with pytest.raises(InvalidClientIDError, match="in use"):
        talk.c.ready.outcome()
    assert talk.c.next_deadline_ms() is None


def test_it_goes_where_it_is_sent_and_then_anywhere() -> None:
    talk = Talk()
    talk.dial()
    talk.take(effects.Dial)
    talk.answer(cw.Redirect(2, "host:2"))
    assert talk.take(effects.HangUp)
    talk.run_to_deadline()
    assert talk.take(effects.Dial) == [effects.Dial("host:2")]
    talk.lose()
    talk.run_to_deadline()
    assert talk.take(effects.Dial) == [effects.Dial()]


def test_a_session_that_is_kept_for_its_server_is_not_given_up(talk: Talk) -> None:
    sending = talk.send("x")
    talk.step()
    talk.lose()
    while talk.now < 3 * attaching.LEASE_MS:
        talk.dial()
        talk.answer(cw.Redirect(2, "host:2"))
    assert not talk.c.over
    # But nobody says so any more.
    talk.step(attaching.LEASE_MS)
    assert talk.c.over
    assert "server 2 at host:2 alone knows" in str(sending.error)


def test_who_is_new_waits_for_another_server_no_longer_than_it_likes() -> None:
    talk = Talk(connect_ms=1000)
    while not talk.c.over:
        talk.run_to_deadline()
        if talk.take(effects.Dial):
            talk.c.connected(talk.now)
            talk.answer(cw.Redirect(2, "host:2"))
    assert talk.now == 1000
    assert isinstance(talk.c.ready.error, ConnectionLostError)


# -- Packing --------------------------------------------------------------------------------------


def test_a_message_leaves_at_once_and_others_gather_until_an_answer_comes(talk: Talk) -> None:
    for n in range(PACKS_IN_FLIGHT):
        talk.send(str(n))
        assert published_packs(talk.step()) == [[str(n)]]
    for n in range(10, 20):
        talk.send(str(n))
        assert talk.step() == []
    assert published_packs(talk.answer(cw.Published(0, 1))) == [[str(n) for n in range(10, 20)]]
    assert talk.answer(cw.Published(0, 2)) == []


def test_what_could_grow_waits_for_large_packs_and_what_cannot_does_not(talk: Talk) -> None:
    large = "x" * LARGE_BYTES
    for n in range(GROWING_IN_FLIGHT):
        talk.send(large, f"topic:{n}")
        assert len(published_packs(talk.step())) == 1
    talk.send("grows")
    assert talk.step() == []
    talk.send("too", "topic:b")  # so the one before cannot grow any more
    assert published_packs(talk.step()) == [["grows"]]
    assert talk.answer(cw.Published(0, 1)) == []
    assert published_packs(talk.answer(cw.Published(0, 2))) == [["too"]]


def test_a_pack_has_one_destination_and_one_mode(talk: Talk) -> None:
    for body, destination, flags in (
        ("a", "topic:a", 0),
        ("b", "topic:a", 0),
        ("c", "topic:b", 0),
        ("d", "topic:a", 0),
        ("e", "topic:a", pack.NON_PERSISTENT),
    ):
        talk.send(body, destination, flags)
    packs = [r.pack for r in talk.step() if isinstance(r, cw.Publish)]
    assert [bodies(p) for p in packs] == [["a", "b"], ["c"], ["d"], ["e"]]
    headers = [pack.check(p) for p in packs]
    assert [h.sequence for h in headers] == [1, 3, 4, 5]
    assert [h.flags for h in headers] == [0, 0, 0, pack.NON_PERSISTENT]
    assert {h.session for h in headers} == {SESSION}


def test_a_pack_does_not_grow_beyond_its_limit(talk: Talk) -> None:
    large = "x" * (FULL_BYTES // 3)
    for body in ("0", large, large, large, "x" * 2 * FULL_BYTES, "1"):
        talk.send(body)
    said = [*talk.step(), *talk.answer(cw.Published(0, 5))]
    sizes = [[len(b) for b in some] for some in published_packs(said)]
    third = len(large)
    assert sizes == [[1, third, third], [third], [2 * FULL_BYTES], [1]]


def test_a_message_larger_than_the_servers_take_is_refused_and_costs_no_number() -> None:
    talk = Talk()
    talk.dial()
    talk.answer(cw.Attached(SESSION, 1, (), (), HEARTBEAT_MS, 10_000))
    with pytest.raises(ResourceAllocationError, match="the servers take 5904"):
        talk.send("x" * 10_000)
    talk.send("small")
    (publish,) = talk.step()
    assert isinstance(publish, cw.Publish)
    assert pack.check(publish.pack).sequence == 1


def test_senders_wait_while_too_much_is_held(talk: Talk) -> None:
    assert talk.c.room().done
    body = "x" * (ROOM_BYTES // 8)
    while talk.c.room().done:
        talk.send(body)
        talk.step()
    room = talk.c.room()
    last = talk.c.stream.sequence
    assert talk.c.try_send(talk.c.stream, "topic:a", 0, text("x")) is None
    for sequence in range(1, last + 1):
        talk.answer(cw.Published(0, sequence))
        if room.done:
            break
    assert last / 3 < sequence < last
    assert talk.c.room().done


# -- Answers to messages --------------------------------------------------------------------------


def test_answers_settle_all_messages_up_to_a_number(talk: Talk) -> None:
    order: list[int] = []
    batches = []
    for n in range(3):
        batches.append(talk.send(str(n)))
        batches[-1].watch(lambda n=n: order.append(n))
        talk.step()
    talk.answer(cw.Published(0, 2))
    assert [b.done for b in batches] == [True, True, False]
    assert batches[0].outcome() == 0
    talk.answer(cw.Published(0, 2), cw.Published(0, 3))
    assert order == [0, 1, 2]


def test_a_refused_message_has_its_error_and_those_before_it_were_accepted(talk: Talk) -> None:
    batches = []
    for n in range(3):
        batches.append(talk.send(str(n)))
        talk.step()
    talk.answer(cw.NotPublished(0, 2, 2, "InvalidDestinationError", "no such queue"))
    assert [b.done for b in batches] == [True, True, False]
    assert batches[0].error is None
    with pytest.raises(InvalidDestinationError, match="no such queue") as caught:
        batches[1].outcome()
    assert caught.value.happened == "no"
    talk.answer(cw.Published(0, 3))
    assert batches[2].outcome() == 0


def test_an_error_that_nobody_can_look_at_any_more_is_neglected(talk: Talk) -> None:
    looked_at, neglected = talk.send("0"), talk.send("1", "topic:b")
    talk.step()
    talk.answer(
        cw.NotPublished(0, 1, 1, "JMSError", "one"), cw.NotPublished(0, 2, 2, "JMSError", "two")
    )
    talk.take(effects.Settled)
    assert not talk.c.has_neglected
    assert looked_at.error is not None
    looked_at.looked_at = True
    del looked_at, neglected
    assert [str(e) for e in talk.c.take_neglected()] == ["two"]
    assert not talk.c.has_neglected


def test_what_is_unanswered_is_sent_again_as_it_was(talk: Talk) -> None:
    batches = []
    for n in range(PACKS_IN_FLIGHT + 3):
        flags = pack.NON_PERSISTENT * (n % 2)  # so that none can grow
        batches.append(talk.send(str(n), flags=flags))
        talk.step()
    sent = [r.pack for r in talk.sent if isinstance(r, cw.Publish)]
    talk.answer(cw.Published(0, 1))
    sent = [r.pack for r in talk.sent if isinstance(r, cw.Publish)]
    talk.lose()
    attach = talk.dial()
    assert (attach.resume, attach.attempt, attach.sequences) == (True, 2, ((0, 2),))
    refusal = cw.NotPublished(0, 2, 2, "JMSError", "never")
    again = talk.answer(cw.Attached(SESSION, 2, ((0, 3),), (refusal,), HEARTBEAT_MS, cw.PACK_MAX))
    packs = [r.pack for r in again if isinstance(r, cw.Publish)]
    assert sent[3:]
    assert packs[: len(sent) - 3] == sent[3:]
    assert [b.done for b in batches[:4]] == [True, True, True, False]
    assert [b.error is None for b in batches[:4]] == [True, False, True, True]


def test_messages_sent_while_there_is_no_connection_gather(talk: Talk) -> None:
    talk.lose()
    for n in range(100):
        talk.send(str(n))
        assert talk.step() == []
    assert not talk.c.idles
    assert published_packs(talk.attach()) == [[str(n) for n in range(100)]]


def test_a_named_producer_has_a_sequence_of_its_own(talk: Talk) -> None:
    request = talk.c.open_producer("till")
    assert talk.step() == [cw.Control(1, cw.OpenProducer(1, "till"))]
    talk.answer(cw.Result(1, value=41))
    stream = talk.c.opened(request)
    batch = talk.c.send(stream, "queue:q", 0, text("a"))
    own = talk.send("b", "queue:q")
    headers = [pack.check(r.pack) for r in talk.step() if isinstance(r, cw.Publish)]
    assert [(h.producer, h.sequence) for h in headers] == [(1, 42), (0, 1)]
    talk.answer(cw.Published(1, 42))
    assert (batch.done, own.done, stream.settled) == (True, False, 42)
    talk.lose()
    assert talk.dial().sequences == ((0, 1), (1, 43))


# -- Control requests -----------------------------------------------------------------------------


def test_requests_go_one_after_the_other(talk: Talk) -> None:
    one = talk.c.request(cw.Unsubscribe("one"))
    two = talk.c.request(cw.Unsubscribe("two"))
    assert talk.step() == [cw.Control(1, cw.Unsubscribe("one"))]
    said = talk.answer(cw.Result(1, "InvalidDestinationError", "no such thing"))
    assert said == [cw.Control(2, cw.Unsubscribe("two"))]
    with pytest.raises(InvalidDestinationError, match="no such thing"):
        one.outcome()
    assert talk.answer(cw.Result(1)) == []  # again: it changes nothing
    talk.answer(cw.Result(2, value=9))
    assert two.outcome() == 9


def test_a_request_is_made_again_with_the_same_number(talk: Talk) -> None:
    request = talk.c.request(cw.Unsubscribe("one"))
    talk.step()
    talk.lose()
    assert talk.attach() == [cw.Control(1, cw.Unsubscribe("one"))]
    talk.answer(cw.Result(1))
    assert request.done


def test_a_request_waits_until_what_was_acknowledged_before_is_certain(talk: Talk) -> None:
    number = talk.open_consumer()
    talk.deliver(number, 1, "a")
    row = cw.AckRow(number, 0, 1)
    talk.c.acknowledge([row])
    request = talk.c.close_consumer(number)
    later = talk.c.acknowledge([row])
    assert talk.step() == [cw.Ack(1, (row,)), cw.Ack(2, (row,))]
    assert talk.answer(cw.Acked(1)) == [cw.Control(2, cw.CloseConsumer(number))]
    assert not request.done
    assert not later.done


def test_a_request_hurries_the_acknowledgements_that_nobody_waited_for(talk: Talk) -> None:
    row = cw.AckRow(talk.open_consumer(), 0, 5)
    talk.c.acknowledge([row], patient=True)
    assert talk.step() == [cw.Ack(1, (row,), patient=True)]
    talk.c.request(cw.Unsubscribe("mail"))
    assert talk.step() == [cw.Ack(2, ())]
    assert talk.answer(cw.Acked(2)) == [cw.Control(2, cw.Unsubscribe("mail"))]


# -- Transactions ---------------------------------------------------------------------------------


def staged(talk: Talk, transaction: Transaction, *destinations: str) -> None:
    """A message to each of these."""
    for number, destination in enumerate(destinations):
        flags = pack.STAGED
        message = text(f"{destination} {number}")
        batch = talk.c.send(talk.c.stream, destination, flags, message, transaction)
        transaction.add(batch)


def test_a_commit_follows_its_packs_and_waits_until_all_have_left(talk: Talk) -> None:
    transaction = Transaction()
    staged(talk, transaction, *(f"topic:{n}" for n in range(PACKS_IN_FLIGHT + 2)))
    request = talk.c.commit(transaction, ())
    said = talk.step()
    assert [type(r) for r in said] == [cw.Publish] * PACKS_IN_FLIGHT
    assert [type(r) for r in talk.answer(cw.Published(0, 1))] == [cw.Publish]
    said = talk.answer(cw.Published(0, 2))
    assert [type(r) for r in said] == [cw.Publish, cw.Control]
    assert said[1] == cw.Control(1, cw.Commit((), ((0, 1, PACKS_IN_FLIGHT + 2),)))
    assert not request.done
    talk.answer(cw.Result(1, value=1))
    assert request.outcome() == 1


def test_transactions_do_not_share_packs_and_name_only_their_own(talk: Talk) -> None:
    one, two = Transaction(), Transaction()
    talk.c.request(cw.Unsubscribe("x"))  # so that commits wait
    staged(talk, one, "topic:a", "topic:a")
    staged(talk, two, "topic:a")
    talk.send("not in a transaction")
    staged(talk, one, "topic:a", "topic:b")
    assert one.sent() == ((0, 1, 2), (0, 5, 6))
    assert two.sent() == ((0, 3, 3),)
    packs = published_packs(talk.step())
    assert packs == [["topic:a 0", "topic:a 1"], ["topic:a 0"], ["not in a transaction"], packs[3]]


def test_a_commit_is_asked_for_again_behind_what_was_unanswered(talk: Talk) -> None:
    transaction = Transaction()
    staged(talk, transaction, "topic:a", "topic:b")
    request = talk.c.commit(transaction, (), "token", ("handle",))
    commit = cw.Control(1, cw.Commit((), ((0, 1, 2),), "token", ("handle",)))
    assert talk.step()[-1] == commit
    talk.lose()
    said = talk.attach(published=[(0, 1)])
    assert published_packs(said) == [["topic:b 1"]]
    assert said[-1] == commit
    talk.lose()
    assert talk.attach(published=[(0, 2)]) == [commit]
    for _ in range(2):  # a server may say it twice
        talk.answer(cw.Result(1, value=0))
    assert request.outcome() == 0
    assert talk.take(effects.HangUp) == []


def test_a_refused_pack_is_the_commits_business(talk: Talk) -> None:
    transaction = Transaction()
    staged(talk, transaction, "topic:a", "queue:gone")
    request = talk.c.commit(transaction, ())
    talk.step()
    talk.answer(cw.NotPublished(0, 2, 2, "InvalidDestinationError", "it is gone"))
    talk.answer(cw.Result(1, "TransactionRolledBackError", "nothing was committed: it is gone"))
    with pytest.raises(TransactionRolledBackError, match="it is gone"):
        request.outcome()
    del transaction, request
    talk.events.clear()
    gc.collect()
    assert talk.c.take_neglected() == []


def test_what_a_commit_acknowledged_is_done_with_and_otherwise_it_is_not(talk: Talk) -> None:
    number = talk.open_consumer("queue:q")
    assert talk.deliver(number, 1, "a") == ["a"]
    talk.c.commit(Transaction(), [cw.AckRow(number, 1, 1)])
    talk.step()
    talk.answer(cw.Result(2, "TransactionRolledBackError", "no"))
    assert talk.deliver(number, 1, "a") == []  # it is still here
    talk.c.commit(Transaction(), [cw.AckRow(number, 1, 1)])
    talk.step()
    talk.answer(cw.Result(3, value=1))
    assert talk.deliver(number, 1, "a", deliveries=1) == ["a"]  # whoever gave it back


def test_what_is_discarded_or_staged_waits_for_its_packs_too(talk: Talk) -> None:
    one, two = Transaction(), Transaction()
    staged(talk, one, "topic:a")
    staged(talk, two, "topic:b")
    discard, stage = talk.c.discard(one), talk.c.stage(two)
    assert talk.step()[2:] == [cw.Control(1, cw.Discard(((0, 1, 1),)))]
    assert talk.answer(cw.Result(1)) == [cw.Control(2, cw.Stage(((0, 2, 2),)))]
    talk.answer(cw.Result(2, data=b"handle"))
    assert discard.outcome() == 0
    assert (stage.outcome(), stage.data) == (0, b"handle")


@pytest.mark.parametrize(("sent", "happened"), [(True, "unknown"), (False, "no")])
def test_a_commit_of_a_lost_session_may_have_happened_if_it_was_sent(
    talk: Talk, sent: bool, happened: str
) -> None:
    transaction = Transaction()
    staged(talk, transaction, *("topic:a", "topic:b") * (1 if sent else PACKS_IN_FLIGHT))
    request = talk.c.commit(transaction, ())
    talk.step()
    talk.answer(cw.Ended("ConnectionLostError", "lost"))
    with pytest.raises(ConnectionLostError) as error:
        request.outcome()
    assert error.value.happened == happened


# -- Acknowledgements -----------------------------------------------------------------------------


def test_acknowledgements_are_sent_until_they_are_certain(talk: Talk) -> None:
    number = talk.open_consumer()
    row = cw.AckRow(number, 0, 1)
    one, two = talk.c.acknowledge([row]), talk.c.acknowledge([row])
    assert talk.step() == [cw.Ack(1, (row,)), cw.Ack(2, (row,))]
    talk.answer(cw.Acked(1))
    assert (one.done, two.done) == (True, False)
    talk.lose()
    assert talk.attach() == [cw.Ack(2, (row,))]
    talk.answer(cw.Acked(2))
    assert two.done


def test_acknowledgements_that_nobody_waits_for_gather_for_a_while(talk: Talk) -> None:
    talk.c.acks_wait()
    talk.step()
    talk.c.acks_wait()
    talk.step(conv.ACK_MS - 1)
    assert not talk.take(effects.AcksDue)
    assert talk.c.next_deadline_ms() == talk.now + 1
    talk.step(1)
    assert len(talk.take(effects.AcksDue)) == 1
    talk.step(conv.ACK_MS)
    assert not talk.take(effects.AcksDue)


# -- Deliveries -----------------------------------------------------------------------------------


def test_a_topic_delivers_nothing_twice(talk: Talk) -> None:
    number = talk.open_consumer("topic:a")
    assert talk.deliver(number, 5, "a", "b") == ["a", "b"]
    assert talk.deliver(number, 5, "a", "b") == []
    assert talk.deliver(number, 6, "b", "c") == ["c"]
    talk.lose()
    assert talk.dial().seen == (cw.Seen(number, 7, ()),)


def test_a_queue_delivers_nothing_twice_while_it_is_held(talk: Talk) -> None:
    number = talk.open_consumer("queue:a")
    assert talk.deliver(number, 10, "a", "b") == ["a", "b"]
    assert talk.deliver(number, 5, "x", deliveries=2) == ["x"]
    assert talk.deliver(number, 9, "w", "a", "b", "c") == ["w", "c"]
    talk.c.acknowledge([cw.AckRow(number, 10, 11)])
    talk.step()
    talk.lose()
    seen = cw.Seen(number, 0, ((5, 5), (9, 12)))
    assert talk.dial().seen == (seen,)  # not certain yet
    talk.answer(cw.Attached(SESSION, 2, (), (), HEARTBEAT_MS, cw.PACK_MAX), cw.Acked(1))
    talk.lose()
    assert talk.dial().seen == (cw.Seen(number, 0, ((5, 5), (9, 9), (12, 12))),)
    assert talk.deliver(number, 10, "a", deliveries=2) == []  # not attached yet


def test_a_message_that_comes_back_to_a_queue_is_delivered_again(talk: Talk) -> None:
    number = talk.open_consumer("queue:a")
    talk.deliver(number, 1, "a")
    talk.c.acknowledge([cw.AckRow(number, 1, 1)])
    talk.step()
    talk.answer(cw.Acked(1))
    assert talk.deliver(number, 1, "a", deliveries=2) == ["a"]


def test_what_comes_for_a_closed_or_refused_consumer_is_ignored(talk: Talk) -> None:
    number = talk.open_consumer()
    talk.c.close_consumer(number)
    talk.step()
    assert talk.deliver(number, 1, "a") == []
    refused = talk.c.next_consumer()
    talk.c.open_consumer(cw.OpenConsumer(refused, "topic:a", 1))
    talk.answer(cw.Result(2))
    talk.answer(cw.Result(3, "IllegalStateError", "no"))
    assert talk.deliver(refused, 1, "a") == []
    talk.lose()
    assert talk.dial().seen == ()


def test_a_delivery_may_come_before_the_consumer_is_known_to_be_open(talk: Talk) -> None:
    number = talk.c.next_consumer()
    talk.c.open_consumer(cw.OpenConsumer(number, "topic:a", 1))
    talk.step()
    assert talk.deliver(number, 1, "a") == ["a"]


# -- Heartbeats -----------------------------------------------------------------------------------


def test_silence_is_broken_by_a_ping(talk: Talk) -> None:
    assert talk.step(HEARTBEAT_MS - 1) == []
    assert talk.step(1) == [cw.Ping()]
    talk.answer(cw.Pong())
    assert talk.step(HEARTBEAT_MS - 1) == []
    assert talk.step(1) == [cw.Ping()]


def test_a_server_that_says_nothing_is_given_up(talk: Talk) -> None:
    pings = 0
    for _ in range(HEARTBEAT_MS * attaching.HEARTBEATS // 100 - 1):
        talk.send("x")  # the client is not silent itself
        pings += sum(isinstance(r, cw.Ping) for r in talk.step(100))
    assert pings == attaching.HEARTBEATS - 1
    assert not talk.take(effects.HangUp)
    talk.step(100)
    assert [e.reason for e in talk.take(effects.HangUp)] == ["it has fallen silent"]
    talk.attach()
    assert talk.c.attached


# -- The end --------------------------------------------------------------------------------------


def test_parts_of_a_large_answer_are_no_silence() -> None:
    talk = Talk()
    talk.attach()
    for _ in range(3 * attaching.HEARTBEATS):
        talk.c.part_came(talk.now)
        talk.step(HEARTBEAT_MS - 1)
    assert talk.take(effects.HangUp) == []


def test_without_a_server_for_the_lease_the_session_is_lost() -> None:
    talk = Talk(lease_ms=5000)
    talk.attach()
    sent = talk.send("sent")
    talk.step()
    number = talk.open_consumer()
    ack = talk.c.acknowledge([cw.AckRow(number, 0, 1)])
    request = talk.c.request(cw.Unsubscribe("x"))
    talk.step(100)
    talk.lose()
    unsent = talk.send("unsent")
    heard = talk.now - 100
    while not talk.c.over:
        talk.run_to_deadline()
        if talk.take(effects.Dial):
            talk.c.lost(talk.now, "nobody there")
    assert talk.now == heard + 5000
    for ticket, happened in ((sent, "unknown"), (ack, "unknown"), (unsent, "no"), (request, "no")):
        assert isinstance(ticket.error, ConnectionLostError)
        assert ticket.error.happened == happened
    (over,) = talk.take(effects.Over)
    assert "nobody there" in str(over.error)
    with pytest.raises(ConnectionLostError):
        talk.send("more")
    with pytest.raises(ConnectionLostError):
        talk.c.request(cw.Unsubscribe("x"))


def test_a_session_that_a_server_ends_is_over(talk: Talk) -> None:
    batch = talk.send("x")
    room_waits: Ticket = Ticket()
    batch.watch(room_waits.settle)
    talk.step()
    talk.answer(cw.Ended("ConnectionLostError", "another took its client id"))
    assert room_waits.done
    assert isinstance(batch.error, ConnectionLostError)
    assert talk.take(effects.HangUp)
    (over,) = talk.take(effects.Over)
    assert "another took" in str(over.error)
    talk.answer(cw.Published(0, 1))  # too late, and no matter
    assert talk.step(10**6) == []


def test_a_refusal_by_the_server_ends_the_session(talk: Talk) -> None:
    talk.answer(cw.Refused("nonsense"))
    with pytest.raises(IllegalStateError, match="nonsense"):
        talk.send("x")


@pytest.mark.parametrize("last_word", [cw.Result(1), cw.Ended("", "")])
def test_closing(talk: Talk, last_word: cw.Answer) -> None:
    close = talk.c.request(cw.CloseSession())
    assert talk.step() == [cw.Control(1, cw.CloseSession())]
    talk.answer(last_word)
    assert close.done
    assert close.error is None
    assert [e.error for e in talk.take(effects.Over)] == [None]
    with pytest.raises(IllegalStateError, match="closed"):
        talk.send("x")


def test_a_connection_lost_while_closing(talk: Talk) -> None:
    close = talk.c.request(cw.CloseSession())
    talk.step()
    talk.lose()
    talk.dial()
    talk.answer(cw.Ended("ConnectionLostError", "there is no such session"))
    assert close.done
    assert close.error is None
    assert [e.error for e in talk.take(effects.Over)] == [None]


def test_an_attempt_that_cannot_succeed_fails_at_once() -> None:
    talk = Talk()
    talk.step()
    talk.c.fail(IllegalStateError("the folder is in use"))
    talk.step()
    with pytest.raises(IllegalStateError, match="in use"):
        talk.c.ready.outcome()


def test_abandoning_tells_everybody(talk: Talk) -> None:
    batch = talk.send("x")
    talk.step()
    talk.c.abandon()
    talk.step()
    assert isinstance(batch.error, IllegalStateError)
    assert batch.error.happened == "unknown"
    assert talk.take(effects.HangUp)


# -- Servers that do not keep to the protocol -----------------------------------------------------


@pytest.mark.parametrize(
    "answer",
    [
        cw.Published(0, 2),
        cw.Published(7, 1),
        cw.NotPublished(0, 1, 9, "JMSError", ""),
        cw.Result(2),
        cw.Acked(1),
        cw.Attached(SESSION, 1, (), (), HEARTBEAT_MS, cw.PACK_MAX),
        cw.Deliver(1, 1, 0, 1, b"no pack"),
        cw.Deliver(1, 0, 0, 1, a_pack("topic:a", "x")),
        cw.Deliver(1, 1, 0, 0, a_pack("topic:a", "x")),
        cw.Delivered(1, 1, b""),
        cw.Asked(),
    ],
)
def test_nonsense_ends_the_connection_and_not_the_session(talk: Talk, answer: cw.Answer) -> None:
    talk.open_consumer()
    talk.send("x")
    talk.step()
    talk.answer(answer)
    assert "protocol" in talk.take(effects.HangUp)[0].reason
    assert published_packs(talk.attach()) == [["x"]]


def test_an_attachment_to_something_else_ends_the_connection() -> None:
    talk = Talk()
    for attached in (
        cw.Attached(SESSION + 1, 1, (), (), HEARTBEAT_MS, cw.PACK_MAX),
        cw.Attached(SESSION, 1, (), (), 0, cw.PACK_MAX),
    ):
        talk.dial()
        talk.answer(attached)
        assert talk.take(effects.HangUp)


_small = st.integers(0, 5)
_answers = st.one_of(
    st.builds(cw.Published, _small, _small),
    st.builds(
        cw.NotPublished, _small, _small, _small, st.sampled_from(["", "JMSError"]), st.just("")
    ),
    st.builds(
        cw.Attached,
        st.sampled_from([SESSION, 1]),
        _small,
        st.lists(st.tuples(_small, _small), max_size=2).map(tuple),
        st.just(()),
        _small,
        st.just(cw.PACK_MAX),
    ),
    st.builds(cw.Result, _small, st.sampled_from(["", "JMSError", "print"])),
    st.builds(cw.Acked, _small),
    st.builds(
        cw.Deliver,
        _small,
        _small,
        _small,
        _small,
        st.sampled_from([b"", a_pack("topic:a", "x"), a_pack("queue:a", "x", "y")]),
    ),
    st.just(cw.Pong()),
    st.builds(cw.Ended, st.sampled_from(["", "JournalDamagedError", "x"]), st.just("over")),
    st.builds(cw.Refused, st.just("no")),
).map(cw.encode)
_steps = st.lists(
    st.one_of(
        _answers, st.binary(max_size=20), st.sampled_from(["tick", "lose", "connect", "use"])
    ),
    max_size=40,
)


@given(_steps)
def test_whatever_a_server_says_nothing_raises_and_all_tickets_are_settled(
    steps: list[Any],
) -> None:
    talk = Talk()
    tickets: list[Ticket] = []
    told: list[Ticket] = []
    for step in steps:
        if isinstance(step, bytes):
            talk.c.received(step, talk.now)
        elif step == "tick":
            talk.run_to_deadline() if not talk.c.over else talk.step(1)
        elif step == "lose":
            talk.c.lost(talk.now, "cut")
        elif step == "connect":
            talk.c.connected(talk.now)
        elif not talk.c.over:
            number = talk.c.next_consumer()
            tickets += [
                talk.send("x"),
                talk.c.open_consumer(cw.OpenConsumer(number, "queue:a", 10)),
                talk.c.acknowledge([cw.AckRow(number, 1, 1)]),
            ]
            for ticket in tickets[-3:]:
                ticket.watch(lambda t=ticket: told.append(t))
        talk.step()
    talk.c.abandon()
    talk.step()
    assert all(ticket.done for ticket in tickets)
    assert Counter(map(id, told)) == Counter(map(id, tickets))


# -- Against a server that forgets connections ----------------------------------------------------


class Server:
    """Accepts packs as the broker does, and loses connections and answers at random."""

    def __init__(self, chance: Random) -> None:
        self.chance = chance
        self.last = 0
        self.accepted: list[str] = []
        self.refused: list[cw.NotPublished] = []
        self.results: dict[int, int] = {}
        self.acks: list[int] = []

    def take(self, request: cw.Request) -> list[cw.Answer]:
        if isinstance(request, cw.Attach):
            next_ = dict(request.sequences)[0]
            assert next_ - 1 <= self.last
            refused = tuple(self.refused[-256:])
            return [cw.Attached(SESSION, 1, ((0, self.last),), refused, HEARTBEAT_MS, cw.PACK_MAX)]
        if isinstance(request, cw.Publish):
            return self.publish(request.pack)
        if isinstance(request, cw.Control):
            self.results.setdefault(request.number, len(self.results) + 1)
            return [cw.Result(request.number, value=self.results[request.number])]
        if isinstance(request, cw.Ack):
            self.acks.append(request.number)
            return [cw.Acked(request.number)]
        return [cw.Pong()]

    def publish(self, data: bytes) -> list[cw.Answer]:
        header = pack.check(data)
        if header.sequence == self.last + 1:
            self.last = header.last
            if self.chance.random() < 0.1:
                refusal = cw.NotPublished(0, header.sequence, header.last, "JMSError", "no")
                self.refused.append(refusal)
                return [refusal]
            self.accepted += bodies(data)
        return [cw.Published(0, self.last)]


@pytest.mark.parametrize("seed", range(60))
def test_each_message_is_accepted_once_and_told_the_truth(seed: int) -> None:
    chance = Random(seed)
    server = Server(chance)
    talk = Talk(lease_ms=10**9, connect_ms=10**9)
    sent: list[tuple[str, Batch]] = []
    requests: list[conv.Request] = []
    told: list[int] = []
    answers: list[cw.Answer] = []
    for turn in range(500):
        said = talk.step(chance.randrange(50))
        if talk.take(effects.Dial):
            talk.c.connected(talk.now)
        if talk.take(effects.HangUp):
            answers.clear()
        for request in said:
            answers += server.take(request)
        while answers and chance.random() < 0.7:
            talk.c.received(cw.encode(answers.pop(0)), talk.now)
        if turn < 300 and chance.random() < 0.05:
            answers.clear()
            talk.c.lost(talk.now, "cut")
        if turn < 200:
            for _ in range(chance.randrange(4)):
                n = len(sent)
                batch = talk.send(str(n), chance.choice(["topic:a", "topic:b"]))
                batch.watch(lambda n=n: told.append(n))
                sent.append((str(n), batch))
            if chance.random() < 0.1:
                requests.append(talk.c.request(cw.Unsubscribe(str(turn))))
                talk.c.acknowledge([cw.AckRow(1, 0, 1)])
    assert all(batch.done for _, batch in sent)
    assert server.accepted == [body for body, batch in sent if batch.error is None]
    assert told == sorted(told)
    assert len(told) == len(sent)
    assert [request.outcome() for request in requests] == [
        server.results[request.number] for request in requests
    ]
    assert sorted(set(server.acks)) == list(range(1, len(requests) + 1))


def test_an_unknown_error_of_a_newer_server_is_an_error_all_the_same() -> None:
    for code in ("", "NewError", "print", "JMSError", "JournalDamagedError", "__name__"):
        error = error_of(code, "text")
        assert type(error) is JMSError
        assert str(error) == (f"{code}: text" if code not in ("", "JMSError") else "text")
        assert error.happened == "unknown"
    assert error_of("IllegalStateError", "text").happened == "no"


# -- Groups ---------------------------------------------------------------------------------------


def join(talk: Talk, name: str = "a") -> int:
    number = talk.c.next_consumer()
    request = talk.c.join(cw.Join(number, "topic:g", 100, name))
    talk.step()
    data = msgspec.msgpack.encode((name, "{}", (name,), False))
    talk.answer(cw.Result(request.number, value=1, data=data))
    assert (request.value, request.data) == (1, data)
    return number


def view(serial: int, position: int = 0) -> cw.GroupEvent:
    return cw.GroupEvent(serial, position, cw.VIEW, serial, ("a",))


def test_group_events_come_in_order_with_messages_and_once(talk: Talk) -> None:
    member = join(talk)
    talk.answer(
        cw.Happened(member, view(1)),
        cw.Deliver(member, 5, 0, 1, a_pack("topic:g", "x"), 1),
        cw.Happened(member, view(2, 5)),
        cw.Happened(member, view(1)),
        cw.Happened(member, view(2, 5)),
    )
    found = [e for e in talk.events if isinstance(e, effects.Arrived | effects.Occurred)]
    assert [type(e).__name__ for e in found] == ["Occurred", "Arrived", "Occurred"]
    assert isinstance(found[1], effects.Arrived)
    assert isinstance(found[1].slice.columns, GroupColumns)
    assert found[1].slice.columns.view_id == 1


def test_who_resumes_says_which_events_it_has(talk: Talk) -> None:
    member = join(talk)
    talk.answer(cw.Happened(member, view(1)), cw.Happened(member, view(2)))
    talk.lose()
    assert talk.dial().seen == (cw.Seen(member, 0, (), 2),)


def test_events_for_who_is_no_member_are_a_mistake_of_the_server(talk: Talk) -> None:
    talk.answer(cw.Happened(99, view(1)))  # closed meanwhile, perhaps
    assert talk.c.attached
    talk.answer(cw.Happened(talk.open_consumer("queue:q"), view(1)))
    assert not talk.c.attached


def test_a_consumer_that_ended_is_dropped_once(talk: Talk) -> None:
    member = join(talk)
    ended = cw.ConsumerEnded(member, "IllegalStateError", "somebody has its place")
    talk.answer(ended, ended)
    (dropped,) = talk.take(effects.Dropped)
    assert isinstance(dropped.error, IllegalStateError)
    assert talk.deliver(member, 1, "x") == []


def test_who_is_not_known_yet_has_not_ended(talk: Talk) -> None:
    number = talk.c.next_consumer()
    request = talk.c.join(cw.Join(number, "topic:g", 100, "a"))
    talk.step()
    talk.lose()
    talk.attach()
    talk.answer(cw.ConsumerEnded(number, "IllegalStateError", "not known"))
    assert talk.take(effects.Dropped) == []
    data = msgspec.msgpack.encode(("a", "{}", ("a",), False))
    talk.answer(cw.Result(request.number, value=1, data=data))
    talk.answer(cw.Happened(number, view(1)))
    assert len(talk.take(effects.Occurred)) == 1


def test_leaving_and_failing_are_said(talk: Talk) -> None:
    one, two = join(talk, "a"), join(talk, "b")
    left = talk.c.leave(one)
    talk.step()
    talk.answer(cw.Result(left.number))
    talk.c.close_consumer(two, failed=True)
    talk.step()
    bodies = [m.body for m in talk.sent if isinstance(m, cw.Control)][-2:]
    assert bodies == [cw.Leave(one), cw.CloseConsumer(two, (), True)]
