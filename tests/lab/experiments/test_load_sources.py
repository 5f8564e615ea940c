"""The messages of an experiment's publishers and their times, with a clock that the test moves."""

from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.lab.experiments import load_sources
from antiphon.lab.experiments.load_sources import BLOCK, Source, emit, number_of


class Clock:
    """Moves by a millisecond whenever it is read."""

    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []

    def monotonic(self) -> float:
        self.now += 0.001
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(load_sources, "time", clock)
    return clock


def no_wait(sent: int, ahead: int) -> None:
    pass


@given(
    sizes=st.lists(st.integers(8, 100), min_size=1, max_size=3).map(tuple),
    switch=st.integers(1, 5),
    count=st.integers(0, 40),
)
def test_bodies_are_numbered_and_have_their_sizes_in_turn(
    sizes: tuple[int, ...], switch: int, count: int
) -> None:
    bodies = list(islice(Source(sizes, switch).bodies(), count))
    assert [number_of(body) for body in bodies] == list(range(count))
    assert [len(body) for body in bodies] == [sizes[n // switch % len(sizes)] for n in range(count)]


def test_a_continuous_source_sends_until_the_time_is_over(clock: Clock) -> None:
    sent: list[bytes] = []
    times = emit(Source((100,)), 0.1, sent.append, no_wait)
    assert [number_of(body) for body in sent] == list(range(len(times)))
    assert len(times) % BLOCK == 0
    assert 0.1 <= times[-1] < 0.1 + 0.001 * BLOCK + 0.002
    assert list(times) == sorted(times)
    assert clock.slept == []


def test_bursts_have_pauses_between_them(clock: Clock) -> None:
    sent: list[bytes] = []
    times = emit(Source((100,), burst=5, pause_s=0.02), 0.1, sent.append, no_wait)
    assert len(sent) == 5 * len(clock.slept)
    assert set(clock.slept) == {0.02}
    gaps = [b - a for a, b in zip(times[4::5], times[5::5], strict=False)]
    assert min(gaps) > 0.02


def test_a_source_looks_at_the_members_before_it_goes_on(clock: Clock) -> None:
    asked: list[tuple[int, int]] = []
    emit(Source((100,)), 0.1, lambda body: None, lambda *what: asked.append(what))
    window = Source((100,)).window
    assert asked == [(BLOCK * n, window) for n in range(len(asked))]


def test_large_messages_have_a_smaller_window() -> None:
    windows = [Source((size,)).window for size in (100, 1000, 10_000, 10_000_000)]
    assert windows == sorted(windows, reverse=True)
    assert windows[-1] > BLOCK
    assert Source((1000, 3000)).window == Source((3000,)).window
