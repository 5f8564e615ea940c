"""The course of the faults of a chaos run."""

from collections.abc import Callable

import pytest

from antiphon.lab.chaos import command
from antiphon.lab.chaos.plan import Fault, Undo


class Clock:
    """Stands for the module `time`; only `sleep` lets time pass."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        assert seconds >= 0
        self.now_s += seconds


def test_faults_begin_and_end_at_their_times_and_those_that_last_are_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock()
    monkeypatch.setattr(command, "time", clock)
    course: list[tuple[str, float]] = []

    def note(what: str) -> Undo:
        return lambda: course.append((what, clock.now_s - 100))

    def inject(fault: Fault) -> Undo | None:
        note(fault.kind)()
        return note(f"end of {fault.kind}") if fault.kind != "impossible" else None

    plan = [
        Fault(at_s, kind, 0.0, False, for_s)
        for at_s, kind, for_s in ((1, "long", 9), (2, "short", 2), (3, "impossible", 1))
    ]
    command.strike(plan, 8, inject)
    assert course == [("long", 1), ("short", 2), ("impossible", 3), ("end of short", 4)]
    assert clock.now_s == 108


def test_a_fault_that_took_a_while_to_begin_lasts_as_long_as_planned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock()
    monkeypatch.setattr(command, "time", clock)
    ended: list[float] = []

    def inject(_: Fault) -> Callable[[], None]:
        clock.sleep(2)
        return lambda: ended.append(clock.now_s - 100)

    command.strike([Fault(1, "kill", 0.0, False, 3)], 8, inject)
    assert ended == [6]
