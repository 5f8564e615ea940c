"""Packs that are stored before they are visible: committed, staged, discarded, delayed."""

from __future__ import annotations

from typing import Any

import pytest

from antiphon.broker.machine import events as ev
from antiphon.broker.machine import pending_packs, transactions
from antiphon.broker.machine.machine import Broker
from antiphon.formats import columns, commands, pack
from antiphon.formats import protocol as cw
from antiphon.formats.columns import PLAIN, Extra, Outgoing
from antiphon.formats.entry import Kind
from tests.broker.support.bare_broker import BareBroker

A, B = 1, 2
DAY_MS = 24 * 3600 * 1000


def with_sessions(*more: int) -> BareBroker:
    bare = BareBroker()
    for session in (A, B, *more):
        bare.attach(session, lease_ms=DAY_MS)
    return bare


def accepted(bare: BareBroker) -> list[tuple[str, int, int, int]]:
    """Destination, first position, count, and the entry that has the pack; of the last entry."""
    return [(a.destination, a.position, a.count, a.source) for a in bare.accepted]


def restarted(bare: BareBroker) -> None:
    """The replica goes on from a snapshot of its state."""
    chunks = bare.snapshot()
    bare.broker = Broker()
    bare.broker.restore(iter(chunks))
    assert bare.snapshot() == chunks


# -- Commit ----------------------------------------------------------------------------------------


def test_nothing_is_visible_before_the_commit_and_then_everything_is_at_once() -> None:
    bare = with_sessions()
    bare.open(B, 1, "queue:q")
    bare.open(B, 2, "topic:t")
    first = bare.stage(A, "queue:q", PLAIN, PLAIN)
    entry = len(bare.entries)
    second = bare.stage(A, "topic:t")
    assert bare.publish(B, "topic:other") == 1  # takes no notice of them
    assert (bare.holds(B, 1), bare.broker.parked()) == ([], (entry, entry + 1))
    assert bare.commit(A, first, second).value == 1
    assert accepted(bare) == [("queue:q", 2, 2, entry), ("topic:t", 4, 1, entry + 1)]
    assert bare.holds(B, 1) == [(2, 3, 1)]
    assert bare.broker.topics.last["topic:t"] == 4
    assert bare.broker.parked() == ()
    assert bare.broker.pending.count == 0


def test_a_commit_acknowledges_what_was_received() -> None:
    bare = with_sessions()
    bare.open(A, 1, "queue:q")
    bare.open(A, 2, "topic:t", durable="")
    bare.publish(B, "queue:q", 3)
    bare.publish(B, "topic:t", 2)
    rows = (cw.AckRow(1, 1, 2), cw.AckRow(2, 0, 5))
    assert bare.commit(A, bare.stage(A, "queue:r"), rows=rows).code == ""
    assert bare.holds(A, 1) == [(3, 3, 1)]
    assert bare.subscription(A, 2).floor == 5
    assert [d for d, *_ in accepted(bare)] == ["queue:r"]


def test_a_commit_is_refused_if_another_consumer_gets_what_was_received() -> None:
    """The consumer of a durable subscription was closed in the transaction, and opened again: what
    the first one received comes to the second one. Committed, it would be handled twice."""
    bare = BareBroker()
    bare.attach(A, client_id="c")
    bare.open(A, 1, "topic:t", durable="d")
    bare.publish(A, "topic:t", 2)
    bare.close_consumer(A, 1, cw.Kept(1, 1, 1, 1))
    bare.open(A, 2, "topic:t", durable="d")
    result = bare.commit(A, bare.stage(A, "queue:q"), rows=(cw.AckRow(1, 0, 1),))
    assert result.code == "TransactionRolledBackError"
    assert "goes to the consumer that was opened since then" in result.text
    assert (bare.accepted, bare.broker.pending.count) == ([], 0)
    # The second one has handled it; what the first one had is part of that.
    rows = (cw.AckRow(2, 0, 2), cw.AckRow(1, 0, 1))
    assert bare.commit(A, rows=rows[:1]).code == ""
    assert bare.commit(A, rows=rows).code == ""


def test_what_a_commit_gives_up_goes_to_the_dead_letters() -> None:
    bare = with_sessions()
    bare.open(A, 1, "queue:q")
    bare.publish(B, "queue:q", 2)
    bare.commit(A, rows=(cw.AckRow(1, 1, 1, kind=cw.DEAD, reason="bad"), cw.AckRow(1, 2, 2)))
    assert bare.holds(A, 1) == []
    assert list(bare.broker.queues["queue:DLQ"].reasons) == [(1, 1, "bad")]


def test_two_transactions_of_a_session_have_nothing_to_do_with_each_other() -> None:
    bare = with_sessions()
    one, two = bare.stage(A, "queue:q"), bare.stage(A, "queue:r", PLAIN, PLAIN)
    three = bare.stage(A, "queue:q")
    assert bare.commit(A, two).value == 1
    assert [d for d, *_ in accepted(bare)] == ["queue:r"]
    assert bare.commit(A, one, three).value == 1
    assert [(d, count) for d, _, count, _ in accepted(bare)] == [("queue:q", 1), ("queue:q", 1)]


def test_a_range_may_be_of_several_packs_of_several_producers() -> None:
    bare = with_sessions()
    bare.ask(A, cw.OpenProducer(1, "p"))
    producer, first, _ = bare.stage(A, "queue:q")
    *_, last = bare.stage(A, "queue:r", PLAIN, PLAIN)
    named = pack.encode("queue:s", 2, b"", A, 1, 1, pack.STAGED)
    bare.entry(Kind.PACK, named)
    bare.commit(A, (producer, first, last), (1, 1, 2))
    assert [d for d, *_ in accepted(bare)] == ["queue:q", "queue:r", "queue:s"]


def test_a_commit_that_is_asked_for_again_is_not_done_again() -> None:
    bare = with_sessions()
    sent = bare.stage(A, "queue:q")
    body = cw.Commit((), (sent,))
    assert bare.ask(A, body).value == 1
    for _ in range(2):
        (answered,) = bare.command(commands.Request(A, 1, body))
        assert isinstance(answered, ev.Answered)
        assert answered.result.value == 1
        assert accepted(bare) == []


@pytest.mark.parametrize(
    "body",
    [cw.Commit((), ((0, 1, 2),)), cw.Stage(((0, 1, 2),)), cw.Discard(((0, 1, 2),))],
    ids=lambda body: type(body).__name__,
)
def test_what_was_ordered_before_its_packs_is_done_when_it_comes_behind_them(body: Any) -> None:
    bare = with_sessions()
    request = commands.Request(A, 1, body)
    assert bare.command(request) == (ev.Early(A, 1),)
    bare.stage(A, "queue:q")
    assert bare.command(request) == (ev.Early(A, 1),)
    bare.stage(A, "queue:q")
    (answered,) = (e for e in bare.command(request) if isinstance(e, ev.Answered))
    assert answered.result.code == ""


# -- It cannot be committed ------------------------------------------------------------------------


def check_rolled_back(bare: BareBroker, result: cw.Result, why: str) -> None:
    assert (result.code, accepted(bare)) == ("TransactionRolledBackError", [])
    assert why in result.text
    assert bare.broker.sessions[A].staged == {}


def test_with_one_pack_missing_nothing_happens() -> None:
    bare = with_sessions()
    bare.open(A, 1, "queue:q")
    bare.publish(B, "queue:q")
    good = bare.stage(A, "queue:r")
    refused = bare.stage(A, "topic:a.*")
    rows = (cw.AckRow(1, 1, 1),)
    check_rolled_back(bare, bare.commit(A, good, refused, rows=rows, token="t"), "wildcard")
    assert bare.holds(A, 1) == [(1, 1, 1)]
    assert bare.broker.pending.count == 0
    assert bare.commit(A, token="t").value == 1  # it is not known


def test_what_was_never_staged_is_not_committed() -> None:
    bare = with_sessions()
    bare.publish(A, "queue:q", 2)
    result = bare.commit(A, (0, 1, 2))
    check_rolled_back(bare, result, "message 1 of this transaction is not here")


def test_what_is_for_a_temporary_destination_that_has_ended_is_dropped() -> None:
    """However early it has ended; the rest of the transaction counts."""
    bare = with_sessions()
    reply = "temp-queue:2.1"
    bare.ask(B, cw.CreateTemporary(reply))
    one, two = bare.stage(A, "queue:q"), bare.stage(A, reply)
    delayed = bare.stage(A, reply, Extra(delivery_delay=100), flags=pack.DELAYED)
    bare.ask(B, cw.DeleteTemporary(reply))
    late = bare.stage(A, reply, Extra(), Extra())
    assert not any(isinstance(event, ev.PackRefused) for event in bare.events)
    assert bare.commit(A, one, two, delayed, late).value == 1
    assert bare.broker.queues.keys() == {"queue:q"}
    bare.wait(200)
    assert (bare.broker.position, bare.broker.pending.count, bare.broker.dropped) == (
        1,
        0,
        4,
    )
    bare.publish(A, reply)  # whoever waits for the answer is told
    assert isinstance(bare.events[-1], ev.PackRefused)
    check_rolled_back(bare, bare.commit(A, bare.stage(A, "temp-queue:nobody's")), "nobody's")


def test_too_many_packs_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pending_packs, "PACKS_MAX", 2)
    bare = with_sessions()
    one, two, three = (bare.stage(A, "queue:q") for _ in range(3))
    assert isinstance(bare.events[-1], ev.PackRefused)
    check_rolled_back(bare, bare.commit(A, one, two, three), "2 packs wait")
    again = [bare.stage(A, "queue:q") for _ in range(2)]
    assert bare.commit(A, *again).value == 1


def test_a_pack_that_is_listed_twice_is_sent_once() -> None:
    bare = with_sessions()
    sent = bare.stage(A, "queue:q", Extra(delivery_delay=10))
    assert bare.commit(A, sent, sent).value == 1
    assert bare.broker.pending.count == 1
    bare.wait(100)
    assert (bare.broker.position, bare.broker.pending.count) == (1, 0)
    (_, handle) = (bare.stage(A, "queue:q"), bare.ask(A, cw.Stage((sent, sent))))
    assert handle.code == "TransactionRolledBackError"


def test_a_client_cannot_choose_its_messages_with_a_commit() -> None:
    bare = with_sessions()
    bare.open(A, 1, "queue:q", selector="a = 1")
    bare.publish(B, "queue:q", 3)
    rows = (cw.AckRow(1, 1, 3, kind=cw.CLAIM),)
    check_rolled_back(bare, bare.commit(A, rows=rows), "only servers choose")
    assert bare.holds(A, 1) == []


# -- Tokens ----------------------------------------------------------------------------------------


def test_a_second_commit_with_a_token_sends_nothing_and_acknowledges_all_the_same() -> None:
    bare = with_sessions()
    bare.open(B, 1, "queue:q")
    bare.publish(A, "queue:q")
    assert bare.commit(A, bare.stage(A, "queue:r"), token="batch 7").value == 1
    restarted(bare)
    again = bare.stage(B, "queue:r")
    assert bare.commit(B, again, rows=(cw.AckRow(1, 1, 1),), token="batch 7").value == 0
    assert (accepted(bare), bare.holds(B, 1), bare.broker.pending.count) == ([], [], 0)
    assert bare.commit(B, bare.stage(B, "queue:r"), token="batch 8").value == 1


def test_a_token_is_remembered_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pending_packs, "TOKENS_MAX", 3)
    bare = with_sessions()
    for token in "abcde":
        assert bare.commit(A, token=token).value == 1
    assert [bare.commit(A, token=token).value for token in "edcb"] == [0, 0, 0, 1]
    bare.stamp += transactions.TOKEN_RETENTION_MS
    bare.new_leader()  # so that the sessions live
    assert bare.commit(A, token="b").value == 1
    assert list(bare.broker.pending.tokens) == ["b"]


def test_a_token_that_is_too_long_is_refused() -> None:
    bare = with_sessions()
    result = bare.commit(A, bare.stage(A, "queue:q"), token="x" * 2000)
    check_rolled_back(bare, result, "at most 1024 characters")


# -- Handles ---------------------------------------------------------------------------------------


def handle_of(bare: BareBroker, *sent: cw.Sent, session: int = A) -> str:
    result = bare.ask(session, cw.Stage(sent))
    assert result.code == ""
    return result.data.decode()


def test_what_is_staged_is_committed_by_any_session_and_outlives_its_own() -> None:
    bare = with_sessions()
    one = handle_of(bare, bare.stage(A, "queue:q"), bare.stage(A, "queue:r"))
    two = handle_of(bare, bare.stage(A, "queue:s"))
    other = handle_of(bare, bare.stage(A, "queue:t"))
    bare.close(A)
    restarted(bare)
    own = bare.stage(B, "queue:own")
    assert bare.commit(B, own, staged=(two, one, two)).value == 1
    sent = [d for d, *_ in accepted(bare)]
    assert sent == ["queue:own", "queue:s", "queue:q", "queue:r"]
    assert list(bare.broker.pending.staged) == [other]
    assert bare.broker.pending.count == 1


def test_a_handle_is_committed_once() -> None:
    bare = with_sessions()
    handle, other = (
        handle_of(bare, bare.stage(A, "queue:q")),
        handle_of(bare, bare.stage(A, "queue:r")),
    )
    assert bare.commit(B, staged=(handle,)).value == 1
    own = bare.stage(A, "queue:own")
    result = bare.commit(A, own, staged=(other, handle))
    check_rolled_back(bare, result, f"nothing is staged as {handle!r}")
    assert list(bare.broker.pending.staged) == [other]  # it can still be committed
    assert bare.broker.pending.count == 1


def test_with_a_token_that_is_known_what_was_staged_is_dropped() -> None:
    bare = with_sessions()
    bare.commit(A, token="t")
    handle = handle_of(bare, bare.stage(A, "queue:q"))
    assert bare.commit(B, token="t", staged=(handle, "gone")).value == 0
    assert (bare.broker.pending.staged, bare.broker.pending.count) == ({}, 0)


def test_what_nobody_commits_is_forgotten() -> None:
    bare = with_sessions()
    handle_of(bare, bare.stage(A, "queue:q"))
    restarted(bare)
    bare.wait(transactions.STAGED_RETENTION_MS - 10_000)
    assert len(bare.broker.pending.staged) == 1
    bare.wait(20_000)
    assert (
        bare.broker.pending.staged,
        bare.broker.pending.count,
        bare.broker.parked(),
    ) == ({}, 0, ())


def test_what_cannot_be_staged_is_forgotten() -> None:
    bare = with_sessions()
    good, refused = bare.stage(A, "queue:q"), bare.stage(A, "topic:a.*")
    result = bare.ask(A, cw.Stage((good, refused)))
    assert result.code == "TransactionRolledBackError"
    assert (bare.broker.pending.count, bare.broker.pending.staged) == (0, {})


def test_a_session_of_the_same_number_does_not_stage_under_the_same_handle() -> None:
    bare = with_sessions()
    first = handle_of(bare, bare.stage(A, "queue:q"))
    bare.close(A)
    bare.attach(A, attempt=2)
    bare.numbers.clear()
    bare.sequences.clear()
    assert handle_of(bare, bare.stage(A, "queue:q")) != first
    assert bare.broker.pending.count == len(bare.broker.parked()) == 2


# -- The end of a transaction that is not committed ------------------------------------------------


def test_what_is_discarded_is_gone_and_nothing_else() -> None:
    bare = with_sessions()
    one, two = bare.stage(A, "queue:q"), bare.stage(A, "queue:r")
    assert bare.ask(A, cw.Discard((one,))).code == ""
    assert bare.broker.pending.count == len(bare.broker.parked()) == 1
    assert bare.commit(A, two).value == 1
    check_rolled_back(bare, bare.commit(A, one), "not here")


@pytest.mark.parametrize("how", ["closed", "lost"])
def test_with_its_session_what_is_not_committed_is_gone(how: str) -> None:
    bare = BareBroker()
    bare.attach(A)
    bare.attach(B, lease_ms=DAY_MS)
    bare.stage(A, "queue:q")
    bare.stage(B, "queue:q")
    if how == "closed":
        bare.close(A)
    else:
        bare.detach(A)
        bare.wait(20_000)
    assert A not in bare.broker.sessions
    assert bare.broker.pending.count == len(bare.broker.parked()) == 1


def test_a_session_that_moves_keeps_what_it_has_staged() -> None:
    bare = with_sessions()
    sent = bare.stage(A, "queue:q")
    bare.detach(A)
    restarted(bare)
    bare.attach(A, node=2, attempt=2, resume=True)
    assert bare.commit(A, sent).value == 1
    assert [d for d, *_ in accepted(bare)] == ["queue:q"]


# -- Delay -----------------------------------------------------------------------------------------


def test_a_delayed_message_is_visible_when_its_time_has_come() -> None:
    bare = with_sessions()
    bare.open(B, 1, "queue:q")
    assert bare.publish_each(A, "queue:q", Extra(delivery_delay=500)) == 0
    entry = len(bare.entries)
    assert ev.Taken(A, 0) in bare.events  # its sender is answered
    restarted(bare)
    bare.wait(499)
    assert (bare.holds(B, 1), bare.broker.parked()) == ([], (entry,))
    bare.wait(10)
    assert bare.holds(B, 1) == [(1, 1, 1)]
    assert accepted(bare) == [("queue:q", 1, 1, entry)]
    assert bare.broker.pending.count == 0


def test_delayed_messages_become_visible_in_the_order_of_their_times() -> None:
    bare = with_sessions()
    for delay in (300, 100, 200, 100):
        bare.publish_each(A, "queue:q", Extra(delivery_delay=delay))
    bare.stamp += 1000  # no tick came in time
    bare.publish(A, "queue:q")
    begun = len(bare.entries) - 5
    sources = [a.source and a.source - begun for a in bare.accepted]
    assert sources == [2, 4, 3, 1, 0]


def test_the_delay_of_a_transaction_begins_with_its_commit() -> None:
    bare = with_sessions()
    late, now = bare.stage(A, "queue:q", Extra(delivery_delay=500)), bare.stage(A, "queue:r")
    bare.wait(1000)
    assert bare.commit(A, late, now).value == 1
    assert [d for d, *_ in accepted(bare)] == ["queue:r"]
    bare.close(A)  # it is sent for good
    bare.wait(600)
    assert [d for d, *_ in accepted(bare)] == ["queue:q"]


def test_a_time_to_live_counts_from_the_sending_and_the_delay_is_part_of_it() -> None:
    bare = with_sessions()
    bare.publish_each(A, "queue:q", Extra(time_to_live=500, delivery_delay=400))
    bare.publish_each(A, "queue:dies", Extra(time_to_live=100, delivery_delay=400))
    bare.wait(450)
    assert bare.broker.queues["queue:q"].count == 1
    assert "queue:dies" not in bare.broker.queues
    bare.wait(100)
    assert bare.broker.queues == {}


def test_a_delayed_message_to_a_destination_that_is_gone_is_gone_too() -> None:
    bare = with_sessions()
    bare.ask(B, cw.CreateTemporary("temp-queue:2.1"))
    bare.publish_each(A, "temp-queue:2.1", Extra(delivery_delay=500))
    bare.close(B)
    bare.wait(1000)
    assert (bare.broker.position, bare.broker.pending.count, bare.broker.queues) == (
        0,
        0,
        {},
    )


# -- Messages for groups ---------------------------------------------------------------------------


def removal(**more: Any) -> Extra:
    return Extra(properties={"JMS_remove": "b"}, **more)


def with_group() -> BareBroker:
    bare = with_sessions()
    bare.ask(B, cw.Join(1, "topic:g", 100, "b"))
    return bare


def test_a_removal_in_a_transaction_is_done_with_its_commit() -> None:
    bare = with_group()
    sent = bare.stage(A, "topic:g", removal(), flags=pack.CONTROL)
    restarted(bare)
    assert list(bare.broker.groups["topic:g"].members) == ["b"]
    assert bare.commit(A, sent).value == 1
    assert (list(bare.broker.groups["topic:g"].members), accepted(bare)) == ([], [])


def test_a_removal_with_a_delay_is_done_later_and_not_delivered() -> None:
    bare = with_group()
    bare.publish_each(A, "topic:g", removal(delivery_delay=500), flags=pack.CONTROL)
    sent = bare.stage(A, "topic:g", removal(delivery_delay=900), flags=pack.CONTROL)
    bare.commit(A, sent)
    assert list(bare.broker.groups["topic:g"].members) == ["b"]
    bare.wait(600)
    assert list(bare.broker.groups["topic:g"].members) == []
    bare.ask(B, cw.Join(2, "topic:g", 100, "b"))
    bare.wait(600)
    assert list(bare.broker.groups["topic:g"].members) == []
    assert bare.broker.position == 0


def test_a_message_for_a_group_that_cannot_be_read_does_not_halve_a_commit() -> None:
    bare = with_group()
    good = bare.stage(A, "queue:q")
    body, flags = columns.encode([Outgoing(columns.TEXT, b"x", b"\xc1", 0)])
    sequence = good[2] + 1
    flags |= pack.CONTROL | pack.STAGED
    bare.entry(Kind.PACK, pack.encode("topic:g", 1, body, A, sequence, 0, flags))
    assert isinstance(bare.events[-1], ev.PackRefused)
    check_rolled_back(bare, bare.commit(A, good, (0, sequence, sequence)), "not the headers")


def test_what_is_kept_of_a_message_for_a_group_is_bounded() -> None:
    bare = with_group()
    long = Extra(properties={"JMS_remove": "b" * (1 << 17)})
    bare.stage(A, "topic:g", long, flags=pack.CONTROL)
    (refused,) = (e for e in bare.events if isinstance(e, ev.PackRefused))
    assert refused.refusal.code == "ResourceAllocationError"


# -- What clients may say --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "extra",
    [
        Extra(delivery_delay=(1 << 64) - 1),
        Extra(time_to_live=(1 << 64) - 1),
        Extra(time_to_live=-5, delivery_delay=-7, priority=-1),
        Extra(time_to_live=1, priority=1 << 63, properties={"JMSXGroupID": 7, "JMSXGroupSeq": -1}),
    ],
)
def test_whatever_a_client_says_of_its_message_the_state_can_be_stored(extra: Extra) -> None:
    bare = with_sessions()
    bare.publish_each(A, "queue:q", extra)
    bare.stage(A, "queue:q", extra)
    restarted(bare)
    bare.wait(100)
    assert bare.broker.sessions.keys() == {A, B}


def test_a_group_of_messages_has_a_name_of_bounded_length() -> None:
    bare = with_sessions()
    bare.publish_each(A, "queue:q", Extra(properties={"JMSXGroupID": "x" * 1025}))
    (refused,) = bare.events
    assert isinstance(refused, ev.PackRefused)
    assert bare.broker.queues == {}


@pytest.mark.parametrize(
    "sent",
    [(0, 0, 0), (0, -3, -1), (7, 1, 1), (0, 2, 2)],
    ids=["zero", "negative", "an unknown producer", "the middle of a pack"],
)
def test_nonsense_is_rolled_back(sent: cw.Sent) -> None:
    bare = with_sessions()
    bare.stage(A, "queue:q", PLAIN, PLAIN)
    result = bare.commit(A, sent)
    assert accepted(bare) == []
    assert result.code in ("", "TransactionRolledBackError")
    assert bare.broker.pending.count == len(bare.broker.parked())
