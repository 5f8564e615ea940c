"""When a server is dialled again."""

import pytest

from antiphon.io.rules.redial import JITTER, REDIAL_MAX_S, REDIAL_MIN_S, Redial


def failed(redial: Redial, *, after_s: float = 0.0) -> float:
    redial.began(100.0)
    return redial.pause_s(100.0 + after_s)


def test_each_pause_is_twice_the_one_before_up_to_a_limit() -> None:
    redial = Redial(lambda low, high: 1.0)
    pauses = [failed(redial) for _ in range(8)]
    assert pauses == [min(REDIAL_MIN_S * 2**n, REDIAL_MAX_S) for n in range(8)]
    assert pauses[-1] == REDIAL_MAX_S


@pytest.mark.parametrize(("worked_s", "begins_again"), [(REDIAL_MAX_S, False), (1.1, True)])
def test_a_connection_that_worked_for_a_while_is_dialled_again_soon(
    worked_s: float, begins_again: bool
) -> None:
    redial = Redial(lambda low, high: 1.0)
    for _ in range(8):
        failed(redial)
    assert (failed(redial, after_s=worked_s) == REDIAL_MIN_S) is begins_again


def test_pauses_differ_by_chance_and_do_not_add_up() -> None:
    drawn: list[tuple[float, float]] = []

    def uniform(low: float, high: float) -> float:
        drawn.append((low, high))
        return high

    redial = Redial(uniform)
    assert failed(redial) == REDIAL_MIN_S * JITTER[1]
    assert failed(redial) == 2 * REDIAL_MIN_S * JITTER[1]
    assert drawn == [JITTER, JITTER]


def test_a_failure_is_news_if_it_is_another_one_or_comes_after_a_success() -> None:
    redial = Redial(lambda low, high: 1.0)
    assert redial.is_news("refused")
    assert not redial.is_news("refused")
    assert redial.is_news("no route")
    redial.connected()
    assert redial.is_news("no route")
