"""Stamps never go back, run at nearly the speed of the monotonic clock, and start at the wall's."""

from hypothesis import given
from hypothesis import strategies as st

from antiphon.log.clock import SLEW, StampClock

walls = st.integers(-(10**7), 10**7)
passed = st.integers(0, 10**5)
steps = st.lists(st.tuples(passed, walls, st.none() | st.integers(0, 10**7)), max_size=20)


@given(st.integers(0, 10**7), steps)
def test_stamps_never_go_back_whatever_the_clocks_do(last: int, steps: list) -> None:
    clock, now_ms = StampClock(last), 0
    for elapsed, wall_ms, seen in steps:
        now_ms += elapsed
        if seen is not None:
            clock.saw(seen, now_ms)
            assert clock.last >= max(last, seen)
        else:
            foretold = clock.peek(now_ms, wall_ms)
            assert clock.next(now_ms, wall_ms) == foretold
        assert clock.last >= last
        last = clock.last


@given(st.integers(1, 10**7), st.lists(st.tuples(passed, walls), min_size=1, max_size=20))
def test_the_wall_clock_changes_the_speed_by_two_percent_at_most(last: int, steps: list) -> None:
    clock = StampClock(0)
    clock.saw(last, 0)
    now_ms = 0
    for elapsed, wall_ms in steps:
        now_ms += elapsed
        stamp = clock.next(now_ms, wall_ms)
        # Over the whole time, not in each step: what is below a millisecond is not lost.
        assert abs(stamp - last - now_ms) <= now_ms / SLEW + 1


@given(st.integers(1, 10**6), st.integers(-(10**6), 10**6), st.integers(1, 10**4))
def test_the_stamps_come_to_the_wall_clock_and_stay(last: int, ahead_ms: int, step_ms: int) -> None:
    clock = StampClock(0)
    clock.saw(last, 0)
    now_ms = 0
    for step in (SLEW * abs(ahead_ms) + SLEW, step_ms, step_ms):
        now_ms += step
        assert abs(clock.next(now_ms, now_ms + last + ahead_ms) - (now_ms + last + ahead_ms)) <= 1


@given(st.integers(0, 10**7), walls, passed)
def test_a_cold_start_jumps_to_the_wall_clock_but_never_back(
    last: int, wall_ms: int, now_ms: int
) -> None:
    assert StampClock(last).next(now_ms, wall_ms) == max(last, wall_ms)


@given(st.integers(1, 10**6), passed, st.integers(0, 10**5))
def test_a_new_leader_counts_the_time_since_it_saw_the_last_entry(
    last: int, seen_at_ms: int, elapsed: int
) -> None:
    clock = StampClock(0)
    clock.saw(last, seen_at_ms)
    in_time = last + elapsed  # a wall clock that agrees
    assert clock.next(seen_at_ms + elapsed, in_time) == in_time


def test_an_older_entry_does_not_turn_the_clock_back() -> None:
    clock = StampClock(0)
    clock.saw(500, 100)
    clock.saw(400, 200)
    assert clock.next(300, 700) == 700


def test_the_founding_tells_no_time() -> None:
    """Otherwise the first years of a cluster would pass two percent too fast."""
    clock = StampClock(0)
    clock.saw(0, 5)
    assert clock.next(7, 1_790_000_000_000) == 1_790_000_000_000
