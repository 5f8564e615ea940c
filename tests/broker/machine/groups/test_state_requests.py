"""A member takes over the state of another one: who is asked, what fails, what goes where."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from antiphon.broker.machine import keys
from antiphon.broker.machine.groups.group import Member
from antiphon.broker.machine.groups.suspicion import SUSPECT_MS
from antiphon.broker.machine.topics import RESERVE
from antiphon.formats import columns, commands, pack
from antiphon.formats import protocol as cw
from antiphon.formats.entry import Kind
from tests.broker.support.bare_broker import BareBroker

A, B, C, D = 0xA, 0xB, 0xC, 0xD
G = "topic:g"

# -- Requests, in the log -----------------------------------------------------------------------


def bare(*sessions: int) -> BareBroker:
    one = BareBroker()
    for session in sessions:
        one.attach(session, client_id=f"c{session:x}")
    return one


def join(
    r: BareBroker,
    session: int,
    name: str,
    *,
    provides: bool = True,
    prefetch: int = 100,
    **options: Any,
) -> bool:
    """Whether there is a state to wait for."""
    result = r.ask(session, cw.Join(1, G, prefetch, name, provides=provides, **options))
    assert not result.code, result.text
    return bool(msgspec.msgpack.decode(result.data)[3])


def control(session: int, sequence: int, **properties: Any) -> bytes:
    """A message that is for the group itself."""
    extra = columns.encode_extra(columns.Extra(properties=properties))
    data, flags = columns.encode([columns.Outgoing(columns.TEXT, b"", extra, 0)])
    return pack.encode(G, 1, data, session, sequence, 0, flags | pack.CONTROL)


def tell_group(r: BareBroker, session: int, **properties: Any) -> None:
    sequence = r.broker.last_sequence(session) + 1
    r.sequences[session, 0] = sequence
    r.entry(Kind.PACK, control(session, sequence, **properties))


def remove(r: BareBroker, session: int, name: str) -> None:
    tell_group(r, session, JMS_remove=name)


def invite(r: BareBroker, session: int, name: str) -> None:
    tell_group(r, session, JMS_join_process=name, JMS_subscription="durable")


def member(r: BareBroker, name: str) -> Member:
    return r.broker.groups[G].members[name]


def requests(r: BareBroker) -> list[tuple[tuple[str, ...], tuple[str, ...], int]]:
    """Who hands out, who takes, and the cut, of all requests that are kept."""
    events = r.broker.groups[G].events
    return [(e.went, e.came, e.position) for e in events if e.kind == cw.STATE]


def done(r: BareBroker, session: int, name: str) -> int:
    return r.ask(session, cw.StateDone(1, member(r, name).request)).value


def does_without(r: BareBroker, name: str) -> bool:
    """It waits no more, and there is no state for it."""
    one = member(r, name)
    return one.stateless and not one.needs_state


def test_the_first_member_has_nobody_to_ask() -> None:
    r = bare(A)
    assert not join(r, A, "a")
    assert requests(r) == []
    assert not member(r, "a").needs_state


def test_nobody_is_asked_who_cannot_hand_out_a_state() -> None:
    r = bare(A, B)
    join(r, A, "a", provides=False)
    assert not join(r, B, "b")
    assert requests(r) == []


def test_a_request_stands_right_behind_the_view() -> None:
    r = bare(A, B)
    join(r, A, "a")
    r.publish(A, G, 3)
    assert join(r, B, "b")
    view, state = r.broker.groups[G].events[-2:]
    assert (view.kind, view.came, state.kind) == (cw.VIEW, ("b",), cw.STATE)
    assert (state.went, state.came, state.position) == (("a",), ("b",), view.position)
    assert state.serial == member(r, "b").request == view.serial + 1


def test_who_does_not_want_a_state_is_not_given_one() -> None:
    r = bare(A, B)
    join(r, A, "a")
    assert not join(r, B, "b", takes_state=False)
    assert requests(r) == []


def test_a_plain_consumer_of_the_topic_takes_no_state() -> None:
    r = bare(A, B)
    join(r, A, "a")
    assert not r.open(B, 1, G).code
    assert requests(r) == []


def test_the_oldest_is_asked_and_not_one_that_waits_itself() -> None:
    r = bare(A, B, C, D)
    join(r, A, "a", provides=False)
    join(r, B, "b")
    join(r, C, "c")
    join(r, D, "d")
    assert requests(r) == [(("b",), ("c",), 0), (("b",), ("d",), 0)]


def test_who_has_got_the_state_may_hand_it_out() -> None:
    r = bare(A, B, C)
    join(r, A, "a")
    join(r, B, "b")
    assert done(r, B, "b") == 1
    r.ask(A, cw.Leave(1))
    join(r, C, "c")
    assert requests(r)[-1] == (("b",), ("c",), 0)


def test_an_old_state_is_not_taken_for_the_new_one() -> None:
    r = bare(A, B)
    join(r, A, "a")
    join(r, B, "b")
    old = member(r, "b").request
    r.detach(A)
    r.attach(A, client_id="ca", resume=True, attempt=2)
    assert member(r, "b").request > old
    assert r.ask(B, cw.StateDone(1, old)).value == 0
    assert member(r, "b").needs_state
    assert done(r, B, "b") == 1
    assert not member(r, "b").needs_state
    assert r.ask(B, cw.StateDone(1, old)).value == 0  # said twice


def test_only_members_speak_of_states() -> None:
    r = bare(A)
    assert r.ask(A, cw.StateDone(1, 1)).code == "IllegalStateError"
    assert r.ask(A, cw.AskState(1, 1)).code == "IllegalStateError"


# -- Providers fail -----------------------------------------------------------------------------


def leaves(r: BareBroker) -> None:
    r.ask(A, cw.Leave(1))


def closes(r: BareBroker) -> None:
    r.close(A)


def is_removed(r: BareBroker) -> None:
    remove(r, B, "a")


def is_unsubscribed(r: BareBroker) -> None:
    r.ask(B, cw.Unsubscribe("a", G))


def is_suspected(r: BareBroker) -> None:
    r.detach(A)
    assert member(r, "c").provider == "a"  # it may be back at once
    r.wait(SUSPECT_MS)


def comes_back(r: BareBroker) -> None:
    r.detach(A)
    r.attach(A, client_id="ca", resume=True, attempt=2)


def gives_up(r: BareBroker) -> None:
    r.ask(A, cw.CloseConsumer(1, failed=True))


@pytest.mark.parametrize(
    "fails",
    [leaves, closes, is_removed, is_unsubscribed, is_suspected, comes_back, gives_up],
)
def test_when_the_provider_fails_another_is_asked_and_the_cut_moves(
    fails: Callable[[BareBroker], None],
) -> None:
    r = bare(A, B, C)
    join(r, A, "a")
    join(r, B, "b")
    done(r, B, "b")
    join(r, C, "c")
    r.publish(B, G, 5)
    fails(r)
    assert requests(r)[-1] == (("b",), ("c",), 5)
    assert (member(r, "c").request, member(r, "c").cut) == (r.broker.groups[G].serial, 5)
    assert r.subscription(C, 1).floor == 0  # nobody knows yet whether this state arrives
    assert done(r, C, "c") == 1
    assert r.subscription(C, 1).floor == 5


def test_a_provider_that_raises_is_not_asked_again() -> None:
    r = bare(A, B, C)
    join(r, A, "a")
    join(r, B, "b")
    done(r, B, "b")
    join(r, C, "c")
    r.ask(C, cw.AskState(1, member(r, "c").request, raised=True))
    assert requests(r)[-1][0] == ("b",)
    r.ask(C, cw.AskState(1, member(r, "c").request, raised=True))
    assert requests(r)[-1][0] == ("b",)  # nobody else can
    assert does_without(r, "c")


def test_a_silent_provider_has_its_turn_again_when_all_were_silent() -> None:
    r = bare(A, B, C)
    join(r, A, "a")
    join(r, B, "b")
    done(r, B, "b")
    join(r, C, "c")
    asked = [member(r, "c").provider]
    for _ in range(3):
        r.ask(C, cw.AskState(1, member(r, "c").request))
        asked.append(member(r, "c").provider)
    assert asked == ["a", "b", "a", "b"]


def test_a_late_complaint_changes_nothing() -> None:
    r = bare(A, B)
    join(r, A, "a")
    join(r, B, "b")
    old = member(r, "b").request
    r.ask(B, cw.AskState(1, old))
    serial = r.broker.groups[G].serial
    r.ask(B, cw.AskState(1, old))
    assert r.broker.groups[G].serial == serial


def test_a_provider_that_may_come_back_is_waited_for() -> None:
    r = bare(A, B)
    join(r, A, "a")
    r.detach(A)
    assert join(r, B, "b")
    assert requests(r) == []
    r.publish(B, G, 2)
    r.attach(A, client_id="ca", resume=True, attempt=2)
    assert requests(r) == [(("a",), ("b",), 2)]
    assert done(r, B, "b") == 1
    assert r.subscription(B, 1).floor == 2


def test_a_provider_that_never_comes_back_is_not_waited_for_longer_than_its_lease() -> None:
    r = bare(A, B)
    join(r, A, "a")
    r.detach(A)
    join(r, B, "b")
    for _ in range(9):
        r.wait(1000)
        r.command(commands.Renew(1, 1))
    assert not does_without(r, "b")
    r.wait(1000)
    assert requests(r) == []
    assert does_without(r, "b")


def has_sent(r: BareBroker, provider: int) -> None:
    """All that it was asked for so far."""
    r.ack(provider, cw.AckRow(1, 0, 0, event=r.broker.groups[G].serial))


@pytest.mark.parametrize("goodbye", [cw.Leave(1), cw.CloseConsumer(1), cw.CloseSession()])
def test_a_state_that_the_last_provider_has_not_sent_when_it_leaves_is_lost_at_once(
    goodbye: cw.Body,
) -> None:
    r = bare(A, B, C)
    join(r, A, "a")
    join(r, B, "b")
    join(r, C, "c")
    r.ask(A, goodbye)
    assert does_without(r, "b")
    assert requests(r)[-1] == (("b",), ("c",), 0)


def test_what_was_sent_before_the_last_provider_left_may_still_arrive() -> None:
    r = bare(A, B)
    join(r, A, "a")
    join(r, B, "b")
    request = member(r, "b").request
    r.publish(A, G)
    has_sent(r, A)
    r.close(A)
    assert member(r, "b").request == request
    assert r.subscription(B, 1).floor == 0
    assert done(r, B, "b") == 1


def test_what_does_not_arrive_after_the_last_provider_left_is_lost() -> None:
    r = bare(A, B)
    join(r, A, "a")
    join(r, B, "b")
    has_sent(r, A)
    r.close(A)
    r.publish(B, G, 2)
    assert not does_without(r, "b")
    r.ask(B, cw.AskState(1, member(r, "b").request))
    assert does_without(r, "b")
    assert r.subscription(B, 1).floor == 0  # the messages since its join are not lost with it


def test_two_who_wait_for_one_that_is_gone_do_not_wait_for_each_other() -> None:
    r = bare(A, B, C)
    join(r, A, "a")
    join(r, B, "b")
    join(r, C, "c")
    has_sent(r, A)
    r.close(A)
    r.ask(B, cw.AskState(1, member(r, "b").request))  # c may yet have got it
    assert requests(r)[-1][0] == ("a",)
    assert not does_without(r, "b")
    r.ask(C, cw.AskState(1, member(r, "c").request))
    assert does_without(r, "b")
    assert requests(r)[-1] == (("b",), ("c",), 0)
    assert done(r, C, "c") == 1


def test_who_joins_while_all_others_wait_does_not_pass_for_one_that_has_the_state() -> None:
    r = bare(A, B, C)
    join(r, A, "a")
    join(r, B, "b")
    has_sent(r, A)
    r.close(A)
    assert join(r, C, "c")
    assert requests(r)[-1] == (("a",), ("b",), 0)
    assert done(r, B, "b") == 1  # all had been sent
    assert requests(r)[-1] == (("b",), ("c",), 0)


# -- Takers fail --------------------------------------------------------------------------------


def test_a_taker_that_dies_ends_the_request() -> None:
    r = bare(A, B)
    join(r, A, "a")
    join(r, B, "b")
    r.detach(B)
    r.wait(SUSPECT_MS)
    assert member(r, "b").request == 0


def test_a_taker_that_comes_back_begins_again() -> None:
    r = bare(A, B)
    join(r, A, "a")
    join(r, B, "b")
    r.publish(A, G, 4)
    r.detach(B)
    r.wait(SUSPECT_MS)
    r.attach(B, client_id="cb", resume=True, attempt=2)
    assert requests(r)[-1] == (("a",), ("b",), 4)


def test_a_durable_taker_that_died_takes_the_state_when_it_joins_again() -> None:
    r = bare(A, B, C)
    join(r, A, "a")
    assert join(r, B, "b", durable=True)
    r.close(B)
    assert member(r, "b").request == 0
    r.publish(A, G, 4)
    assert join(r, C, "b", durable=True)
    assert requests(r)[-1] == (("a",), ("b",), 4)
    assert r.subscription(C, 1).floor == 0
    assert done(r, C, "b") == 1
    assert r.subscription(C, 1).floor == 4


def test_who_was_invited_takes_the_state_when_it_comes() -> None:
    r = bare(A, B)
    join(r, A, "a")
    invite(r, A, "b")
    assert requests(r) == []
    r.publish(A, G, 2)
    assert join(r, B, "b", durable=True)
    assert requests(r) == [(("a",), ("b",), 2)]


def test_who_was_invited_and_finds_no_state_gets_all_messages() -> None:
    r = bare(A, B)
    join(r, A, "a", provides=False)
    invite(r, A, "b")
    r.publish(A, G, 2)
    assert not join(r, B, "b", durable=True)
    assert r.subscription(B, 1).floor == 0
    assert not member(r, "b").needs_state


def test_a_durable_member_that_did_without_goes_on_without() -> None:
    r = bare(A, B, C)
    join(r, A, "a")
    join(r, B, "b", durable=True)
    r.publish(A, G, 2)
    r.ask(B, cw.AskState(1, member(r, "b").request, raised=True))
    assert does_without(r, "b")
    r.close(B)
    assert not join(r, C, "b", durable=True)
    assert r.subscription(C, 1).floor == 0
    assert not member(r, "b").stateless  # its last life was told


# -- Granted, and acknowledged ------------------------------------------------------------------


def granted(prefetch: int = 100) -> BareBroker:
    """b, which is durable, was there before four messages, and has a state with three of them."""
    r = bare(A, C, D)
    r.attach(B, lease_ms=2_000)
    join(r, A, "a")
    join(r, B, "b", durable=True, prefetch=prefetch)
    r.publish(A, G, 3)
    r.ask(B, cw.AskState(1, member(r, "b").request))
    assert done(r, B, "b") == 1
    r.publish(A, G)
    return r


def acknowledge(r: BareBroker, row: cw.AckRow, session: int = B) -> None:
    r.command(commands.Acks(1, 1, 1, ((session, (row,)),)))


def its_session_is_lost(r: BareBroker) -> None:
    r.detach(B)
    r.wait(2_000)
    assert B not in r.broker.sessions


def it_is_suspected(r: BareBroker) -> None:
    r.detach(B)
    r.wait(SUSPECT_MS)
    assert B in r.broker.sessions  # whoever joins under its name takes its place


def it_is_closed(r: BareBroker) -> None:
    r.close_consumer(B, 1)


def its_session_is_closed(r: BareBroker) -> None:
    r.close(B)


def it_gives_up(r: BareBroker) -> None:
    r.ask(B, cw.CloseConsumer(1, failed=True))


ENDS = [its_session_is_lost, it_is_suspected, it_is_closed, its_session_is_closed, it_gives_up]


@pytest.mark.parametrize("ends", ENDS)
def test_a_durable_member_that_is_gone_before_it_acknowledged_its_state_needs_another(
    ends: Callable[[BareBroker], None],
) -> None:
    r = granted()
    assert r.subscription(B, 1).floor == 3
    ends(r)
    assert join(r, C, "b", durable=True)
    assert requests(r)[-1] == (("a",), ("b",), 4)
    assert r.subscription(C, 1).floor == 0
    assert done(r, C, "b") == 1
    assert r.subscription(C, 1).floor == 4


def test_who_needs_a_state_again_may_do_without() -> None:
    r = granted()
    r.close(B)
    assert not join(r, C, "b", durable=True, takes_state=False)
    assert r.subscription(C, 1).floor == 0
    assert not member(r, "b").needs_state


def by_the_next_message(r: BareBroker) -> None:
    acknowledge(r, cw.AckRow(1, 0, 4))


def by_a_message_out_of_order(r: BareBroker) -> None:
    r.publish(A, G)
    acknowledge(r, cw.AckRow(1, 5, 5))


def by_its_request(r: BareBroker) -> None:
    acknowledge(r, cw.AckRow(1, 0, 0, 0, member(r, "b").took))


@pytest.mark.parametrize("ends", ENDS)
@pytest.mark.parametrize(
    "acknowledged", [by_the_next_message, by_a_message_out_of_order, by_its_request]
)
def test_a_durable_member_that_has_acknowledged_its_state_resumes_without(
    acknowledged: Callable[[BareBroker], None], ends: Callable[[BareBroker], None]
) -> None:
    r = granted()
    asked_before = len(requests(r))
    acknowledged(r)
    floor = r.subscription(B, 1).floor
    assert floor >= 3
    ends(r)
    assert not join(r, C, "b", durable=True)
    assert r.subscription(C, 1).floor == floor
    assert len(requests(r)) == asked_before


@pytest.mark.parametrize(
    "row",
    [cw.AckRow(1, 0, 3), cw.AckRow(1, 2, 3), cw.AckRow(1, 0, 0, 2), cw.AckRow(1, 0, 0, 2, 3)],
    ids=["messages in it", "one message in it", "an event", "another state"],
)
def test_what_does_not_acknowledge_a_state(row: cw.AckRow) -> None:
    r = granted()
    assert row.state != member(r, "b").took
    acknowledge(r, row)
    r.close(B)
    assert join(r, C, "b", durable=True)
    assert r.subscription(C, 1).floor == 0


def test_all_since_the_join_is_kept_until_the_state_is_acknowledged() -> None:
    r = bare(A, B)
    join(r, A, "a")
    r.publish(A, G, 2)
    join(r, B, "b")
    r.publish(A, G, 3)
    r.ask(B, cw.AskState(1, member(r, "b").request))
    acknowledge(r, cw.AckRow(1, 0, 5), session=A)
    assert r.broker.live() == ((3, 5),)
    assert done(r, B, "b") == 1
    assert (r.subscription(B, 1).floor, r.broker.live()) == (5, ((3, 5),))
    acknowledge(r, cw.AckRow(1, 0, 0, 0, member(r, "b").took))
    assert (r.subscription(B, 1).floor, r.broker.live()) == (5, ())


@pytest.mark.parametrize("ends", [its_session_is_lost, it_is_suspected, it_gives_up])
def test_what_came_behind_a_state_that_is_lost_may_have_been_seen(
    ends: Callable[[BareBroker], None],
) -> None:
    """One window and its reserve, behind the cut. All before counts as well, for it comes first."""
    r = granted(prefetch=1)
    r.publish(A, G, 9)
    ends(r)
    join(r, C, "b", durable=True, takes_state=False)
    assert r.subscription(C, 1).runs(1, 13, 0) == [(1, 3 + RESERVE, 2), (4 + RESERVE, 13, 1)]


def test_what_was_seen_behind_a_state_that_is_closed_is_flagged() -> None:
    r = granted()
    r.publish(A, G, 2)
    r.close_consumer(B, 1, cw.Kept(1, 4, 5, 1))
    join(r, C, "b", durable=True, takes_state=False)
    assert r.subscription(C, 1).runs(1, 6, 0) == [(1, 3, 1), (4, 5, 2), (6, 6, 1)]


def untold(r: BareBroker, name: str) -> list[int]:
    """Views that this member has not acknowledged."""
    group = r.broker.groups[G]
    return [e.view for e in group.after(member(r, name).acked) if e.kind == cw.VIEW]


def test_events_are_acknowledged_with_the_state_before_them() -> None:
    r = granted()
    join(r, D, "d")
    acknowledge(r, cw.AckRow(1, 0, 0, r.broker.groups[G].serial))
    assert untold(r, "b") == [2, 3]
    acknowledge(r, cw.AckRow(1, 0, 0, 0, member(r, "b").took))
    assert untold(r, "b") == []


@pytest.mark.parametrize("ends", ENDS)
def test_events_behind_a_state_that_is_lost_are_told_again(
    ends: Callable[[BareBroker], None],
) -> None:
    r = granted()
    join(r, D, "d")
    acknowledge(r, cw.AckRow(1, 0, 0, r.broker.groups[G].serial))
    ends(r)
    join(r, C, "b", durable=True)
    assert untold(r, "b") == [2, 3]
    assert done(r, C, "b") == 1
    acknowledge(r, cw.AckRow(1, 0, 0, 0, member(r, "b").took), session=C)
    assert untold(r, "b") == [2, 3]  # that one life was told does not help the next one


def test_what_a_member_of_a_granted_state_may_need_survives_a_snapshot() -> None:
    r = granted()
    join(r, D, "d")
    acknowledge(r, cw.AckRow(1, 0, 0, r.broker.groups[G].serial))
    other = BareBroker()
    other.broker.restore(iter(r.snapshot()))
    assert member(other, "b") == member(r, "b")
    assert member(other, "b").late > member(other, "b").acked
    subscription = other.broker.topics.subscriptions[keys.member(G, "b")]
    assert (subscription.floor, subscription.base) == (3, 0)


# -- Whose state is complete --------------------------------------------------------------------


def test_nobody_is_asked_whose_state_begins_after_the_takers_join() -> None:
    r = bare(A, B, C, D)
    join(r, A, "a")
    join(r, B, "b")
    join(r, C, "c", takes_state=False)
    r.publish(A, G, 2)
    r.close(A)
    r.ask(B, cw.AskState(1, member(r, "b").request))
    assert does_without(r, "b")
    join(r, D, "d", provides=False)
    assert requests(r)[-1] == (("b",), ("d",), 2)


def test_who_was_invited_is_not_served_by_who_came_after_that() -> None:
    r = bare(A, B, C)
    join(r, A, "a", provides=False)
    invite(r, A, "b")
    join(r, C, "c")
    assert not join(r, B, "b", durable=True)
    assert requests(r) == []


def test_a_state_that_was_taken_over_is_as_complete_as_its_provider() -> None:
    """c joined after b, and has a state that began before b."""
    r = bare(A, B, C)
    join(r, A, "a")
    join(r, B, "b")
    join(r, C, "c")
    assert done(r, C, "c") == 1
    r.close(A)
    r.ask(B, cw.AskState(1, member(r, "b").request))
    assert requests(r)[-1] == (("c",), ("b",), 0)
    assert [member(r, name).since for name in "bc"] == [1, 1]


def test_who_waits_and_joined_earlier_is_a_hope() -> None:
    r = bare(B, C)
    r.attach(A, lease_ms=2_000)
    join(r, A, "a")
    r.detach(A)
    assert join(r, B, "b")
    assert join(r, C, "c")
    r.detach(B)
    r.wait(2_000)
    assert A not in r.broker.sessions
    assert not does_without(r, "b")  # it is not there to be told
    assert not does_without(r, "c")  # b may come back, and has no more hope than c
    r.attach(B, resume=True, attempt=2)
    assert does_without(r, "b")
    assert requests(r) == [(("b",), ("c",), 0)]
    assert member(r, "c").since == member(r, "b").since == 2


@pytest.mark.parametrize("provides", [True, False])
def test_the_first_that_waits_without_hope_does_without_and_serves_the_others(
    provides: bool,
) -> None:
    r = bare(B, C, D)
    r.attach(A, lease_ms=2_000)
    join(r, A, "a")
    r.detach(A)
    assert join(r, B, "b", provides=provides)
    assert join(r, C, "c")
    assert join(r, D, "d")
    r.wait(2_000)
    assert A not in r.broker.sessions
    assert does_without(r, "b")
    assert does_without(r, "c") == (not provides)  # b has nothing for it
    served = [(("b",), ("c",), 0), (("b",), ("d",), 0)] if provides else [(("c",), ("d",), 0)]
    assert requests(r) == served


def test_requests_survive_a_snapshot() -> None:
    r = bare(A, B, C)
    join(r, A, "a")
    join(r, B, "b")
    join(r, C, "c")
    r.ask(B, cw.AskState(1, member(r, "b").request, raised=True))
    other = BareBroker()
    other.broker.restore(iter(r.snapshot()))
    assert other.broker.groups[G].state() == r.broker.groups[G].state()
    assert other.snapshot() == r.snapshot()


def seen_and_not_acknowledged() -> BareBroker:
    r = bare(A, B)
    join(r, A, "a")
    join(r, B, "b", durable=True)
    assert done(r, B, "b") == 1
    r.publish(A, G, 3)
    return r


def test_what_was_perhaps_seen_stays_flagged_though_a_second_state_is_lost_too() -> None:
    r = seen_and_not_acknowledged()
    r.detach(B)
    r.wait(SUSPECT_MS)
    r.attach(C)
    join(r, C, "b", durable=True)
    assert r.subscription(C, 1).runs(1, 3, 0) == [(1, 3, 2)]
    assert done(r, C, "b") == 1
    r.close_consumer(C, 1)
    r.close(A)
    r.attach(D)
    join(r, D, "b", durable=True)
    assert r.subscription(D, 1).runs(1, 3, 0) == [(1, 3, 2)]


def test_what_was_given_back_stays_flagged_though_a_second_state_is_lost_too() -> None:
    r = seen_and_not_acknowledged()
    r.close_consumer(B, 1, cw.Kept(1, 1, 3, 1))
    join(r, B, "b", durable=True)
    assert done(r, B, "b") == 1
    r.close_consumer(B, 1)
    r.close(A)
    join(r, B, "b", durable=True)
    assert r.subscription(B, 1).runs(1, 3, 0) == [(1, 3, 2)]
