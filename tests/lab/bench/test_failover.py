"""How one round becomes figures, and the command with real processes."""

import json

import pytest

from antiphon import cli
from antiphon.lab.bench import failover
from antiphon.lab.bench.failover import Fault, Sent, judge, longest_ms, percentiles

MS = 1_000_000


def arrivals(*ms: int) -> list[tuple[Sent, int]]:
    """Messages 0, 1, 2 ... of client 0, at these times."""
    return [((0, number), at * MS) for number, at in enumerate(ms)]


def test_what_was_over_before_the_fault_does_not_count() -> None:
    spans = [(0, 900 * MS), (900 * MS, 1000 * MS), (1000 * MS, 1002 * MS)]
    assert longest_ms(spans, since=950 * MS) == 100
    assert longest_ms(spans, since=2000 * MS) == 0


def test_percentiles_are_values_that_were_measured() -> None:
    assert percentiles([3.0]) == {"p50": 3.0, "p99": 3.0, "worst": 3.0}
    assert percentiles(float(n) for n in range(1, 201)) == {
        "p50": 100.0,
        "p99": 198.0,
        "worst": 200.0,
    }


def test_the_slowest_client_of_those_elsewhere_counts() -> None:
    sent: set[Sent] = {(0, 0), (0, 1)}
    calls = [[(5 * MS, 7 * MS)], [(5 * MS, 35 * MS)], [(5 * MS, 8 * MS)]]
    got = [arrivals(1, 11), arrivals(1, 61), arrivals(1, 21)]
    found = judge(Fault(True, True), 1, 5 * MS, sent, calls, got)
    assert (found.gap_victim, found.gap_elsewhere) == (60, 20)
    assert (found.send_victim, found.send_elsewhere) == (30, 3)
    assert (found.messages, found.lost, found.doubled) == (2, 0, 0)


def test_what_is_lost_or_doubled_is_counted() -> None:
    sent: set[Sent] = {(0, 0), (0, 1), (0, 2)}
    got = [arrivals(1, 2, 3), [*arrivals(1, 2, 3), ((0, 1), 4 * MS)], arrivals(1)]
    found = judge(Fault(False, True), 0, 0, sent, [[], [], []], got)
    assert (found.lost, found.doubled) == (2, 1)


@pytest.mark.process
@pytest.mark.parametrize(
    ("fault", "storage"),
    [(Fault(leads=True, kills=True), "durable"), (Fault(leads=False, kills=False), "memory")],
)
def test_the_command(
    fault: Fault,
    storage: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(failover, "FAULTS", (fault,))
    monkeypatch.setattr(failover, "PAUSE_S", 0.2)
    monkeypatch.setattr(failover, "SETTLE_S", 0.1)
    line = ["bench", "failover", "--rounds", "2", "--storage", storage, "--json"]
    assert cli.main(line) == 0
    report = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (report["lost"], report["doubled"]) == (0, 0)
    assert report["messages"] > 0
    times = report["faults"][fault.name]
    assert set(times) == {f"{name}_ms" for name in failover.TIMES}
    for figures in times.values():
        assert 0 < figures["p50"] <= figures["p99"] <= figures["worst"]


def test_a_table_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    one = judge(Fault(True, False), 0, 0, set(), [[(0, MS)]] * 3, [arrivals(1, 2)] * 3)
    report = {
        "rounds": 1,
        "storage": "memory",
        "messages": 12_345,
        "lost": 0,
        "doubled": 0,
        "faults": {"leader paused": failover.figures([one])},
    }
    failover._show(report)
    told = capsys.readouterr().out
    assert "leader paused" in told
    assert "12,345 messages, 0 lost, 0 doubled" in told
