"""The pipeline on two workers, each a process with processes of its own, is the one on one machine:
`local-cluster` is Spark's standalone cluster, with its workers on this machine."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from antiphon.server.local_cluster import LocalCluster
from tests.spark.conftest import QUICK
from tests.spark.support import everything

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

CLUSTER = "local-cluster[2,1,1024]"


def test_a_cluster_of_workers_does_the_same(spark: SparkSession, tmp_path: Path) -> None:
    (servers := tmp_path / "servers").mkdir()
    with LocalCluster(1, servers, "durable") as cluster:
        cluster.start()
        everything.publish(cluster.url, 120)
        cluster.servers[1].kill()  # the next life begins with a segment of its own
        cluster.start()
        everything.publish(cluster.url, 0)
        here, there = (tmp_path / "here", tmp_path / "there")
        journal = cluster.servers[1].data
        expected = everything.results(spark, cluster.url, journal, here)
        assert [len(some) for some in expected.values()][:3] == [120, 120, 50]
        assert len(expected["found"]) >= 3
        assert len(expected["judged"]) >= 20
        assert on_a_cluster(cluster.url, journal, there) == expected


def on_a_cluster(url: str, journal: Path, folder: Path) -> object:
    folder.mkdir()
    settings = QUICK | {
        "spark.executor.defaultJavaOptions": QUICK["spark.driver.defaultJavaOptions"],
        "spark.executor.memory": "1g",
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }
    line = [sys.executable, "-m", "tests.spark.support.everything"]
    line += [url, str(journal), str(folder), CLUSTER, json.dumps(settings)]
    done = subprocess.run(
        line,
        # Workers would write into Spark's own folder.
        env={**os.environ, "SPARK_TESTING": "1", "SPARK_WORKER_DIR": str(folder / "work")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])
