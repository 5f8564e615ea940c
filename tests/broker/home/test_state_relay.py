"""A member takes over the state of another one: what its server and the servers between do."""

import msgspec
import pytest

from antiphon.broker.machine.groups.suspicion import SUSPECT_MS
from antiphon.formats import columns
from antiphon.formats import protocol as cw
from tests.broker.machine.groups.test_state_requests import A, B, C, G, control
from tests.broker.support.homes import Client, Homes, publish

# -- Through the servers ------------------------------------------------------------------------


def homes(**settings: int) -> tuple[Homes, Client, Client]:
    """`a` at server 1 has the state, `b` at server 2 waits for it."""
    h = Homes(3, **settings)
    a, b = h.attached(A, 1), h.attached(B, 2)
    enter(a, "a")
    a.say(publish(A, 1, 3, G))
    enter(b, "b")
    return h, a, b


def enter(client: Client, name: str, *, number: int = 1, prefetch: int = 100) -> None:
    client.say(cw.Control(number, cw.Join(7, G, prefetch, name, provides=True)))
    assert not client.told(cw.Result)[-1].code


def asked(client: Client) -> list[cw.GroupEvent]:
    """What this member was asked to hand out."""
    return [h.event for h in client.told(cw.Happened) if h.event.kind == cw.STATE]


def expects(client: Client) -> list[cw.StateComes]:
    """What this member was told of the state that it waits for."""
    return client.told(cw.StateComes)


def take_over(client: Client, number: int) -> None:
    """It says that it has got the state that it was told of last, and that one counts."""
    client.say(cw.Control(number, cw.StateDone(7, expects(client)[-1].serial)))
    assert client.told(cw.Result)[-1].value == 1


def seen(client: Client) -> list[str | int]:
    """Views, and positions of messages, as they came."""
    found: list[str | int] = []
    for one in client.heard:
        if isinstance(one, cw.Happened) and one.event.kind == cw.VIEW:
            found.append(f"view {one.event.view}")
        elif isinstance(one, cw.Deliver):
            found += range(one.position, one.position + columns.Columns(one.pack).count)
    return found


def chunk(serial: int, seq: int, data: bytes = b"x", last: bool = False) -> cw.StateChunk:
    return cw.StateChunk(7, serial, seq, data, last)


def test_only_the_two_are_told() -> None:
    """Who hands it out is told among the messages, and who takes it over at once."""
    h, a, b = homes()
    c = h.attached(C, 3)
    enter(c, "c")
    for_b, for_c = asked(a)
    assert [(e.went, e.came) for e in (for_b, for_c)] == [(("a",), ("b",)), (("a",), ("c",))]
    assert expects(b) == [cw.StateComes(7, for_b.serial, 3, "a")]
    assert expects(c) == [cw.StateComes(7, for_c.serial, 3, "a")]
    assert expects(a) == asked(b) == asked(c) == []


def test_nothing_but_the_views_before_them_comes_while_messages_wait_for_the_state() -> None:
    h, a, b = homes()
    a.say(publish(A, 4, 2, G))
    enter(h.attached(C, 3), "c")
    a.say(publish(A, 6, 1, G))
    h.wait(1000)
    assert seen(b) == ["view 2"]
    take_over(b, 2)
    assert seen(b) == ["view 2", 4, 5, "view 3", 6]
    a.say(publish(A, 7, 1, G))
    assert seen(b)[-1] == 7


def test_what_is_in_the_state_does_not_come_but_views_do() -> None:
    h, a, b = homes()
    a.say(publish(A, 4, 2, G))
    enter(h.attached(C, 3), "c")
    a.say(publish(A, 6, 1, G))
    b.say(cw.Control(2, cw.AskState(7, expects(b)[0].serial)))
    assert expects(b)[-1].position == 6
    a.say(publish(A, 7, 1, G))
    assert seen(b) == ["view 2"]
    take_over(b, 3)
    assert seen(b) == ["view 2", "view 3", 7]


def test_who_waits_is_told_again_with_a_new_connection() -> None:
    h, a, b = homes()
    a.say(publish(A, 4, 2, G))
    b.lose()
    again = h.connect(3)
    again.attach(B, 2)
    assert expects(again) == [cw.StateComes(7, asked(a)[-1].serial, 5, "a")]
    assert seen(again) == ["view 2"]
    take_over(again, 2)
    a.say(publish(A, 6, 1, G))
    assert seen(again) == ["view 2", 6]


def test_a_request_that_still_stands_is_told_again_as_it_is() -> None:
    """All was sent before the provider left, and nobody else can be asked."""
    h, a, b = homes()
    a.say(publish(A, 4, 2, G))
    before = expects(b)[-1]
    a.say(cw.Ack(1, (cw.AckRow(7, 0, 0, event=before.serial),)))
    a.say(cw.Control(2, cw.Leave(7)))
    b.lose()
    again = h.connect(3)
    again.attach(B, 2)
    assert expects(again) == [before]
    assert seen(again) == ["view 2"]
    take_over(again, 2)
    assert seen(again) == ["view 2", 4, 5, "view 3"]


def test_who_finds_nobody_to_ask_waits_and_is_told_as_soon_as_somebody_is() -> None:
    h = Homes(3)
    a, b = h.attached(A, 1), h.attached(B, 2)
    enter(a, "a")
    a.lose()
    enter(b, "b")
    b.say(publish(B, 1, 2, G))
    assert expects(b) == []
    assert seen(b) == ["view 2"]
    again = h.connect(3)
    again.attach(A, 2)
    assert expects(b) == [cw.StateComes(7, asked(again)[-1].serial, 2, "a")]
    assert seen(b) == ["view 2"]


# -- There is no state ---------------------------------------------------------------------------


NONE = cw.StateComes(7, 0, 0, "")


def deserted() -> tuple[Homes, Client]:
    """b waited for a state while two messages came, and then all who had one were gone."""
    h, a, b = homes()
    a.say(publish(A, 4, 2, G))
    a.say(cw.Control(2, cw.Leave(7)))
    b.say(cw.Control(2, cw.AskState(7, expects(b)[0].serial)))
    return h, b


def test_without_a_state_all_messages_since_the_join_come() -> None:
    _, b = deserted()
    assert expects(b)[-1] == NONE
    assert seen(b) == ["view 2", 4, 5, "view 3"]
    assert b.deliveries() == [(7, 4, 5, 1)]  # for the first time


def test_that_there_is_no_state_is_told_again_with_a_new_connection() -> None:
    h, b = deserted()
    b.lose()
    again = h.connect(3)
    again.attach(B, 2)
    assert expects(again) == [NONE]
    assert seen(again) == ["view 2", 4, 5, "view 3"]


@pytest.mark.parametrize("connected", [True, False])
def test_who_is_removed_while_it_waits_gets_all_that_was_for_it(connected: bool) -> None:
    h, a, b = homes()
    a.say(publish(A, 4, 2, G))
    if not connected:
        b.lose()
    a.say(cw.Publish(control(A, 6, JMS_remove="b")))
    a.say(publish(A, 7, 1, G))
    if not connected:
        b = h.connect(3)
        b.attach(B, 2)
    assert expects(b)[-1] == NONE
    assert seen(b) == ["view 2", 4, 5, "view 3"]
    last = b.told(cw.Happened)[-1].event
    assert (last.went, last.members) == (("b",), ("a",))
    b.say(cw.Control(2, cw.StateDone(7, expects(b)[0].serial)))
    assert b.told(cw.Result)[-1].code == "IllegalStateError"


# -- Pieces --------------------------------------------------------------------------------------


@pytest.mark.parametrize("node", [1, 2])
def test_chunks_go_from_one_to_the_other(node: int) -> None:
    h = Homes(2)
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
    h, a, _ = homes()
    c = h.attached(C, 3)
    c.say(cw.Control(1, cw.Join(99, G, 100, "c")))
    assert expects(c)[0].consumer == 99
    serial = expects(c)[0].serial
    a.say(chunk(serial, 1))
    assert c.told(cw.StateChunk) == [cw.StateChunk(99, serial, 1, b"x", False)]
    c.say(cw.StateTaken(99, serial, 1))
    assert a.told(cw.StateTaken) == [cw.StateTaken(7, serial, 1)]


def test_a_provider_keeps_to_the_window() -> None:
    _, a, b = homes()
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
    _, a, b = homes()
    serial = asked(a)[0].serial
    a.say(chunk(serial, 1))
    b.say(cw.StateTaken(7, serial, 1_000_000))
    a.say(*(chunk(serial, seq) for seq in range(2, cw.STATE_WINDOW + 2)))
    assert a.cut is None
    a.say(chunk(serial, cw.STATE_WINDOW + 2))
    assert a.cut is not None


def test_a_piece_that_comes_twice_is_passed_on_once() -> None:
    """A proxy may have sent it again: that is no reason to end a session."""
    h, a, b = homes()
    serial = asked(a)[0].serial
    a.say(chunk(serial, 1, b"one"), chunk(serial, 1, b"one"), chunk(serial, 2, b"two"))
    a.say(chunk(serial, 1, b"one"), chunk(serial, 3, last=True), chunk(serial, 3, last=True))
    assert [c.seq for c in b.told(cw.StateChunk)] == [1, 2, 3]
    take_over(b, 2)
    a.say(chunk(serial, 3, last=True))
    assert len(b.told(cw.StateChunk)) == 3
    assert a.cut is None
    assert h.servers[1].home.counts()["states"] == 0


@pytest.mark.parametrize(
    ("sent", "wrong"),
    [
        ([], chunk(0, 2)),
        ([chunk(0, 1)], chunk(0, 3)),
        ([], chunk(0, 1, bytes(cw.STATE_CHUNK_MAX + 1))),
        ([chunk(0, 1, last=True)], chunk(0, 2)),
    ],
    ids=["first", "gap", "size", "after the last"],
)
def test_a_provider_that_sends_nonsense_is_refused(
    sent: list[cw.StateChunk], wrong: cw.StateChunk
) -> None:
    _, a, b = homes()
    serial = asked(a)[0].serial
    for piece in sent:
        a.say(msgspec.structs.replace(piece, serial=serial))
    assert not a.told(cw.Refused)
    a.say(msgspec.structs.replace(wrong, serial=serial))
    assert a.told(cw.Refused)
    assert len(b.told(cw.StateChunk)) == len(sent)


def test_there_is_no_piece_before_the_first() -> None:
    _, a, b = homes()
    a.say(chunk(asked(a)[0].serial, 0))
    assert b.told(cw.StateChunk) == []


def test_a_state_that_nobody_asked_for_goes_nowhere() -> None:
    _, a, b = homes()
    b.say(chunk(expects(b)[0].serial, 1))  # b is the one that waits
    assert b.told(cw.StateStopped)
    a.say(chunk(999, 1), cw.StateFailed(7, 999, "?"), cw.StateTaken(7, 999, 1))
    a.say(cw.StateChunk(8, 999, 1, b"", True), cw.StateTaken(8, 999, 1))
    assert [s.serial for s in a.told(cw.StateStopped)] == [999, 999]
    assert b.told(cw.StateChunk) == b.told(cw.StateFailed) == b.told(cw.StateTaken) == []
    assert a.cut is None
    assert b.cut is None


def test_a_provider_that_cannot_says_why_and_another_is_asked() -> None:
    h, a, b = homes()
    c = h.attached(C, 3)
    enter(c, "c")
    first = expects(b)[0].serial
    a.say(chunk(expects(c)[0].serial, 1, last=True))
    take_over(c, 2)
    a.say(cw.StateFailed(7, first, "no idea"))
    assert [f.reason for f in b.told(cw.StateFailed)] == ["no idea"]
    b.say(cw.Control(2, cw.AskState(7, first, raised=True)))
    assert expects(b)[-1] == cw.StateComes(7, asked(c)[-1].serial, 3, "c")
    c.say(chunk(asked(c)[-1].serial, 1, b"c's", last=True))
    assert b.told(cw.StateChunk)[-1].data == b"c's"


def test_a_provider_is_told_when_nobody_waits_any_more() -> None:
    h, a, b = homes()
    serial = asked(a)[0].serial
    a.say(chunk(serial, 1))
    b.lose()
    h.wait(2 * SUSPECT_MS)
    assert a.told(cw.StateStopped) == [cw.StateStopped(7, serial)]


def test_a_provider_is_told_when_another_was_asked() -> None:
    _, a, b = homes()
    serial = asked(a)[0].serial
    a.say(chunk(serial, 1))
    b.say(cw.Control(2, cw.AskState(7, serial)))
    assert a.told(cw.StateStopped) == [cw.StateStopped(7, serial)]
    assert asked(a)[-1].serial > serial  # it is asked again, for there is nobody else


@pytest.mark.parametrize("chunks", [0, 1, 2, 3])
def test_a_provider_may_die_at_every_step(chunks: int) -> None:
    h, a, b = homes()
    c = h.attached(C, 3)
    enter(c, "c")
    a.say(chunk(expects(c)[0].serial, 1, last=True))
    take_over(c, 2)
    serial = expects(b)[0].serial
    a.say(*(chunk(serial, seq, last=seq == 3) for seq in range(1, chunks + 1)))
    a.lose()
    c.say(publish(C, 1, 4, G))
    h.wait(2 * SUSPECT_MS)
    again = expects(b)[-1]
    assert (again.provider, again.position) == ("c", 7)
    c.say(chunk(again.serial, 1, b"new", last=True))
    assert b.told(cw.StateChunk)[-1].serial == again.serial
    b.say(cw.Control(2, cw.StateDone(7, serial)))
    b.say(cw.Control(3, cw.StateDone(7, again.serial)))
    assert [r.value for r in b.told(cw.Result)][-2:] == [0, 1]
    c.say(publish(C, 5, 1, G))
    assert b.deliveries() == [(7, 8, 8, 1)]


def test_what_is_in_the_state_does_not_fill_the_window_of_its_member() -> None:
    h = Homes(2)
    a, b = h.attached(A, 1), h.attached(B, 2)
    enter(a, "a")
    enter(b, "b", prefetch=2)
    a.say(publish(A, 1, 50, G))
    b.say(cw.Control(2, cw.AskState(7, expects(b)[0].serial)))
    assert expects(b)[-1].position == 50
    a.say(publish(A, 51, 50, G))
    assert b.deliveries() == []
    take_over(b, 3)
    assert b.deliveries() == [(7, 51, 52, 1)]


def test_a_superseded_request_is_not_told_to_a_provider_that_comes_late() -> None:
    h = Homes(2)
    a, b = h.attached(A, 1), h.attached(B, 2)
    enter(a, "a", prefetch=1)
    a.say(publish(A, 1, 5, G))  # its window is full: it is told nothing of what comes after
    enter(b, "b")
    assert asked(a) == []
    b.say(cw.Control(2, cw.AskState(7, expects(b)[0].serial)))
    assert len(expects(b)) == 2
    for position in range(1, 6):
        a.say(cw.Ack(position, (cw.AckRow(7, 0, position),)))
    assert [e.serial for e in asked(a)] == [expects(b)[-1].serial]


def test_what_was_relayed_to_an_earlier_connection_is_dropped() -> None:
    h, _, b = homes()
    piece = cw.encode(chunk(expects(b)[0].serial, 1))
    home = h.servers[2].home
    home.relayed(B, 2, piece)
    home.relayed(C, 1, piece)
    h.carry_out(h.servers[2])
    assert b.told(cw.StateChunk) == []
    home.relayed(B, 1, piece)
    h.carry_out(h.servers[2])
    assert len(b.told(cw.StateChunk)) == 1


def test_what_was_lost_between_servers_is_asked_for_again() -> None:
    h, a, b = homes()
    first = expects(b)[0].serial
    h.lose_relays = True
    a.say(chunk(first, 1, last=True))
    assert b.told(cw.StateChunk) == []
    h.lose_relays = False
    b.say(cw.Control(2, cw.AskState(7, first)))
    a.say(chunk(asked(a)[-1].serial, 1, last=True))
    assert len(b.told(cw.StateChunk)) == 1


def test_two_take_the_state_at_once() -> None:
    h, a, b = homes()
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


# -- Granted, and removed --------------------------------------------------------------------------


def test_who_is_removed_in_the_moment_of_its_state_is_not_told_that_there_is_none() -> None:
    h, a, b = homes()
    a.say(publish(A, 4, 2, G))
    b.say(cw.Control(2, cw.AskState(7, asked(a)[-1].serial)))
    h.paused = True
    b.say(cw.Control(3, cw.StateDone(7, asked(a)[-1].serial)))
    a.say(cw.Publish(control(A, 6, JMS_remove="b")))
    h.paused = False
    h.settle()
    assert b.told(cw.Result)[-1].value == 1
    assert NONE not in b.told(cw.StateComes)


def test_who_is_removed_before_it_hears_of_its_state_is_not_told_that_there_is_none() -> None:
    h, a, b = homes()
    a.say(publish(A, 4, 2, G))
    b.say(cw.Control(2, cw.AskState(7, asked(a)[-1].serial)))
    h.paused = True
    granted = cw.Control(3, cw.StateDone(7, asked(a)[-1].serial))
    b.say(granted)
    b.lose()
    h.paused = False
    h.settle()
    a.say(cw.Publish(control(A, 6, JMS_remove="b")))
    again = h.connect(3)
    again.attach(B, 2)
    again.say(granted)
    assert again.told(cw.Result)[-1].value == 1
    assert NONE not in again.told(cw.StateComes)


def test_pieces_are_numbered_from_one() -> None:
    _, a, _ = homes()
    a.say(chunk(asked(a)[0].serial, 0))
    assert a.told(cw.Refused) or a.cut
