"""The client's driver, between a conversation and a port that only writes down what it is asked."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from threading import Lock
from typing import Any

import pytest

from antiphon.api.protocol.attaching import Terms
from antiphon.api.protocol.conversation import Conversation
from antiphon.api.protocol.driver import ClientDriver
from antiphon.api.protocol.inbox import Slice
from antiphon.api.protocol.requests import Request
from antiphon.api.protocol.state_transfer import StateEvent
from antiphon.errors import IllegalStateError, JMSError
from antiphon.formats import protocol as cw
from tests.api.protocol.test_conversation import HEARTBEAT_MS, SESSION, TOKEN, a_pack, text


class FakeLink:
    def __init__(self) -> None:
        self.sent: list[cw.Request] = []
        self.closed = False

    def send(self, requests: list[cw.Request]) -> None:
        assert not self.closed
        self.sent += requests

    def close(self) -> None:
        self.closed = True


class FakeReceiver:
    def __init__(self) -> None:
        self.got: list[Any] = []
        self.reports = 0

    def arrive(self, slice_: Slice) -> None:
        self.got.append(slice_.columns.body(slice_.at).decode())  # type: ignore[union-attr]

    def occur(self, event: cw.GroupEvent) -> None:
        self.got.append(event)

    def complete(self) -> None:
        self.got.append("complete")

    def dropped(self, error: JMSError) -> None:
        self.got.append(error)

    def state(self, event: StateEvent) -> None:
        self.got.append(event)

    def report(self) -> None:
        self.reports += 1


class Rig:
    """A driver, its port (this), its clock, and the server's end of its links."""

    def __init__(self, **terms: Any) -> None:
        self.now = 0
        self.wakes = 0
        self.dials: list[tuple[int, str]] = []
        self.stopped = 0
        self.timer: int | None = None
        self.ends: list[JMSError | None] = []
        self.complaints: list[JMSError] = []
        self.notes: list[str] = []
        self.lock = Lock()
        self.conversation = Conversation(SESSION, TOKEN, Random(1), 0, Terms(**terms))
        self.driver = ClientDriver(self.conversation, self.lock, self)

    # -- The port --------------------------------------------------------------------------------

    def wake(self) -> None:
        self.wakes += 1

    def dial(self, attempt: int, address: str) -> str:
        assert not self.lock.locked()
        self.dials.append((attempt, address))
        return address or "a:1"

    def stop_dialling(self) -> None:
        self.stopped += 1

    def set_timer(self, due_ms: int, now_ms: int) -> None:
        assert now_ms == self.now
        self.timer = due_ms

    def cancel_timer(self) -> None:
        self.timer = None

    def over(self, error: JMSError | None) -> None:
        assert not self.lock.locked()
        self.ends.append(error)

    def complain(self, error: JMSError) -> None:
        assert not self.lock.locked()
        self.complaints.append(error)

    def note(self, text: str) -> None:
        self.notes.append(text)

    # -- What happens ----------------------------------------------------------------------------

    def pump(self) -> bool:
        return self.driver.pump(self.now)

    def fire(self) -> None:
        """Wait for the timer."""
        assert self.timer is not None
        self.now = max(self.now, self.timer)
        self.timer = None
        self.driver.timer_fired(self.now)

    def dialled(self) -> int:
        """Wait until it dials; return the attempt's number."""
        self.pump()
        count = len(self.dials)
        while len(self.dials) == count:
            self.fire()
        return self.dials[-1][0]

    def connected(self) -> FakeLink:
        link = FakeLink()
        self.driver.connected(self.dialled(), link, self.now)
        return link

    def answer(self, *answers: cw.Answer) -> None:
        self.driver.arrived(self.driver.attempt, [cw.encode(a) for a in answers], self.now)

    def attached(self) -> FakeLink:
        link = self.connected()
        self.answer(cw.Attached(SESSION, 1, (), (), HEARTBEAT_MS, cw.PACK_MAX))
        assert self.conversation.attached
        return link

    def open_consumer(self, receiver: FakeReceiver) -> int:
        number = self.conversation.next_consumer()
        self.driver.receivers[number] = receiver
        request = self.driver.do(lambda c: c.open_consumer(cw.OpenConsumer(number, "topic:a", 100)))
        self.pump()
        self.answer(cw.Result(request.number))
        return number


@pytest.fixture
def rig() -> Rig:
    return Rig()


def sent(link: FakeLink) -> Sequence[str]:
    return [type(request).__name__ for request in link.sent]


# -- Waking and pumping ---------------------------------------------------------------------------


def test_it_is_woken_once_for_whatever_is_asked_meanwhile(rig: Rig) -> None:
    rig.attached()
    before = rig.wakes
    for _ in range(3):
        rig.driver.do(lambda c: c.request(cw.CreateTemporary("temp-queue:x")))
    assert rig.wakes == before + 1
    rig.pump()
    rig.driver.wake()
    assert rig.wakes == before + 2


def test_what_is_asked_for_while_it_is_pumped_wakes_it_again(rig: Rig) -> None:
    link = rig.attached()
    rig.pump()
    request = rig.driver.do(lambda c: c.request(cw.CreateTemporary("temp-queue:x")))
    request.watch(lambda: rig.driver.do(lambda c: c.request(cw.CreateTemporary("temp-queue:y"))))
    rig.pump()
    answer = cw.encode(cw.Result(request.number))
    rig.driver.do(
        lambda c: c.received(answer, rig.now)
    )  # so that the pump that was asked for tells
    before = rig.wakes
    rig.pump()
    assert rig.wakes == before + 1
    rig.pump()
    assert sent(link)[-2:] == ["Control", "Control"]


def test_nobody_is_called_under_the_lock(rig: Rig) -> None:
    rig.attached()
    held: list[bool] = []
    request = rig.driver.do(lambda c: c.request(cw.CreateTemporary("temp-queue:x")))
    request.watch(lambda: held.append(rig.lock.locked()))
    rig.pump()
    rig.answer(cw.Result(request.number))
    assert held == [False]


def test_pumping_says_whether_there_was_anything(rig: Rig) -> None:
    rig.attached()
    assert not rig.pump()
    rig.driver.do(lambda c: c.request(cw.CreateTemporary("temp-queue:x")))
    assert rig.pump()


# -- The timer ------------------------------------------------------------------------------------


def test_an_earlier_timer_is_left_alone_and_a_later_one_is_moved(rig: Rig) -> None:
    rig.attached()
    rig.pump()
    first = rig.timer
    assert first == rig.now + HEARTBEAT_MS
    rig.now += HEARTBEAT_MS // 2
    rig.answer(cw.Pong())  # the next deadline is later now
    assert rig.timer == first
    rig.driver.acks_wait(FakeReceiver())
    rig.pump()
    assert rig.timer is not None
    assert rig.timer < first
    assert rig.timer < rig.now + HEARTBEAT_MS // 2


def test_when_the_timer_is_due_the_conversation_hears_of_it(rig: Rig) -> None:
    link = rig.attached()
    rig.fire()
    assert sent(link) == ["Attach", "Ping"]


def test_nothing_is_timed_after_the_end(rig: Rig) -> None:
    rig.attached()
    rig.driver.do(Conversation.abandon)
    rig.pump()
    assert rig.timer is None
    assert rig.ends == [None]


# -- Connections ----------------------------------------------------------------------------------


def test_requests_leave_on_the_connection_of_the_moment(rig: Rig) -> None:
    first = rig.attached()
    rig.driver.link_ended(rig.driver.attempt, None, rig.now)
    assert rig.notes == ["no connection: it closed the connection"]
    rig.driver.do(lambda c: c.request(cw.CreateTemporary("temp-queue:x")))
    rig.pump()
    second = rig.attached()
    rig.pump()
    assert sent(first) == ["Attach"]
    assert sent(second) == ["Attach", "Control"]
    assert not first.closed  # it had ended by itself


def test_a_former_connection_is_not_heard(rig: Rig) -> None:
    rig.attached()
    former = rig.driver.attempt
    rig.driver.link_ended(former, None, rig.now)
    rig.attached()
    rig.driver.arrived(former, [cw.encode(cw.Ended("", "it is over"))], rig.now)
    assert rig.conversation.attached
    rig.driver.link_ended(former, OSError("late"), rig.now)
    assert rig.conversation.attached
    rig.driver.dial_failed(former, IllegalStateError("late"), rig.now)
    assert not rig.conversation.over


def test_a_connection_that_comes_too_late_is_closed(rig: Rig) -> None:
    attempt = rig.dialled()
    rig.fire()  # no answer: it gives up this attempt
    assert rig.stopped == 1
    late = FakeLink()
    rig.driver.connected(attempt, late, rig.now)
    assert late.closed
    assert rig.driver.link is None


def test_a_silent_connection_is_closed_and_left(rig: Rig) -> None:
    link = rig.attached()
    while not link.closed:
        rig.fire()
    assert rig.driver.link is None
    assert rig.stopped == 0  # nothing was being dialled
    assert rig.notes == ["hanging up: it has fallen silent"]
    assert rig.attached() is not link


def test_a_failed_attempt_is_followed_by_another(rig: Rig) -> None:
    rig.driver.dial_failed(rig.dialled(), OSError("Connection refused"), rig.now)
    assert rig.attached()


def test_an_error_that_no_attempt_would_escape_ends_the_session(rig: Rig) -> None:
    error = IllegalStateError("the journal is held by another process")
    rig.driver.dial_failed(rig.dialled(), error, rig.now)
    assert rig.ends == [error]
    assert rig.complaints == []  # `connect` raises it
    assert rig.conversation.ready.error is not None


def test_a_redirected_client_dials_the_server_that_it_was_sent_to(rig: Rig) -> None:
    rig.connected()
    rig.answer(cw.Redirect(2, "b:2"))
    rig.dialled()
    assert rig.dials[-1][1] == "b:2"


def test_the_reason_of_a_failure_is_told_with_the_server_s_address() -> None:
    rig = Rig(connect_ms=100)
    rig.driver.dial_failed(rig.dialled(), OSError("Connection refused"), rig.now)
    while not rig.ends:
        rig.fire()
    assert "a:1: Connection refused" in str(rig.ends[0])


def test_a_part_of_something_large_is_a_sign_of_life(rig: Rig) -> None:
    link = rig.attached()
    for _ in range(10):
        rig.now += HEARTBEAT_MS
        rig.driver.arrived(rig.driver.attempt, [], rig.now)
        rig.driver.timer_fired(rig.now)
    assert not link.closed


# -- Receivers ------------------------------------------------------------------------------------


def test_each_receiver_gets_what_is_its_own_in_order(rig: Rig) -> None:
    rig.attached()
    one, two = FakeReceiver(), FakeReceiver()
    first, second = rig.open_consumer(one), rig.open_consumer(two)
    rig.answer(
        cw.Deliver(first, 1, 0, 1, a_pack("topic:a", "a")),
        cw.Deliver(second, 1, 0, 1, a_pack("topic:a", "a")),
        cw.Deliver(first, 2, 0, 1, a_pack("topic:a", "b", sequence=2)),
        cw.Browsed(first),
    )
    assert one.got == ["a", "b", "complete"]
    assert two.got == ["a"]


def test_a_dropped_consumer_is_told_once_and_hears_nothing_more(rig: Rig) -> None:
    rig.attached()
    receiver = FakeReceiver()
    number = rig.open_consumer(receiver)
    rig.answer(cw.ConsumerEnded(number, "IllegalStateError", "too slow"))
    assert [str(e) for e in receiver.got] == ["too slow"]
    assert rig.driver.receivers == {}


def test_gathered_acknowledgements_are_asked_for_once_by_those_who_have_some(rig: Rig) -> None:
    rig.attached()
    has, has_not = FakeReceiver(), FakeReceiver()
    rig.open_consumer(has)
    rig.open_consumer(has_not)
    rig.driver.acks_wait(has)
    rig.driver.acks_wait(has)
    rig.pump()
    assert has.reports == 0
    rig.fire()
    assert (has.reports, has_not.reports) == (1, 0)
    rig.driver.acks_wait(has_not)
    rig.pump()
    rig.fire()
    assert (has.reports, has_not.reports) == (1, 1)


# -- Errors ---------------------------------------------------------------------------------------


def test_the_end_of_a_session_that_was_open_is_reported(rig: Rig) -> None:
    rig.attached()
    rig.answer(cw.Ended("IllegalStateError", "ended by an operator"))
    assert [str(e) for e in rig.ends] == ["ended by an operator"]
    assert rig.complaints == rig.ends


def test_the_end_that_was_asked_for_is_no_error(rig: Rig) -> None:
    rig.attached()
    request: Request = rig.driver.do(lambda c: c.request(cw.CloseSession()))
    rig.pump()
    rig.answer(cw.Result(request.number))
    assert rig.ends == [None]
    assert rig.complaints == []


def test_an_error_that_nobody_looked_at_is_reported(rig: Rig) -> None:
    rig.attached()
    rig.driver.do(lambda c: c.send(c.stream, "topic:a", 0, text("x")) and None)
    rig.pump()
    rig.answer(cw.NotPublished(0, 1, 1, "InvalidDestinationError", "there is no such topic"))
    rig.pump()
    assert [str(e) for e in rig.complaints] == ["there is no such topic"]
