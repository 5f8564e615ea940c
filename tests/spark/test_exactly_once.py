"""A stream is published exactly once, whoever is killed, at whichever step of a batch."""

from __future__ import annotations

import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import antiphon
from tests.api.backends import one_server
from tests.process.cluster import Cluster
from tests.spark.stepping import STEPS, SteppingSource, go_on, plan, reached
from tests.spark.streams import Reader, add_file, write_files

pytestmark = pytest.mark.spark
ROOT = Path(__file__).parents[2]
WAIT_S = 120.0


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("files", "plan"):
        (tmp_path / name).mkdir()
    return tmp_path


class Program:
    """`stream_program.py`, with all its processes."""

    def __init__(self, url: str, folder: Path) -> None:
        self._log = folder / "program.log"
        with self._log.open("a") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.spark.stream_program", url, str(folder)],
                cwd=ROOT,
                start_new_session=True,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self.group = self._process.pid

    def end(self) -> int:
        code = self._process.wait()
        assert code in (0, -signal.SIGKILL), self._log.read_text()
        return code


@pytest.mark.timeout(600)
def test_killed_drivers_publish_each_batch_once(folder: Path) -> None:
    """Each program goes on where the one before it was killed, and is killed one batch later, one
    step later. Before that, an attempt at a task fails after it has staged its rows."""
    with one_server() as server, antiphon.connect(server.url) as context:
        reader = Reader(context)
        for batch in range(len(STEPS) + 1):
            add_file(folder / "files", batch)
        plan(folder / "plan", "staged", 0, "fail")
        for batch, step in enumerate(STEPS, 1):
            program = Program(server.url, folder)
            plan(folder / "plan", step, batch, f"kill {program.group}")
            assert program.end() == -signal.SIGKILL, step
        assert Program(server.url, folder).end() == 0
        assert not list((folder / "plan").glob("*-?"))  # everything has happened
        reader.check(len(STEPS) + 1)


@pytest.mark.timeout(600)
def test_killed_servers_publish_each_batch_once(spark: SparkSession, folder: Path) -> None:
    """Each server in turn, the leader and those that tasks and driver talk to among them, is killed
    at each step; and the leader once more while a commit is under way."""
    plans = folder / "plan"
    steps = [*STEPS, "committing"]
    for batch, step in enumerate(steps):
        add_file(folder / "files", batch)
        plan(plans, step, batch, "wait")
    spark.dataSource.register(SteppingSource)
    with Cluster(folder / "cluster") as cluster:
        cluster.start()
        with antiphon.connect(cluster.url) as context:
            reader = Reader(context)
            query = write_files(spark, cluster.url, folder)
            try:
                _kill_servers(cluster, plans, steps)
                query.awaitTermination()
            finally:
                query.stop()
            reader.check(len(steps))


def _kill_servers(cluster: Cluster, plans: Path, steps: list[str]) -> None:
    for batch, step in enumerate(steps):
        cluster.wait_until(partial(reached, plans, step, batch), step, WAIT_S)
        if batch < len(STEPS):
            _kill_each(cluster)
            go_on(plans, step, batch)
        else:
            leader = cluster.leader()
            go_on(plans, step, batch)
            cluster.kill(leader)


def _kill_each(cluster: Cluster) -> None:
    for node in cluster.servers:
        cluster.kill(node)
        cluster.start(node)
        cluster.wait_whole(WAIT_S)
