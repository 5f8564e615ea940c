"""A member's state: cut into chunks, stored until it is whole, and what waits for it meanwhile."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.api.operations import initial_state
from antiphon.api.operations.initial_state import InitialState, handing_out
from antiphon.api.protocol.conversation import Conversation
from antiphon.api.protocol.inbox import Inbox, Slice
from antiphon.api.protocol.state_transfer import Began, Chunk, Missing, Ready
from antiphon.errors import ConnectionLostError
from antiphon.formats import protocol as cw
from antiphon.formats.columns import Columns
from antiphon.formats.protocol import (
    RELATION,
    STATE,
    STATE_CHUNK_MAX,
    STATE_WINDOW,
    VIEW,
    AckRow,
    GroupEvent,
)
from tests.api.protocol.test_conversation import Talk, a_pack
from tests.api.protocol.test_state_transfer import ME, OTHER, asked, member

# -- Chunks -------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 2 * STATE_CHUNK_MAX + 5), max_size=4))
def test_pieces_make_up_the_whole(sizes: list[int]) -> None:
    parts = [bytes([at]) * size for at, size in enumerate(sizes)]
    found = list(initial_state.chunks(iter(parts)))
    assert b"".join(data for data, _ in found) == b"".join(parts)
    assert [last for _, last in found] == [False] * (len(found) - 1) + [True]
    assert all(len(data) <= STATE_CHUNK_MAX for data, _ in found)
    assert all(len(data) == STATE_CHUNK_MAX for data, last in found if not last)
    assert all(data for data, last in found) or not any(sizes)


@pytest.mark.parametrize("whole", [b"", b"x", bytes(3 * STATE_CHUNK_MAX)])
def test_bytes_are_a_state(whole: bytes) -> None:
    assert b"".join(data for data, _ in initial_state.chunks(whole)) == whole


# -- Taking -------------------------------------------------------------------------------------


def chunk(serial: int, seq: int, data: bytes, last: bool = False) -> Chunk:
    return Chunk(1, serial, seq, data, last)


def test_a_state_is_read_from_its_beginning() -> None:
    initial = InitialState(waits=True)
    for event in (Began(1, 4), chunk(4, 1, b"one "), chunk(4, 2, b"two", last=True)):
        initial.take(event)
    assert not initial.known.done
    initial.take(Ready(1, 4, 40))
    assert initial.known.done
    stream = initial.stream()
    assert stream is not None
    assert stream.read() == b"one two"
    initial.close()
    assert stream.closed


def test_what_came_of_an_earlier_state_is_not_in_it() -> None:
    initial = InitialState(waits=True)
    initial.take(Began(1, 4))
    initial.take(chunk(4, 1, b"old"))
    initial.take(Began(1, 6))
    initial.take(chunk(6, 1, b"new", last=True))
    initial.take(Ready(1, 6, 60))
    stream = initial.stream()
    assert stream is not None
    assert stream.read() == b"new"
    initial.close()


def test_who_has_nobody_to_ask_has_no_state() -> None:
    initial = InitialState(waits=False)
    assert initial.stream() is None
    initial.take(Missing(1, 0))  # it was removed
    assert initial.stream() is None


def test_a_state_that_is_lost_is_an_error() -> None:
    initial = InitialState(waits=True)
    initial.take(Began(1, 4))
    initial.take(chunk(4, 1, b"half"))
    initial.take(Missing(1, 0))
    with pytest.raises(ConnectionLostError, match="is lost"):
        initial.stream()


# -- Handing out --------------------------------------------------------------------------------

FULL = bytes(STATE_CHUNK_MAX)


class Wired:
    """A connection, as far as scripts need one."""

    def __init__(self, talk: Talk) -> None:
        self._talk = talk

    def do(self, what: Callable[[Conversation], Any]) -> Any:
        outcome = what(self._talk.c)
        self._talk.step()
        return outcome


def script(
    provider: Callable[[], bytes | Iterable[bytes]],
) -> tuple[Talk, int, Iterator[Any]]:
    talk, me = member()
    request = asked(me, 4)
    talk.answer(request)
    return talk, me, handing_out(Wired(talk), me, request.event, provider)  # type: ignore[arg-type]


def chunks(talk: Talk) -> list[cw.StateChunk]:
    return [m for m in talk.sent if isinstance(m, cw.StateChunk)]


def end_of(running: Iterator[Any]) -> Any:
    with pytest.raises(StopIteration) as ended:
        next(running)
    return ended.value.value


def test_a_small_state_goes_at_once() -> None:
    talk, _, running = script(lambda: b"all of it")
    assert end_of(running) is None
    assert [(c.data, c.last) for c in chunks(talk)] == [(b"all of it", True)]


def test_a_provider_is_asked_for_more_only_when_there_is_room() -> None:
    made = []

    def parts() -> Iterator[bytes]:
        for number in range(3 * STATE_WINDOW):
            made.append(number)
            yield FULL

    talk, me, running = script(parts)
    pause = next(running)
    assert len(chunks(talk)) == STATE_WINDOW
    assert len(made) == STATE_WINDOW + 2  # one is ready to go, and one shows that it is not last
    talk.answer(cw.StateTaken(me, 4, STATE_WINDOW))
    assert pause.ticket.done
    next(running)
    assert len(chunks(talk)) == 2 * STATE_WINDOW
    talk.answer(cw.StateTaken(me, 4, 2 * STATE_WINDOW))
    assert end_of(running) is None
    assert chunks(talk)[-1].last


def test_a_provider_that_raises_is_reported() -> None:
    def parts() -> Iterator[bytes]:
        yield FULL
        yield FULL
        raise RuntimeError("disk on fire")

    talk, _, running = script(parts)
    assert str(end_of(running)) == "disk on fire"
    (failed,) = (m for m in talk.sent if isinstance(m, cw.StateFailed))
    assert failed.reason == "RuntimeError: disk on fire"


def test_a_provider_that_gives_nonsense_is_reported() -> None:
    talk, _, running = script(lambda: ["text"])  # type: ignore[list-item]
    assert isinstance(end_of(running), TypeError)
    assert any(isinstance(m, cw.StateFailed) for m in talk.sent)


def test_who_hands_out_for_nobody_goes_on() -> None:
    talk, me, running = script(lambda: [FULL] * 100)
    pause = next(running)
    talk.answer(cw.StateStopped(me, 4))
    assert pause.ticket.done
    assert end_of(running) is None
    assert len(chunks(talk)) == STATE_WINDOW


def test_nothing_is_made_without_a_connection() -> None:
    talk, _, running = script(lambda: pytest.fail("nobody can have it"))
    talk.lose()
    assert end_of(running) is None


def test_the_spool_is_small() -> None:
    assert initial_state.IN_MEMORY_BYTES <= STATE_WINDOW * STATE_CHUNK_MAX


# -- The inbox ----------------------------------------------------------------------------------


def event(serial: int, kind: int, position: int = 0) -> GroupEvent:
    return GroupEvent(serial, position, kind, serial, (), (OTHER,), (ME,))


def message(position: int) -> Slice:
    return Slice(Columns(a_pack("topic:g", "m")), position, 0, 1, 1)


def joining(*what: GroupEvent | Slice) -> Inbox:
    """Of a member that waits for its state, while this has come."""
    inbox = Inbox(1, False, 100)
    for one in what:
        inbox.arrive(one) if isinstance(one, Slice) else inbox.occur(one)
    inbox.wait_for_state()
    return inbox


def all_taken(inbox: Inbox) -> list[int]:
    """Positions of messages; of events, serials below 0."""
    found = []
    while (taken := inbox.take_for_good()) is not None:
        found.append(taken[0].start + taken[1])
    return found


def test_who_is_asked_for_its_state_handles_nothing_behind_the_request() -> None:
    inbox = Inbox(1, False, 100)
    inbox.occur(event(1, VIEW))
    inbox.occur(event(2, STATE))
    inbox.arrive(message(5))
    assert all_taken(inbox) == [-1]
    assert inbox.request is not None
    inbox.pass_request(2)
    assert all_taken(inbox) == [5]


@pytest.mark.parametrize("serial", [4, 0], ids=["it is here", "there is none"])
def test_messages_and_views_wait_for_the_state(serial: int) -> None:
    inbox = joining(event(1, VIEW), message(5), event(2, VIEW, 5), message(6))
    assert all_taken(inbox) == []
    inbox.arrive(message(7))
    assert all_taken(inbox) == []
    assert inbox.take_rows() == []
    inbox.state_is_known(serial)
    assert all_taken(inbox) == [-1, 5, -2, 6, 7]


def test_no_way_of_taking_leads_around_the_state() -> None:
    inbox = joining(event(1, VIEW), message(5))
    assert inbox.take() is inbox.take_for_good() is inbox.lend() is None
    inbox.state_is_known(4)
    assert inbox.lend() is not None


def test_what_the_application_is_not_told_of_waits_for_the_state_too() -> None:
    """Who has no state must not hand one out."""
    inbox = joining(event(1, RELATION), event(2, STATE), message(5))
    assert all_taken(inbox) == []
    assert inbox.request is None
    assert inbox.take_rows() == []
    inbox.state_is_known(4)
    assert all_taken(inbox) == []
    assert inbox.request is not None
    inbox.pass_request(2)
    assert all_taken(inbox) == [5]


# -- The state is acknowledged ------------------------------------------------------------------


def test_a_state_is_acknowledged_with_what_is_taken_after_it() -> None:
    inbox = joining(message(5), message(6))
    inbox.state_is_known(4)
    assert inbox.take_rows() == []
    assert inbox.take_for_good() is not None
    assert inbox.take_rows() == [AckRow(1, 0, 5, 0, 4)]
    assert inbox.take_for_good() is not None
    assert inbox.take_rows() == [AckRow(1, 0, 6)]  # once is enough


def test_an_event_that_is_taken_after_the_state_acknowledges_it_too() -> None:
    inbox = joining(event(1, VIEW))
    inbox.state_is_known(4)
    assert all_taken(inbox) == [-1]
    assert inbox.take_rows() == [AckRow(1, 0, 0, 1, 4)]


def test_a_state_is_not_acknowledged_before_the_application_asked_for_more() -> None:
    """Until then it may not know that it is there."""
    inbox = Inbox(1, False, 100)
    inbox.occur(event(1, VIEW))
    inbox.occur(event(2, VIEW))
    assert inbox.take() is not None
    assert inbox.take() is not None
    inbox.wait_for_state()
    assert inbox.take() is None  # it has asked too early
    inbox.state_is_known(4)
    assert inbox.acknowledge(-1)
    assert inbox.take_rows() == [AckRow(1, 0, 0, 1)]
    assert inbox.take() is None  # there is no more, but it has asked
    assert inbox.acknowledge(-2)
    assert inbox.take_rows() == [AckRow(1, 0, 0, 2, 4)]


def test_a_message_that_is_only_taken_does_not_acknowledge_the_state() -> None:
    inbox = joining(message(5))
    inbox.state_is_known(4)
    assert inbox.take() is not None
    assert inbox.take_rows() == []
    assert inbox.acknowledge(5)
    assert inbox.take_rows() == [AckRow(1, 0, 5, 0, 4)]


def test_a_loop_acknowledges_the_state_with_the_first_message_that_it_is_done_with() -> None:
    inbox = joining(message(5), message(6))
    inbox.state_is_known(4)
    for position in (5, 6):
        loan = inbox.lend()
        assert loan is not None
        next(loan.indexes)
        assert inbox.call_in(loan) == position
        if position == 5:
            assert inbox.take_rows() == []
            assert inbox.acknowledge(5)
    assert inbox.take_rows() == [AckRow(1, 0, 5, 0, 4)]


@pytest.mark.parametrize("taken", [0, 1])
def test_who_acknowledges_everything_acknowledges_the_state(taken: int) -> None:
    inbox = joining(message(5))
    inbox.acknowledge_all()
    assert inbox.take_rows() == []
    inbox.state_is_known(4)
    for _ in range(taken):
        inbox.take()
    inbox.acknowledge_all()
    assert inbox.take_rows() == [AckRow(1, 0, 5 * taken, 0, 4)]
    inbox.acknowledge_all()
    assert inbox.take_rows() == []


def test_who_does_without_acknowledges_no_state() -> None:
    inbox = joining(message(5))
    inbox.state_is_known()
    assert all_taken(inbox) == [5]
    inbox.acknowledge_all()
    assert inbox.take_rows() == [AckRow(1, 0, 5)]
