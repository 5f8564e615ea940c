"""One Spark for all tests of a run: starting one takes longer than most of them."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from antiphon.spark import session
from tests import quick_java

QUICK = {
    "spark.driver.defaultJavaOptions": quick_java.OPTIONS,
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
