"""Real servers whose journal has lost its end: what they acknowledged is never silently fewer."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from antiphon import cli
from antiphon.server.local_cluster import LocalServer
from tests.process.support.cluster import DESTINATION, Cluster, assert_is_another

pytestmark = pytest.mark.process

SEGMENT = "seg-00000001.log"


def cut(path: Path, _: bytes) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size * 6 // 10])


def zeroed(path: Path, _: bytes) -> None:
    data = path.read_bytes()
    kept = data[: len(data) * 6 // 10]
    path.write_bytes(kept + bytes(len(data) - len(kept)))


def emptied(path: Path, _: bytes) -> None:
    path.write_bytes(b"")


def deleted(path: Path, _: bytes) -> None:
    path.unlink()


def older_copy(path: Path, copy: bytes) -> None:
    path.write_bytes(copy)


Spoil = Callable[[Path, bytes], None]
WAYS: list[Spoil] = [cut, zeroed, emptied, deleted, older_copy]


def publish(cluster: Cluster, first: int, last: int) -> None:
    with cluster.client() as client:
        for number in range(first, last + 1):
            client.publish(DESTINATION, f"message {number}".encode())


def contents(server: LocalServer) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in server.data.iterdir()}


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Cluster, Path, bytes]]:
    """A server that runs alone and was killed, its folder, and its segment as it was earlier."""
    folder = tmp_path_factory.mktemp("one")
    with Cluster(folder, servers=1) as cluster:
        cluster.start()
        publish(cluster, 1, 100)
        copy = (cluster.servers[1].data / SEGMENT).read_bytes()
        publish(cluster, 101, 300)
        cluster.kill(1)
        backup = folder / "backup"
        shutil.copytree(cluster.servers[1].data, backup)
        yield cluster, backup, copy


def restored(server: LocalServer, backup: Path) -> None:
    shutil.rmtree(server.data)
    shutil.copytree(backup, server.data)


@pytest.mark.parametrize("spoil", WAYS)
def test_alone_it_refuses_to_start_and_says_what_is_missing(
    one: tuple[Cluster, Path, bytes], spoil: Spoil, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster, backup, copy = one
    server = cluster.servers[1]
    restored(server, backup)
    spoil(server.data / SEGMENT, copy)
    before = contents(server)
    assert cli.main(["journal", "inspect", str(server.data)]) == 1
    assert f"{SEGMENT!r} is damaged at offset" in capsys.readouterr().out
    server.start(cluster.listed, cluster.storage)
    assert server.process is not None
    assert server.process.wait(20) == 1
    said = server.said().splitlines()[-1]
    assert f"JournalDamagedError: journal file {SEGMENT!r} is damaged at offset " in said
    assert "were on disk once" in said
    assert "Restore a backup of its folder" in said
    assert contents(server) == before


def positions(cluster: Cluster) -> list[int]:
    return [status.position for status in cluster.look().answers.values()]


def test_alone_a_kill_and_a_torn_write_lose_nothing(one: tuple[Cluster, Path, bytes]) -> None:
    cluster, backup, _ = one
    server = cluster.servers[1]
    restored(server, backup)
    with (server.data / SEGMENT).open("ab") as file:
        file.write(b"BTCH, and half a batch that nobody was told of")
    server.start(cluster.listed, cluster.storage)
    server.wait_ready()
    # It leads before it has applied what it found.
    cluster.wait_until(lambda: positions(cluster) == [300], "it has all messages")
    cluster.kill(1)


@pytest.mark.parametrize("spoil", WAYS)
def test_with_others_late_or_behind_it_waits_for_who_has_everything(
    tmp_path: Path, spoil: Spoil
) -> None:
    with Cluster(tmp_path) as cluster:
        cluster.start()
        publish(cluster, 1, 100)
        cluster.wait_whole()
        before = cluster.status_of(1)
        cluster.kill(3)
        copy = (cluster.servers[1].data / SEGMENT).read_bytes()
        publish(cluster, 101, 500)
        cluster.kill(1, 2)
        spoil(cluster.servers[1].data / SEGMENT, copy)
        for node in (1, 3):  # without node 2, which alone has everything
            cluster.servers[node].start(cluster.listed, cluster.storage)
        cluster.wait_until(lambda: is_repaired(cluster, 1), "node 1 knows that it lost something")
        cluster.wait_until(lambda: campaigns(cluster, 3), "node 3 asks for votes")
        assert f"journal file {SEGMENT!r} is damaged at offset" in cluster.servers[1].said()
        assert cluster.look().leader is None
        cluster.servers[2].start(cluster.listed, cluster.storage)
        cluster.wait_whole()
        after = cluster.status_of(1)
        assert_is_another(before, after)
        assert after is not None
        assert after.position == 500


def is_repaired(cluster: Cluster, node: int) -> bool:
    status = cluster.status_of(node)
    return status is not None and any("being repaired" in line for line in status.trouble)


def campaigns(cluster: Cluster, node: int) -> bool:
    status = cluster.status_of(node)
    return status is not None and status.role == "pre-candidate"
