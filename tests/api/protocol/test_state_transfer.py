"""Handing out and taking over states, as the client's side of the protocol sees it."""

import pytest

from antiphon.api.protocol import state_transfer as states
from antiphon.api.protocol.effects import Occurred
from antiphon.api.protocol.state_transfer import Began, Chunk, Handout, Missing, Ready
from antiphon.formats import protocol as cw
from tests.api.protocol.test_conversation import HEARTBEAT_MS, Talk

G = "topic:g"
ME, OTHER = "me", "other"
WINDOW = cw.STATE_WINDOW


def member() -> tuple[Talk, int]:
    talk = Talk()
    talk.attach()
    number = talk.c.next_consumer()
    request = talk.c.join(cw.Join(number, G, 100, ME))
    talk.step()
    talk.answer(cw.Result(request.number))
    return talk, number


def asked(consumer: int, serial: int) -> cw.Happened:
    """This member is to hand out its state."""
    event = cw.GroupEvent(serial, 10 * serial, cw.STATE, 1, (), (OTHER,), (ME,))
    return cw.Happened(consumer, event)


def comes(consumer: int, serial: int) -> cw.StateComes:
    """The other one was asked for the state that this member waits for."""
    return cw.StateComes(consumer, serial, 10 * serial, OTHER)


def none(consumer: int) -> cw.StateComes:
    return cw.StateComes(consumer, 0, 0, "")


def chunk(consumer: int, serial: int, seq: int, last: bool = False) -> cw.StateChunk:
    return cw.StateChunk(consumer, serial, seq, b"%d" % seq, last)


def controls(said: list[cw.Request]) -> list[cw.Body]:
    return [m.body for m in said if isinstance(m, cw.Control)]


def let_pass(talk: Talk, ms: int) -> list[cw.Body]:
    """Time passes with a server that answers; returns what was asked of it."""
    found = []
    for _ in range(0, ms, HEARTBEAT_MS):
        found += controls(talk.step(HEARTBEAT_MS))
        found += controls(talk.answer(cw.Pong()))
    return found


# -- Taking -------------------------------------------------------------------------------------


def test_a_state_is_there_when_the_log_says_that_it_counts() -> None:
    talk, me = member()
    talk.answer(comes(me, 4), chunk(me, 4, 1), chunk(me, 4, 2, last=True))
    assert talk.take(Began) == [Began(me, 4)]
    assert [(p.seq, p.data, p.last) for p in talk.take(Chunk)] == [
        (1, b"1", False),
        (2, b"2", True),
    ]
    assert controls(talk.step()) == []
    talk.c.state_taken(me, 4, 1)
    assert controls(talk.step()) == []
    talk.c.state_taken(me, 4, 2)
    assert controls(talk.step()) == [cw.StateDone(me, 4)]
    assert talk.take(Ready) == []
    talk.answer(cw.Result(2, value=1))
    assert talk.take(Ready) == [Ready(me, 4, 40)]


def test_who_hands_out_meets_the_request_among_its_messages_and_takes_nothing() -> None:
    talk, me = member()
    talk.answer(asked(me, 4))
    assert [e.event for e in talk.take(Occurred)] == [asked(me, 4).event]
    assert talk.take(Began) == []


def test_who_takes_is_not_told_among_its_messages() -> None:
    talk, me = member()
    talk.answer(comes(me, 4))
    assert talk.take(Occurred) == []


def test_what_is_told_again_begins_nothing() -> None:
    """With a new connection all is told again, and a frame may come twice."""
    talk, me = member()
    talk.answer(comes(me, 4), chunk(me, 4, 1), comes(me, 4), comes(me, 3), chunk(me, 4, 2))
    assert talk.take(Began) == [Began(me, 4)]
    assert [p.seq for p in talk.take(Chunk)] == [1, 2]


def test_who_has_its_state_waits_for_no_other() -> None:
    """Also who is removed is told that there is none."""
    talk, me = member()
    talk.answer(comes(me, 4), chunk(me, 4, 1, last=True))
    talk.c.state_taken(me, 4, 1)
    talk.step()
    talk.answer(cw.Result(2, value=1))
    assert len(talk.take(Ready)) == len(talk.take(Began)) == len(talk.take(Chunk)) == 1
    talk.answer(none(me), comes(me, 5), chunk(me, 5, 1), cw.StateFailed(me, 5, ""))
    assert talk.take(Missing) == talk.take(Began) == talk.take(Chunk) == []


def test_who_does_without_gets_none_later() -> None:
    talk, me = member()
    talk.answer(comes(me, 4), none(me), comes(me, 5), none(me), chunk(me, 5, 1))
    assert talk.take(Missing) == [Missing(me, 0)]
    assert talk.take(Began) == [Began(me, 4)]
    assert talk.take(Chunk) == []


def test_nobody_is_told_of_a_state_for_who_is_no_member() -> None:
    talk, me = member()
    talk.answer(comes(me + 1, 4), none(me + 1))
    assert talk.take(Began) == talk.take(Missing) == []
    assert talk.c.attached


def test_an_old_state_is_thrown_away_for_a_new_one() -> None:
    talk, me = member()
    talk.answer(comes(me, 4), chunk(me, 4, 1, last=True))
    talk.c.state_taken(me, 4, 1)
    talk.step()
    talk.answer(comes(me, 6), cw.Result(2, value=0))
    assert talk.take(Ready) == []
    assert [b.serial for b in talk.take(Began)] == [4, 6]
    talk.take(Chunk)
    talk.answer(chunk(me, 4, 1), chunk(me, 6, 1, last=True))
    assert [p.serial for p in talk.take(Chunk)] == [6]
    talk.c.state_taken(me, 4, 1)
    assert controls(talk.step()) == []
    talk.c.state_taken(me, 6, 1)
    talk.step()
    talk.answer(cw.Result(3, value=1))
    assert talk.take(Ready) == [Ready(me, 6, 60)]


def test_pieces_may_come_before_their_request() -> None:
    talk, me = member()
    talk.answer(*(chunk(me, 4, seq) for seq in range(1, WINDOW + 3)))
    assert talk.take(Chunk) == []
    talk.answer(comes(me, 4))
    assert [p.seq for p in talk.take(Chunk)] == list(range(1, WINDOW + 1))


def test_a_piece_that_comes_twice_counts_once() -> None:
    talk, me = member()
    talk.answer(comes(me, 4), chunk(me, 4, 1), chunk(me, 4, 1), chunk(me, 4, 2))
    assert [p.seq for p in talk.take(Chunk)] == [1, 2]


def test_pieces_are_put_into_their_order() -> None:
    talk, me = member()
    said = talk.answer(comes(me, 4), chunk(me, 4, 3), chunk(me, 4, 1))
    assert [p.seq for p in talk.take(Chunk)] == [1]
    said += talk.answer(chunk(me, 4, 4), chunk(me, 4, 2), chunk(me, 4, 3))
    assert [p.seq for p in talk.take(Chunk)] == [2, 3, 4]
    assert controls(said) == []


def test_what_comes_ahead_is_bounded() -> None:
    talk, me = member()
    talk.answer(comes(me, 4), *(chunk(me, 4, seq) for seq in range(3, WINDOW + 9)))
    talk.answer(chunk(me, 4, 2), chunk(me, 4, 1))
    assert [p.seq for p in talk.take(Chunk)] == [1]


def test_a_missing_piece_is_a_reason_to_begin_again() -> None:
    talk, me = member()
    talk.answer(comes(me, 4), chunk(me, 4, 1), chunk(me, 4, 3))
    assert let_pass(talk, states.SILENCE_MS - HEARTBEAT_MS) == []
    talk.answer(chunk(me, 4, 4))
    assert let_pass(talk, HEARTBEAT_MS) == [cw.AskState(me, 4)]
    assert controls(talk.answer(cw.Result(2), chunk(me, 4, 2))) == []
    assert [p.seq for p in talk.take(Chunk)] == [1]


def test_a_provider_that_cannot_is_named_as_such() -> None:
    talk, me = member()
    said = talk.answer(comes(me, 4), cw.StateFailed(me, 4, "no idea"))
    assert controls(said) == [cw.AskState(me, 4, raised=True)]
    assert controls(talk.answer(cw.StateFailed(me, 4, "no idea"))) == []


def test_a_silent_provider_is_passed_over_and_the_next_has_longer() -> None:
    talk, me = member()
    talk.answer(comes(me, 4))
    assert let_pass(talk, states.SILENCE_MS - HEARTBEAT_MS) == []
    talk.answer(chunk(me, 4, 1))
    assert let_pass(talk, states.SILENCE_MS - HEARTBEAT_MS) == []
    assert let_pass(talk, HEARTBEAT_MS) == [cw.AskState(me, 4)]
    talk.answer(cw.Result(2), comes(me, 5))
    assert let_pass(talk, 2 * states.SILENCE_MS - HEARTBEAT_MS) == []
    assert let_pass(talk, HEARTBEAT_MS) == [cw.AskState(me, 5)]


def test_who_has_all_does_not_mind_silence() -> None:
    talk, me = member()
    talk.answer(comes(me, 4), chunk(me, 4, 1, last=True))
    assert let_pass(talk, 2 * states.SILENCE_MS) == []


def test_silence_without_a_connection_is_nobodys_fault() -> None:
    talk, me = member()
    talk.answer(comes(me, 4))
    let_pass(talk, states.SILENCE_MS - HEARTBEAT_MS)
    talk.lose()
    talk.attach()
    assert let_pass(talk, states.SILENCE_MS - HEARTBEAT_MS) == []
    assert let_pass(talk, HEARTBEAT_MS) == [cw.AskState(me, 4)]


def test_the_provider_is_told_of_what_was_taken() -> None:
    talk, me = member()
    talk.answer(comes(me, 4), *(chunk(me, 4, seq) for seq in range(1, WINDOW + 1)))
    told = []
    for seq in range(1, WINDOW + 1):
        talk.c.state_taken(me, 4, seq)
        told += [m.seq for m in talk.step() if isinstance(m, cw.StateTaken)]
    assert told == [4, 8, 12, 16]


@pytest.mark.parametrize("before", [False, True])
def test_the_state_is_lost(before: bool) -> None:
    talk, me = member()
    if before:
        talk.answer(comes(me, 3))
    talk.answer(none(me), chunk(me, 4, 1), chunk(me, 3, 1))
    assert talk.take(Missing) == [Missing(me, 0)]
    assert talk.take(Chunk) == []
    assert let_pass(talk, 2 * states.SILENCE_MS) == []


def test_a_member_that_left_takes_nothing() -> None:
    talk, me = member()
    talk.answer(comes(me, 4))
    talk.c.leave(me)
    talk.step()
    talk.answer(cw.Result(2), chunk(me, 4, 1), cw.StateFailed(me, 4, ""))
    assert talk.take(Chunk) == []
    assert let_pass(talk, 2 * states.SILENCE_MS) == []


# -- Handing out --------------------------------------------------------------------------------


def handing() -> tuple[Talk, int, Handout]:
    talk, me = member()
    talk.answer(asked(me, 4))
    return talk, me, talk.c.hand_out(me, 4)


def hand(talk: Talk, handout: Handout) -> list[cw.Request]:
    """As many chunks as there is room for."""
    while handout.has_room:
        talk.c.hand(handout, b"x", False)
    return talk.step()


def test_a_window_of_pieces_is_on_its_way() -> None:
    talk, me, handout = handing()
    assert handout.room().done
    said = hand(talk, handout)
    assert said == [cw.StateChunk(me, 4, seq, b"x", False) for seq in range(1, WINDOW + 1)]
    room = handout.room()
    assert not room.done
    talk.answer(cw.StateTaken(me, 4, 4))
    assert room.done
    assert len(hand(talk, handout)) == 4
    talk.answer(cw.StateTaken(me, 4, 2))  # an old one
    assert not handout.has_room


def test_the_last_piece_ends_it() -> None:
    talk, me, handout = handing()
    talk.c.hand(handout, b"", True)
    assert talk.step() == [cw.StateChunk(me, 4, 1, b"", True)]
    assert handout.over
    talk.answer(cw.StateTaken(me, 4, 1), cw.StateStopped(me, 4))


def test_nobody_wants_it_any_more() -> None:
    talk, me, handout = handing()
    hand(talk, handout)
    room = handout.room()
    talk.answer(cw.StateStopped(me, 3))
    assert not handout.over
    talk.answer(cw.StateStopped(me, 4))
    assert handout.over
    assert room.done


def test_a_handout_ends_with_its_connection() -> None:
    talk, me, handout = handing()
    hand(talk, handout)
    room = handout.room()
    talk.lose()
    assert handout.over
    assert room.done
    assert talk.c.hand_out(me, 5).over
    talk.attach()
    assert not talk.c.hand_out(me, 6).over


def test_a_handout_ends_with_its_consumer() -> None:
    talk, me, handout = handing()
    talk.c.close_consumer(me)
    assert handout.over


def test_who_cannot_says_so() -> None:
    talk, me, handout = handing()
    talk.c.hand(handout, b"half", False)
    talk.c.cannot_hand_out(handout, "disk on fire")
    assert talk.step()[-1] == cw.StateFailed(me, 4, "disk on fire")
    assert handout.over
    talk.c.cannot_hand_out(handout, "again")
    assert talk.step() == []


def test_what_was_never_sent_was_not_taken() -> None:
    talk, me, _ = handing()
    talk.answer(cw.StateTaken(me, 4, 1))
    assert not talk.c.attached  # that server is left for another one
