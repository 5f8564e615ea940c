"""One Spark for all tests of a run: starting one takes longer than most of them."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from antiphon.spark import session

QUICK = {
    # Half the processor time for jobs that are over before the better compiler would pay; but all
    # that it compiles must fit, and with this compiler alone Java gives it only 48 MB.
    "spark.driver.defaultJavaOptions": (
        "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC"
    ),
    "spark.sql.shuffle.partitions": "1",
}


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    folder = tmp_path_factory.mktemp("spark")
    started = session.start("tests", "local[2]", QUICK | _folders(folder))
    yield started
    started.stop()


def _folders(folder: Path) -> dict[str, str]:
    return {
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }
