"""Events of the group and local calls in one order, with threads that wait."""

from typing import Any

import pytest

from antiphon.errors import ConnectionLostError, IllegalStateError, OutcomeUnknownError
from antiphon.toolkits.jbora import LocalCall
from antiphon.toolkits.jbora.flow import ROOM, Flow
from tests.api.support.steps import heard, in_thread, until

LEFT = IllegalStateError("left", happened="unknown")


def next_call(flow: Flow) -> LocalCall:
    call = flow.take(10)
    assert isinstance(call, LocalCall)
    return call


def test_events_and_calls_have_one_order() -> None:
    flow = Flow()
    flow.put("one")
    answer = in_thread(lambda: flow.call(LocalCall("question"), None))
    until(lambda: len(flow._events) == 2)
    flow.put("two")
    assert flow.take(0) == "one"
    call = next_call(flow)
    assert call.body == "question"
    assert flow.take(0) == "two"
    assert flow.take(0) is None
    flow.respond(call, "answer")
    assert heard(answer, 1) == ["answer"]


def test_each_of_many_threads_gets_its_own_response() -> None:
    flow = Flow()
    waiting = [in_thread(lambda n=n: flow.call(LocalCall(n), None)) for n in range(50)]  # type: ignore[misc]
    calls = [next_call(flow) for _ in waiting]
    for call in sorted(calls, key=lambda call: -call.body):
        flow.respond(call, call.body * 2)
    assert [heard(one, 1) for one in waiting] == [[2 * n] for n in range(50)]


def test_a_call_that_nobody_received_in_time_is_withdrawn() -> None:
    flow = Flow()
    with pytest.raises(OutcomeUnknownError, match=r"within 0.01 s: it was not received") as caught:
        flow.call(LocalCall("x"), 0.01)
    assert caught.value.happened == "no"
    assert flow.take(0) is None


def test_a_call_without_response_in_time_may_have_an_effect() -> None:
    flow = Flow()
    late = in_thread(lambda: flow.call(LocalCall("x"), 0.05))
    call = next_call(flow)
    (error,) = heard(late, 1)
    assert (type(error), error.happened) == (OutcomeUnknownError, "unknown")
    flow.respond(call, "too late")
    with pytest.raises(IllegalStateError, match="has a response already"):
        flow.respond(call, "again")


def test_who_leaves_drops_what_is_there_and_ends_all_calls() -> None:
    flow = Flow()
    calling = in_thread(lambda: flow.call(LocalCall("x"), None))
    until(lambda: bool(flow._events))
    flow.put("one")
    flow.leave(LEFT)
    assert [type(error) for error in heard(calling, 1)] == [IllegalStateError]
    assert flow.take(None) is None
    assert not flow.put("two")
    with pytest.raises(IllegalStateError, match="left"):
        flow.call(LocalCall("x"), None)


def test_whoever_waits_is_woken_by_the_end() -> None:
    for end in (lambda flow: flow.leave(LEFT), lambda flow: flow.lose(ConnectionLostError("gone"))):
        flow = Flow()
        taking: Any = in_thread(lambda flow=flow: flow.take(None))  # type: ignore[misc]
        end(flow)
        (outcome,) = heard(taking, 1)
        assert outcome is None or str(outcome) == "gone"


def test_a_loss_comes_behind_what_came_before() -> None:
    flow = Flow()
    flow.put("one")
    flow.lose(ConnectionLostError("gone"))
    assert flow.take(None) == "one"
    for _ in range(2):
        with pytest.raises(ConnectionLostError, match="gone"):
            flow.take(None)


def test_a_program_that_takes_nothing_holds_up_the_group_but_not_its_own_threads() -> None:
    flow = Flow()
    for number in range(ROOM):
        flow.put(number)
    put = in_thread(lambda: flow.put(ROOM))
    calling = in_thread(lambda: flow.call(LocalCall("x"), None))
    until(lambda: len(flow._events) == ROOM + 1)
    assert put.empty()
    assert flow.take(0) == 0
    assert heard(put, 1) == [True]
    events = [flow.take(0) for _ in range(ROOM + 1)]
    flow.respond(next(one for one in events if isinstance(one, LocalCall)), 1)
    assert heard(calling, 1) == [1]
