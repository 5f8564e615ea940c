"""A stream is published exactly once, whoever is killed, at whichever step of a batch."""

from __future__ import annotations

import signal
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import antiphon
from tests.api.support.backends import one_server
from tests.process.support.cluster import Cluster
from tests.spark.support.stepping import STEPS, SteppingSource, go_on, plan, reached
from tests.spark.support.streams import Program, Reader, add_file, folders, write_files

pytestmark = pytest.mark.spark
WAIT_S = 120.0


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return folders(tmp_path)


@pytest.mark.timeout(600)
def test_killed_drivers_publish_each_batch_once(folder: Path) -> None:
    """Each program goes on where the one before it was killed, and is killed one batch later, one
    step later. Before that, an attempt at a task fails after it has staged its rows."""
    steps = STEPS[1:]  # to be killed before its rows are staged makes no difference to anybody else
    with one_server() as server, antiphon.connect(server.url) as context:
        reader = Reader(context)
        for batch in range(len(steps) + 1):
            add_file(folder / "files", batch)
        plan(folder / "plan", "staged", 0, "fail")
        for batch, step in enumerate(steps, 1):
            program = Program(server.url, folder)
            plan(folder / "plan", step, batch, f"kill {program.group}")
            assert program.end() == -signal.SIGKILL, step
        assert Program(server.url, folder).end() == 0
        assert not list((folder / "plan").glob("*-?"))  # everything has happened
        reader.check(len(steps) + 1)


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
