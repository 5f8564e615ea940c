"""Signals that come in the middle of work wait for its end, whatever their handlers do."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from antiphon.io.interrupts import SIGNALS, uninterrupted


class AlarmError(Exception):
    pass


@pytest.fixture
def alarm() -> Iterator[None]:
    """A handler of the program's own that raises."""

    def ring(number: int, frame: Any) -> None:
        raise AlarmError

    before = signal.signal(signal.SIGUSR1, ring)
    yield
    signal.signal(signal.SIGUSR1, before)


def interrupted(*signals: int, then: Callable[[], object] = lambda: None) -> list[str]:
    """What was done of work in the middle of which these come, before anything was raised."""
    done = ["begun"]

    def work() -> None:
        for number in signals:
            signal.raise_signal(number)
        done.append("ended")
        then()

    try:
        uninterrupted(work)
    except BaseException as raised:
        done.append(type(raised).__name__)
    return done


def handlers() -> list[Any]:
    return [signal.getsignal(number) for number in SIGNALS]


def test_an_interrupt_comes_after_the_work() -> None:
    before = handlers()
    assert interrupted(signal.SIGINT) == ["begun", "ended", "KeyboardInterrupt"]
    assert handlers() == before


def test_so_does_what_a_program_raises(alarm: None) -> None:
    before = handlers()
    assert interrupted(signal.SIGUSR1) == ["begun", "ended", "AlarmError"]
    assert handlers() == before


def test_none_of_several_is_forgotten(alarm: None) -> None:
    def work() -> None:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGUSR1)

    with pytest.raises((KeyboardInterrupt, AlarmError)) as raised:
        uninterrupted(work)
    both = (raised.value, raised.value.__context__)
    assert {type(one) for one in both} == {KeyboardInterrupt, AlarmError}


def test_work_that_fails_leaves_everything_as_it_was() -> None:
    before = handlers()
    assert interrupted(then=lambda: 1 / 0) == ["begun", "ended", "ZeroDivisionError"]
    assert interrupted(signal.SIGINT, then=lambda: 1 / 0)[-1] == "KeyboardInterrupt"
    assert handlers() == before


def test_a_handler_that_returns_is_called_once() -> None:
    calls: list[int] = []
    before = signal.signal(signal.SIGUSR2, lambda number, frame: calls.append(number))
    try:
        assert interrupted(signal.SIGUSR2) == ["begun", "ended"]
    finally:
        signal.signal(signal.SIGUSR2, before)
    assert calls == [signal.SIGUSR2]


def test_what_has_no_handler_is_left_alone() -> None:
    before = signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    try:
        assert interrupted(signal.SIGUSR1) == ["begun", "ended"]
        assert signal.getsignal(signal.SIGUSR1) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_other_threads_do_without() -> None:
    done: list[str] = []
    thread = threading.Thread(target=lambda: uninterrupted(lambda: done.append("work")))
    thread.start()
    thread.join()
    assert done == ["work"]
