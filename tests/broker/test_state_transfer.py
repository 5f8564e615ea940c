"""A member takes over the state of another one: who is asked, what fails, what goes where."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from antiphon.broker import groups as rules
from antiphon.broker.group_state import Member
from antiphon.formats import client_wire as cw
from antiphon.formats import columns, command, pack
from antiphon.formats.entry import Kind
from tests.broker.house import Client, House, publish
from tests.broker.rig import Rig

A, B, C, D = 0xA, 0xB, 0xC, 0xD
G = "topic:g"

# -- Requests, in the log -----------------------------------------------------------------------


def rig(*sessions: int) -> Rig:
    one = Rig()
    for session in sessions:
        one.attach(session, client_id=f"c{session:x}")
    return one


def join(r: Rig, session: int, name: str, *, provides: bool = True, **options: Any) -> bool:
    """Whether there is a state to wait for."""
    result = r.ask(session, cw.Join(1, G, 100, name, provides=provides, **options))
    assert not result.code, result.text
    return bool(msgspec.msgpack.decode(result.data)[3])


def remove(r: Rig, session: int, name: str) -> None:
    extra = columns.encode_extra(columns.Extra(properties={"JMS_remove": name}))
    data, flags = columns.encode([columns.Outgoing(columns.TEXT, b"", extra, 0)])
    sequence = r.broker.last_sequence(session) + 1
    r._sequences[session, 0] = sequence
    r.entry(Kind.PACK, pack.encode(G, 1, data, session, sequence, 0, flags | pack.CONTROL))


def invite(r: Rig, session: int, name: str) -> None:
    properties: dict[str, Any] = {"JMS_join_process": name, "JMS_subscription": "durable"}
    extra = columns.encode_extra(columns.Extra(properties=properties))
    data, flags = columns.encode([columns.Outgoing(columns.TEXT, b"", extra, 0)])
    sequence = r.broker.last_sequence(session) + 1
    r._sequences[session, 0] = sequence
    r.entry(Kind.PACK, pack.encode(G, 1, data, session, sequence, 0, flags | pack.CONTROL))


def member(r: Rig, name: str) -> Member:
    return r.broker.groups[G].members[name]


def requests(r: Rig) -> list[tuple[tuple[str, ...], tuple[str, ...], int]]:
    """Who hands out, who takes, and the cut, of all requests that are kept."""
    events = r.broker.groups[G].events
    return [(e.went, e.came, e.position) for e in events if e.kind == cw.STATE]


def done(r: Rig, session: int, name: str) -> int:
    return r.ask(session, cw.StateDone(1, member(r, name).request)).value


def test_the_first_member_has_nobody_to_ask() -> None:
    r = rig(A)
    assert not join(r, A, "a")
    assert requests(r) == []
    assert not member(r, "a").needs_state


def test_nobody_is_asked_who_cannot_hand_out_a_state() -> None:
    r = rig(A, B)
    join(r, A, "a", provides=False)
    assert not join(r, B, "b")
    assert requests(r) == []


def test_a_request_stands_right_behind_the_view() -> None:
    r = rig(A, B)
    join(r, A, "a")
    r.publish(A, G, 3)
    assert join(r, B, "b")
    view, state = r.broker.groups[G].events[-2:]
    assert (view.kind, view.came, state.kind) == (cw.VIEW, ("b",), cw.STATE)
    assert (state.went, state.came, state.position) == (("a",), ("b",), view.position)
    assert state.serial == member(r, "b").request == view.serial + 1


def test_who_does_not_want_a_state_is_not_given_one() -> None:
    r = rig(A, B)
    join(r, A, "a")
    assert not join(r, B, "b", takes_state=False)
    assert requests(r) == []


def test_a_plain_consumer_of_the_topic_takes_no_state() -> None:
    r = rig(A, B)
    join(r, A, "a")
    assert not r.open(B, 1, G).code
    assert requests(r) == []


def test_the_oldest_is_asked_and_not_one_that_waits_itself() -> None:
    r = rig(A, B, C, D)
    join(r, A, "a", provides=False)
    join(r, B, "b")
    join(r, C, "c")
    join(r, D, "d")
    assert requests(r) == [(("b",), ("c",), 0), (("b",), ("d",), 0)]


def test_who_has_got_the_state_may_hand_it_out() -> None:
    r = rig(A, B, C)
    join(r, A, "a")
    join(r, B, "b")
    assert done(r, B, "b") == 1
    r.ask(A, cw.Leave(1))
    join(r, C, "c")
    assert requests(r)[-1] == (("b",), ("c",), 0)


def test_an_old_state_is_not_taken_for_the_new_one() -> None:
    r = rig(A, B)
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
    r = rig(A)
    assert r.ask(A, cw.StateDone(1, 1)).code == "IllegalStateError"
    assert r.ask(A, cw.AskState(1, 1)).code == "IllegalStateError"


# -- Providers fail -----------------------------------------------------------------------------


def leaves(r: Rig) -> None:
    r.ask(A, cw.Leave(1))


def closes(r: Rig) -> None:
    r.close(A)


def is_removed(r: Rig) -> None:
    remove(r, B, "a")


def is_unsubscribed(r: Rig) -> None:
    r.ask(B, cw.Unsubscribe("a", G))


def is_suspected(r: Rig) -> None:
    r.detach(A)
    assert member(r, "c").provider == "a"  # it may be back at once
    r.wait(rules.SUSPECT_MS)


def comes_back(r: Rig) -> None:
    r.detach(A)
    r.attach(A, client_id="ca", resume=True, attempt=2)


def gives_up(r: Rig) -> None:
    r.ask(A, cw.CloseConsumer(1, failed=True))


@pytest.mark.parametrize(
    "fails",
    [leaves, closes, is_removed, is_unsubscribed, is_suspected, comes_back, gives_up],
)
def test_when_the_provider_fails_another_is_asked_and_the_cut_moves(
    fails: Callable[[Rig], None],
) -> None:
    r = rig(A, B, C)
    join(r, A, "a")
    join(r, B, "b")
    done(r, B, "b")
    join(r, C, "c")
    r.publish(B, G, 5)
    fails(r)
    assert requests(r)[-1] == (("b",), ("c",), 5)
    assert r.subscription(C, 1).floor == 5
    assert member(r, "c").request == r.broker.groups[G].serial


def test_a_provider_that_raises_is_not_asked_again() -> None:
    r = rig(A, B, C)
    join(r, A, "a")
    join(r, B, "b")
    done(r, B, "b")
    join(r, C, "c")
    r.ask(C, cw.AskState(1, member(r, "c").request, raised=True))
    assert requests(r)[-1][0] == ("b",)
    r.ask(C, cw.AskState(1, member(r, "c").request, raised=True))
    assert requests(r)[-1] == ((), ("c",), 0)  # nobody can
    assert not member(r, "c").needs_state


def test_a_silent_provider_has_its_turn_again_when_all_were_silent() -> None:
    r = rig(A, B, C)
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
    r = rig(A, B)
    join(r, A, "a")
    join(r, B, "b")
    old = member(r, "b").request
    r.ask(B, cw.AskState(1, old))
    serial = r.broker.groups[G].serial
    r.ask(B, cw.AskState(1, old))
    assert r.broker.groups[G].serial == serial


def test_a_provider_that_may_come_back_is_waited_for() -> None:
    r = rig(A, B)
    join(r, A, "a")
    r.detach(A)
    assert join(r, B, "b")
    assert requests(r) == []
    r.publish(B, G, 2)
    r.attach(A, client_id="ca", resume=True, attempt=2)
    assert requests(r) == [(("a",), ("b",), 2)]
    assert r.subscription(B, 1).floor == 2


def test_a_provider_that_never_comes_back_is_not_waited_for_longer_than_its_lease() -> None:
    r = rig(A, B)
    join(r, A, "a")
    r.detach(A)
    join(r, B, "b")
    for _ in range(9):
        r.wait(1000)
        r.command(command.Renew(1, 1))
    assert requests(r) == []
    r.wait(1000)
    assert requests(r) == [((), ("b",), 0)]
    assert not member(r, "b").needs_state


def test_what_was_sent_before_the_last_provider_left_may_still_arrive() -> None:
    r = rig(A, B)
    join(r, A, "a")
    join(r, B, "b")
    request = member(r, "b").request
    r.publish(A, G)
    r.close(A)
    assert member(r, "b").request == request
    assert r.subscription(B, 1).floor == 0
    assert done(r, B, "b") == 1


def test_what_does_not_arrive_after_the_last_provider_left_is_lost() -> None:
    r = rig(A, B)
    join(r, A, "a")
    join(r, B, "b")
    r.close(A)
    r.ask(B, cw.AskState(1, member(r, "b").request))
    assert requests(r)[-1] == ((), ("b",), 0)
    assert not member(r, "b").needs_state


def test_two_who_wait_for_one_that_is_gone_do_not_wait_for_each_other() -> None:
    r = rig(A, B, C)
    join(r, A, "a")
    join(r, B, "b")
    join(r, C, "c")
    r.close(A)
    r.ask(B, cw.AskState(1, member(r, "b").request))  # c may yet have got it
    assert requests(r)[-1][0] == ("a",)
    r.ask(C, cw.AskState(1, member(r, "c").request))
    assert requests(r)[-2:] == [((), ("b",), 0), (("b",), ("c",), 0)]
    assert done(r, C, "c") == 1


def test_who_joins_while_all_others_wait_does_not_pass_for_one_that_has_the_state() -> None:
    r = rig(A, B, C)
    join(r, A, "a")
    join(r, B, "b")
    r.close(A)
    assert join(r, C, "c")
    assert requests(r)[-1] == (("a",), ("b",), 0)
    assert done(r, B, "b") == 1  # all had been sent
    assert requests(r)[-1] == (("b",), ("c",), 0)


# -- Takers fail --------------------------------------------------------------------------------


def test_a_taker_that_dies_ends_the_request() -> None:
    r = rig(A, B)
    join(r, A, "a")
    join(r, B, "b")
    r.detach(B)
    r.wait(rules.SUSPECT_MS)
    assert member(r, "b").request == 0


def test_a_taker_that_comes_back_begins_again() -> None:
    r = rig(A, B)
    join(r, A, "a")
    join(r, B, "b")
    r.publish(A, G, 4)
    r.detach(B)
    r.wait(rules.SUSPECT_MS)
    r.attach(B, client_id="cb", resume=True, attempt=2)
    assert requests(r)[-1] == (("a",), ("b",), 4)


def test_a_durable_taker_that_died_takes_the_state_when_it_joins_again() -> None:
    r = rig(A, B, C)
    join(r, A, "a")
    assert join(r, B, "b", durable=True)
    r.close(B)
    assert member(r, "b").request == 0
    r.publish(A, G, 4)
    assert join(r, C, "b", durable=True)
    assert requests(r)[-1] == (("a",), ("b",), 4)
    assert r.subscription(C, 1).floor == 4


def test_a_durable_member_that_has_its_state_resumes_without() -> None:
    r = rig(A, B, C)
    join(r, A, "a")
    join(r, B, "b", durable=True)
    done(r, B, "b")
    r.close(B)
    r.publish(A, G, 4)
    assert not join(r, C, "b", durable=True)
    assert r.subscription(C, 1).floor == 0


def test_who_was_invited_takes_the_state_when_it_comes() -> None:
    r = rig(A, B)
    join(r, A, "a")
    invite(r, A, "b")
    assert requests(r) == []
    r.publish(A, G, 2)
    assert join(r, B, "b", durable=True)
    assert requests(r) == [(("a",), ("b",), 2)]


def test_who_was_invited_and_finds_no_state_gets_all_messages() -> None:
    r = rig(A, B)
    join(r, A, "a", provides=False)
    invite(r, A, "b")
    r.publish(A, G, 2)
    assert not join(r, B, "b", durable=True)
    assert r.subscription(B, 1).floor == 0
    assert not member(r, "b").needs_state


def test_requests_survive_a_snapshot() -> None:
    r = rig(A, B, C)
    join(r, A, "a")
    join(r, B, "b")
    join(r, C, "c")
    r.ask(B, cw.AskState(1, member(r, "b").request, raised=True))
    other = Rig()
    other.broker.restore(iter(r.snapshot()))
    assert other.broker.groups[G].state() == r.broker.groups[G].state()
    assert other.snapshot() == r.snapshot()


# -- Through the servers ------------------------------------------------------------------------


def house(**settings: int) -> tuple[House, Client, Client]:
    """`a` at server 1 has the state, `b` at server 2 waits for it."""
    h = House(3, **settings)
    a, b = h.attached(A, 1), h.attached(B, 2)
    enter(a, "a")
    a.say(publish(A, 1, 3, G))
    enter(b, "b")
    return h, a, b


def enter(client: Client, name: str, *, number: int = 1, prefetch: int = 100) -> None:
    client.say(cw.Control(number, cw.Join(7, G, prefetch, name, provides=True)))
    assert not client.told(cw.Result)[-1].code


def asked(client: Client) -> list[cw.GroupEvent]:
    return [h.event for h in client.told(cw.Happened) if h.event.kind == cw.STATE]


def chunk(serial: int, seq: int, data: bytes = b"x", last: bool = False) -> cw.StateChunk:
    return cw.StateChunk(7, serial, seq, data, last)


def test_only_the_two_are_told() -> None:
    h, a, b = house()
    c = h.attached(C, 3)
    enter(c, "c")
    assert [(e.went, e.came) for e in asked(b)] == [(("a",), ("b",))]
    assert [(e.went, e.came) for e in asked(c)] == [(("a",), ("c",))]
    assert [e.came for e in asked(a)] == [("b",), ("c",)]


def test_a_view_comes_before_the_request_and_messages_after_it() -> None:
    _, a, b = house()
    a.say(publish(A, 4, 2, G))
    order = [
        x.event.kind if isinstance(x, cw.Happened) else x.position
        for x in b.heard
        if isinstance(x, cw.Happened | cw.Deliver)
    ]
    assert order == [cw.VIEW, cw.STATE, 4]


@pytest.mark.parametrize("node", [1, 2])
def test_chunks_go_from_one_to_the_other(node: int) -> None:
    h = House(2)
    a, b = h.attached(A, 1), h.attached(B, node)
    enter(a, "a")
    enter(b, "b")
    serial = asked(a)[0].serial
    a.say(chunk(serial, 1, b"one"), chunk(serial, 2, b"two", last=True))
    assert [(c.seq, c.data, c.last) for c in b.told(cw.StateChunk)] == [
        (1, b"one", False),
        (2, b"two", True),
    ]
    b.say(cw.Control(2, cw.StateDone(7, serial)))
    assert b.told(cw.Result)[-1].value == 1


def test_the_consumer_is_the_receivers_own() -> None:
    h, a, _ = house()
    c = h.attached(C, 3)
    c.say(cw.Control(1, cw.Join(99, G, 100, "c")))
    serial = asked(c)[0].serial
    a.say(chunk(serial, 1))
    assert c.told(cw.StateChunk) == [cw.StateChunk(99, serial, 1, b"x", False)]
    c.say(cw.StateTaken(99, serial, 1))
    assert a.told(cw.StateTaken) == [cw.StateTaken(7, serial, 1)]


def test_a_provider_keeps_to_the_window() -> None:
    _, a, b = house()
    serial = asked(a)[0].serial
    a.say(*(chunk(serial, seq) for seq in range(1, cw.STATE_WINDOW + 1)))
    b.say(cw.StateTaken(7, serial, 2))
    a.say(*(chunk(serial, cw.STATE_WINDOW + seq) for seq in (1, 2)))
    assert a.cut is None
    assert len(b.told(cw.StateChunk)) == cw.STATE_WINDOW + 2
    a.say(chunk(serial, cw.STATE_WINDOW + 3))
    assert a.cut is not None
    assert "have been taken" in a.cut
    assert b.cut is None


def test_nobody_takes_more_than_was_sent() -> None:
    _, a, b = house()
    serial = asked(a)[0].serial
    a.say(chunk(serial, 1))
    b.say(cw.StateTaken(7, serial, 1_000_000))
    a.say(*(chunk(serial, seq) for seq in range(2, cw.STATE_WINDOW + 2)))
    assert a.cut is None
    a.say(chunk(serial, cw.STATE_WINDOW + 2))
    assert a.cut is not None


@pytest.mark.parametrize(
    "wrong", [chunk(0, 2), chunk(0, 0), chunk(0, 1, bytes(cw.STATE_CHUNK_MAX + 1))]
)
def test_a_provider_that_sends_nonsense_is_refused(wrong: cw.StateChunk) -> None:
    _, a, b = house()
    a.say(msgspec.structs.replace(wrong, serial=asked(a)[0].serial))
    assert a.told(cw.Refused)
    assert b.told(cw.StateChunk) == []


def test_a_state_that_nobody_asked_for_goes_nowhere() -> None:
    _, a, b = house()
    b.say(chunk(asked(b)[0].serial, 1))  # b is the one that waits
    assert b.told(cw.StateStopped)
    a.say(chunk(999, 1), cw.StateFailed(7, 999, "?"), cw.StateTaken(7, 999, 1))
    a.say(cw.StateChunk(8, 999, 1, b"", True), cw.StateTaken(8, 999, 1))
    assert [s.serial for s in a.told(cw.StateStopped)] == [999, 999]
    assert b.told(cw.StateChunk) == b.told(cw.StateFailed) == b.told(cw.StateTaken) == []
    assert a.cut is None
    assert b.cut is None


def test_a_provider_that_cannot_says_why_and_another_is_asked() -> None:
    h, a, b = house()
    c = h.attached(C, 3)
    enter(c, "c")
    first = asked(b)[0].serial
    a.say(chunk(asked(c)[0].serial, 1, last=True))
    c.say(cw.Control(2, cw.StateDone(7, asked(c)[0].serial)))
    a.say(cw.StateFailed(7, first, "no idea"))
    assert [f.reason for f in b.told(cw.StateFailed)] == ["no idea"]
    b.say(cw.Control(2, cw.AskState(7, first, raised=True)))
    assert asked(b)[-1].went == ("c",)
    c.say(chunk(asked(c)[-1].serial, 1, b"c's", last=True))
    assert b.told(cw.StateChunk)[-1].data == b"c's"


def test_a_provider_is_told_when_nobody_waits_any_more() -> None:
    h, a, b = house()
    serial = asked(a)[0].serial
    a.say(chunk(serial, 1))
    b.lose()
    h.wait(2 * rules.SUSPECT_MS)
    assert a.told(cw.StateStopped) == [cw.StateStopped(7, serial)]


def test_a_provider_is_told_when_another_was_asked() -> None:
    _, a, b = house()
    serial = asked(a)[0].serial
    a.say(chunk(serial, 1))
    b.say(cw.Control(2, cw.AskState(7, serial)))
    assert a.told(cw.StateStopped) == [cw.StateStopped(7, serial)]
    assert asked(a)[-1].serial > serial  # it is asked again, for there is nobody else


@pytest.mark.parametrize("chunks", [0, 1, 2, 3])
def test_a_provider_may_die_at_every_step(chunks: int) -> None:
    h, a, b = house()
    c = h.attached(C, 3)
    enter(c, "c")
    a.say(chunk(asked(c)[0].serial, 1, last=True))
    c.say(cw.Control(2, cw.StateDone(7, asked(c)[0].serial)))
    serial = asked(b)[0].serial
    a.say(*(chunk(serial, seq, last=seq == 3) for seq in range(1, chunks + 1)))
    a.lose()
    c.say(publish(C, 1, 4, G))
    h.wait(2 * rules.SUSPECT_MS)
    again = asked(b)[-1]
    assert (again.went, again.position) == (("c",), 7)
    c.say(chunk(again.serial, 1, b"new", last=True))
    assert b.told(cw.StateChunk)[-1].serial == again.serial
    b.say(cw.Control(2, cw.StateDone(7, serial)))
    b.say(cw.Control(3, cw.StateDone(7, again.serial)))
    assert [r.value for r in b.told(cw.Result)][-2:] == [0, 1]
    c.say(publish(C, 5, 1, G))
    assert b.deliveries()[-1] == (7, 8, 8, 1)


def test_a_full_window_does_not_keep_a_later_request_from_its_member() -> None:
    h = House(2)
    a, b = h.attached(A, 1), h.attached(B, 2)
    enter(a, "a")
    enter(b, "b", prefetch=2)
    a.say(publish(A, 1, 50, G))
    assert b.deliveries() == [(7, 1, 2, 1)]
    b.say(cw.Control(2, cw.AskState(7, asked(b)[0].serial)))
    assert asked(b)[-1].position == 50
    a.say(publish(A, 51, 50, G))
    assert b.deliveries() == [(7, 1, 2, 1), (7, 51, 52, 1)]


def test_a_superseded_request_is_not_told_to_a_provider_that_comes_late() -> None:
    h = House(2)
    a, b = h.attached(A, 1), h.attached(B, 2)
    enter(a, "a", prefetch=1)
    a.say(publish(A, 1, 5, G))  # its window is full: it is told nothing of what comes after
    enter(b, "b")
    assert asked(a) == []
    b.say(cw.Control(2, cw.AskState(7, asked(b)[0].serial)))
    for position in range(1, 6):
        a.say(cw.Ack(position, (cw.AckRow(7, 0, position),)))
    assert [e.serial for e in asked(a)] == [asked(b)[-1].serial]


def test_what_was_relayed_to_an_earlier_connection_is_dropped() -> None:
    h, _, b = house()
    piece = cw.encode(chunk(asked(b)[0].serial, 1))
    home = h.servers[2].home
    home.relayed(B, 2, piece)
    home.relayed(C, 1, piece)
    h.carry_out(h.servers[2])
    assert b.told(cw.StateChunk) == []
    home.relayed(B, 1, piece)
    h.carry_out(h.servers[2])
    assert len(b.told(cw.StateChunk)) == 1


def test_what_was_lost_between_servers_is_asked_for_again() -> None:
    h, a, b = house()
    first = asked(b)[0].serial
    h.lose_relays = True
    a.say(chunk(first, 1, last=True))
    assert b.told(cw.StateChunk) == []
    h.lose_relays = False
    b.say(cw.Control(2, cw.AskState(7, first)))
    a.say(chunk(asked(a)[-1].serial, 1, last=True))
    assert len(b.told(cw.StateChunk)) == 1


def test_two_take_the_state_at_once() -> None:
    h, a, b = house()
    c = h.attached(C, 3)
    enter(c, "c")
    for_b, for_c = (e.serial for e in asked(a))
    a.say(chunk(for_b, 1, b"b1"), chunk(for_b, 2, b"b2", last=True), chunk(for_c, 1, b"c1"))
    b.say(cw.Control(2, cw.StateDone(7, for_b)))
    a.say(chunk(for_c, 2, b"c2", last=True))
    c.say(cw.Control(2, cw.StateDone(7, for_c)))
    assert [x.data for x in b.told(cw.StateChunk)] == [b"b1", b"b2"]
    assert [x.data for x in c.told(cw.StateChunk)] == [b"c1", b"c2"]
    assert [x.told(cw.Result)[-1].value for x in (b, c)] == [1, 1]
    assert h.servers[1].home.counts()["states"] == 0
