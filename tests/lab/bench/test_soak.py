"""The members' checks during the soak, and a short run of the command."""

import json

import pytest

import antiphon
from antiphon import cli
from antiphon.lab.bench.soak import DOUBLED, LOST, RECONNECTIONS, SUSPICIONS, checked


def look_at(*numbers: int) -> tuple[int, list[int]]:
    """How many bodies come out, and the tally, when messages with these numbers arrive."""
    tally = [0, 0, 0, 0]
    with antiphon.connect("embedded:") as ctx:
        topic, producer = ctx.create_topic("numbers"), ctx.create_producer()
        with ctx.create_consumer(topic) as consumer:
            for number in numbers:
                producer.send(topic, number.to_bytes(8, "big"))
            messages = [consumer.receive(timeout=10) for _ in numbers]
        bodies = list(checked((m for m in messages if m is not None), tally))
    return len(bodies), tally


def test_numbers_that_follow_each_other_are_well() -> None:
    assert look_at(0, 1, 2) == (3, [0, 0, 0, 0])


def test_what_is_lost_is_counted_and_replaced() -> None:
    bodies, tally = look_at(0, 3)
    assert (bodies, tally[LOST], tally[DOUBLED]) == (4, 2, 0)


def test_what_is_doubled_is_counted_and_left_out() -> None:
    bodies, tally = look_at(0, 1, 1, 0, 2)
    assert (bodies, tally[LOST], tally[DOUBLED]) == (3, 0, 2)
    assert (tally[SUSPICIONS], tally[RECONNECTIONS]) == (0, 0)


@pytest.mark.process
def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    line = ["bench", "soak", "--minutes", "0.02", "--storage", "memory", "--json"]
    code = cli.main(line)
    report = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert report["messages"] > 0
    assert (report["lost"], report["doubled"]) == (0, 0)
    names = ("leader_changes", "doubts", "view_changes", "suspicions", "reconnections")
    assert code == (1 if any(report[name] for name in names) else 0)


@pytest.mark.parametrize("minutes", ["0", "-1", "nan", "inf", "long"])
def test_minutes_that_are_none(minutes: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["bench", "soak", f"--minutes={minutes}"])
    assert ended.value.code == 2
    assert "is not a number above 0" in capsys.readouterr().err
