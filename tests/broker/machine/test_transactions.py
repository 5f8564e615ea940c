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
from tests.broker.support.rig import Rig

A, B = 1, 2
DAY_MS = 24 * 3600 * 1000


def rig_with_sessions(*more: int) -> Rig:
    rig = Rig()
    for session in (A, B, *more):
        rig.attach(session, lease_ms=DAY_MS)
    return rig


def accepted(rig: Rig) -> list[tuple[str, int, int, int]]:
    """Destination, first position, count, and the entry that has the pack; of the last entry."""
    return [(a.destination, a.position, a.count, a.source) for a in rig.accepted]


def restarted(rig: Rig) -> None:
    """The replica goes on from a snapshot of its state."""
    chunks = rig.snapshot()
    rig.broker = Broker()
    rig.broker.restore(iter(chunks))
    assert rig.snapshot() == chunks


# -- Commit ----------------------------------------------------------------------------------------


def test_nothing_is_visible_before_the_commit_and_then_everything_is_at_once() -> None:
    rig = rig_with_sessions()
    rig.open(B, 1, "queue:q")
    rig.open(B, 2, "topic:t")
    first = rig.stage(A, "queue:q", PLAIN, PLAIN)
    entry = len(rig.entries)
    second = rig.stage(A, "topic:t")
    assert rig.publish(B, "topic:other") == 1  # takes no notice of them
    assert (rig.holds(B, 1), rig.broker.parked()) == ([], (entry, entry + 1))
    assert rig.commit(A, first, second).value == 1
    assert accepted(rig) == [("queue:q", 2, 2, entry), ("topic:t", 4, 1, entry + 1)]
    assert rig.holds(B, 1) == [(2, 3, 1)]
    assert rig.broker.topics.last["topic:t"] == 4
    assert rig.broker.parked() == ()
    assert rig.broker.pending.count == 0


def test_a_commit_acknowledges_what_was_received() -> None:
    rig = rig_with_sessions()
    rig.open(A, 1, "queue:q")
    rig.open(A, 2, "topic:t", durable="")
    rig.publish(B, "queue:q", 3)
    rig.publish(B, "topic:t", 2)
    rows = (cw.AckRow(1, 1, 2), cw.AckRow(2, 0, 5))
    assert rig.commit(A, rig.stage(A, "queue:r"), rows=rows).code == ""
    assert rig.holds(A, 1) == [(3, 3, 1)]
    assert rig.subscription(A, 2).floor == 5
    assert [d for d, *_ in accepted(rig)] == ["queue:r"]


def test_a_commit_is_refused_if_another_consumer_gets_what_was_received() -> None:
    """The consumer of a durable subscription was closed in the transaction, and opened again: what
    the first one received comes to the second one. Committed, it would be handled twice."""
    rig = Rig()
    rig.attach(A, client_id="c")
    rig.open(A, 1, "topic:t", durable="d")
    rig.publish(A, "topic:t", 2)
    rig.close_consumer(A, 1, cw.Kept(1, 1, 1, 1))
    rig.open(A, 2, "topic:t", durable="d")
    result = rig.commit(A, rig.stage(A, "queue:q"), rows=(cw.AckRow(1, 0, 1),))
    assert result.code == "TransactionRolledBackError"
    assert "goes to the consumer that was opened since then" in result.text
    assert (rig.accepted, rig.broker.pending.count) == ([], 0)
    # The second one has handled it; what the first one had is part of that.
    rows = (cw.AckRow(2, 0, 2), cw.AckRow(1, 0, 1))
    assert rig.commit(A, rows=rows[:1]).code == ""
    assert rig.commit(A, rows=rows).code == ""


def test_what_a_commit_gives_up_goes_to_the_dead_letters() -> None:
    rig = rig_with_sessions()
    rig.open(A, 1, "queue:q")
    rig.publish(B, "queue:q", 2)
    rig.commit(A, rows=(cw.AckRow(1, 1, 1, kind=cw.DEAD, reason="bad"), cw.AckRow(1, 2, 2)))
    assert rig.holds(A, 1) == []
    assert list(rig.broker.queues["queue:DLQ"].reasons) == [(1, 1, "bad")]


def test_two_transactions_of_a_session_have_nothing_to_do_with_each_other() -> None:
    rig = rig_with_sessions()
    one, two = rig.stage(A, "queue:q"), rig.stage(A, "queue:r", PLAIN, PLAIN)
    three = rig.stage(A, "queue:q")
    assert rig.commit(A, two).value == 1
    assert [d for d, *_ in accepted(rig)] == ["queue:r"]
    assert rig.commit(A, one, three).value == 1
    assert [(d, count) for d, _, count, _ in accepted(rig)] == [("queue:q", 1), ("queue:q", 1)]


def test_a_range_may_be_of_several_packs_of_several_producers() -> None:
    rig = rig_with_sessions()
    rig.ask(A, cw.OpenProducer(1, "p"))
    producer, first, _ = rig.stage(A, "queue:q")
    *_, last = rig.stage(A, "queue:r", PLAIN, PLAIN)
    named = pack.encode("queue:s", 2, b"", A, 1, 1, pack.STAGED)
    rig.entry(Kind.PACK, named)
    rig.commit(A, (producer, first, last), (1, 1, 2))
    assert [d for d, *_ in accepted(rig)] == ["queue:q", "queue:r", "queue:s"]


def test_a_commit_that_is_asked_for_again_is_not_done_again() -> None:
    rig = rig_with_sessions()
    sent = rig.stage(A, "queue:q")
    body = cw.Commit((), (sent,))
    assert rig.ask(A, body).value == 1
    for _ in range(2):
        (answered,) = rig.command(commands.Request(A, 1, body))
        assert isinstance(answered, ev.Answered)
        assert answered.result.value == 1
        assert accepted(rig) == []


@pytest.mark.parametrize(
    "body",
    [cw.Commit((), ((0, 1, 2),)), cw.Stage(((0, 1, 2),)), cw.Discard(((0, 1, 2),))],
    ids=lambda body: type(body).__name__,
)
def test_what_was_ordered_before_its_packs_is_done_when_it_comes_behind_them(body: Any) -> None:
    rig = rig_with_sessions()
    request = commands.Request(A, 1, body)
    assert rig.command(request) == (ev.Early(A, 1),)
    rig.stage(A, "queue:q")
    assert rig.command(request) == (ev.Early(A, 1),)
    rig.stage(A, "queue:q")
    (answered,) = (e for e in rig.command(request) if isinstance(e, ev.Answered))
    assert answered.result.code == ""


# -- It cannot be committed ------------------------------------------------------------------------


def check_rolled_back(rig: Rig, result: cw.Result, why: str) -> None:
    assert (result.code, accepted(rig)) == ("TransactionRolledBackError", [])
    assert why in result.text
    assert rig.broker.sessions[A].staged == {}


def test_with_one_pack_missing_nothing_happens() -> None:
    rig = rig_with_sessions()
    rig.open(A, 1, "queue:q")
    rig.publish(B, "queue:q")
    good = rig.stage(A, "queue:r")
    refused = rig.stage(A, "topic:a.*")
    rows = (cw.AckRow(1, 1, 1),)
    check_rolled_back(rig, rig.commit(A, good, refused, rows=rows, token="t"), "wildcard")
    assert rig.holds(A, 1) == [(1, 1, 1)]
    assert rig.broker.pending.count == 0
    assert rig.commit(A, token="t").value == 1  # it is not known


def test_what_was_never_staged_is_not_committed() -> None:
    rig = rig_with_sessions()
    rig.publish(A, "queue:q", 2)
    result = rig.commit(A, (0, 1, 2))
    check_rolled_back(rig, result, "message 1 of this transaction is not here")


def test_what_is_for_a_temporary_destination_that_has_ended_is_dropped() -> None:
    """However early it has ended; the rest of the transaction counts."""
    rig = rig_with_sessions()
    reply = "temp-queue:2.1"
    rig.ask(B, cw.CreateTemporary(reply))
    one, two = rig.stage(A, "queue:q"), rig.stage(A, reply)
    delayed = rig.stage(A, reply, Extra(delivery_delay=100), flags=pack.DELAYED)
    rig.ask(B, cw.DeleteTemporary(reply))
    late = rig.stage(A, reply, Extra(), Extra())
    assert not any(isinstance(event, ev.PackRefused) for event in rig.events)
    assert rig.commit(A, one, two, delayed, late).value == 1
    assert rig.broker.queues.keys() == {"queue:q"}
    rig.wait(200)
    assert (rig.broker.position, rig.broker.pending.count, rig.broker.dropped) == (1, 0, 4)
    rig.publish(A, reply)  # whoever waits for the answer is told
    assert isinstance(rig.events[-1], ev.PackRefused)
    check_rolled_back(rig, rig.commit(A, rig.stage(A, "temp-queue:nobody's")), "nobody's")


def test_too_many_packs_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pending_packs, "PACKS_MAX", 2)
    rig = rig_with_sessions()
    one, two, three = (rig.stage(A, "queue:q") for _ in range(3))
    assert isinstance(rig.events[-1], ev.PackRefused)
    check_rolled_back(rig, rig.commit(A, one, two, three), "2 packs wait")
    again = [rig.stage(A, "queue:q") for _ in range(2)]
    assert rig.commit(A, *again).value == 1


def test_a_pack_that_is_listed_twice_is_sent_once() -> None:
    rig = rig_with_sessions()
    sent = rig.stage(A, "queue:q", Extra(delivery_delay=10))
    assert rig.commit(A, sent, sent).value == 1
    assert rig.broker.pending.count == 1
    rig.wait(100)
    assert (rig.broker.position, rig.broker.pending.count) == (1, 0)
    (_, handle) = (rig.stage(A, "queue:q"), rig.ask(A, cw.Stage((sent, sent))))
    assert handle.code == "TransactionRolledBackError"


def test_a_client_cannot_choose_its_messages_with_a_commit() -> None:
    rig = rig_with_sessions()
    rig.open(A, 1, "queue:q", selector="a = 1")
    rig.publish(B, "queue:q", 3)
    rows = (cw.AckRow(1, 1, 3, kind=cw.CLAIM),)
    check_rolled_back(rig, rig.commit(A, rows=rows), "only servers choose")
    assert rig.holds(A, 1) == []


# -- Tokens ----------------------------------------------------------------------------------------


def test_a_second_commit_with_a_token_sends_nothing_and_acknowledges_all_the_same() -> None:
    rig = rig_with_sessions()
    rig.open(B, 1, "queue:q")
    rig.publish(A, "queue:q")
    assert rig.commit(A, rig.stage(A, "queue:r"), token="batch 7").value == 1
    restarted(rig)
    again = rig.stage(B, "queue:r")
    assert rig.commit(B, again, rows=(cw.AckRow(1, 1, 1),), token="batch 7").value == 0
    assert (accepted(rig), rig.holds(B, 1), rig.broker.pending.count) == ([], [], 0)
    assert rig.commit(B, rig.stage(B, "queue:r"), token="batch 8").value == 1


def test_a_token_is_remembered_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pending_packs, "TOKENS_MAX", 3)
    rig = rig_with_sessions()
    for token in "abcde":
        assert rig.commit(A, token=token).value == 1
    assert [rig.commit(A, token=token).value for token in "edcb"] == [0, 0, 0, 1]
    rig.stamp += transactions.TOKEN_RETENTION_MS
    rig.new_leader()  # so that the sessions live
    assert rig.commit(A, token="b").value == 1
    assert list(rig.broker.pending.tokens) == ["b"]


def test_a_token_that_is_too_long_is_refused() -> None:
    rig = rig_with_sessions()
    result = rig.commit(A, rig.stage(A, "queue:q"), token="x" * 2000)
    check_rolled_back(rig, result, "at most 1024 characters")


# -- Handles ---------------------------------------------------------------------------------------


def handle_of(rig: Rig, *sent: cw.Sent, session: int = A) -> str:
    result = rig.ask(session, cw.Stage(sent))
    assert result.code == ""
    return result.data.decode()


def test_what_is_staged_is_committed_by_any_session_and_outlives_its_own() -> None:
    rig = rig_with_sessions()
    one = handle_of(rig, rig.stage(A, "queue:q"), rig.stage(A, "queue:r"))
    two = handle_of(rig, rig.stage(A, "queue:s"))
    other = handle_of(rig, rig.stage(A, "queue:t"))
    rig.close(A)
    restarted(rig)
    own = rig.stage(B, "queue:own")
    assert rig.commit(B, own, staged=(two, one, two)).value == 1
    sent = [d for d, *_ in accepted(rig)]
    assert sent == ["queue:own", "queue:s", "queue:q", "queue:r"]
    assert list(rig.broker.pending.staged) == [other]
    assert rig.broker.pending.count == 1


def test_a_handle_is_committed_once() -> None:
    rig = rig_with_sessions()
    handle, other = handle_of(rig, rig.stage(A, "queue:q")), handle_of(rig, rig.stage(A, "queue:r"))
    assert rig.commit(B, staged=(handle,)).value == 1
    own = rig.stage(A, "queue:own")
    result = rig.commit(A, own, staged=(other, handle))
    check_rolled_back(rig, result, f"nothing is staged as {handle!r}")
    assert list(rig.broker.pending.staged) == [other]  # it can still be committed
    assert rig.broker.pending.count == 1


def test_with_a_token_that_is_known_what_was_staged_is_dropped() -> None:
    rig = rig_with_sessions()
    rig.commit(A, token="t")
    handle = handle_of(rig, rig.stage(A, "queue:q"))
    assert rig.commit(B, token="t", staged=(handle, "gone")).value == 0
    assert (rig.broker.pending.staged, rig.broker.pending.count) == ({}, 0)


def test_what_nobody_commits_is_forgotten() -> None:
    rig = rig_with_sessions()
    handle_of(rig, rig.stage(A, "queue:q"))
    restarted(rig)
    rig.wait(transactions.STAGED_RETENTION_MS - 10_000)
    assert len(rig.broker.pending.staged) == 1
    rig.wait(20_000)
    assert (rig.broker.pending.staged, rig.broker.pending.count, rig.broker.parked()) == ({}, 0, ())


def test_what_cannot_be_staged_is_forgotten() -> None:
    rig = rig_with_sessions()
    good, refused = rig.stage(A, "queue:q"), rig.stage(A, "topic:a.*")
    result = rig.ask(A, cw.Stage((good, refused)))
    assert result.code == "TransactionRolledBackError"
    assert (rig.broker.pending.count, rig.broker.pending.staged) == (0, {})


def test_a_session_of_the_same_number_does_not_stage_under_the_same_handle() -> None:
    rig = rig_with_sessions()
    first = handle_of(rig, rig.stage(A, "queue:q"))
    rig.close(A)
    rig.attach(A, attempt=2)
    rig.numbers.clear()
    rig.sequences.clear()
    assert handle_of(rig, rig.stage(A, "queue:q")) != first
    assert rig.broker.pending.count == len(rig.broker.parked()) == 2


# -- The end of a transaction that is not committed ------------------------------------------------


def test_what_is_discarded_is_gone_and_nothing_else() -> None:
    rig = rig_with_sessions()
    one, two = rig.stage(A, "queue:q"), rig.stage(A, "queue:r")
    assert rig.ask(A, cw.Discard((one,))).code == ""
    assert rig.broker.pending.count == len(rig.broker.parked()) == 1
    assert rig.commit(A, two).value == 1
    check_rolled_back(rig, rig.commit(A, one), "not here")


@pytest.mark.parametrize("how", ["closed", "lost"])
def test_with_its_session_what_is_not_committed_is_gone(how: str) -> None:
    rig = Rig()
    rig.attach(A)
    rig.attach(B, lease_ms=DAY_MS)
    rig.stage(A, "queue:q")
    rig.stage(B, "queue:q")
    if how == "closed":
        rig.close(A)
    else:
        rig.detach(A)
        rig.wait(20_000)
    assert A not in rig.broker.sessions
    assert rig.broker.pending.count == len(rig.broker.parked()) == 1


def test_a_session_that_moves_keeps_what_it_has_staged() -> None:
    rig = rig_with_sessions()
    sent = rig.stage(A, "queue:q")
    rig.detach(A)
    restarted(rig)
    rig.attach(A, node=2, attempt=2, resume=True)
    assert rig.commit(A, sent).value == 1
    assert [d for d, *_ in accepted(rig)] == ["queue:q"]


# -- Delay -----------------------------------------------------------------------------------------


def test_a_delayed_message_is_visible_when_its_time_has_come() -> None:
    rig = rig_with_sessions()
    rig.open(B, 1, "queue:q")
    assert rig.publish_each(A, "queue:q", Extra(delivery_delay=500)) == 0
    entry = len(rig.entries)
    assert ev.Taken(A, 0) in rig.events  # its sender is answered
    restarted(rig)
    rig.wait(499)
    assert (rig.holds(B, 1), rig.broker.parked()) == ([], (entry,))
    rig.wait(10)
    assert rig.holds(B, 1) == [(1, 1, 1)]
    assert accepted(rig) == [("queue:q", 1, 1, entry)]
    assert rig.broker.pending.count == 0


def test_delayed_messages_become_visible_in_the_order_of_their_times() -> None:
    rig = rig_with_sessions()
    for delay in (300, 100, 200, 100):
        rig.publish_each(A, "queue:q", Extra(delivery_delay=delay))
    rig.stamp += 1000  # no tick came in time
    rig.publish(A, "queue:q")
    begun = len(rig.entries) - 5
    sources = [a.source and a.source - begun for a in rig.accepted]
    assert sources == [2, 4, 3, 1, 0]


def test_the_delay_of_a_transaction_begins_with_its_commit() -> None:
    rig = rig_with_sessions()
    late, now = rig.stage(A, "queue:q", Extra(delivery_delay=500)), rig.stage(A, "queue:r")
    rig.wait(1000)
    assert rig.commit(A, late, now).value == 1
    assert [d for d, *_ in accepted(rig)] == ["queue:r"]
    rig.close(A)  # it is sent for good
    rig.wait(600)
    assert [d for d, *_ in accepted(rig)] == ["queue:q"]


def test_a_time_to_live_counts_from_the_sending_and_the_delay_is_part_of_it() -> None:
    rig = rig_with_sessions()
    rig.publish_each(A, "queue:q", Extra(time_to_live=500, delivery_delay=400))
    rig.publish_each(A, "queue:dies", Extra(time_to_live=100, delivery_delay=400))
    rig.wait(450)
    assert rig.broker.queues["queue:q"].count == 1
    assert "queue:dies" not in rig.broker.queues
    rig.wait(100)
    assert rig.broker.queues == {}


def test_a_delayed_message_to_a_destination_that_is_gone_is_gone_too() -> None:
    rig = rig_with_sessions()
    rig.ask(B, cw.CreateTemporary("temp-queue:2.1"))
    rig.publish_each(A, "temp-queue:2.1", Extra(delivery_delay=500))
    rig.close(B)
    rig.wait(1000)
    assert (rig.broker.position, rig.broker.pending.count, rig.broker.queues) == (0, 0, {})


# -- Messages for groups ---------------------------------------------------------------------------


def removal(**more: Any) -> Extra:
    return Extra(properties={"JMS_remove": "b"}, **more)


def rig_with_group() -> Rig:
    rig = rig_with_sessions()
    rig.ask(B, cw.Join(1, "topic:g", 100, "b"))
    return rig


def test_a_removal_in_a_transaction_is_done_with_its_commit() -> None:
    rig = rig_with_group()
    sent = rig.stage(A, "topic:g", removal(), flags=pack.CONTROL)
    restarted(rig)
    assert list(rig.broker.groups["topic:g"].members) == ["b"]
    assert rig.commit(A, sent).value == 1
    assert (list(rig.broker.groups["topic:g"].members), accepted(rig)) == ([], [])


def test_a_removal_with_a_delay_is_done_later_and_not_delivered() -> None:
    rig = rig_with_group()
    rig.publish_each(A, "topic:g", removal(delivery_delay=500), flags=pack.CONTROL)
    sent = rig.stage(A, "topic:g", removal(delivery_delay=900), flags=pack.CONTROL)
    rig.commit(A, sent)
    assert list(rig.broker.groups["topic:g"].members) == ["b"]
    rig.wait(600)
    assert list(rig.broker.groups["topic:g"].members) == []
    rig.ask(B, cw.Join(2, "topic:g", 100, "b"))
    rig.wait(600)
    assert list(rig.broker.groups["topic:g"].members) == []
    assert rig.broker.position == 0


def test_a_message_for_a_group_that_cannot_be_read_does_not_halve_a_commit() -> None:
    rig = rig_with_group()
    good = rig.stage(A, "queue:q")
    body, flags = columns.encode([Outgoing(columns.TEXT, b"x", b"\xc1", 0)])
    sequence = good[2] + 1
    flags |= pack.CONTROL | pack.STAGED
    rig.entry(Kind.PACK, pack.encode("topic:g", 1, body, A, sequence, 0, flags))
    assert isinstance(rig.events[-1], ev.PackRefused)
    check_rolled_back(rig, rig.commit(A, good, (0, sequence, sequence)), "not the headers")


def test_what_is_kept_of_a_message_for_a_group_is_bounded() -> None:
    rig = rig_with_group()
    long = Extra(properties={"JMS_remove": "b" * (1 << 17)})
    rig.stage(A, "topic:g", long, flags=pack.CONTROL)
    (refused,) = (e for e in rig.events if isinstance(e, ev.PackRefused))
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
    rig = rig_with_sessions()
    rig.publish_each(A, "queue:q", extra)
    rig.stage(A, "queue:q", extra)
    restarted(rig)
    rig.wait(100)
    assert rig.broker.sessions.keys() == {A, B}


def test_a_group_of_messages_has_a_name_of_bounded_length() -> None:
    rig = rig_with_sessions()
    rig.publish_each(A, "queue:q", Extra(properties={"JMSXGroupID": "x" * 1025}))
    (refused,) = rig.events
    assert isinstance(refused, ev.PackRefused)
    assert rig.broker.queues == {}


@pytest.mark.parametrize(
    "sent",
    [(0, 0, 0), (0, -3, -1), (7, 1, 1), (0, 2, 2)],
    ids=["zero", "negative", "an unknown producer", "the middle of a pack"],
)
def test_nonsense_is_rolled_back(sent: cw.Sent) -> None:
    rig = rig_with_sessions()
    rig.stage(A, "queue:q", PLAIN, PLAIN)
    result = rig.commit(A, sent)
    assert accepted(rig) == []
    assert result.code in ("", "TransactionRolledBackError")
    assert rig.broker.pending.count == len(rig.broker.parked())
