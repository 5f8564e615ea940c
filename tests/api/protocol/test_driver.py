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


class BareDriver:
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
def bare() -> BareDriver:
    return BareDriver()


def sent(link: FakeLink) -> Sequence[str]:
    return [type(request).__name__ for request in link.sent]


# -- Waking and pumping ---------------------------------------------------------------------------


def test_it_is_woken_once_for_whatever_is_asked_meanwhile(bare: BareDriver) -> None:
    bare.attached()
    before = bare.wakes
    for _ in range(3):
        bare.driver.do(lambda c: c.request(cw.CreateTemporary("temp-queue:x")))
    assert bare.wakes == before + 1
    bare.pump()
    bare.driver.wake()
    assert bare.wakes == before + 2


def test_what_is_asked_for_while_it_is_pumped_wakes_it_again(bare: BareDriver) -> None:
    link = bare.attached()
    bare.pump()
    request = bare.driver.do(lambda c: c.request(cw.CreateTemporary("temp-queue:x")))
    request.watch(lambda: bare.driver.do(lambda c: c.request(cw.CreateTemporary("temp-queue:y"))))
    bare.pump()
    answer = cw.encode(cw.Result(request.number))
    bare.driver.do(
        lambda c: c.received(answer, bare.now)
    )  # so that the pump that was asked for tells
    before = bare.wakes
    bare.pump()
    assert bare.wakes == before + 1
    bare.pump()
    assert sent(link)[-2:] == ["Control", "Control"]


def test_nobody_is_called_under_the_lock(bare: BareDriver) -> None:
    bare.attached()
    held: list[bool] = []
    request = bare.driver.do(lambda c: c.request(cw.CreateTemporary("temp-queue:x")))
    request.watch(lambda: held.append(bare.lock.locked()))
    bare.pump()
    bare.answer(cw.Result(request.number))
    assert held == [False]


def test_pumping_says_whether_there_was_anything(bare: BareDriver) -> None:
    bare.attached()
    assert not bare.pump()
    bare.driver.do(lambda c: c.request(cw.CreateTemporary("temp-queue:x")))
    assert bare.pump()


# -- The timer ------------------------------------------------------------------------------------


def test_an_earlier_timer_is_left_alone_and_a_later_one_is_moved(bare: BareDriver) -> None:
    bare.attached()
    bare.pump()
    first = bare.timer
    assert first == bare.now + HEARTBEAT_MS
    bare.now += HEARTBEAT_MS // 2
    bare.answer(cw.Pong())  # the next deadline is later now
    assert bare.timer == first
    bare.driver.acks_wait(FakeReceiver())
    bare.pump()
    assert bare.timer is not None
    assert bare.timer < first
    assert bare.timer < bare.now + HEARTBEAT_MS // 2


def test_when_the_timer_is_due_the_conversation_hears_of_it(bare: BareDriver) -> None:
    link = bare.attached()
    bare.fire()
    assert sent(link) == ["Attach", "Ping"]


def test_nothing_is_timed_after_the_end(bare: BareDriver) -> None:
    bare.attached()
    bare.driver.do(Conversation.abandon)
    bare.pump()
    assert bare.timer is None
    assert bare.ends == [None]


# -- Connections ----------------------------------------------------------------------------------


def test_requests_leave_on_the_connection_of_the_moment(bare: BareDriver) -> None:
    first = bare.attached()
    bare.driver.link_ended(bare.driver.attempt, None, bare.now)
    assert bare.notes == ["no connection: it closed the connection"]
    bare.driver.do(lambda c: c.request(cw.CreateTemporary("temp-queue:x")))
    bare.pump()
    second = bare.attached()
    bare.pump()
    assert sent(first) == ["Attach"]
    assert sent(second) == ["Attach", "Control"]
    assert not first.closed  # it had ended by itself


def test_a_former_connection_is_not_heard(bare: BareDriver) -> None:
    bare.attached()
    former = bare.driver.attempt
    bare.driver.link_ended(former, None, bare.now)
    bare.attached()
    bare.driver.arrived(former, [cw.encode(cw.Ended("", "it is over"))], bare.now)
    assert bare.conversation.attached
    bare.driver.link_ended(former, OSError("late"), bare.now)
    assert bare.conversation.attached
    bare.driver.dial_failed(former, IllegalStateError("late"), bare.now)
    assert not bare.conversation.over


def test_a_connection_that_comes_too_late_is_closed(bare: BareDriver) -> None:
    attempt = bare.dialled()
    bare.fire()  # no answer: it gives up this attempt
    assert bare.stopped == 1
    late = FakeLink()
    bare.driver.connected(attempt, late, bare.now)
    assert late.closed
    assert bare.driver.link is None


def test_a_silent_connection_is_closed_and_left(bare: BareDriver) -> None:
    link = bare.attached()
    while not link.closed:
        bare.fire()
    assert bare.driver.link is None
    assert bare.stopped == 0  # nothing was being dialled
    assert bare.notes == ["hanging up: it has fallen silent"]
    assert bare.attached() is not link


def test_a_failed_attempt_is_followed_by_another(bare: BareDriver) -> None:
    bare.driver.dial_failed(bare.dialled(), OSError("Connection refused"), bare.now)
    assert bare.attached()


def test_an_error_that_no_attempt_would_escape_ends_the_session(bare: BareDriver) -> None:
    error = IllegalStateError("the journal is held by another process")
    bare.driver.dial_failed(bare.dialled(), error, bare.now)
    assert bare.ends == [error]
    assert bare.complaints == []  # `connect` raises it
    assert bare.conversation.ready.error is not None


def test_a_redirected_client_dials_the_server_that_it_was_sent_to(bare: BareDriver) -> None:
    bare.connected()
    bare.answer(cw.Redirect(2, "b:2"))
    bare.dialled()
    assert bare.dials[-1][1] == "b:2"


def test_the_reason_of_a_failure_is_told_with_the_server_s_address() -> None:
    bare = BareDriver(connect_ms=100)
    bare.driver.dial_failed(bare.dialled(), OSError("Connection refused"), bare.now)
    while not bare.ends:
        bare.fire()
    assert "a:1: Connection refused" in str(bare.ends[0])


def test_a_part_of_something_large_is_a_sign_of_life(bare: BareDriver) -> None:
    link = bare.attached()
    for _ in range(10):
        bare.now += HEARTBEAT_MS
        bare.driver.arrived(bare.driver.attempt, [], bare.now)
        bare.driver.timer_fired(bare.now)
    assert not link.closed


# -- Receivers ------------------------------------------------------------------------------------


def test_each_receiver_gets_what_is_its_own_in_order(bare: BareDriver) -> None:
    bare.attached()
    one, two = FakeReceiver(), FakeReceiver()
    first, second = bare.open_consumer(one), bare.open_consumer(two)
    bare.answer(
        cw.Deliver(first, 1, 0, 1, a_pack("topic:a", "a")),
        cw.Deliver(second, 1, 0, 1, a_pack("topic:a", "a")),
        cw.Deliver(first, 2, 0, 1, a_pack("topic:a", "b", sequence=2)),
        cw.Browsed(first),
    )
    assert one.got == ["a", "b", "complete"]
    assert two.got == ["a"]


def test_a_dropped_consumer_is_told_once_and_hears_nothing_more(bare: BareDriver) -> None:
    bare.attached()
    receiver = FakeReceiver()
    number = bare.open_consumer(receiver)
    bare.answer(cw.ConsumerEnded(number, "IllegalStateError", "too slow"))
    assert [str(e) for e in receiver.got] == ["too slow"]
    assert bare.driver.receivers == {}


def test_gathered_acknowledgements_are_asked_for_once_by_those_who_have_some(
    bare: BareDriver,
) -> None:
    bare.attached()
    has, has_not = FakeReceiver(), FakeReceiver()
    bare.open_consumer(has)
    bare.open_consumer(has_not)
    bare.driver.acks_wait(has)
    bare.driver.acks_wait(has)
    bare.pump()
    assert has.reports == 0
    bare.fire()
    assert (has.reports, has_not.reports) == (1, 0)
    bare.driver.acks_wait(has_not)
    bare.pump()
    bare.fire()
    assert (has.reports, has_not.reports) == (1, 1)


# -- Errors ---------------------------------------------------------------------------------------


def test_the_end_of_a_session_that_was_open_is_reported(bare: BareDriver) -> None:
    bare.attached()
    bare.answer(cw.Ended("IllegalStateError", "ended by an operator"))
    assert [str(e) for e in bare.ends] == ["ended by an operator"]
    assert bare.complaints == bare.ends


def test_the_end_that_was_asked_for_is_no_error(bare: BareDriver) -> None:
    bare.attached()
    request: Request = bare.driver.do(lambda c: c.request(cw.CloseSession()))
    bare.pump()
    bare.answer(cw.Result(request.number))
    assert bare.ends == [None]
    assert bare.complaints == []


def test_an_error_that_nobody_looked_at_is_reported(bare: BareDriver) -> None:
    bare.attached()
    bare.driver.do(lambda c: c.send(c.stream, "topic:a", 0, text("x")) and None)
    bare.pump()
    bare.answer(cw.NotPublished(0, 1, 1, "InvalidDestinationError", "there is no such topic"))
    bare.pump()
    assert [str(e) for e in bare.complaints] == ["there is no such topic"]
