"""Every test here starts real processes."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.process.support.cluster import Cluster


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Three durable servers, running."""
    with Cluster(tmp_path) as cluster:
        cluster.start()
        yield cluster


@pytest.fixture
def memory_cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path, storage="memory") as cluster:
        cluster.start()
        yield cluster
