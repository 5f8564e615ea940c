"""Routines are called one at a time, and may wait for what comes behind other events."""

import threading
from collections.abc import Callable

import pytest

from antiphon.toolkits._isis import dispatching
from antiphon.toolkits._isis.dispatching import Dispatcher
from tests.api.support.steps import in_thread

WAIT_S = 10


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatching, "WAITING_MAX", 2)


def test_events_are_handled_in_their_order_though_one_raises(
    caplog: pytest.LogCaptureFixture,
) -> None:
    handled: list[int] = []
    done = threading.Event()

    def handle(item: int) -> None:
        handled.append(item)
        if item == 1:
            raise RuntimeError("planted")
        if item == 9:
            done.set()

    dispatcher = Dispatcher(handle, "a")
    for item in range(10):
        dispatcher.put(item)
    assert done.wait(WAIT_S)
    dispatcher.close()
    assert handled == list(range(10))
    assert "planted" in caplog.text


def test_who_puts_waits_for_room() -> None:
    goes_on, began = threading.Event(), threading.Event()

    def handle(item: int) -> None:
        began.set()
        assert goes_on.wait(WAIT_S)

    dispatcher = Dispatcher(handle, "a")
    dispatcher.put(0)
    assert began.wait(WAIT_S)
    dispatcher.put(1)
    dispatcher.put(2)
    waiting = in_thread(lambda: dispatcher.put(3))
    assert waiting.empty()
    goes_on.set()
    assert waiting.get(timeout=WAIT_S) is None
    dispatcher.close()


def test_while_a_routine_waits_there_is_always_room() -> None:
    here = threading.Event()
    waited = threading.Event()

    def wait(item: Callable[[], object]) -> None:
        item()

    dispatcher: Dispatcher[Callable[[], object]] = Dispatcher(wait, "a")

    def waits_for_a_reply() -> None:
        with dispatcher.waiting():
            assert here.wait(WAIT_S)
        waited.set()

    dispatcher.put(waits_for_a_reply)
    for _ in range(10):
        dispatcher.put(lambda: None)  # before the reply
    here.set()
    assert waited.wait(WAIT_S)
    dispatcher.close()
