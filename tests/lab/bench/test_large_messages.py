"""`antiphon bench large`, with small numbers: the command works, and what it counts is there."""

import json

import pytest

from antiphon import cli

pytestmark = pytest.mark.process


def test_small_messages_are_timed_beside_large_ones(capsys: pytest.CaptureFixture[str]) -> None:
    line = "bench large --senders 2 --size-mb 6 --rounds 1 --storage memory --json"
    assert cli.main(line.split()) == 0
    report = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (report["servers"], report["large"], report["large_mb"]) == (3, 2, 6)
    (one,) = report["rounds"]
    assert one["quiet_ms"] > 0
    assert 0 < one["waited_ms"] < 30_000
    assert one["small"] > 0
    assert one["elections"] == 0
    assert one["server_mb"] > 2 * 6
