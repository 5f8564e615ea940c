"""The detector's promises: bounded patience, reasons, withdrawal, and learning."""

from hypothesis import given
from hypothesis import strategies as st

from antiphon.model.failure_detector import Detector

FLOOR_MS, CEILING_MS = 400, 3000
gaps = st.lists(st.integers(0, 10_000), max_size=30)


def after(gaps: list[int]) -> tuple[Detector[str], int]:
    """A detector that heard from `b` with these gaps in between, and the time."""
    detector: Detector[str] = Detector(FLOOR_MS, CEILING_MS)
    now_ms = 1000
    detector.watch("b", now_ms)
    for gap in gaps:
        now_ms += gap
        detector.heard("b", now_ms)
    return detector, now_ms


@given(gaps)
def test_who_stays_silent_is_suspected_within_the_ceiling(gaps: list[int]) -> None:
    detector, now_ms = after(gaps)
    assert detector.opinion("b", now_ms + CEILING_MS + 1) is not None


@given(gaps)
def test_nobody_is_suspected_before_the_floor(gaps: list[int]) -> None:
    detector, now_ms = after(gaps)
    assert detector.opinion("b", now_ms + FLOOR_MS) is None


@given(gaps)
def test_a_suspicion_begins_when_the_limit_has_passed(gaps: list[int]) -> None:
    detector, now_ms = after(gaps)
    limit_ms = detector.limit_ms("b")
    assert detector.opinion("b", now_ms + limit_ms) is None
    assert detector.opinion("b", now_ms + limit_ms + 1) is not None


@given(gaps, st.integers(1, 10_000))
def test_a_sign_of_life_ends_a_suspicion(gaps: list[int], later: int) -> None:
    detector, now_ms = after(gaps)
    detector.heard("b", now_ms + later)
    assert detector.opinion("b", now_ms + later) is None


@given(gaps, st.integers(1, 10_000))
def test_a_wrong_suspicion_never_makes_it_less_patient(gaps: list[int], more: int) -> None:
    detector, now_ms = after(gaps)
    before = detector.limit_ms("b")
    detector.heard("b", now_ms + before + more)
    assert detector.limit_ms("b") >= before


@given(st.integers(FLOOR_MS, 2000), st.integers(-150, 150))
def test_a_slow_but_steady_link_is_not_suspected(gap: int, jitter: int) -> None:
    detector, now_ms = after([gap, gap + jitter] * 20)
    assert detector.opinion("b", now_ms + gap + abs(jitter)) is None


def test_a_fast_link_is_given_no_more_than_the_floor() -> None:
    detector, now_ms = after([50, 52, 48, 51] * 10)
    assert detector.limit_ms("b") == FLOOR_MS
    assert detector.opinion("b", now_ms + FLOOR_MS + 1) is not None


def test_one_outage_is_forgotten_by_and_by() -> None:
    detector, _ = after([50] * 20 + [100_000] + [50] * 60)
    assert detector.limit_ms("b") == FLOOR_MS


def test_a_suspicion_says_why() -> None:
    detector, now_ms = after([50] * 20)
    case = detector.opinion("b", now_ms + 900)
    assert case is not None
    assert (case.peer, case.silent_ms, case.limit_ms) == ("b", 900, FLOOR_MS)
    assert str(case) == (
        "nothing heard from b for 900 ms; its usual gap is 50 ms ± 0, the limit 400 ms"
    )


def test_to_watch_again_keeps_what_was_learned() -> None:
    detector, now_ms = after([900] * 20)
    learned = detector.limit_ms("b")
    assert learned > FLOOR_MS
    detector.watch("b", now_ms + 50_000)
    assert detector.limit_ms("b") == learned
    assert detector.opinion("b", now_ms + 50_000 + learned) is None


def test_who_is_forgotten_or_unknown_is_not_suspected() -> None:
    detector, now_ms = after([50])
    detector.forget("b")
    assert detector.opinion("b", now_ms + 10_000) is None
    assert detector.limit_ms("b") == FLOOR_MS


def test_who_speaks_unasked_is_watched_from_then_on() -> None:
    detector: Detector[str] = Detector(FLOOR_MS, CEILING_MS)
    detector.heard("b", 0)
    assert detector.opinion("b", FLOOR_MS + 1) is not None
