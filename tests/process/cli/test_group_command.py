"""`antiphon group` and `antiphon cluster status` show a group of real programs."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import antiphon
from antiphon import cli
from antiphon.blocks import Lock
from tests.process.support.cluster import Cluster
from tests.process.support.log_client import LogClient

pytestmark = pytest.mark.process


def watch(url: str, output: Path, *options: str) -> subprocess.Popen[bytes]:
    with output.open("wb") as file:
        return subprocess.Popen(
            [sys.executable, "-m", "antiphon", "group", url, "accounts", *options],
            stdout=file,
            stderr=subprocess.STDOUT,
        )


def lines(output: Path) -> list[str]:
    return [line for line in output.read_text().splitlines(keepends=True) if line.endswith("\n")]


def test_a_group_is_watched_from_outside(
    memory_cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = memory_cluster.url
    text, objects = tmp_path / "text", tmp_path / "objects"

    def until(condition: Callable[[], object], what: str) -> None:
        memory_cluster.wait_until(lambda: bool(condition()), what)

    def looks() -> list[dict[str, Any]]:
        return [json.loads(line) for line in lines(objects)]

    with antiphon.connect(url) as one:
        a = one.join(one.create_group("accounts"), "a")
        watching = [watch(url, text), watch(url, objects, "--json")]
        try:
            until(lambda: "view 1: a\n" in lines(text), "the first view is shown")
            until(looks, "a first object")
            with antiphon.connect(url) as two, two.join(two.create_group("accounts"), "b"):
                until(lambda: "view 2: a b (b joined)\n" in lines(text), "b is shown")
                for number in range(10):
                    a.multicast(number)
                until(lambda: looks()[-1]["messages"] == 10, "messages are counted")
                assert {m["name"]: m["behind"] for m in looks()[-1]["members"]}["b"] == 10
            until(lambda: "view 3: a (b left)\n" in lines(text), "b has left")
            assert max(found["messages_per_s"] for found in looks()) > 0
            assert cli.main(["cluster", "status", url, "--json"]) == 0
            assert json.loads(capsys.readouterr().out)["groups"] == [
                {"name": "accounts", "view_id": 3, "members": ["a"], "suspects": []}
            ]
            for process in watching:
                process.send_signal(signal.SIGINT)
                assert process.wait(20) == 0
        finally:
            for process in watching:
                process.kill()
                process.wait()


def test_a_group_that_does_not_exist(
    memory_cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["group", memory_cluster.url, "nobody"]) == 1
    assert "there is no group 'nobody'. Groups that exist: none" in capsys.readouterr().err


def test_a_group_is_deleted(memory_cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    url = memory_cluster.url
    with antiphon.connect(url) as ctx:
        ctx.join(ctx.create_group("old"), "a", durable=True).close()
        with ctx.join(ctx.create_group("live"), "b"):
            assert cli.main(["group", url, "live", "--delete"]) == 1
            assert "live members: b" in capsys.readouterr().err
            assert cli.main(["group", url, "old", "--delete"]) == 0
            assert cli.main(["group", url, "old", "--delete"]) == 1
            assert cli.main(["group", url, "live", "--force"]) == 2
            assert [g.name for g in LogClient(url).status().groups] == ["live"]
            assert cli.main(["group", url, "live", "--delete", "--force"]) == 0


def test_locks_that_are_closed_leave_nothing_behind(memory_cluster: Cluster) -> None:
    with antiphon.connect(memory_cluster.url) as ctx:
        for number in range(20):
            with Lock(ctx, f"lock-{number}"):
                pass
        with LogClient(memory_cluster.url) as log:
            log.barrier()
            memory_cluster.wait_until(lambda: log.status().groups == (), "no group is left")
