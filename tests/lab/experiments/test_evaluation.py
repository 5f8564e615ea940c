"""The figures of a run, by hand."""

from array import array

import pytest

from antiphon.lab.experiments.evaluation import by_run, over_time, with_losses
from antiphon.lab.experiments.load_sources import Source
from antiphon.lab.experiments.processes import Delivered, Done, Run, Sent


def delivered(at: dict[int, float]) -> Delivered:
    """Message -> when this member got it."""
    numbers = array("q", at)
    return Delivered("a", 1, numbers, numbers, array("d", at.values()), 0.0)


def a_run(sent: list[float], *members: dict[int, float]) -> Done:
    run = Run("r", Source(), 1.0)
    return Done(run, Sent(array("d", sent), 0.0), [*map(delivered, members)], 0.0, 0.0, 1, [])


def test_early_is_to_the_first_delivery_and_late_to_the_last() -> None:
    done = a_run([1.0, 2.0], {0: 1.002, 1: 2.004}, {0: 1.001, 1: 2.010})
    assert by_run(done) == pytest.approx(
        {
            "run": "r",
            "messages": 2,
            "deliveries": 4,
            "messages_per_s": 2 / 1.010,
            "early_mean_ms": 2.5,
            "early_p50_ms": 1.0,
            "early_p99_ms": 4.0,
            "late_mean_ms": 6.0,
            "late_p50_ms": 2.0,
            "late_p99_ms": 10.0,
        }
    )


def test_what_arrived_nowhere_has_no_latency_and_is_missed() -> None:
    found = by_run(a_run([1.0, 2.0, 3.0], {0: 1.5, 2: 3.5}, {0: 1.5}))
    assert (found["messages"], found["deliveries"]) == (2, 3)
    assert found["early_p99_ms"] == pytest.approx(500)
    assert with_losses({**found, "sent": 3, "members": 2})["lost"] == 3


def test_rates_over_time_are_of_first_deliveries() -> None:
    done = a_run([10.0] * 3, {0: 10.1, 1: 10.3, 2: 10.8}, {0: 10.2, 1: 10.2, 2: 10.9})
    assert over_time(done, 0.5) == [
        {"at": 10.0, "messages_per_s": 4.0},
        {"at": 10.5, "messages_per_s": 2.0},
    ]
