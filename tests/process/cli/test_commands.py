"""The commands that start servers themselves."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from antiphon import cli
from antiphon.cli.cluster import look
from antiphon.server.local_cluster import COMMAND
from tests.paste_readme import until
from tests.process.support.cluster import DESTINATION
from tests.process.support.log_client import LogClient

pytestmark = pytest.mark.process


@contextmanager
def up(*arguments: str) -> Iterator[str]:
    """`antiphon cluster up`, as from a terminal; ends with Ctrl-C, and then everything must."""
    process = subprocess.Popen(
        [*COMMAND, "cluster", "up", *arguments],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        url = next(line for line in process.stdout if line.startswith("antiphon://")).strip()
        yield url
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
        assert process.stdout.read() == ""
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_cluster_up_keeps_its_data_though_ports_change(tmp_path: Path) -> None:
    for round_ in range(2):
        with up("3", "--data", str(tmp_path / "kept")) as url:
            with LogClient(url) as client:
                client.publish(DESTINATION, b"one more")
                assert client.barrier() == round_ + 1
            assert len(look(url).answers) == 3
        assert cli.main(["cluster", "status", url, "--json"]) == 1


def test_cluster_up_tells_programs_where_it_is_and_who_has_ended() -> None:
    command = [*COMMAND, "cluster", "up", "1", "--storage", "memory", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            told = json.loads(process.stdout.readline())
            assert told["nodes"] == [{"node": 1, "url": told["url"]}]
            status = look(told["url"]).answers[1]
            os.kill(status.pid, signal.SIGKILL)
            assert json.loads(process.stdout.readline())["ended"] == 1
            assert process.wait(20) == 1
        finally:
            process.kill()


def test_the_demo_ends_well_and_in_time(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where the extra is not installed. (Its report: tests/spark.)"""
    monkeypatch.setitem(sys.modules, "pyspark", None)
    began = time.monotonic()
    assert cli.main(["demo", "--json"]) == 0
    assert time.monotonic() - began < 50
    told = capsys.readouterr().out
    found = json.loads(told.splitlines()[-1])
    assert found["violations"] == []
    assert found["writes"] > 0
    assert "the leader" in told
    assert "replica-1 is suspected; the others remove it" in told
    assert "the three replicas hold the same 100 pairs" in told


def test_the_demo_without_servers_ends_well(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    assert cli.main(["demo", "--peers", "--json"]) == 0
    told = capsys.readouterr().out
    assert json.loads(told.splitlines()[-1])["violations"] == []
    assert "the others remove it" in told
    assert "is cut off; it waits, and the others go on" in told
    assert "is connected again" in told
    assert "the three replicas hold the same 100 pairs" in told
    assert "keep P1 to P5, views and suspicion" in told
    assert "needs Spark: pip install 'antiphon[spark]'" in told


def children(pid: int) -> set[int]:
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended meanwhile
        if int(fields[1]) == pid and fields[0] != "Z":
            found.add(int(stat.parent.name))
    return found


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="it looks at /proc")
@pytest.mark.parametrize("command", [["bench", "latency", "--seconds", "50"], ["demo"], ["chaos"]])
def test_who_terminates_a_command_terminates_what_it_has_started(command: list[str]) -> None:
    process = subprocess.Popen(
        [*COMMAND, *command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        until(lambda: len(children(process.pid)) >= 3, "three servers")
        started = children(process.pid)
        process.terminate()
        assert process.wait(20) == 128 + signal.SIGTERM
        assert not [pid for pid in started if Path(f"/proc/{pid}").exists()]
    finally:
        process.kill()
        process.wait()
