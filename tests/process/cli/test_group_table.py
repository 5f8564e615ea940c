"""The replicated table of `examples/replicated_table`: it answers correctly while a replica and a
server are killed."""

import importlib.util
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.process.support.cluster import Cluster

pytestmark = pytest.mark.process

FOLDER = Path(__file__).parents[3] / "examples" / "replicated_table"
NAMES = ("replica-1", "replica-2", "replica-3")


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"table_{name}", FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Replicas:
    """Processes; what they print goes to files."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self._cluster = cluster
        self._folder = folder
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str) -> None:
        with (self._folder / f"{name}.txt").open("ab") as output:
            self._running[name] = subprocess.Popen(
                [sys.executable, "-X", "dev", FOLDER / "replica.py", self._cluster.url, name],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def kill(self, name: str) -> None:
        process = self._running.pop(name)
        process.kill()
        process.wait()

    def end(self, name: str) -> int:
        process = self._running.pop(name)
        process.terminate()
        return process.wait(20)

    def end_all(self) -> None:
        for name in list(self._running):
            self.kill(name)

    def said(self, name: str) -> list[str]:
        path = self._folder / f"{name}.txt"
        return path.read_text().splitlines() if path.exists() else []

    def wait_for(self, name: str, line: str) -> None:
        self._cluster.wait_until(
            lambda: any(line in said for said in self.said(name)),
            f"{name} says {line!r}; it says {self.said(name)}",
        )


@pytest.fixture
def replicas(cluster: Cluster, tmp_path: Path) -> Iterator[Replicas]:
    mine = Replicas(cluster, tmp_path)
    yield mine
    mine.end_all()


class Model:
    """Puts, gets and removes at random, each answer compared with a dict's."""

    def __init__(self, table: Any, seed: int) -> None:
        self._table = table
        self._model: dict[str, str] = {}
        self._chance = random.Random(seed)

    def work(self, count: int) -> None:
        for number in range(count):
            key = f"key-{self._chance.randrange(20)}"
            operation = self._chance.choice(("put", "put", "get", "contains_key", "remove"))
            if operation == "put":
                value = f"{number}"
                assert self._table.put(key, value) == self._model.get(key)
                self._model[key] = value
            elif operation == "get":
                assert self._table.get(key) == self._model.get(key)
            elif operation == "contains_key":
                assert self._table.contains_key(key) == (key in self._model)
            else:
                assert self._table.remove(key) == self._model.pop(key, None)


def test_the_table_answers_while_a_replica_and_a_server_die(
    cluster: Cluster, replicas: Replicas
) -> None:
    replicas.start("replica-1")
    replicas.wait_for("replica-1", "view 1: replica-1")
    with example("client").Table(cluster.url) as table:
        work = Model(table, seed=1).work
        work(50)
        for name in NAMES[1:]:
            replicas.start(name)
            replicas.wait_for(name, "got ")  # the table, by state transfer
        work(50)

        replicas.kill("replica-1")  # the oldest: it is the one who hands out the table
        work(50)
        replicas.wait_for("replica-2", "suspected: ('replica-1',)")
        replicas.wait_for("replica-2", "view 4: replica-2 replica-3")

        leader = cluster.leader()
        cluster.kill(leader)
        work(50)
        replicas.start("replica-1")
        replicas.wait_for("replica-1", "got ")
        work(50)
        cluster.start(leader)
        work(50)

        found = table.compare(*NAMES)
        assert len(set(found.values())) == 1, found
    assert [replicas.end(name) for name in NAMES] == [0, 0, 0]


def test_the_command_of_the_client(cluster: Cluster, replicas: Replicas) -> None:
    def client(*arguments: str) -> tuple[int, str]:
        done = subprocess.run(
            [sys.executable, FOLDER / "client.py", cluster.url, *arguments],
            capture_output=True,
            text=True,
            timeout=50,
        )
        return done.returncode, done.stdout.strip()

    replicas.start("replica-1")
    replicas.wait_for("replica-1", "view 1")
    assert client("put", "Monday", "soup") == (0, "None")
    assert client("contains_key", "Monday") == (0, "True")
    assert client("get", "Monday") == (0, "soup")
    assert client("remove", "Monday") == (0, "soup")
    assert client("compare", "replica-1") == (0, "replica-1: {}")


def test_without_a_replica_there_is_no_answer(cluster: Cluster) -> None:
    with (
        example("client").Table(cluster.url, answer_s=0.1) as table,
        pytest.raises(TimeoutError, match="no replica has answered"),
    ):
        table.get("Monday")
