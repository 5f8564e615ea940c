"""States between a program and its stack, without sockets, clocks and threads."""

from collections.abc import Sequence
from typing import Any

import pytest

from antiphon.errors import ConnectionLostError, IllegalStateError, ResourceAllocationError
from antiphon.model.peer_views import MemberId, ViewId
from antiphon.peers.channel import driver, inbox
from antiphon.peers.channel.states import StateWanted, TakingOver
from antiphon.peers.layers.layer import Effect, Layer, Tell
from antiphon.peers.layers.state import Arrived, Begins, Ended, HandOut, Outcome, State
from tests.peers.support.channels import Process
from tests.peers.support.replicas import Text
from tests.peers.support.scripted import Scripted

B = MemberId("b", 1)


class Kept:
    """A sink that keeps what is written."""

    def __init__(self) -> None:
        self.data = b""
        self.full = False

    def restart(self) -> None:
        self.data = b""

    def write(self, data: bytes | memoryview) -> None:
        if self.full:
            raise OSError(28, "No space left on device")
        self.data += data


def process(*layers: Layer) -> Process:
    a = Process("a", *(layers or (Scripted(), State())))
    a.install(B)
    a.received()
    return a


def begin(a: Process) -> tuple[TakingOver, Kept]:
    """Have the program ask for a state."""
    sink = Kept()
    taking = a.driver.do(lambda c: c.states.begin(sink))
    a.pump()
    return taking, sink


def tell(a: Process, *events: Any) -> None:
    a.act(*(Tell(event) for event in events))


def place(number: int) -> ViewId:
    return ViewId(number, B)


def test_messages_before_the_place_are_dropped_and_the_rest_comes_behind_the_state() -> None:
    a = process()
    taking, sink = begin(a)
    a.put("in the state")
    a.install(B, MemberId("c", 1))
    a.put("in it, too")
    tell(a, Begins(place(7), B))
    a.put("behind")
    tell(a, Arrived(b"one "), Arrived(b"two"), Ended(Outcome.WHOLE))
    assert taking.ended.done
    assert sink.data == b"one two"
    assert a.conversation.inbox.go_to_state() == []
    a.conversation.end_state(taking)
    assert a.received() == [["a", "b", "c"], "behind"]
    assert a.conversation.inbox.waiting_bytes == 0


def test_what_is_behind_the_place_waits() -> None:
    a = process()
    taking, _ = begin(a)
    a.put("before")
    tell(a, Begins(place(7), B))
    a.put("behind")
    assert a.conversation.inbox.has_next
    assert a.received() == ["before"]
    assert not a.conversation.inbox.has_next
    tell(a, Ended(Outcome.WHOLE))
    assert a.received() == []
    a.conversation.inbox.go_to_state()
    a.conversation.end_state(taking)
    assert a.received() == ["behind"]


def test_an_attempt_that_is_given_up_leaves_no_trace() -> None:
    a = process()
    taking, _ = begin(a)
    a.put("before")
    tell(a, Begins(place(7), B), Arrived(b"half"))
    a.put("behind")
    a.driver.do(lambda c: c.end_state(taking))
    a.pump()
    tell(a, Arrived(b"late"), Begins(place(8), B), Ended(Outcome.WHOLE))
    a.put("later")
    assert a.received() == ["before", "behind", "later"]
    assert not taking.ended.done


def test_a_later_place_counts_and_what_came_before_it_is_dropped() -> None:
    a = process()
    taking, sink = begin(a)
    tell(a, Begins(place(7), B), Arrived(b"half of one"))
    a.put("in the second state")
    tell(a, Begins(place(8), B), Arrived(b"two"))
    a.put("behind")
    tell(a, Ended(Outcome.WHOLE))
    a.conversation.inbox.go_to_state()
    a.conversation.end_state(taking)
    assert sink.data == b"two"
    assert a.received() == ["behind"]


def test_parts_of_an_attempt_that_was_given_up_are_not_the_next_one_s() -> None:
    a = process()
    taking, _ = begin(a)
    tell(a, Begins(place(7), B))
    a.driver.do(lambda c: c.end_state(taking))
    sink = Kept()
    again = a.driver.do(lambda c: c.states.begin(sink))
    # The stack has not heard of this, and goes on with the first one.
    rest = [Tell(Arrived(b"first")), Tell(Ended(Outcome.WHOLE))]
    a.running.act(a.running.layers[0], rest, a.now_ms)
    a.pump()
    assert (again.outcome, sink.data) == (None, b"")
    tell(a, Begins(place(8), B), Arrived(b"second"), Ended(Outcome.WHOLE))
    assert (again.outcome, sink.data) == (Outcome.WHOLE, b"second")


def test_one_state_is_taken_over_at_a_time() -> None:
    a = process()
    begin(a)
    with pytest.raises(IllegalStateError, match="takes over a state already"):
        begin(a)


def test_a_state_that_is_replaced_is_not_handed_out() -> None:
    a = process()
    tell(a, HandOut(place(6)))
    taking, _ = begin(a)
    tell(a, Begins(place(7), B), Ended(Outcome.WHOLE))
    assert a.conversation.inbox.go_to_state() == [place(6)]
    a.conversation.end_state(taking)
    assert a.conversation.take() is None


def test_the_program_hands_out_its_state_behind_what_came_before() -> None:
    a = process()
    a.put("before")
    tell(a, HandOut(place(6)))
    a.put("behind")
    items = [a.conversation.take() for _ in range(3)]
    assert items[1] == StateWanted(place(6))
    source = Text(b"x")
    a.driver.do(lambda c: c.states.hand_out(place(6), source))
    a.pump()
    assert source.closed  # nobody waits for it


def test_who_takes_over_a_large_state_is_not_taken_for_dead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(inbox, "BEHIND_BYTES", 100)
    a = process()
    _, sink = begin(a)
    tell(a, Begins(place(7), B))
    a.put("x" * 200)
    for _ in range(3):
        a.advance(driver.BEHIND_MS - 1)
        tell(a, Arrived(b"part"))
        a.pump()
    assert sink.data == b"part" * 3
    assert not a.conversation.over
    a.advance(driver.BEHIND_MS)
    a.advance(1)
    assert a.conversation.over


def test_a_state_that_finds_no_room_ends_the_attempt_and_nothing_else() -> None:
    a = process()
    taking, sink = begin(a)
    sink.full = True
    tell(a, Begins(place(7), B), Arrived(b"x"), Arrived(b"y"))
    with pytest.raises(ResourceAllocationError, match=r"no room for the state: .*No space"):
        taking.ended.outcome()
    a.driver.do(lambda c: c.end_state(taking))
    a.put("goes on")
    assert a.received() == ["goes on"]


def test_a_lost_state_and_a_lost_channel_are_errors() -> None:
    a = process()
    taking, _ = begin(a)
    tell(a, Ended(Outcome.LOST))
    with pytest.raises(ConnectionLostError, match="the state is lost"):
        taking.ended.outcome()
    b = process()
    taking, _ = begin(b)
    b.driver.fail(ConnectionLostError("planted"))
    with pytest.raises(ConnectionLostError, match="planted"):
        taking.ended.outcome()


class Counting(State):
    """Counts what it is asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []

    def ask(self, now_ms: int) -> Sequence[Effect]:
        self.calls.append("ask")
        return super().ask(now_ms)

    def give_up(self, now_ms: int) -> Sequence[Effect]:
        self.calls.append("give up")
        return super().give_up(now_ms)


def test_the_stack_hears_of_each_attempt_and_of_its_end() -> None:
    a = process(Scripted(), Counting())
    taking, _ = begin(a)
    a.driver.do(lambda c: c.end_state(taking))
    a.pump()
    begin(a)
    layer = a.running.layers[1]
    assert isinstance(layer, Counting)
    assert layer.calls == ["ask", "give up", "ask"]
