"""The programs in `examples/` print what they say they print, with a server inside, with three
outside, and among processes without a server. (The replicated table is a program of several
processes: tests/process.)"""

import ast
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from antiphon.server.local_cluster import LocalCluster
from tests import quick_java
from tests.api.support import backends

FOLDER = Path(__file__).parent.parent / "examples"
ON_SPARK = [FOLDER / "dealing_room.py"]
EXAMPLES = sorted(set(FOLDER.glob("*.py")) - set(ON_SPARK))


@pytest.fixture(params=EXAMPLES, ids=lambda path: path.stem)
def example(request: pytest.FixtureRequest) -> Path:
    path: Path = request.param
    return path


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with LocalCluster(3, tmp_path_factory.mktemp("cluster")) as cluster:
        cluster.start()
        yield cluster.url


@pytest.fixture(scope="module")
def peers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with backends.peers(tmp_path_factory.mktemp("peers")) as backend:
        yield backend.url


def promised(example: Path) -> list[str]:
    """The indented lines of its docstring."""
    tree = ast.parse(example.read_text(encoding="utf-8"))
    text = ast.get_docstring(tree, clean=False) or ""
    return [line.strip() for line in text.splitlines() if line.startswith("    ")]


def printed(example: Path, *arguments: str) -> list[str]:
    with tempfile.TemporaryDirectory() as folder:  # peers of other programs are elsewhere
        done = subprocess.run(
            [sys.executable, "-W", "error", example, *arguments],
            env={**os.environ, "XDG_RUNTIME_DIR": folder},
            capture_output=True,
            text=True,
            timeout=50,
        )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 5
    assert all(promised(example) for example in EXAMPLES + ON_SPARK)


def test_an_example_with_a_server_inside(example: Path) -> None:
    assert printed(example) == promised(example)


WITH_NOTHING = {"chat_gcom"}
"""These have services of their own."""


@pytest.mark.process
@pytest.mark.parametrize(
    "example", [one for one in EXAMPLES if one.stem not in WITH_NOTHING], ids=lambda one: one.stem
)
def test_an_example_with_three_servers(example: Path, url: str) -> None:
    assert printed(example, url) == promised(example)


WITH_SERVERS = {
    "fire_alarm_jgroups",
    "load_balancing",
    "lock_without_server",
    "newsroom_transis",
    "presence",
    "quotes_phoenix",
    "replicated_account",
    "stock_isis",
}
"""These have no server if they get no URL."""


@pytest.mark.process
@pytest.mark.parametrize(
    "example",
    [one for one in EXAMPLES if one.stem not in WITH_SERVERS | WITH_NOTHING],
    ids=lambda one: one.stem,
)
def test_an_example_without_servers(example: Path, peers: str) -> None:
    assert printed(example, peers) == promised(example)


@pytest.mark.spark
@pytest.mark.timeout(240)
@pytest.mark.parametrize("example", ON_SPARK, ids=lambda path: path.stem)
def test_an_example_on_spark(example: Path, url: str) -> None:
    """Spark says this and that on its standard error."""
    environment = {**os.environ, **quick_java.ENVIRONMENT}
    line = [sys.executable, example, url]
    done = subprocess.run(line, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == promised(example)


def test_the_examples_are_typed() -> None:
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", *sorted(FOLDER.rglob("*.py"))],
        capture_output=True,
        text=True,
    )
    assert checked.returncode == 0, checked.stdout
